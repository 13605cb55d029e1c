"""Bootstraps and learning curves: equal to refits, intervals that cover, refusals in a sentence."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.metrics import get_scorer
from sklearn.model_selection import KFold

from tracelearn import TraceNormClassifier, TraceNormRegressor, TraceNormRegressorCV
from tracelearn.datasets import make_low_rank_regression
from tracelearn.inference import Bootstrap, bootstrap, learning_curve
from tracelearn.inference.draws import degrees_of
from tracelearn.inference.intervals import _quantile, _subspaces

CV = KFold(3, shuffle=True, random_state=0)


def _samples(n=80, noise=0.5):
    X, signal, _ = make_low_rank_regression(n, (4, 3, 2), rank=1, random_state=0)
    return X, signal + noise * signal.std() * np.random.default_rng(0).standard_normal(n)


def test_a_drawn_sample_counts_as_often_as_it_was_drawn():
    X, y = _samples()
    model = TraceNormRegressor(0.1, tol=1e-10)
    found = bootstrap(model, X, y, n_bootstraps=3, random_state=1)
    random = np.random.default_rng(1)
    for b in range(3):
        drawn = random.integers(80, size=80)
        left = np.setdiff1d(np.arange(80), drawn)
        expected = clone(model).fit(X[drawn], y[drawn])
        np.testing.assert_allclose(found.coefs[b], expected.coef_, atol=1e-5)
        np.testing.assert_allclose(found.patterns[b], expected.patterns_, atol=1e-5)
        np.testing.assert_allclose(found.scores[b], expected.score(X[left], y[left]), atol=1e-5)


def test_groups_are_drawn_whole_and_every_class_is_drawn():
    X, _ = _samples(40)
    groups = np.arange(40) // 4
    seen = []

    class Watching(TraceNormClassifier):
        def fit(self, X, y=None, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y, sample_weight)

    rare = np.where(np.arange(40) < 4, "rare", "often")
    bootstrap(Watching(), X, rare, groups=groups, n_bootstraps=10, random_state=0)
    for weight in seen[1:]:
        assert all(len(np.unique(weight[groups == g])) == 1 for g in range(10))
        assert weight[0] > 0


def test_a_stable_subspace_has_small_angles_and_its_rank_is_found_often():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4, 3, 2))
    W = np.einsum("i,j,k->ijk", *(rng.standard_normal(size) for size in (4, 3, 2)))
    y = np.tensordot(X, W, 3) + 0.1 * rng.standard_normal(400)
    found = bootstrap(TraceNormRegressor(0.3), X, y, n_bootstraps=20, random_state=0)
    assert np.all(found.angles < 30)
    assert found.rank_shares(0).get(1, 0.0) > 0.8
    axes = np.eye(3)
    one, other = ([(axes[:, own], np.ones(1))] for own in ([0], [1]))
    assert _subspaces(one, other) == [(1, pytest.approx(90.0))]
    assert _subspaces(one, one) == [(1, pytest.approx(0.0))]


def coverage(*, dependent, given, n_sets=100, n_bootstraps=40):
    """Tell how often intervals of 90 % cover weights, patterns, the largest of them, and scores.

    Samples depend on each other within groups or not. For the figures of ``Bootstrap``: 200 sets of 100 bootstraps.
    """
    rng, model = np.random.default_rng(0), TraceNormRegressor(0.3, tol=1e-4, fit_intercept=False)
    weights, variance = np.outer([1.0, -0.5], [1.0, 0.5, 0.0]), 5.0 if dependent else 1.0

    def draw(n_groups):
        groups = np.repeat(np.arange(n_groups), 4)
        X, noise = rng.standard_normal((len(groups), 2, 3)), rng.standard_normal(len(groups))
        if dependent:
            X += 2 * rng.standard_normal((n_groups, 2, 3))[groups]
            noise += 2 * rng.standard_normal(n_groups)[groups]
        return X, np.tensordot(X, weights, 2) + noise, groups

    X, y, _ = draw(20_000)
    endless = clone(model).fit(X, y)
    coefs, patterns, scores, means = [], [], [], []
    for _ in range(n_sets):
        X, y, groups = draw(40)
        options = {"n_bootstraps": n_bootstraps, "level": 0.9, "random_state": rng.integers(1 << 30)}
        found = bootstrap(model, X, y, groups=groups if given else None, **options)
        for ends, kept, truth in (("coefs", coefs, endless.coef_), ("patterns", patterns, endless.patterns_)):
            low, high = found.interval(ends)
            kept.append((low <= truth) & (truth <= high))
        scores.append(found.interval("scores"))
        missed = (
            variance * np.sum((found.coefs - weights) ** 2, axis=(1, 2)) + variance
        )  # the noise varies like an entry
        means.append(np.mean(1.0 - missed / (variance * np.sum(weights**2) + variance)))
    low, high = np.transpose(scores)
    largest = np.unravel_index(np.argmax(np.abs(endless.patterns_)), endless.patterns_.shape)
    return {
        "coefs": np.mean(coefs),
        "patterns": np.mean(patterns),
        "largest": np.mean([own[largest] for own in patterns]),
        "scores": np.mean((low <= np.mean(means)) & (np.mean(means) <= high)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("dependent", [False, True])
def test_intervals_cover_what_they_promise(dependent):
    found = coverage(dependent=dependent, given=dependent)
    assert abs(found["coefs"] - 0.9) < 0.03  # of six entries that vary together: two standard errors and a half
    assert abs(found["patterns"] - 0.9) < 0.03
    least, _ = binom.interval(0.99, 100, 0.9)
    assert found["largest"] >= least / 100
    assert found["scores"] >= binom.interval(0.99, 100, 0.85)[0] / 100  # see Bootstrap for what these cover


@pytest.mark.slow
def test_intervals_that_do_not_know_of_groups_are_too_short():
    assert coverage(dependent=True, given=False, n_sets=30)["coefs"] < 0.75


def test_a_spread_that_few_units_carry_is_known_less_well():
    rng, n, draws = np.random.default_rng(0), 60, 400
    counts = rng.multinomial(n, np.full(n, 1 / n), size=draws)
    units = {"alike": rng.choice([-1.0, 1.0], n), "normal": rng.standard_normal(n), "few": 1.0 * (np.arange(n) < 3)}
    values = np.stack([counts @ own / n for own in units.values()], axis=1)
    nothing = np.zeros((draws, 1))
    values = np.concatenate([values, nothing], axis=1)
    found = Bootstrap(counts[:, 0], values, values, nothing, nothing, values[0], 0.9, "r2", counts)
    alike, normal, few, still = found._degrees(values)
    assert alike == still == n - 1
    assert few < 10 < 20 < normal <= n - 1
    plain = np.quantile(values, 0.95, axis=0)
    assert found.interval("coefs")[1, 2] - plain[2] > 0.2 * np.std(values[:, 2])
    assert not np.any(found.interval("coefs")[:, 3])


def test_a_quantile_for_each_entry_is_that_of_numpy():
    values = np.random.default_rng(0).standard_normal((23, 4))
    for share in (0.001, 0.05, 0.5, 0.93):
        expected = np.quantile(values, share, axis=0, method="weibull")
        np.testing.assert_allclose(_quantile(values, np.full(4, share)), expected, atol=1e-12)


def test_intervals_are_wider_for_fewer_groups_and_a_score_stays_within_its_draws():
    X, y = _samples()
    found = bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=40, random_state=0, level=0.8)
    few = replace(found, counts=found.counts[:, :5])
    for what in ("coefs", "patterns", "angles"):
        widths = [np.ptp(one.interval(what), axis=0) for one in (found, few)]
        assert np.all(widths[1] > widths[0])
    low, high = found.interval("scores")
    assert found.scores.min() < low < found.scores.mean() < high < found.scores.max()


CASES = {
    "numbers": (TraceNormRegressor(0.1, tol=1e-10), lambda y: y, "r2"),
    "several": (TraceNormRegressor(0.1, tol=1e-10, target_mode=True), lambda y: np.stack([y, y**2], 1), "r2"),
    "no intercept": (TraceNormRegressor(0.1, tol=1e-10, fit_intercept=False), lambda y: y, "r2"),
    "classes": (TraceNormClassifier(0.05, tol=1e-10), lambda y: y > 0, "roc_auc"),
    "scaled": (TraceNormRegressor(0.1, tol=1e-10, scaling="modes"), lambda y: y, "r2"),
    "logistic": (TraceNormClassifier(0.05, tol=1e-6, loss="logistic"), lambda y: y > 0, "neg_log_loss"),
}


@pytest.mark.parametrize("n", [80, 16])  # moments, and a basis of fewer samples than features
@pytest.mark.parametrize("case", CASES)
def test_a_learning_curve_is_that_of_refits_on_the_same_samples(case, n):
    model, targets, scoring = CASES[case]
    X, y = _samples(n)
    y, sizes = targets(y), [6, n // 2]
    found = learning_curve(model, X, y, sizes=sizes, cv=CV, scoring=scoring, random_state=2)
    random = np.random.default_rng(2)
    orders = [random.permutation(train) for train, _ in CV.split(X)]
    expected = np.empty((3, 2))
    for f, (order, (_, test)) in enumerate(zip(orders, CV.split(X), strict=True)):
        if model._learns_classes:
            first = sorted(np.unique(y[order], return_index=True)[1])
            order = [*order[first], *np.delete(order, first)]  # noqa: PLW2901
        for i, size in enumerate(sizes):
            one = clone(model).fit(X[order[:size]], y[order[:size]])
            expected[f, i] = get_scorer(scoring)(one, X[test], y[test])
    np.testing.assert_allclose(found.scores, expected, atol=1e-3)
    assert found.method == ("refit" if case in ("scaled", "logistic") else "batch")


def test_more_samples_are_better():
    X, y = _samples(200, noise=0.2)
    found = learning_curve(TraceNormRegressor(0.2), X, y, sizes=5)
    assert found.sizes.tolist() == [32, 64, 96, 128, 160]
    assert found.mean[-1] > found.mean[0] + 0.1


@pytest.mark.parametrize(
    ("options", "words"),
    [({"n_bootstraps": 1}, "n_bootstraps"), ({"level": 2.0}, "level"), ({"groups": [0]}, "one group for each")],
)
def test_bad_bootstraps_are_refused_in_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        bootstrap(TraceNormRegressor(), *_samples(), **options)


def test_other_bad_input_is_refused_in_a_sentence():
    X, y = _samples()
    with pytest.raises(ValueError, match="best_estimator_"):
        bootstrap(TraceNormRegressorCV(), X, y)
    with pytest.raises(ValueError, match="'scores', 'coefs'"):
        bootstrap(TraceNormRegressor(), X, y, n_bootstraps=2).interval("ranks")
    for sizes in ([1, 2], [500], [2.5], [], 0):
        with pytest.raises(ValueError, match="sizes"):
            learning_curve(TraceNormRegressor(), X, y, sizes=sizes)


def test_both_are_drawn():
    pytest.importorskip("matplotlib")
    X, y = _samples()
    found = bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=10, random_state=0)
    assert len(found.plot()) == 3
    curve = learning_curve(TraceNormRegressor(0.1), X, y, sizes=3)
    np.testing.assert_allclose(curve.plot().lines[0].get_ydata(), curve.mean)
