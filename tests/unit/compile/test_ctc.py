"""CTC in generated code: the loss, its gradient and the beam search of the NumPy kernels."""

import numpy as np
import pytest

from headrace._src.compile.run import single_ops
from headrace._src.ops.nn import ctc_kernels, ctc_search


def sequences(seed, dtype, most_classes):
    """Logits of one of several kinds, and lengths."""
    state = np.random.RandomState(seed)
    steps, batch, classes = (
        state.randint(1, 25),
        state.randint(1, 6),
        state.randint(2, most_classes),
    )
    shape = steps, batch, classes
    logits = [
        np.zeros(shape),
        state.randn(*shape),
        300 * state.randn(*shape),
        state.randint(0, 2, shape),
        np.where(state.rand(*shape) < 0.1, -np.inf, state.randn(*shape)),
    ][seed % 5].astype(dtype)
    return state, logits, state.randint(0, steps + 1, batch)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_loss_and_gradient(dtype, merge, seed):
    state, logits, lengths = sequences(seed, dtype, 40)
    steps, batch, classes = logits.shape
    counts = state.randint(1, min(steps, 9) + 1, batch)
    places = [(b, j) for b in range(batch) for j in range(counts[b])]
    values = np.minimum(state.randint(0, classes, len(places)), classes - 2)
    labels = ctc_kernels._Labels.of(np.array(places), values, logits.shape, False)
    lengths = np.where(labels.too_long(lengths, ignore=True), 0, lengths)
    run = single_ops.routine("ctc_loss", dtype, merge)
    found = run(logits, labels.values, labels.counts, lengths)
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = ctc_kernels._loss(logits, labels, lengths, merge)
    tolerance = 2e-5 if dtype == "float32" else 1e-9
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_a_batch_for_many_threads():
    state = np.random.RandomState(0)
    logits = state.randn(60, 33, 28).astype("f")
    counts = state.randint(1, 20, 33)
    labels = ctc_kernels._Labels(state.randint(0, 27, counts.sum()), counts, counts)
    lengths = state.randint(20, 61, 33)
    found = single_ops.routine("ctc_loss", "float32", True)(logits, labels.values, counts, lengths)
    expected = ctc_kernels._loss(logits, labels, lengths, True)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 5, 17, 40])
@pytest.mark.parametrize("seed", range(20))
def test_beam_search(width, seed):
    """Paths and scores are equal, those of equal probability too."""
    _, logits, lengths = sequences(seed, "float32", 8)
    for count in {1, min(3, width), width}:
        run = single_ops.routine("ctc_beam_search", "float32")
        labels, counts, scores = run(logits, lengths, width, count)
        for b, length in enumerate(lengths):
            paths, expected = ctc_search.search(logits[:length, b], width, count)
            assert counts[b].tolist() == [*map(len, paths), *[-1] * (count - len(paths))]
            for rank, path in enumerate(paths):
                assert labels[b, rank, : len(path)].tolist() == path
            np.testing.assert_array_equal(scores[b, : len(paths)], np.float32(expected))


def test_beam_search_of_doubles():
    state = np.random.RandomState(1)
    logits = state.randn(20, 5, 7)
    run = single_ops.routine("ctc_beam_search", "float64")
    labels, counts, scores = run(logits, np.full(5, 20), 12, 4)
    for b in range(5):
        paths, expected = ctc_search.search(logits[:, b], 12, 4)
        assert [labels[b, i, : counts[b, i]].tolist() for i in range(4)] == paths
        np.testing.assert_allclose(scores[b], expected, rtol=1e-13)


def test_decoders_and_loss_use_it_for_large_inputs(monkeypatch):
    state = np.random.RandomState(2)
    logits, lengths = state.randn(30, 8, 20).astype("f"), np.full(8, 30)
    labels = np.array([(b, j) for b in range(8) for j in range(3)]), np.arange(24) % 19

    def run():
        loss = ctc_kernels.ctc_loss(logits, *labels, lengths)
        decoded = ctc_kernels.ctc_beam_search_decoder(logits, lengths, beam_width=9, top_paths=2)
        return *loss, *decoded

    asked = []
    generate = ctc_kernels.generated.routine

    def counted(name, *settings):
        asked.append(name)
        return generate(name, *settings)

    monkeypatch.setattr(ctc_kernels.generated, "routine", counted)
    fast = run()
    assert asked == ["ctc_loss", "ctc_beam_search"]
    monkeypatch.setattr(ctc_kernels.generated, "routine", lambda *_: None)
    for x, y in zip(fast, run(), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
