"""Fusion into one call: anchors with their consumers, updates with their gradients, twins."""

from collections import Counter
from math import prod

import numpy as np
import pytest

import headrace as tf
from headrace._src.compile.rewrite.rewrites import (
    join_pieces,
    join_products,
    mask_before_unpooling,
    spread_products,
    sum_once,
)
from headrace._src.lowering.anchors import contraction_of
from headrace._src.lowering.window_anchors import pooling_of
from headrace._src.pipeline import Options, compile_step
from tests.unit.compile.steps import assert_tiers_agree, clusters, results, uniform


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def optimised(fetches, feeds):
    """The step as the compiler gets it."""
    seen = {}
    shapes = [np.shape(v) for v in feeds.values()]
    options = Options(jit="off")
    compile_step(fetches, [], list(feeds), shapes, options, lambda n, f: seen.update({n: f}))
    return seen["dead"]


def kernels(cluster):
    """How many calls of each kind of kernel a cluster makes."""
    return Counter(type(c.kernel).__name__ for c in cluster.plan.calls)


def written(cluster, kind):
    """The kernels that write buffers of a kind, once for each buffer."""
    found = []
    for call in cluster.plan.calls:
        for name, b in zip(call.kernel.arguments, call.buffers, strict=True):
            if name.startswith("out:") and cluster.plan.buffers[b].kind == kind:
                found.append(type(call.kernel).__name__)
    return sorted(found)


def test_maps_that_meet_are_one():
    x, y = (tf.placeholder(tf.float32, [8, 40]) for _ in range(2))
    feeds = {x: uniform(8, 40), y: uniform(8, 40, seed=1)}
    (cluster,) = clusters([tf.exp(x) * 2.0 + tf.sin(y) * 3.0 - tf.cos(x) * y], feeds)
    assert kernels(cluster) == {"Map": 1}


def test_maps_that_meet_stay_apart_where_one_reads_elsewhere_what_the_other_updates():
    v = tf.Variable(uniform(8))
    x = tf.placeholder(tf.float32, [8])
    turned = tf.exp(tf.reverse(v, [0]))
    with tf.control_dependencies([turned]):
        new = tf.assign_add(v, tf.sin(x))
    fetches = [tf.identity(new) * 2.0 + turned, turned * tf.sin(x)]
    assert_tiers_agree(fetches, {x: uniform(8, seed=1)})


@pytest.mark.parametrize("reduce", [tf.reduce_sum, tf.reduce_mean])
@pytest.mark.parametrize(
    ("given", "axes", "keep", "work"),
    [((5, 1), 1, False, 5), ((5, 1), [0, 1], True, 5), ((7,), 0, False, 7), ((), [0, 1], False, 1)],
)
def test_what_was_repeated_is_summed_once(reduce, given, axes, keep, work):
    x = tf.placeholder(tf.float32, given)
    total = reduce(tf.broadcast_to(x, [5, 7]), axes, keep)
    feeds = {x: uniform(*given)}
    (node,) = (n for n in sum_once(optimised([total], feeds)).nodes if n.type in ("Sum", "Mean"))
    assert prod(node.input_shapes[0]) == work
    assert_tiers_agree([total * 2.0 - tf.exp(total)], feeds)


def test_a_sum_of_squares_or_along_other_axes_is_not_that_of_one():
    x = tf.placeholder(tf.float32, [5, 1])
    whole = tf.broadcast_to(x, [5, 7])
    fetches = [tf.norm(whole, axis=1), tf.reduce_sum(whole, 0), tf.reduce_prod(whole, 1)]
    feeds = {x: uniform(5, 1)}
    assert not {"Mul"} & {n.type for n in sum_once(optimised(fetches[1:], feeds)).nodes}
    assert_tiers_agree(fetches, feeds)


def test_a_perceptrons_step():
    x, labels = tf.placeholder(tf.float32, [128, 784]), tf.placeholder(tf.int32, [128])
    value, variables = x, []
    for i, (rows, columns) in enumerate([(784, 256), (256, 256), (256, 10)]):
        w = tf.Variable(uniform(rows, columns) / np.float32(rows**0.5))
        b = tf.Variable(np.zeros(columns, np.float32))
        value = tf.matmul(value, w) + b
        value = tf.nn.relu(value) if i < 2 else value
        variables += [w, b]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=value)
    loss = tf.reduce_mean(losses)
    gradients = tf.gradients(loss, variables)
    updates = [v.assign_sub(0.1 * g).op for v, g in zip(variables, gradients, strict=True)]
    feeds = {x: uniform(128, 784), labels: np.arange(128) % 10}
    (cluster,) = clusters([loss], feeds, updates)
    assert len(cluster.plan.calls) <= 15
    # Three products forward, five backward: the input has no gradient.
    products = {"Gemm", "NarrowProduct"}  # the latter for few columns, on targets with room for it
    used = kernels(cluster)
    assert sum(used[name] for name in products) == 8
    # Every update is behind the gradient that it needs.
    first, last = written(cluster, "variable")[:3], written(cluster, "variable")[3:]
    assert set(first) <= products and last == ["ReduceKernel"] * 3
    assert_tiers_agree([loss, *updates], feeds, steps=3)


def convolution(x, filters=32):
    w = tf.Variable(uniform(3, 3, x.shape[3].value, filters) * 0.1)
    b = tf.Variable(uniform(filters))
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"), b)), w, b


def test_a_convolution_with_bias_relu_and_pool_is_one_call():
    x = tf.placeholder(tf.float32, [4, 16, 16, 16])
    y = tf.nn.max_pool(convolution(x)[0], [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    feeds = {x: uniform(4, 16, 16, 16)}
    (cluster,) = clusters([y], feeds)
    assert kernels(cluster)["WinogradForward"] == 1
    assert not {"MaxPool", "ReduceKernel"} & {*kernels(cluster)}
    assert all(c.label == "copy" for c in cluster.plan.calls if type(c.kernel).__name__ == "Map")
    assert_tiers_agree([y], feeds)


def test_relus_mask_moves_before_unpooling():
    x = tf.placeholder(tf.float32, [4, 16, 16, 16])
    y, w, b = convolution(x)
    pooled = tf.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    gradients = tf.gradients(tf.reduce_sum(tf.square(pooled)), [w, b])
    feeds = {x: uniform(4, 16, 16, 16)}
    flow = optimised(gradients, feeds)
    moved = mask_before_unpooling(flow)
    (mask,) = [n for n in moved.nodes if n.type == "ReluGrad"]
    assert mask.output_shapes == ((4, 8, 8, 32),)
    *_, unpooling = [n for n in moved.nodes if n.type == "MaxPoolGrad"]
    assert pooling_of(unpooling).direction == "gradient"
    assert unpooling.inputs[2] is mask.outputs[0]
    assert_tiers_agree(gradients, feeds)


def test_a_sum_of_products_is_one_product():
    xs = [tf.placeholder(tf.float32, [n, 40]) for n in (16, 8, 24)]
    w = tf.Variable(uniform(40, 64))
    loss = tf.add_n([tf.reduce_sum(tf.tanh(tf.matmul(x, w))) for x in xs])
    (gradient,) = tf.gradients(loss, [w])
    feeds = {x: uniform(*x.shape.as_list(), seed=i) for i, x in enumerate(xs)}
    flow = optimised([gradient], feeds)
    joined = join_products(flow)
    (product,) = [
        g for n in joined.nodes if (g := contraction_of(n)) and g.transpose_x and g.k > 24
    ]
    assert (product.m, product.n, product.k) == (40, 64, 48)
    (cluster,) = clusters([gradient], feeds)
    assert kernels(cluster)["Gemm"] == 4
    assert_tiers_agree([gradient], feeds)


def test_a_sum_of_narrow_products_is_one_product():
    """In mixed precision, products are cast before they are added up."""
    pairs = [[tf.placeholder(tf.float32, [n, m]) for m in (40, 64)] for n in (16, 8, 24)]
    narrow = [[tf.cast(t, tf.bfloat16) for t in pair] for pair in pairs]
    products = [tf.matmul(x, y, transpose_a=True) for x, y in narrow]
    total = tf.add_n([tf.cast(p, tf.float32) for p in products])
    values = [t for pair in pairs for t in pair]
    feeds = {t: uniform(*t.shape.as_list(), seed=i) for i, t in enumerate(values)}
    joined = join_products(optimised([total], feeds))
    (product,) = [g for n in joined.nodes if (g := contraction_of(n)) and g.k > 24]
    assert (product.m, product.n, product.k) == (40, 64, 48)
    (((found,), _), _) = results(True, [total], feeds)
    x, y = (np.concatenate([feeds[pair[i]] for pair in pairs]).astype("d") for i in (0, 1))
    np.testing.assert_allclose(found, x.T @ y, rtol=0, atol=2**-6 * np.abs(found).max())
    others_read_it = optimised([total, products[0]], feeds)
    assert len(join_products(others_read_it).nodes) == len(others_read_it.nodes)


def test_a_choice_between_products_is_no_sum_of_them():
    x = tf.placeholder(tf.float32, [8, 8])
    chosen = tf.where(x > 0, tf.matmul(x, x), tf.matmul(x, x, transpose_b=True))
    feeds = {x: uniform(8, 8)}
    flow = optimised([chosen], feeds)
    assert len(join_products(flow).nodes) == len(flow.nodes)
    assert_tiers_agree([chosen], feeds)


def test_a_sum_of_products_of_other_sizes_is_not_one_product():
    x, row, y = (tf.placeholder(tf.float32, shape) for shape in ([2, 64], [2, 1], [2, 64]))
    spread = tf.matmul(row, y, transpose_a=True)  # [1, 64]
    total = spread + tf.matmul(x, y, transpose_a=True)
    feeds = {t: uniform(*t.shape.as_list(), seed=i) for i, t in enumerate((x, row, y))}
    flow = optimised([total], feeds)
    assert len(join_products(flow).nodes) == len(flow.nodes)
    assert_tiers_agree([total], feeds)


def test_gradients_of_slices_that_lost_an_axis_are_left_alone():
    x = tf.placeholder(tf.float32, [4, 3, 5])
    loss = tf.add_n([tf.reduce_sum(tf.tanh(x[:, i, :] * (i + 1.0))) for i in range(3)])
    gradients = tf.gradients(loss, [x])
    feeds = {x: uniform(4, 3, 5)}
    flow = optimised(gradients, feeds)
    assert len(join_pieces(flow).nodes) == len(flow.nodes)
    assert_tiers_agree(gradients, feeds)


def test_both_gradients_of_a_large_layer_are_one_call():
    x = tf.placeholder(tf.float32, [16, 1024])
    v, w = tf.Variable(uniform(1024, 1024) / 32), tf.Variable(uniform(1024, 1024, seed=1) / 32)
    loss = tf.reduce_sum(tf.square(tf.matmul(tf.tanh(tf.matmul(x, v)), w)))
    gradients = tf.gradients(loss, [v, w])
    updates = [a.assign_sub(1e-3 * g).op for a, g in zip((v, w), gradients, strict=True)]
    feeds = {x: uniform(16, 1024)}
    (cluster,) = clusters([loss], feeds, updates)
    twins = [c for c in cluster.plan.calls if "MatMul_1_grad" in c.label]
    assert len(twins) == 1
    assert "variable" in {cluster.plan.buffers[b].kind for b in twins[0].buffers}
    assert_tiers_agree([loss, *updates], feeds)


def test_constants_do_not_divide_a_step():
    x, v = tf.placeholder(tf.float32, [8, 8]), tf.Variable(uniform(8, 8))
    first = tf.sqrt(tf.exp(x) + 1.0)
    with tf.control_dependencies([v.assign_add(first)]):
        second = tf.tanh(first * 3.0) - 1.0
    feeds = {x: uniform(8, 8)}
    assert len(clusters([second], feeds)) == 1
    assert_tiers_agree([second], feeds)


# -- What is not where an epilogue would look for it -----------------------------------------------


def test_a_bias_along_another_axis_than_the_last():
    x, y = tf.placeholder(tf.float32, [2, 5, 6, 7]), tf.placeholder(tf.float32, [2, 5, 7, 5])
    biased = tf.nn.bias_add(tf.matmul(x, y), uniform(5), data_format="NCHW")
    assert_tiers_agree([biased], {x: uniform(2, 5, 6, 7), y: uniform(2, 5, 7, 5)})


@pytest.mark.parametrize("size", [(3, 1), (1, 5), (1, 1), (4, 4)])
def test_images_of_one_row_or_column(size):
    x = tf.placeholder(tf.float32, [2, *size, 32])
    w = tf.Variable(uniform(3, 3, 32, 32) / 100)
    y = tf.nn.relu(tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"))
    pooled = tf.nn.max_pool(y, [1, 3, 3, 1], [1, 2, 2, 1], "SAME")
    loss = tf.reduce_sum(tf.square(pooled)) + tf.reduce_sum(tf.square(y) * tf.tanh(y))
    assert_tiers_agree([loss, *tf.gradients(loss, [x, w])], {x: uniform(2, *size, 32)})


def test_a_choice_by_rows():
    x, y = tf.placeholder(tf.float32, [8, 6]), tf.placeholder(tf.float32, [6, 8])
    rows = tf.placeholder(tf.bool, [8])
    product = tf.matmul(x, y)
    chosen = tf.where(rows, product, tf.zeros_like(product))
    fed = {x: uniform(8, 6), y: uniform(6, 8), rows: np.arange(8) % 3 == 0}
    assert_tiers_agree([chosen], fed)


def test_a_constant_of_both_zeros():
    x = tf.placeholder(tf.float32, [2])
    y = tf.tanh(1.0 / (x * tf.constant([0.0, -0.0])) * 2.0)
    assert len(clusters([y], {x: np.ones(2)})) == 1
    with tf.Session() as session:
        for _ in range(3):
            assert session.run(y, {x: [1.0, 1.0]}).tolist() == [1, -1]


def test_narrow_products_scaled_by_a_constant():
    x = tf.placeholder(tf.bfloat16, [5, 17])
    product = tf.matmul(x, x, transpose_a=True) / tf.constant(5.0, tf.bfloat16)
    assert_tiers_agree([product], {x: uniform(5, 17).astype(tf.bfloat16.as_numpy_dtype)})


@pytest.mark.parametrize(("rows", "size", "packings"), [(128, 520, 1), (300, 520, 0), (128, 64, 0)])
def test_a_large_matrix_of_many_products_is_packed_once(rows, size, packings):
    x, w = tf.placeholder(tf.float32, [rows, size]), tf.placeholder(tf.float32, [size, size])
    h = x
    for _ in range(4):
        h = tf.tanh(tf.matmul(h, w))
    feeds = {x: uniform(rows, size), w: uniform(size, size) / 16}
    (cluster,) = clusters([h], feeds)
    assert kernels(cluster)["PackB"] == packings
    assert_tiers_agree(h, feeds)


# -- Rows and columns ------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(21, 21), (1, 16, 16), (16, 16, 16)])
def test_what_rows_have_once_lies_over_the_columns_of_a_square(shape):
    x = tf.placeholder(tf.float32, shape)
    y = tf.tanh(x)
    given = {x: uniform(*shape)}
    assert_tiers_agree([y - tf.reduce_sum(y, -1), y * tf.reduce_max(y, -1)], given)
    kept = [y - tf.reduce_sum(y, -1, keepdims=True)]
    assert_tiers_agree(kept, given)
    assert kernels(clusters(kept, given)[0]) == {"Rows": 1}


@pytest.mark.parametrize("sizes", [(8,), (4, 1), (1, 1), (4, 8), ()])
@pytest.mark.parametrize("keep", [False, True])
def test_what_is_computed_once_per_row_reads_broadcasts(sizes, keep):
    x, w = tf.placeholder(tf.float32, [4, 8, 16]), tf.placeholder(tf.float32, sizes)
    scale = tf.expand_dims(w, -1) if keep and sizes else w
    mean = tf.exp(tf.reduce_mean(tf.tanh(x), 2, keepdims=keep)) * scale + 1.0
    given = {x: uniform(4, 8, 16), w: uniform(*sizes)}
    assert_tiers_agree([mean], given)
    assert kernels(clusters([mean], given)[0]) == {"Rows": 1}


def test_an_input_that_no_kernel_reads():
    """What a pool gave isn't needed by its gradient, which finds the maxima itself."""
    x, dy = tf.placeholder(tf.float32, [2, 8, 6, 16]), tf.placeholder(tf.float32, [2, 4, 3, 16])
    y = tf.placeholder(tf.float32, [2, 4, 3, 16])
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    pooled = tf.raw_ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=dy, **window)
    image = uniform(2, 8, 6, 16)
    maxima = image.reshape(2, 4, 2, 3, 2, 16).max((2, 4))
    assert_tiers_agree([pooled * 2.0], {dy: uniform(2, 4, 3, 16), x: image, y: maxima})


# -- Rewrites --------------------------------------------------------------------------------------


def types(flow):
    return Counter(n.type for n in flow.nodes)


@pytest.mark.parametrize("axis", [0, 1])
def test_gradients_of_slices_are_put_together(axis):
    x = tf.placeholder(tf.float32, [6, 6])
    first, second, third = tf.split(x, [1, 3, 2], axis)
    pieces = [tf.slice(x, [s, 0] if axis == 0 else [0, s], p.shape) for s, p in
              ((1, second), (0, first), (4, third))]  # fmt: skip
    loss = tf.add_n([tf.reduce_sum(p**k) for k, p in enumerate(pieces, 2)])
    (slope,) = tf.gradients(loss, [x])
    feeds = {x: uniform(6, 6)}
    flow = optimised([slope], feeds)
    assert types(flow)["Pad"] == 3
    found = types(join_pieces(flow))
    assert (found["ConcatV2"], found["AddN"]) == (1, 0)
    assert_tiers_agree([slope, loss], feeds)


@pytest.mark.parametrize("starts", [(0, 2), (0, 4), (1, 3)], ids=["overlap", "gap", "margin"])
def test_pieces_that_do_not_cover_are_summed(starts):
    x, y = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [3])
    padded = [tf.pad(v, [[s, 7 - s - 3]]) for v, s in zip((x, y), starts, strict=True)]
    total = tf.add_n(padded) * 2.0
    feeds = {x: uniform(3), y: uniform(3, seed=1)}
    assert types(join_pieces(optimised([total], feeds)))["ConcatV2"] == 0
    assert_tiers_agree(total, feeds)


@pytest.mark.parametrize("transposes", [(False, False), (True, False), (False, True), (True, True)])
def test_a_product_of_vectors_is_element_wise(transposes):
    a, b = transposes
    x = tf.placeholder(tf.float32, [1, 20] if a else [20, 1])
    y = tf.placeholder(tf.float32, [33, 1] if b else [1, 33])
    z = tf.tanh(tf.matmul(x, y, transpose_a=a, transpose_b=b))
    feeds = {x: uniform(*x.shape.as_list()), y: uniform(*y.shape.as_list())}
    found = types(spread_products(optimised([z], feeds)))
    assert (found["MatMul"], found["Mul"]) == (0, 1)
    assert_tiers_agree(z, feeds)


def test_steps_of_a_network_are_put_together_once():
    w = tf.placeholder(tf.float32, [16, 16])
    x = tf.placeholder(tf.float32, [32, 16])
    h, parts = tf.zeros([8, 16]) + 0.5, tf.split(x, 4, 0)
    for part in parts:
        h = tf.tanh(tf.matmul(h, w) + part)
    slopes = tf.gradients(tf.reduce_sum(h), [w, x])
    feeds = {w: uniform(16, 16), x: uniform(32, 16)}
    seen = {}
    options = Options(jit="always")
    shapes = [np.shape(v) for v in feeds.values()]
    compile_step(slopes, [], list(feeds), shapes, options, lambda n, f: seen.update({n: f}))
    assert types(seen["rewrite"])["ConcatV2"] == 3
    assert types(seen["merge"])["ConcatV2"] == 2  # the gradient of x is an operand of that of w
    assert_tiers_agree(slopes, feeds)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True], ids=["mean", "weighted"])
def test_the_slope_of_a_loss_is_scaled_as_it_is_made(sparse, weighted):
    x, w = tf.placeholder(tf.float32, [20, 16]), tf.placeholder(tf.float32, [16, 70])
    logits = tf.matmul(x, w)
    feeds = {x: uniform(20, 16), w: uniform(16, 70)}
    if sparse:
        labels = tf.placeholder(tf.int32, [20])
        feeds[labels] = np.arange(20, dtype=np.int32) * 3
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    else:
        labels = tf.placeholder(tf.float32, [20, 70])
        feeds[labels] = np.abs(uniform(20, 70)) / 35
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if weighted:
        weights = tf.placeholder(tf.float32, [20])
        feeds[weights] = uniform(20)
        losses *= weights
    fetches = [tf.reduce_mean(losses), *tf.gradients(tf.reduce_mean(losses), [x, w])]
    (cluster,) = clusters(fetches, feeds)
    found = kernels(cluster)
    assert found["Rows"] == 1
    assert found["Map"] == weighted  # the weights over the number of rows
    assert_tiers_agree(fetches, feeds)


def test_a_slope_that_others_read_is_kept():
    x = tf.placeholder(tf.float32, [20, 70])
    labels = tf.placeholder(tf.int64, [20])
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
    (slope,) = tf.gradients(losses, [x])
    more = tf.exp(slope) - tf.reshape(tf.range(70.0), [1, 70])
    feeds = {x: uniform(20, 70), labels: np.arange(20)}
    assert_tiers_agree([losses, slope, more, tf.reduce_sum(tf.square(slope), 0)], feeds)
    assert_tiers_agree([losses, more, tf.matmul(slope * 2.0, slope, transpose_a=True)], feeds)
