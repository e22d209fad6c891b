"""Softmax by oneDNN against its formula in float64."""

import numpy as np
import pytest

from headrace._src.devices import onednn


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("shape", [(10,), (4, 1000), (2, 3, 17), (2, 3, 4, 5), (3, 1)])
def test_softmax(shape):
    x = 10 * np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = log_softmax(x)
    np.testing.assert_allclose(onednn.softmax(x), np.exp(want), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(onednn.log_softmax(x), want, rtol=1e-4, atol=1e-5)


def test_large_and_masked_logits():
    x = np.array([[1000, 1000, -1000], [-np.inf, 0, 1]], np.float32)
    want = np.array([[0.5, 0.5, 0], [0, 0.26894143, 0.7310586]])
    np.testing.assert_allclose(onednn.softmax(x), want, rtol=1e-5)


@pytest.mark.parametrize("row", [[np.nan, 1, 2], [1, np.inf, 2], [-np.inf] * 3])
@pytest.mark.parametrize("function", [onednn.softmax, onednn.log_softmax])
def test_rows_that_become_nan_are_left_to_numpy(function, row):
    x = np.array([[0, 1, 2], row], np.float32)
    with pytest.raises(onednn.Unsupported, match="NaN"):
        function(x)


def test_what_does_not_fit_is_unsupported():
    x = np.zeros((2, 3), np.float32)
    for bad in (x[:0], x[0, 0], x.astype(int)):
        with pytest.raises(onednn.Unsupported):
            onednn.softmax(np.asarray(bad))
