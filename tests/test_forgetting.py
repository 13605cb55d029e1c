"""Differences of moments: certificates count what cancels, and where nothing can be proven any more that is said."""

import warnings

import numpy as np
import pytest

from tracelearn import Moments, TraceNormClassifier, TraceNormRegressor
from tracelearn.penalties import as_penalty
from tracelearn.problems.problem import Problems
from tracelearn.problems.squares import Squares
from tracelearn.solvers import admm

SHAPE = (4, 3)


def samples(seed, scale=1.0, offset=0.0, n=60):
    """Draw samples that stay, and others that are larger or elsewhere, with targets of the same units."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal(12)
    stay = rng.standard_normal((n, 12))
    go = scale * rng.standard_normal((n, 12)) + offset
    return (stay, stay @ W + rng.standard_normal(n)), (go, go @ W + scale * rng.standard_normal(n))


def stated(moments, alpha=0.1):
    fit = Squares.of(moments)
    return Problems(fit, as_penalty("overlapped", SHAPE), np.full(1, alpha), SHAPE, fit.at_zero.value)


def objective(problems, W):
    return float(problems.certified(W, problems.penalty.start(W), 0).objective[0])


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e2, 0.0), (1e5, 0.0), (1.0, 1e4), (1.0, 1e5), (1e4, 1e5)])
def test_a_gap_after_samples_were_removed_is_not_too_small(scale, offset, centre):
    for seed in range(10):
        stay, go = samples(seed, scale, offset)
        both = Moments.of(*stay) + Moments.of(*go)
        remainder, exact = both.without(Moments.of(*go)), Moments.of(*stay)
        if not centre:
            remainder, exact = remainder.uncentred(), exact.uncentred()
        found = admm(stated(remainder), tol=1e-9, max_iter=300)
        truth = stated(exact)
        best = admm(truth, tol=1e-12, max_iter=3000)
        unit = float(truth.scale[0])
        true_gap = (objective(truth, found.W) - float(best.objective[0])) / unit
        assert true_gap <= float(found.gap[0]) * 1.1 + 1e-12
        error = abs(float(found.objective[0]) - objective(truth, found.W)) / unit
        assert error <= float(found.gap[0]) * 1.1 + 1e-12


def test_samples_of_the_same_size_cost_no_accuracy():
    stay, go = samples(0)
    remainder = (Moments.of(*stay) + Moments.of(*go)).without(Moments.of(*go))
    assert remainder.rounding_share < 1e-13
    assert admm(stated(remainder), tol=1e-12).gap[0] <= 1e-12


@pytest.mark.parametrize(("scale", "offset"), [(1e8, 0.0), (1.0, 1e9)])
def test_where_rounding_is_all_that_is_left_the_cause_is_said(scale, offset):
    stay, go = samples(0, scale, offset)
    both = Moments.of(*stay) + Moments.of(*go)
    with pytest.raises(
        ValueError, match=r"^Expected features to forget .*rounding is .* of the variance that is left: fit"
    ):
        both.without(Moments.of(*go))


def test_what_cancelled_is_remembered_however_moments_are_changed():
    stay, go = samples(0, 1e5)
    remainder = (Moments.of(*stay) + Moments.of(*go)).without(Moments.of(*go))
    share = remainder.rounding_share
    assert share > 1e-7
    more = Moments.of(*samples(1)[0])
    for changed in (
        remainder + more,
        more + remainder,
        remainder.updated(*samples(1)[0]),
        Moments.total([more, remainder]),
        remainder.scaled(0.5),
        remainder.rescaled(np.full(12, 7.0)),
        remainder.uncentred(),
        remainder.moved_to(np.zeros(1)),
    ):
        assert share / 4 <= changed.rounding_share <= 4 * share


@pytest.mark.parametrize("n_classes", [2, 3])
def test_forgetting_all_of_one_class_is_no_breakdown(n_classes):
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, labels = rng.standard_normal((30, *SHAPE)), np.arange(30) % n_classes
        model = TraceNormClassifier(alpha=0.05, keep_moments=True).fit(X, labels)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of one class there may be nothing to learn
            model.forget(X[labels == 0], labels[labels == 0])
        stay = Moments.of(X[labels != 0].reshape(-1, 12), np.where(labels == 1, 1.0, -1.0)[labels != 0])
        np.testing.assert_allclose(model.moments_.gram, stay.gram, atol=1e-11)
        assert np.all(np.isfinite(model.coef_))
        # Targets that do not vary any more are exactly constant: the code of the class that is left, or of the one that is gone.
        is_constant = slice(None) if n_classes == 2 else slice(1)
        assert not model.moments_.target_sq[is_constant].any()
        assert not model.moments_.cross[:, is_constant].any()
        assert np.all(model.moments_.target_sq >= 0.0)
        if n_classes == 2:
            assert not model.coef_.any()


def test_what_was_never_learned_is_not_forgotten():
    X, y = samples(0)[0]
    model = TraceNormRegressor(alpha=0.1, keep_moments=True, tensor_shape=SHAPE).fit(X, y)
    with pytest.raises(ValueError, match="negative variance"):
        model.forget(3.0 * X[:10], y[:10])
    with pytest.raises(ValueError, match="some samples to be left"):
        model.forget(X, y)
