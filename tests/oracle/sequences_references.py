"""Reference variables as operands of control flow: in TensorFlow, a read through an Identity shares
the variable's memory, also inside branches and loops. Each step runs several times,
so that it's compiled.
"""

import collections

from tests.oracle.cases_functions import made_by
from tests.oracle.sequences import sequence

RUNS = 3


def variable(tf, value, name=None, dtype=None):
    return tf.Variable(value, name=name, dtype=dtype, use_resource=False)


def ref(v):
    """The reference itself."""
    return v.op.outputs[0]


def after(tf, operation, function):
    with tf.control_dependencies([operation]):
        return function()


def repeat(tf, run, fetches, *more):
    """Run a step several times, and read variables after each run."""
    run(tf.group(*[v.initializer for v in tf.global_variables()]))
    for _ in range(RUNS):
        run(fetches)
        for v in tf.global_variables():
            run(v)
        for feed_dict in more:
            run(fetches, feed_dict)


# -- Predicates ------------------------------------------------------------------------------------


READS = {
    "variable": lambda tf, b: b,
    "value": lambda tf, b: b.value(),
    "read_value": lambda tf, b: b.read_value(),
    "identity": lambda tf, b: tf.identity(b),
    "twice": lambda tf, b: tf.identity(tf.identity(b)),
    "reference": lambda tf, b: ref(b),
    "assigned": lambda tf, b: tf.assign(b, tf.logical_not(b)),
    "logical_not": lambda tf, b: tf.logical_not(b),
    "stopped": lambda tf, b: tf.stop_gradient(tf.cast(b, tf.int32)) > 0,
}


def predicates(name):
    def check(tf, run):
        b = variable(tf, False, "b")
        x = tf.constant(3.0)
        chosen = tf.cond(READS[name](tf, b), lambda: x + 10.0, lambda: x + 20.0)
        constants = tf.cond(READS[name](tf, b), lambda: 10, lambda: 20)
        run(b.initializer)
        for value in (False, True, False):
            run(tf.assign(b, value))
            for _ in range(RUNS):
                run(chosen)
                run(constants)
                run(b)

    check.__name__ = "predicate_" + name
    return sequence(check)


for name in sorted(READS):
    predicates(name)


@sequence
def predicate_of_switch(tf, run):
    b = variable(tf, False, "b")
    x = tf.constant(3.0)
    found = []
    for pred in (b, ref(b), b.read_value(), tf.identity(b)):
        f, t = tf.raw_ops.Switch(data=x, pred=pred)
        found.append(tf.raw_ops.Merge(inputs=[f + 1.0, t * 100.0]))
        f, t = tf.raw_ops.RefSwitch(data=ref(b), pred=pred)
        found.append(tf.raw_ops.RefMerge(inputs=[f, t]))
    run(b.initializer)
    for value in (False, True, False):
        run(tf.assign(b, value))
        for _ in range(RUNS):
            run([list(pair) for pair in found])


@sequence
def predicate_that_its_branch_writes(tf, run):
    b = variable(tf, True, "b")
    c = tf.cond(b, lambda: tf.assign(b, False), lambda: tf.constant(True))
    run(b.initializer)
    for _ in range(RUNS):
        run(c)
        run(b)
    for value in (True, False, True):
        run(tf.assign(b, value))
        run(c)
        run(b)


@sequence
def predicate_after_a_write(tf, run):
    b = variable(tf, False, "b")
    to = tf.placeholder(tf.bool, [])
    x = tf.constant(1.0)
    copy = b.value()
    with tf.control_dependencies([copy]):
        write = tf.assign(b, to)
    with tf.control_dependencies([write]):
        found = [
            tf.cond(b, lambda: x + 1.0, lambda: x + 2.0),
            tf.cond(copy, lambda: x + 3.0, lambda: x + 4.0),
            tf.cond(b, lambda: 5, lambda: 6),
            tf.cond(tf.logical_not(copy), lambda: x, lambda: -x),
        ]
    run(b.initializer)
    for value in (True, False, False, True, True):
        run(found, {to: value})


@sequence
def predicate_of_a_case(tf, run):
    b, c = variable(tf, False, "b"), variable(tf, True, "c")
    run.attempt(lambda: tf.case([(b, lambda: 1)], default=lambda: 3))
    found = tf.case([(b.value(), lambda: 1), (c.read_value(), lambda: 2)], default=lambda: 3)
    run(tf.group(b.initializer, c.initializer))
    for first, second in ((False, True), (True, False), (False, False), (False, True)):
        run([tf.assign(b, first), tf.assign(c, second)])
        run(found)
        run(found)


@sequence
def predicate_of_an_assertion(tf, run):
    b = variable(tf, False, "b")
    with tf.control_dependencies([tf.Assert(b, [b, tf.constant("what")])]):
        found = tf.constant(1) + 1
    checked = tf.cond(b, lambda: 1, lambda: 2)
    run(b.initializer)
    for value in (False, True, False):
        run(tf.assign(b, value))
        run(found)
        run(checked)


@sequence
def predicate_numbers(tf, run):
    v = variable(tf, 1.0, "v")
    found = tf.cond(v < 3.0, lambda: tf.assign_add(v, 1.0), lambda: tf.assign(v, 0.0))
    repeat(tf, run, found)


@sequence
def select_by_reference(tf, run):
    b, x = variable(tf, [False, True], "b"), variable(tf, [1.0, 2.0], "x")
    i = variable(tf, 1, "i")
    chosen = tf.raw_ops.RefSelect(index=i, inputs=[ref(x), ref(variable(tf, [8.0, 9.0], "y"))])
    written = tf.assign_add(chosen, [1.0, 1.0])
    run(tf.group(*[v.initializer for v in tf.global_variables()]))
    for _ in range(RUNS):
        run([tf.where(b, x, -x), chosen])
        run(written)
        run(tf.global_variables())
        run(tf.assign(i, 1 - i))
    same = tf.raw_ops.RefIdentity(input=ref(x))
    run(same)
    run(tf.assign_sub(same, [3.0, 3.0]))
    run([same, x])


# -- What branches read and write ------------------------------------------------------------------


@sequence
def branch_writes_then_reads(tf, run):
    p = tf.placeholder_with_default(True, [])
    v = variable(tf, 1.0, "v")

    def write():
        a = tf.assign_add(v, 2.0)
        return after(tf, a, lambda: v * 10.0)

    def again():
        a = tf.assign(v, v * 3.0)
        return after(tf, a, lambda: tf.identity(v) + v.value() + v.read_value())

    repeat(tf, run, tf.cond(p, write, again), {p: False})


@sequence
def branch_after_a_write(tf, run):
    p = tf.placeholder_with_default(True, [])
    v = variable(tf, 1.0, "v")
    copy = v.value()
    with tf.control_dependencies([copy]):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = tf.cond(p, lambda: copy * 10.0, lambda: copy * 100.0)
        outer = tf.cond(p, lambda: copy, lambda: -copy)
    repeat(tf, run, [found, outer], {p: False})


@sequence
def branch_reads_what_another_wrote(tf, run):
    p = tf.placeholder_with_default(True, [])
    q = tf.placeholder_with_default(True, [])
    v = variable(tf, 1.0, "v")
    first = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.assign_add(v, 10.0))
    with tf.control_dependencies([first]):
        second = tf.cond(q, lambda: v * 1.0, lambda: -v)
        nested = tf.cond(p, lambda: tf.cond(q, lambda: v + 0.5, lambda: v - 0.5), lambda: v * 2.0)
    repeat(tf, run, [second, nested], {p: False}, {q: False}, {p: False, q: False})


@sequence
def branch_results_that_are_references(tf, run):
    p = tf.placeholder_with_default(True, [])
    v, w = variable(tf, 1.0, "v"), variable(tf, 5.0, "w")
    both = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: tf.assign_add(w, 1.0))
    run.note(both.dtype._is_ref_dtype)
    run.note(both.op.type)
    one = tf.cond(p, lambda: tf.assign_add(v, 1.0), lambda: w)
    run.note(one.dtype._is_ref_dtype)
    run.note(one.op.type)
    repeat(tf, run, both, {p: False})
    repeat(tf, run, one, {p: False})
    written = tf.assign_add(both, 100.0)
    repeat(tf, run, written, {p: False})


@sequence
def branch_result_used_after_a_write(tf, run):
    p = tf.placeholder_with_default(True, [])
    v = variable(tf, 1.0, "v")
    copy = tf.cond(p, lambda: tf.identity(v), lambda: tf.constant(7.0))
    both = tf.cond(p, lambda: tf.identity(v), lambda: v.value())
    with tf.control_dependencies([copy, both]):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = [copy * 1.0, both * 1.0]
    repeat(tf, run, found, {p: False})


@sequence
def operations_of_branches(tf, run):
    p = tf.placeholder_with_default(True, [])
    v = variable(tf, 1.0, "v")
    done = tf.cond(p, lambda: tf.group(tf.assign_add(v, 1.0)), lambda: tf.no_op())
    with tf.control_dependencies([done]):
        found = v + 0.0
    repeat(tf, run, found, {p: False})


@sequence
def references_through_primitives(tf, run):
    p = tf.placeholder_with_default(True, [])
    v, w = variable(tf, 1.0, "v"), variable(tf, 5.0, "w")
    f, t = tf.raw_ops.RefSwitch(data=ref(v), pred=p)
    merged, index = tf.raw_ops.RefMerge(inputs=[tf.assign_add(f, 10.0), tf.assign_add(t, 1.0)])
    repeat(tf, run, [merged, index], {p: False})
    f, t = tf.raw_ops.Switch(data=ref(v), pred=p)
    merged, index = tf.raw_ops.Merge(inputs=[f, t])
    with tf.control_dependencies([merged]):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = merged * 10.0
    repeat(tf, run, [found, index], {p: False})
    merged, index = tf.raw_ops.Merge(inputs=[tf.raw_ops.Switch(data=ref(v), pred=p)[0], ref(w)])
    repeat(tf, run, index, {p: True})


# -- Loops -----------------------------------------------------------------------------------------


@sequence
def loop_adds_to_what_it_reads(tf, run):
    v = variable(tf, 0.0, "v")

    def body(i):
        a = tf.assign(v, v + 1.0)
        return after(tf, a, lambda: tf.identity(i + 1))

    repeat(tf, run, tf.while_loop(lambda i: i < 5, body, [0]))


@sequence
def loop_until_a_variable_is_large(tf, run):
    v = variable(tf, 0, "v")

    def body(i):
        return after(tf, tf.assign_add(v, 1), lambda: i + 1)

    repeat(tf, run, tf.while_loop(lambda i: tf.less(v, 3), body, [0]))
    run(tf.assign(v, -2))
    run(tf.while_loop(lambda i: tf.less(v.value(), 3), body, [0]))
    run(tf.assign(v, -2))
    run(tf.while_loop(lambda i: tf.less(v.read_value(), 3), body, [0]))


@sequence
def loop_until_a_flag_is_cleared(tf, run):
    b, v = variable(tf, True, "b"), variable(tf, 0, "v")

    def body(i):
        a = tf.assign_add(v, 1)
        c = after(tf, a, lambda: tf.assign(b, v < 4))
        return after(tf, c, lambda: i + 1)

    repeat(tf, run, tf.while_loop(lambda i: b, body, [0]))
    run(tf.assign(b, True))
    run(tf.while_loop(lambda i: b.read_value(), body, [0]))
    run(v)


@sequence
def loop_with_a_branch_that_writes(tf, run):
    v = variable(tf, 2.0, "v")
    p = tf.placeholder_with_default(True, [])

    def body(i):
        c = tf.cond(p, lambda: tf.assign(v, tf.square(v)), lambda: v)
        return after(tf, c, lambda: i + 1)

    r = tf.while_loop(lambda i: i < 4, body, [tf.constant(0)])
    run(v.initializer)
    run(r)
    run(v)
    run(r, {p: False})
    run(v)
    run(v.initializer)
    run(r, {p: False})
    run(r)
    run(v)


@sequence
def loop_that_trains(tf, run):
    w = variable(tf, [1.0, 2.0], "w")

    def body(i, total):
        loss = tf.reduce_sum(tf.square(w))
        with tf.control_dependencies([loss]):
            a = tf.assign_sub(w, 0.1 * (2.0 * w))
        return after(tf, a, lambda: (i + 1, total + tf.reduce_sum(w)))

    repeat(tf, run, tf.while_loop(lambda i, t: i < 3, body, [0, 0.0], parallel_iterations=1))


@sequence
def loop_with_several_writes(tf, run):
    v, w = variable(tf, 1.0, "v"), variable(tf, 2.0, "w")

    def body(i):
        a = tf.assign_add(v, w)
        b = after(tf, a, lambda: tf.assign_add(w, v))
        c = after(tf, b, lambda: tf.assign_add(v, w * 0.5))
        return after(tf, c, lambda: i + 1)

    repeat(tf, run, tf.while_loop(lambda i: i < 3, body, [0]))


@sequence
def loop_inside_a_loop(tf, run):
    v = variable(tf, 0.0, "v")

    def inner(j):
        return after(tf, tf.assign_add(v, v + 1.0), lambda: j + 1)

    def body(i):
        r = tf.while_loop(lambda j: j < 2, inner, [0])
        c = after(tf, r, lambda: tf.assign(v, v * 2.0))
        return after(tf, c, lambda: i + 1)

    repeat(tf, run, tf.while_loop(lambda i: i < 3, body, [0]))


@sequence
def loop_inside_a_branch(tf, run):
    v = variable(tf, 0.0, "v")
    p = tf.placeholder_with_default(True, [])

    def body(j):
        return after(tf, tf.assign_add(v, v + 1.0), lambda: j + 1)

    found = tf.cond(p, lambda: tf.while_loop(lambda j: j < 3, body, [0]), lambda: 7)
    with tf.control_dependencies([found]):
        found = [found, v * 1.0]
    repeat(tf, run, found, {p: False})


@sequence
def loop_variable_that_starts_as_a_variable(tf, run):
    v = variable(tf, 1.0, "v")

    def body(i, x):
        a = after(tf, x, lambda: tf.assign_add(v, 1.0))
        return after(tf, a, lambda: (i + 1, x + v))

    repeat(tf, run, tf.while_loop(lambda i, x: i < 3, body, [0, v]))
    repeat(tf, run, tf.while_loop(lambda x: x < 6.0, lambda x: tf.assign_add(v, x), [v]))


@sequence
def loop_variable_that_stays_a_variable(tf, run):
    v = variable(tf, 1.0, "v")

    def body(i, x, total):
        a = tf.assign_add(v, 1.0)
        return after(tf, a, lambda: (i + 1, x, total + x))

    repeat(tf, run, tf.while_loop(lambda i, x, t: i < 3, body, [0, v, 0.0], parallel_iterations=1))


@sequence
def loop_variable_that_is_a_reference(tf, run):
    v = variable(tf, 1.0, "v")
    r = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, tf.assign_add(x, 1.0)), [0, ref(v)])
    run.note([t.op.type for t in r])
    repeat(tf, run, r)


@sequence
def loop_result_used_after_a_write(tf, run):
    v = variable(tf, 1.0, "v")
    r = tf.while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, x), [0, v])
    with tf.control_dependencies(r):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = r[1] * 10.0
    repeat(tf, run, found)


@sequence
def loop_after_a_write(tf, run):
    v = variable(tf, 1.0, "v")
    copy = v.value()
    with tf.control_dependencies([copy]):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + copy), [0, 0.0])
        start = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [0, copy])
    repeat(tf, run, [found, start])


@sequence
def loop_then_read(tf, run):
    v = variable(tf, 1.0, "v")
    copy = v.value()

    def body(i):
        return after(tf, tf.assign_add(v, 1.0), lambda: i + 1)

    with tf.control_dependencies([copy]):
        r = tf.while_loop(lambda i: i < 3, body, [0])
    with tf.control_dependencies([r]):
        found = [copy * 10.0, tf.identity(v), v.read_value()]
    repeat(tf, run, found)


@sequence
def loop_of_scatters(tf, run):
    v = variable(tf, [0.0, 0.0, 0.0], "v")

    def body(i):
        a = tf.scatter_add(v, [i], [tf.reduce_sum(v) + 1.0])
        return after(tf, a, lambda: i + 1)

    repeat(tf, run, tf.while_loop(lambda i: i < 3, body, [0]))


@sequence
def loop_with_arrays(tf, run):
    v = variable(tf, 1.0, "v")

    def body(i, array):
        a = tf.assign(v, v * 2.0)
        return after(tf, a, lambda: (i + 1, array.write(i, v + 0.0)))

    array = tf.TensorArray(tf.float32, 4)
    _, array = tf.while_loop(lambda i, _: i < 4, body, [0, array], parallel_iterations=1)
    repeat(tf, run, array.stack())


@sequence
def arrays_of_variables(tf, run):
    v = variable(tf, [1.0, 2.0], "v")
    array = tf.TensorArray(tf.float32, 2, clear_after_read=False).write(0, v)
    with tf.control_dependencies([array.flow]):
        write = tf.assign_add(v, [1.0, 1.0])
    with tf.control_dependencies([write]):
        array = array.write(1, v * 1.0)
        found = [array.stack(), array.read(0) + 0.0]
    repeat(tf, run, found)


@sequence
def arrays_of_what_assignments_give(tf, run):
    v = variable(tf, 1.0, "v")
    elements = tf.constant([1.0, 2.0, 3.0])
    repeat(tf, run, tf.map_fn(lambda x: tf.assign_add(v, x), elements))
    repeat(tf, run, tf.map_fn(lambda x: tf.identity(tf.assign_add(v, x)), elements))
    repeat(tf, run, tf.scan(lambda a, x: tf.assign_add(v, x), elements, 0.0))
    repeat(tf, run, tf.foldl(lambda a, x: tf.assign_add(v, x), elements, 0.0))


@sequence
def loop_backwards(tf, run):
    v = variable(tf, 2.0, "v")
    x = tf.constant(3.0)
    _, y = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * v), [0, x])
    slopes = tf.gradients(y, [x, ref(v)])
    with tf.control_dependencies([y] + slopes):
        step = tf.assign_sub(v, 0.01 * slopes[1])
    repeat(tf, run, [y, slopes, step])


@sequence
def loops_one_after_another(tf, run):
    v = variable(tf, 1.0, "v")

    def adding(amount):
        def body(i):
            return after(tf, tf.assign_add(v, amount * v), lambda: i + 1)

        return body

    first = tf.while_loop(lambda i: i < 2, adding(1.0), [0])
    with tf.control_dependencies([first]):
        second = tf.while_loop(lambda i: i < 2, adding(2.0), [0])
    repeat(tf, run, second)


@sequence
def loop_of_reads_in_order(tf, run):
    v = variable(tf, 1.0, "v")

    def body(i, before, later):
        read = v.read_value() + 0.0
        with tf.control_dependencies([read]):
            a = tf.assign_add(v, 1.0)
        with tf.control_dependencies([a]):
            again = v.read_value() + 0.0
        return i + 1, before + read, later + again

    start = [0, 0.0, 0.0]
    repeat(tf, run, tf.while_loop(lambda i, b, a: i < 3, body, start, parallel_iterations=1))


@sequence
def frames_of_references(tf, run):
    v = variable(tf, 1.0, "v")
    inside = tf.raw_ops.RefEnter(data=ref(v), frame_name="f", is_constant=True)
    i = tf.raw_ops.Enter(data=tf.constant(0), frame_name="f")
    one = tf.raw_ops.Enter(data=tf.constant(1), frame_name="f", is_constant=True)
    limit = tf.raw_ops.Enter(data=tf.constant(3), frame_name="f", is_constant=True)
    merge = tf.raw_ops.Merge(inputs=[i, i])[0]
    goes_on = tf.raw_ops.LoopCond(input=tf.less(merge, limit))
    left, stays = tf.raw_ops.Switch(data=merge, pred=goes_on)
    with tf.control_dependencies([stays]):
        a = tf.assign_add(inside, tf.identity(inside))
    with tf.control_dependencies([a]):
        following = tf.raw_ops.NextIteration(data=stays + one)
    merge.op._update_input(1, following)
    repeat(tf, run, tf.raw_ops.Exit(data=left))


@sequence
def references_that_go_round(tf, run):
    v = variable(tf, 1.0, "v")
    x = tf.raw_ops.RefEnter(data=ref(v), frame_name="f")
    limit = tf.raw_ops.Enter(data=tf.constant(5.0), frame_name="f", is_constant=True)
    merge = tf.raw_ops.RefMerge(inputs=[x, x])[0]
    goes_on = tf.raw_ops.LoopCond(input=tf.less(merge, limit))
    left, stays = tf.raw_ops.RefSwitch(data=merge, pred=goes_on)
    following = tf.raw_ops.RefNextIteration(data=tf.assign_add(stays, tf.identity(stays)))
    merge.op._update_input(1, following)
    repeat(tf, run, tf.raw_ops.RefExit(data=left))


# -- Functions over elements, and recurrent networks -----------------------------------------------


@sequence
def maps_and_folds(tf, run):
    v = variable(tf, 1.0, "v")
    elements = tf.constant([1.0, 2.0, 3.0])

    def adding(x):
        return after(tf, tf.assign_add(v, x), lambda: v * 1.0)

    mapped = tf.map_fn(adding, elements, parallel_iterations=1)
    repeat(tf, run, mapped)
    scanned = tf.scan(lambda a, x: a + adding(x), elements, 0.0, parallel_iterations=1)
    repeat(tf, run, scanned)
    folded = tf.foldl(lambda a, x: a + adding(x), elements, 0.0, parallel_iterations=1)
    repeat(tf, run, folded)
    repeat(tf, run, tf.foldr(lambda a, x: a * v + x, elements, v))
    repeat(tf, run, tf.map_fn(lambda x: x * v, elements))


@sequence
def recurrent_network(tf, run):
    v = variable(tf, [[0.5, -0.5], [0.25, 0.1]], "v")

    class Cell(tf.nn.rnn_cell.RNNCell):
        output_size = state_size = 2

        def __call__(self, inputs, state, scope=None):
            a = after(tf, inputs, lambda: tf.assign_add(v, 0.1 * v))
            new = after(tf, a, lambda: tf.tanh(inputs + tf.matmul(state, v)))
            return new, new

    x = tf.ones([1, 3, 2])
    outputs, _ = tf.nn.dynamic_rnn(Cell(), x, dtype=tf.float32, parallel_iterations=1)
    repeat(tf, run, tf.round(outputs * 1e4))


# -- Functions -------------------------------------------------------------------------------------


@sequence
def function_arguments(tf, run):
    defun, _ = made_by(tf)

    @defun(tf.float32)
    def ten_times(x):
        return x * 10.0

    v = variable(tf, 1.0, "v")
    copy = v.value()
    with tf.control_dependencies([copy]):
        write = tf.assign_add(v, 1.0)
    with tf.control_dependencies([write]):
        found = [ten_times(copy), ten_times(ref(v)), ten_times(write)]
    repeat(tf, run, found)


@sequence
def functions_as_branches_and_loops(tf, run):
    defun, _ = made_by(tf)

    @defun(tf.float32)
    def ten_times(x):
        return x * 10.0

    @defun(tf.float32)
    def negative(x):
        return -x

    @defun(tf.float32)
    def is_small(x):
        return x < 50.0

    b, v = variable(tf, False, "b"), variable(tf, 3.0, "v")
    early, copy = b.value(), v.value()
    with tf.control_dependencies([early, copy]):
        write = tf.group(tf.assign(b, tf.logical_not(b)), tf.assign_add(v, 1.0))
    with tf.control_dependencies([write]):
        found = [
            tf.raw_ops.If(
                cond=pred,
                input=[copy],
                Tout=[tf.float32],
                then_branch=ten_times,
                else_branch=negative,
            )[0]
            for pred in (early, ref(b))
        ]
        found.append(tf.raw_ops.While(input=[copy], cond=is_small, body=ten_times)[0])
    repeat(tf, run, found)


# -- Structures ------------------------------------------------------------------------------------


@sequence
def structures_of_one(tf, run):
    one = collections.namedtuple("One", "a")
    p = tf.constant(True)
    for strict in (False, True):
        for make in (one, lambda t: [t], lambda t: (t,), lambda t: {"a": t}, lambda t: one(one(t))):
            found = tf.cond(
                p,
                lambda make=make: make(tf.constant(1)),
                lambda make=make: make(tf.constant(3)),
                strict=strict,
            )
            run.note(type(found).__name__)
            run(found)


@sequence
def gradients_of_switches(tf, run):
    x = tf.constant(2.0)
    for value in (True, False):
        p = tf.placeholder_with_default(value, [])
        f, t = tf.raw_ops.Switch(data=x, pred=p)
        run(tf.gradients(t, x)[0])
        run(tf.gradients(f, x)[0])
        merged = tf.raw_ops.Merge(inputs=[f * 3.0, t * 5.0])[0]
        run(tf.gradients(merged, x)[0])
        run(tf.gradients([merged, t], x)[0])
        run(tf.gradients(t * t, x)[0])
        run(tf.gradients(f * f, x)[0])
