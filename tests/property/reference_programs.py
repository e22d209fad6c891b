"""Programs on reference variables, in Python and as graphs of cond and while_loop. This file must
stay valid Python 3.7: the same programs run under TensorFlow 1.15.5.

A statement is a tuple: ("set", target, reads) gives a variable a number made of others,
("flag", read, limit) sets the boolean variable, ("if", way, limit, then, otherwise) branches on
the boolean or on a number, ("loop", count, block) repeats, ("until", limit, block) repeats while
variable 0 is small, at most five times. A read is (variable, way); every way to read a reference
variable gives what the variable holds then, also an Identity that was made before everything.
"""

NUMBERS = 3
WAYS = ("variable", "value", "read_value", "identity", "before", "twice before")
START = [1, 4, 7]
MODULUS = 11


def combine(values):
    """A number made of others."""
    total = 1
    for i, value in enumerate(values):
        total = total + value * (i + 2)
    return total % MODULUS


def run_in_python(block, numbers, flag):
    """The variables after a block."""
    for statement in block:
        kind = statement[0]
        if kind == "set":
            _, target, reads = statement
            value = combine([numbers[v] for v, _ in reads])
            numbers = [value if i == target else n for i, n in enumerate(numbers)]
        elif kind == "flag":
            _, (variable, _), limit = statement
            flag = numbers[variable] > limit
        elif kind == "if":
            _, (variable, _), limit, then, otherwise = statement
            taken = flag if variable is None else numbers[variable] > limit
            numbers, flag = run_in_python(then if taken else otherwise, numbers, flag)
        elif kind == "loop":
            for _ in range(statement[1]):
                numbers, flag = run_in_python(statement[2], numbers, flag)
        else:
            for _ in range(5):
                if numbers[0] >= statement[1]:
                    break
                numbers, flag = run_in_python(statement[2], numbers, flag)
    return numbers, flag


class Builder:
    """Builds a program: each statement after the one before it."""

    def __init__(self, tf):
        self.tf = tf
        self.numbers = [tf.Variable(n, use_resource=False) for n in START]
        self.flag = tf.Variable(True, use_resource=False)
        self.before = {v: v.value() for v in [*self.numbers, self.flag]}
        self.twice = {v: tf.identity(t) for v, t in self.before.items()}

    def read(self, number, way):
        variable = self.flag if number is None else self.numbers[number]
        return {
            "variable": lambda: variable,
            "value": variable.value,
            "read_value": variable.read_value,
            "identity": lambda: self.tf.identity(variable),
            "before": lambda: self.before[variable],
            "twice before": lambda: self.twice[variable],
        }[way]()

    def block(self, block, last):
        """Build a block after an operation; returns its last one."""
        for statement in block:
            with self.tf.control_dependencies([last]):
                last = self.statement(statement)
        return last

    def statement(self, statement):
        tf, kind = self.tf, statement[0]
        if kind == "set":
            _, target, reads = statement
            value = combine([tf.add(self.read(*r), 0) for r in reads])
            return tf.assign(self.numbers[target], value).op
        if kind == "flag":
            _, read, limit = statement
            return tf.assign(self.flag, tf.greater(self.read(*read), limit)).op
        if kind == "if":
            _, read, limit, then, otherwise = statement
            pred = self.read(*read)
            pred = pred if read[0] is None else tf.greater(pred, limit)
            return tf.cond(pred, lambda: self.whole(then), lambda: self.whole(otherwise)).op
        if kind == "loop":
            _, count, block = statement
            return tf.while_loop(lambda i: i < count, lambda i: self.next(block, i), [0]).op
        _, limit, block = statement
        first = self.numbers[0]
        goes_on = lambda i: tf.logical_and(tf.less(first, limit), i < 5)  # noqa: E731
        return tf.while_loop(goes_on, lambda i: self.next(block, i), [0]).op

    def whole(self, block):
        return self.tf.group(self.block(block, self.tf.no_op()))

    def next(self, block, i):
        with self.tf.control_dependencies([i]):
            first = self.tf.no_op()
        with self.tf.control_dependencies([self.block(block, first)]):
            return i + 1


def run_graph(tf, block, runs, config=None):
    """The variables after each of several runs of a program, and what the step fetched of them."""
    with tf.Graph().as_default():
        builder = Builder(tf)
        last = builder.block(block, tf.group(*builder.twice.values()))
        variables = builder.numbers + [builder.flag]
        found = []
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(runs):
                fetched = session.run([last] + [builder.before[v] for v in variables])[1:]
                found.append([int(n) for n in fetched])
                found.append([int(n) for n in session.run(variables)])
    return found


def expected(block, runs):
    """The same in Python: what is fetched is what the variables hold after the step."""
    found, numbers, flag = [], list(START), True
    for _ in range(runs):
        numbers, flag = run_in_python(block, numbers, flag)
        found += [numbers + [int(flag)]] * 2
    return found
