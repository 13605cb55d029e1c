"""Bootstraps: equal to refits, intervals that cover, refusals in a sentence."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks import coverage
from scipy.stats import binom
from sklearn.base import clone

from tracelearn import TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.datasets import make_low_rank_regression
from tracelearn.inference import Bootstrap, bootstrap
from tracelearn.inference.draws import Influence, Study, draw, jackknifed
from tracelearn.inference.intervals import quantile, ranks_and_angles
from tracelearn.inference.reading import Reading


def _samples(n=80, noise=0.5):
    X, signal, _ = make_low_rank_regression(n, (4, 3, 2), rank=1, random_state=0)
    return X, signal + noise * signal.std() * np.random.default_rng(0).standard_normal(n)


@pytest.mark.parametrize("kind", ["one target", "no intercept", "a mode of targets", "classes"])
def test_a_drawn_sample_counts_as_often_as_it_was_drawn(kind):
    X, y = _samples()
    model, targets = {
        "one target": (TraceNormRegressor(0.1, tol=1e-10), y),
        "no intercept": (TraceNormRegressor(0.1, tol=1e-10, fit_intercept=False, ridge=0.1), y + 3.0),
        "a mode of targets": (TraceNormRegressor(0.1, tol=1e-10, target_mode=True), np.stack([y, y**2], 1)),
        "classes": (TraceNormClassifier(0.05, tol=1e-10), np.digitize(y, np.quantile(y, [0.3, 0.7]))),
    }[kind]
    found = bootstrap(model, X, targets, n_bootstraps=3, random_state=1)
    random = np.random.default_rng(1)
    for b in range(3):
        drawn = random.integers(80, size=80)
        left = np.setdiff1d(np.arange(80), drawn)
        expected = clone(model).fit(X[drawn], targets[drawn])
        np.testing.assert_allclose(found.coefs[b], expected.coef_, atol=1e-5)
        np.testing.assert_allclose(found.patterns[b], expected.patterns_, atol=1e-5)
        np.testing.assert_allclose(found.scores[b], expected.score(X[left], targets[left]), atol=1e-5)


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
    assert ranks_and_angles(one, other) == ([1], [pytest.approx(90.0)])
    assert ranks_and_angles(one, one) == ([1], [pytest.approx(0.0)])


DESIGNS = {design.name: design for design in coverage.DESIGNS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["40 samples, weak", "300 samples, weak", "100 in two classes, weak", "8 groups of 5", "20 groups of 4"]
)
def test_intervals_cover_what_they_promise(name):
    told, n = coverage.coverage(DESIGNS[name], 150, 100), 150
    least = binom.ppf(0.005, n, 0.9) / n  # of independent studies: once in 200 times it is less
    for what in ("score", "largest coefs", "largest patterns", "all coefs", "all patterns"):
        assert told[what] >= least, what
    # Of entries that vary together: two standard errors and a half of as many studies, at most.
    assert min(told["coefs"], told["patterns"]) > 0.9 - 0.06


@pytest.mark.slow
def test_an_interval_of_scores_without_what_samples_teach_is_too_short(monkeypatch):
    monkeypatch.setattr(
        Influence, "variance", property(lambda own: float(np.sum((own.judges - own.judges.mean()) ** 2)))
    )
    monkeypatch.setattr(Influence, "extrapolated", lambda own, half, best: own)
    told = coverage.coverage(DESIGNS["40 samples, weak"], 150, 100)
    assert told["score"] < binom.ppf(0.005, 150, 0.9) / 150


@pytest.mark.slow
def test_intervals_that_do_not_know_of_groups_are_too_short():
    told = coverage.coverage(DESIGNS["40 groups of 4, much shared"], 60, 100, groups=None)
    assert told["coefs"] < 0.75
    assert told["score"] < 0.75


@pytest.mark.parametrize("unit", ["samples", "groups"])
def test_what_units_do_to_a_score_adds_up_to_what_another_draw_of_them_does(unit):
    """Of a model that learns nothing a unit is only judge: the standard error is that of the mean of its hits."""
    rng, n = np.random.default_rng(0), 60
    X, y = rng.standard_normal((n, 3, 2)), (np.arange(n) % 7 > 0).astype(int)
    groups = np.arange(n) // 3
    model = TraceNormClassifier(alpha=1e6)
    study = Study(model, Reading.of(model, X, y), X, None, groups if unit == "groups" else np.arange(n))
    found = draw(study, 200, study.n_units, rng).influence()
    hits = np.bincount(study.units, weights=y) / n
    n_units = len(hits)
    expected = n_units / (n_units - 1) * np.sum((hits - np.bincount(study.units) / n * y.mean()) ** 2)
    np.testing.assert_allclose(found.variance, expected, rtol=0.1)
    assert found.score == pytest.approx(y.mean(), abs=0.02)


@pytest.mark.parametrize("scoring", ["accuracy", "neg_mean_squared_error"])
def test_the_jackknife_of_a_mean_is_what_its_samples_say(scoring):
    X, y = _samples(40)
    model, y = (TraceNormClassifier(0.05), y > 0) if scoring == "accuracy" else (TraceNormRegressor(0.1), y)
    random = np.random.default_rng(0)
    drawn = draw(Study(model, Reading.of(model, X, y), X, None, np.arange(40), scoring), 5, 40, random)
    values, _ = drawn.sample_scores()
    np.testing.assert_allclose(jackknifed(drawn, 2, np.arange(40)), values[2], atol=1e-9)
    np.testing.assert_allclose(values.sum(axis=1) / drawn.left_out.sum(axis=1), drawn.scores)


def test_without_a_signal_the_share_of_variance_is_not_above_that_of_the_mean():
    rng, found = np.random.default_rng(0), []
    for _ in range(10):
        X, y = rng.standard_normal((60, 3, 4)), rng.standard_normal(60)
        found.append(bootstrap(TraceNormRegressor(0.2), X, y, n_bootstraps=100, random_state=0).score)
    assert -0.3 < np.mean(found) < -0.02


def test_a_standard_error_of_few_bootstraps_is_known_less_well():
    X, y = _samples(60)
    few, many = (bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=own, random_state=0) for own in (20, 400))
    assert 1.0 <= few.degrees < 0.5 * many.degrees < 59.0


def test_a_score_and_its_error_do_not_depend_on_where_targets_are():
    X, y = _samples(50)
    near, far = (
        bootstrap(TraceNormRegressor(0.1), X, y + level, n_bootstraps=30, random_state=0) for level in (0.0, 1e6)
    )
    np.testing.assert_allclose([near.score, near.standard_error], [far.score, far.standard_error], rtol=1e-4)


def test_an_interval_of_a_score_stays_where_the_score_can_be():
    counts = np.ones((2, 30), dtype=int)

    def ends(score, error, scoring):
        none = np.zeros((2, 1))
        return Bootstrap(
            none[:, 0], none, none, none, none, none[0], 0.9, scoring, counts, score, error, 29.0
        ).interval()

    low, high = ends(1.0, 0.0, "accuracy")  # of 30 samples that were all right
    assert 0.85 < low < 0.95
    assert high == 1.0
    low, high = ends(0.98, 0.05, "roc_auc")
    assert 0.6 < low < 0.98 < high <= 1.0
    low, high = ends(0.9, 0.2, "r2")
    assert low < 0.7 < 0.9 < high < 1.0
    assert ends(-0.1, 0.2, "neg_mean_squared_error")[1] < 0.0
    np.testing.assert_allclose(np.mean(ends(0.3, 0.1, "made up")), 0.3)


def test_a_band_covers_all_entries_of_a_share_of_draws_and_an_interval_each_of_them():
    X, y = _samples()
    found = bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=100, random_state=0, level=0.8)
    for what in ("coefs", "patterns"):
        band, each = (np.ptp(found.interval(what, simultaneous=own), axis=0) for own in (True, False))
        assert np.all(band > 1.3 * each)
    low, high = found.interval("coefs", simultaneous=True)
    assert np.mean(np.all((low <= found.coefs) & (found.coefs <= high), axis=(1, 2, 3))) >= 0.8


def test_a_spread_that_few_units_carry_is_known_less_well():
    rng, n, draws = np.random.default_rng(0), 60, 400
    counts = rng.multinomial(n, np.full(n, 1 / n), size=draws)
    units = {"alike": rng.choice([-1.0, 1.0], n), "normal": rng.standard_normal(n), "few": 1.0 * (np.arange(n) < 3)}
    values = np.stack([counts @ own / n for own in units.values()], axis=1)
    nothing = np.zeros((draws, 1))
    values = np.concatenate([values, nothing], axis=1)
    middle = values.mean(axis=0)
    found = Bootstrap(counts[:, 0], values, values, nothing, nothing, middle, 0.9, "r2", counts, 0.5, 0.1, 59.0)
    alike, normal, few, still = found.degrees_of_spread(values)
    assert alike == still == n - 1
    assert few < 10 < 20 < normal <= n - 1
    plain = np.quantile(values, 0.95, axis=0)
    assert found.interval("coefs")[1, 2] - plain[2] > 0.2 * np.std(values[:, 2])
    assert not np.any(found.interval("coefs")[:, 3])


def test_a_quantile_for_each_entry_is_that_of_numpy():
    values = np.random.default_rng(0).standard_normal((23, 4))
    for share in (0.001, 0.05, 0.5, 0.93):
        expected = np.quantile(values, share, axis=0, method="weibull")
        np.testing.assert_allclose(quantile(values, np.full(4, share)), expected, atol=1e-12)


def test_intervals_are_wider_for_fewer_groups():
    X, y = _samples()
    found = bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=40, random_state=0, level=0.8)
    few = replace(found, counts=found.counts[:, :5])
    for what in ("coefs", "patterns", "angles"):
        widths = [np.ptp(one.interval(what), axis=0) for one in (found, few)]
        assert np.all(widths[1] > widths[0])


@pytest.mark.parametrize(
    ("options", "words"),
    [({"n_bootstraps": 1}, "n_bootstraps"), ({"level": 2.0}, "level"), ({"groups": [0]}, "one for each sample")],
)
def test_bad_bootstraps_are_refused_in_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        bootstrap(TraceNormRegressor(), *_samples(), **options)


def test_other_bad_input_is_refused_in_a_sentence():
    X, y = _samples()
    with pytest.raises(ValueError, match="linear_estimator"):
        bootstrap(TensorRegressor(), X, y)
    found = bootstrap(TraceNormRegressor(), X, y, n_bootstraps=2)
    with pytest.raises(ValueError, match="'scores', 'coefs'"):
        found.interval("ranks")
    with pytest.raises(ValueError, match="'coefs' or 'patterns'"):
        found.interval("scores", simultaneous=True)


def test_bootstraps_are_drawn():
    pytest.importorskip("matplotlib")
    X, y = _samples()
    found = bootstrap(TraceNormRegressor(0.1), X, y, n_bootstraps=10, random_state=0)
    assert len(found.plot()) == 3


@pytest.mark.parametrize("scoring", ["r2", "neg_mean_squared_error"])
def test_a_score_of_all_samples_is_never_better_than_the_best(scoring):
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(60, 10, 10)), np.outer(rng.normal(size=10), rng.normal(size=10))
    y = X.reshape(60, -1) @ W.ravel()
    y = y / y.std() + 0.01 * rng.normal(size=60)
    found = bootstrap(TraceNormRegressor(), X, y, n_bootstraps=50, scoring=scoring, random_state=0)
    low, high = found.interval("scores")
    best = 1.0 if scoring == "r2" else 0.0
    assert found.scores.mean() < found.score < best
    assert best - 0.5 < low < found.score < high < best


def test_what_a_score_of_few_samples_may_be_is_finite():
    X, y = _samples(12)
    low, high = bootstrap(TraceNormRegressor(0.0), X, y, n_bootstraps=20, random_state=0).interval("scores")
    assert -1e6 < low < high < 1.0


def test_a_score_of_the_users_own_may_have_any_name_and_size():
    def accuracy_percent(model, X, y):
        return 100.0 * np.mean(model.predict(X) == y)

    X, y = _samples()
    model, labels = TraceNormClassifier(0.1), y > 0
    own = bootstrap(model, X, labels, n_bootstraps=20, scoring=accuracy_percent, random_state=0)
    ours = bootstrap(model, X, labels, n_bootstraps=20, random_state=0)
    np.testing.assert_allclose(own.scores, 100.0 * ours.scores)
    assert own.interval("scores")[0] > 1.0


@pytest.mark.parametrize("scoring", ["roc_auc_ovr", "neg_log_loss"])
def test_draws_that_leave_a_rare_class_out_of_a_score_are_drawn_anew(scoring):
    X, _ = _samples(60)
    y = np.repeat([0, 1, 2], [32, 7, 21])
    found = bootstrap(TraceNormClassifier(loss="log_loss"), X, y, n_bootstraps=10, scoring=scoring, random_state=0)
    assert np.all(np.isfinite(found.scores))
    assert np.all(np.isfinite(found.interval("scores")))
