"""Cells: what they refuse, their sizes, weights and configurations."""

import pytest

import headrace as tf

cells = tf.nn.rnn_cell


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def zeros(*shape, dtype="float32"):
    return tf.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (
            lambda: cells.BasicRNNCell(2)(zeros(4, 3, dtype="int32"), zeros(4, 2)),
            ValueError,
            "int32",
        ),
        (lambda: cells.GRUCell(2, dtype="int32"), ValueError, "only supports floating point"),
        (lambda: cells.LSTMCell(2)(zeros(4, 1, 3), zeros(4, 2)), ValueError, "ndim=2"),
        (
            lambda: cells.LSTMCell(2)(tf.placeholder("float32", [4, None]), zeros(4, 2)),
            ValueError,
            "to be known, saw shape: \\(4, None\\)",
        ),
        (lambda: cells.BasicLSTMCell(2)(zeros(4, 3), zeros(4, 4)), TypeError, "a pair"),
        (lambda: cells.BasicRNNCell(2, activation="foo"), ValueError, "Unknown activation"),
        (lambda: cells.BasicRNNCell(2, activation=3), TypeError, "Could not interpret"),
        (lambda: cells.MultiRNNCell([]), ValueError, "at least one cell"),
        (lambda: cells.MultiRNNCell(cells.GRUCell(2)), TypeError, "must be a list or tuple"),
        (lambda: cells.MultiRNNCell([3]), TypeError, "is not an RNNCell"),
        (
            lambda: cells.MultiRNNCell([cells.BasicLSTMCell(2)], state_is_tuple=False),
            ValueError,
            "flag state_is_tuple is not set",
        ),
        (
            lambda: cells.MultiRNNCell([cells.GRUCell(2)])(zeros(4, 3), zeros(4, 2)),
            ValueError,
            "tuple of length 1",
        ),
        (lambda: cells.DropoutWrapper(3), TypeError, "'output_size' property is missing"),
        (lambda: cells.DropoutWrapper(cells.GRUCell(2), 2.0), ValueError, "between 0 and 1: 2"),
        (
            lambda: cells.DropoutWrapper(cells.GRUCell(2), dropout_state_filter_visitor=3),
            TypeError,
            "must be callable",
        ),
        (
            lambda: cells.DropoutWrapper(cells.GRUCell(2), variational_recurrent=True),
            ValueError,
            "dtype must be provided",
        ),
        (
            lambda: cells.DropoutWrapper(
                cells.GRUCell(2), 0.5, variational_recurrent=True, dtype="float32"
            ),
            ValueError,
            "input_size must be provided",
        ),
        (
            lambda: cells.ResidualWrapper(cells.GRUCell(2))(zeros(4, 3), zeros(4, 2)),
            ValueError,
            "incompatible",
        ),
        (lambda: cells.GRUCell(2).get_initial_state(), ValueError, "cannot be None"),
        (
            lambda: cells.GRUCell(2).get_initial_state(zeros(4, 3), dtype="float64"),
            ValueError,
            "dtype from input tensor is different",
        ),
        (
            lambda: cells.GRUCell(2).get_initial_state(zeros(4, 3), batch_size=7),
            ValueError,
            "Input tensor batch: 4, batch_size: 7",
        ),
        (
            lambda: cells.GRUCell(2).zero_state(None, "float32"),
            ValueError,
            "prefix or suffix of None",
        ),
        (
            lambda: cells.GRUCell(2).zero_state(zeros(1, 2), "float32"),
            ValueError,
            "scalar or vector",
        ),
        (lambda: cells.RNNCell().state_size, NotImplementedError, "Abstract"),
        (
            lambda: cells.LSTMStateTuple(zeros(1), zeros(1, dtype="float64")).dtype,
            TypeError,
            "Inconsistent internal state",
        ),
    ],
)
def test_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_sizes():
    lstm = cells.LSTMCell(4, num_proj=2)
    assert lstm.state_size == cells.LSTMStateTuple(4, 2)
    assert cells.LSTMCell(4, num_proj=2, state_is_tuple=False).state_size == 6
    layers = cells.MultiRNNCell([lstm, cells.DropoutWrapper(cells.GRUCell(3))])
    assert layers.state_size == ((4, 2), 3)
    assert layers.output_size == 3


def test_weights_of_layers_of_cells():
    cell = cells.MultiRNNCell([cells.BasicRNNCell(2), cells.GRUCell(2)])
    cell(zeros(1, 2), cell.zero_state(1, "float32"))
    assert [w.op.name for w in cell.weights] == [
        "multi_rnn_cell/cell_0/basic_rnn_cell/kernel",
        "multi_rnn_cell/cell_0/basic_rnn_cell/bias",
        "multi_rnn_cell/cell_1/gru_cell/gates/kernel",
        "multi_rnn_cell/cell_1/gru_cell/gates/bias",
        "multi_rnn_cell/cell_1/gru_cell/candidate/kernel",
        "multi_rnn_cell/cell_1/gru_cell/candidate/bias",
    ]
    cell.trainable = False
    assert cell.trainable_weights == []
    assert len(cell.non_trainable_weights) == 6


@pytest.mark.parametrize("kind", ["BasicRNNCell", "GRUCell", "BasicLSTMCell", "LSTMCell"])
def test_configurations_make_equal_cells(kind):
    cell = getattr(cells, kind)(3, activation="relu", name="c")
    again = type(cell).from_config(cell.get_config())
    assert again.get_config() == cell.get_config()
    assert (again.output_size, cell.get_config()["activation"]) == (3, "relu")


def test_names_of_contrib():
    assert tf.contrib.rnn.BasicLSTMCell is cells.BasicLSTMCell
    assert tf.contrib.rnn.static_rnn is tf.nn.static_rnn


contrib = tf.contrib.rnn


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: contrib.GRUBlockCell(), "Exactly one of num_units or cell_size"),
        (lambda: contrib.GRUBlockCell(3, cell_size=3), "Exactly one of num_units or cell_size"),
        (lambda: contrib.LSTMBlockFusedCell(2)(zeros(4, 3, 2)), "initial_state or dtype"),
        (lambda: contrib.OutputProjectionWrapper(cells.GRUCell(2), 0), "output_size must be > 0"),
        (
            lambda: contrib.LayerNormBasicLSTMCell(2, 1.0, 5)(
                zeros(4, 3), cells.LSTMStateTuple(zeros(4, 2), zeros(4, 2))
            ),
            "expected axis -1 of input shape to have value 5",
        ),
        (
            lambda: contrib.InputProjectionWrapper(cells.GRUCell(2), 3, input_size=4)(
                zeros(4, 3), zeros(4, 2)
            ),
            "expected axis -1 of input shape to have value 4",
        ),
        (lambda: contrib.EmbeddingWrapper(cells.GRUCell(2), 0, 3), "must be > 0: 0, 3"),
        (lambda: contrib.AttentionCellWrapper(cells.GRUCell(2), 0), "greater than zero, got 0"),
        (
            lambda: contrib.AttentionCellWrapper(cells.LSTMCell(2), 3, state_is_tuple=False),
            "flag state_is_tuple is not set",
        ),
        (lambda: contrib.stack_bidirectional_rnn([], [], [zeros(2, 2)]), "at least one fw cell"),
        (
            lambda: contrib.stack_bidirectional_dynamic_rnn(
                [cells.GRUCell(2)], [cells.GRUCell(2)], zeros(2, 2, 2), initial_states_fw=3
            ),
            "initial_states_fw must be a list",
        ),
    ],
)
def test_refused_by_contrib(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_block_of_more_steps_than_there_are():
    x, state, w = zeros(3, 2, 1), zeros(2, 1), zeros(2, 4)
    steps = tf.placeholder("int64", [])
    peephole = zeros(1)
    made = tf.raw_ops.BlockLSTM(
        seq_len_max=steps,
        x=x,
        cs_prev=state,
        h_prev=state,
        w=w,
        wci=peephole,
        wcf=peephole,
        wco=peephole,
        b=zeros(4),
    )
    with tf.Session() as session:
        assert session.run(made.h, {steps: 3}).shape == (3, 2, 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="seq_len_max is 4"):
            session.run(made.h, {steps: 4})


def _half(inputs, outputs):
    return (inputs + outputs) / 2


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (lambda c: cells.ResidualWrapper(c, name="r"), {}),
        (lambda c: cells.ResidualWrapper(c, _half), {"residual_fn": _half}),
        (lambda c: cells.DeviceWrapper(c, "/cpu:0"), {"device": "/cpu:0"}),
        (
            lambda c: cells.DropoutWrapper(c, 0.5, seed=3, trainable=False),
            {
                "input_keep_prob": 0.5,
                "output_keep_prob": 1.0,
                "state_keep_prob": 1.0,
                "variational_recurrent": False,
                "input_size": None,
                "seed": 3,
            },
        ),
    ],
)
def test_configurations_of_wrappers_describe_the_cell(build, arguments):
    wrapper = build(cells.GRUCell(3))
    config = wrapper.get_config()
    described = config.pop("cell")
    assert described == {"class_name": "GRUCell", "config": wrapper.wrapped_cell.get_config()}
    own = {"name": wrapper.name, "trainable": wrapper.trainable, "dtype": None}
    assert config == own | arguments
    with pytest.raises(ValueError, match="cannot reconstruct the wrapped cell"):
        type(wrapper).from_config(config | {"cell": described})
    cell = cells.GRUCell.from_config(described["config"])
    again = type(wrapper).from_config(config | {"cell": cell})
    assert again.get_config() == wrapper.get_config()


@pytest.mark.parametrize("kind", ["GRUCell", "BasicLSTMCell", "LSTMCell"])
def test_a_cell_may_be_built_before_its_dtype_is_known(kind):
    with tf.Graph().as_default():
        cell = getattr(tf.nn.rnn_cell, kind)(3)
        cell.build(tf.TensorShape([None, 2]))
        assert {v.dtype.base_dtype for v in cell.weights} == {tf.float32}
