"""Products in single precision: Hessians that lead to the answer of double precision, and to its proof."""

import numpy as np
import pytest

from tracelearn import TraceNormClassifier, moments
from tracelearn.arrays import linalg
from tracelearn.datasets import make_low_rank_regression
from tracelearn.moments import Accumulator
from tracelearn.problems import sample_loss


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(sample_loss, "_MANY", 1)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_however_wrong_a_hessian_is_the_answer_is_proven(n_classes, monkeypatch):
    X, y, _ = make_low_rank_regression(300, (4, 3, 3), rank=1, noise=0.5, random_state=0)
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    exact = TraceNormClassifier(loss="log_loss", tol=1e-7).fit(X, labels)
    rng = np.random.default_rng(0)
    wrong = []

    def mistaken(rows):
        wrong.append(rows)
        return (rows * rng.standard_normal(rows.shape)).astype(np.float32)

    monkeypatch.setattr(moments, "to_single", mistaken)
    monkeypatch.setattr(linalg, "to_single", mistaken)
    model = TraceNormClassifier(loss="log_loss", tol=1e-7).fit(X, labels)
    assert wrong
    assert model.dual_gap_ <= 1e-7
    assert model.objective_ == pytest.approx(exact.objective_, rel=3e-7)


def summarised(X, y, single):
    accumulator = Accumulator.empty(X.shape[1], 1, X, single=single)
    return accumulator.add(X, y[:, None], np.linspace(0.5, 1.5, len(y))).freeze()


def test_only_products_of_features_are_in_single_precision(monkeypatch):
    monkeypatch.setattr(moments, "_BLOCK_BYTES", 8 * 5 * 20)  # blocks of twenty samples
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) + 1e3 * np.arange(400)[:, None] / 400 + 1e6  # far from zero, and it drifts
    y = rng.standard_normal(400)
    rough, exact = summarised(X, y, True), summarised(X, y, False)
    for name in ("weight", "x_mean", "y_mean", "cross", "target_sq"):
        np.testing.assert_allclose(getattr(rough, name), getattr(exact, name), rtol=1e-9)
    error = np.abs(rough.gram - exact.gram).max()
    drift = 400 * 1e3**2 / 12  # what the blocks differ by is added in double precision
    assert 0 < error <= 1e-6 * 400 * 50**2 < 1e-6 * drift * 12
