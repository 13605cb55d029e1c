"""The page of a model: what it says, that nothing in it can run or load, and how it behaves in a browser."""

import hashlib
import json
import os
import re
import shutil
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import confusion_matrix, r2_score
from sklearn.pipeline import make_pipeline

from tracelearn import (
    HierarchicalTraceNormClassifier,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    cli,
    inference,
    load,
    save,
)
from tracelearn.datasets import make_low_rank_regression
from tracelearn.features import Logarithm, SecondOrder, default_views
from tracelearn.plotting.modes import cv_curve
from tracelearn.plotting.views import view_in_words
from tracelearn.report import Study, evaluate, evaluation, model_page, result_page, write_model_page
from tracelearn.report.facts import MOST_COMPONENTS, Weights, gather
from tracelearn.report.page import Origin, render
from tracelearn.report.pages import as_json
from tracelearn.report.scores import Confusion, Evaluation, Residuals, compare
from tracelearn.report.words import methods, what_views_are, with_interval
from tracelearn.samples.modes import Mode
from tracelearn.search.folds import make_folds

EVIL = '</script><img src=x onerror="document.title=1">'
NAMES = ("channel", "time", "frequency")


def data_of(html):
    """Read the numbers that the script of a page gets."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1])


class Text(HTMLParser):
    """What a reader sees, and which elements there are."""

    def __init__(self, html):
        super().__init__()
        self.words, self.tags, self.skip = [], [], False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.skip = tag in ("script", "style")

    def handle_endtag(self, tag):
        self.skip = False

    def handle_data(self, data):
        if not self.skip:
            self.words.append(data)

    def __str__(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 4, 9, 3))
    W = np.einsum("i,j,k", rng.standard_normal(4), np.sin(np.arange(9.0)), [1.0, 0.5, 0.0])
    signal = X.reshape(240, -1) @ W.ravel()
    label = np.where(signal > 1.0, EVIL, np.where(signal < -1.0, 'a & "b"', "rest"))
    return X, signal + 0.2 * rng.standard_normal(240), label


@pytest.fixture(scope="module")
def classifier(samples):
    X, _, label = samples
    return TraceNormClassifierCV(alphas=8, cv=3).fit(X[:160], label[:160])


@pytest.fixture(scope="module")
def regressor(samples):
    X, y, _ = samples
    second = X[:, 0, 0, 2] - X[:, 1, 3, 2]  # so that several components carry 99 % of the weights
    return TraceNormRegressor(alpha=0.05).fit(X[:160], (y + second)[:160])


# --- scores -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_of_an_accuracy_ends_where_a_normal_test_would_refuse_it(case):
    right, total = case
    found, share = Confusion(["a", "b"], np.array([[right, total - right], [0, 0]])), right / total
    for end in found.interval:  # Wilson's: the share is 1.96 standard deviations away if the end is true
        np.testing.assert_allclose(total * (share - end) ** 2, 1.959963984540054**2 * end * (1 - end), atol=1e-9)
    assert found.interval[0] <= share <= found.interval[1]


def test_the_confusion_matrix_is_that_of_scikit_learn(classifier, samples):
    X, _, label = samples
    found = classifier.predict(X[160:])
    result = compare(label[160:], found, classifier.classes_)
    np.testing.assert_array_equal(result.counts, confusion_matrix(label[160:], found, labels=classifier.classes_))
    assert result.accuracy == pytest.approx(classifier.score(X[160:], label[160:]))
    assert result.majority == pytest.approx(np.unique(label[160:], return_counts=True)[1].max() / 80)
    np.testing.assert_allclose(result.shares.sum(axis=1), 1.0)


def test_labels_that_the_model_does_not_know_have_a_row_of_their_own(classifier):
    result = compare(np.array(["rest", "new"]), np.array(["rest", "rest"]), classifier.classes_)
    assert result.labels[-1] == "new"
    assert result.counts[-1, result.labels.index("rest")] == 1
    assert result.accuracy == 0.5


def test_the_interval_of_r2_is_as_wide_as_a_bootstrap_finds(rng):
    truth = rng.standard_normal(400)
    predicted = 0.8 * truth + 0.4 * rng.standard_normal(400)
    low, high = Residuals(predicted[:, None], (truth - predicted)[:, None]).interval
    scores = []
    for _ in range(2000):
        pick = rng.integers(0, 400, 400)
        scores.append(1 - np.mean((truth - predicted)[pick] ** 2) / np.var(truth[pick]))
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(scores), rel=0.15)
    assert low < np.mean(scores) < high


def test_r2_is_that_of_the_model(regressor, samples):
    X, y, _ = samples
    result = compare(y[160:], regressor.predict(X[160:]))
    assert result.r2 == pytest.approx(regressor.score(X[160:], y[160:]))
    assert sum(result.histogram(0)[0]) == result.total == 80


def test_a_constant_target_has_no_interval():
    assert Residuals(np.zeros((5, 1)), np.ones((5, 1))).interval is None


@pytest.mark.parametrize("residual", [0.0, 1.0, -1e-300, 1e49])
def test_residuals_that_are_all_alike_fall_into_one_bin(residual):
    near = residual * np.array([[1.0], [1.0], [1.0 + 2e-16]])
    counts, edges = Residuals(np.zeros((3, 1)), near).histogram(0)
    assert counts.tolist() == [3]
    assert edges[0] < residual < edges[1]


def test_a_model_is_evaluated_on_folds_and_its_page_tells_the_scores_and_who_was_held_out(samples):
    X, y, _ = samples
    groups = np.arange(240) // 20
    model, called = TraceNormRegressor(alpha=0.3), []
    found = evaluate(model, X, y, groups=groups, cv=4, on_fold=lambda *numbers: called.append(numbers))
    folds = make_folds(4, y, groups, classifier=False).splits
    scores = [r2_score(y[test], clone(model).fit(X[train], y[train]).predict(X[test])) for train, test in folds]
    assert found.folds.mean == pytest.approx(np.mean(scores), abs=1e-9)
    assert found.comparison.names == ("model", "ridge")
    assert found.result.total == 240
    assert called == [(fold, 4) for fold in range(4)]
    assert not hasattr(model, "coef_")
    text = str(Text(model_page(model.fit(X, y), evaluation=found)))
    assert "n = 240 in 12 groups" in text
    assert "On 4 folds, each predicted by a model chosen and fitted without it" in text
    with pytest.raises(ValueError, match="Expected X and y, or an evaluation"):
        model_page(model, X, y, evaluation=found)


def test_files_tables_with_names_and_lists_are_evaluated_as_arrays_are(samples, tmp_path, monkeypatch):
    xarray = pytest.importorskip("xarray")
    X, y, _ = samples
    who = np.arange(240) // 20
    np.savez(tmp_path / "data.npz", X=X, y=y, who=who)
    model = TraceNormRegressor(alpha=0.3)
    wanted = evaluate(model, X, y, groups=who, cv=3)
    named = evaluate(model, xarray.DataArray(X, dims=("sample", *NAMES)), y, groups=who, cv=3)
    from_file = evaluate(model, str(tmp_path / "data.npz"), groups="who", cv=3)
    monkeypatch.setattr(evaluation, "available_memory", lambda: 1000)
    in_blocks = evaluate(model, str(tmp_path / "data.npz"), groups="who", cv=3)
    for other in (named, from_file, in_blocks):
        np.testing.assert_allclose(other.result.predicted, wanted.result.predicted, atol=1e-5)
        assert other.folds.mean == pytest.approx(wanted.folds.mean, abs=1e-6)
    assert from_file.comparison.names == ("model", "ridge")
    assert in_blocks.comparison.names == ("model",)
    with pytest.raises(ValueError, match="Expected one target for each sample"):
        evaluate(model, X)


def test_a_page_takes_the_confounds_of_its_samples(samples):
    X, y, _ = samples
    age = np.linspace(0.0, 1.0, 240)
    model = TraceNormRegressor(alpha=0.3).fit(X[:160], y[:160], confounds=age[:160])
    data = data_of(model_page(model, X[160:], y[160:], confounds=age[160:]))
    wanted = model.predict(X[160:], confounds=age[160:])
    np.testing.assert_allclose(data["residuals"][0]["predicted"], wanted, rtol=1e-4, atol=1e-4)


def test_many_samples_are_thinned_in_the_drawing_only():
    result = Residuals(np.zeros((9000, 1)), np.arange(9000.0)[:, None])
    assert result.points().total == 2000
    assert result.histogram(0)[0].sum() == 9000


def test_measured_numbers_are_shown_with_the_intervals_of_a_search(samples):
    X, y, _ = samples
    model = TensorRegressor(views=None, alphas=3).fit(X[:160], y[:160])
    (target,) = data_of(model_page(model, X[160:], y[160:]))["residuals"]
    for name, bound in zip(("lower", "upper"), model.predict_interval(X[160:], level=0.9), strict=True):
        np.testing.assert_allclose(target[name], bound, rtol=1e-3, atol=1e-3)
    assert "Nine of ten" in model_page(model, X[160:], y[160:])
    few = TensorRegressor(views=None, alphas=3).fit(X[:8], y[:8])  # too few to say so
    assert "lower" not in data_of(model_page(few, X[160:], y[160:]))["residuals"][0]


def test_pages_of_commands_show_intervals_and_the_name_of_the_number(samples, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X, y, _ = samples
    np.savez("data.npz", X=X, glucose=y)
    asked = ("data.npz", "--target", "glucose", "--html", "fit.html", "--out", "model")
    assert call(capsys, "fit", *asked, "--views", "raw")[0] == 0
    asked = ("model", "--data", "data.npz", "--target", "glucose", "--html", "inspect.html")
    assert call(capsys, "inspect", *asked)[0] == 0
    for name in ("fit.html", "inspect.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert "A linear model of glucose" in page
        (target,) = data_of(page)["residuals"]
        inside = [
            low <= y <= high for low, y, high in zip(target["lower"], target["measured"], target["upper"], strict=True)
        ]
        assert 0.8 < np.mean(inside) <= 1.0
        assert f"{100 * np.mean(inside):.0f} % are" in str(Text(page))


@pytest.mark.parametrize("y", [np.full(9, 0.5), 0.01 * np.sin(np.arange(9.0))])
def test_digits_of_a_score_tell_the_ends_of_its_interval_apart(y):
    truth = np.linspace(0.0, 1.0, 9)
    value, interval = with_interval(compare(truth, truth + y))
    low, high = interval.split(" to ")
    assert len({value, low, high}) == 3


def test_there_is_one_number_of_models_that_were_tried(signals):
    X, label = signals
    model = TensorClassifier(alphas=3, cv=3).fit(X, label)
    words = str(Text(model_page(model)))
    count = len(model.views_tried_["views"])
    assert f"All {count} views and paths that were tried" in words
    assert re.findall(r"chosen one of (\d+) views and paths", words) == [str(count)]


def test_confounds_are_named_on_the_page(samples):
    X, y, _ = samples
    model = TraceNormRegressor(alpha=0.05).fit(X, y, confounds=y[:, None] ** 2)
    assert "confounds age, regressed out" in str(Text(model_page(model, study=Study(confounds=["age"]))))
    assert "confounds 1 for each sample, regressed out" in str(Text(model_page(model)))


def test_cross_validation_is_read_from_the_model(classifier, samples):
    curve = cv_curve(classifier)
    assert curve.mean[curve.at] == pytest.approx(classifier.best_score_, abs=5e-3)
    assert curve.n_folds == 3
    X, y, _ = samples
    model = TraceNormRegressorCV(alphas=5).fit(X[:100], y[:100])
    assert cv_curve(model).quantity == "held-out R²"
    scored = TraceNormRegressorCV(alphas=5, scoring="r2").fit(X[:100], y[:100])
    assert cv_curve(scored).mean[cv_curve(scored).at] == pytest.approx(scored.best_score_)


def test_the_page_of_a_search_that_chose_ridge_regression_draws_the_path_of_ridges(rng):
    X = rng.standard_normal((80, 30))
    y = X @ rng.standard_normal(30) + 2.0 * rng.standard_normal(80)  # a flat sample has no rank to be low
    model = TensorRegressor(views=None).fit(X, y)
    name = "ridge" if model.alpha_ == 0.0 else "alpha"
    html = model_page(model)
    assert data_of(html)["path"]["name"] == name
    assert data_of(html)["path"]["chosen"] == pytest.approx(getattr(model, f"{name}_"), rel=1e-4)
    assert f"The choice of {name}" in html


def test_scores_without_spread_have_few_digits(signals):
    X, label = signals
    model = TraceNormClassifierCV(alphas=3, cv=3).fit(X * 0 + (label == "up")[:, None, None], label)
    assert "1.000 ± 0.000" in str(Text(model_page(model)))


# --- content ----------------------------------------------------------------------------------------------------------


def test_the_page_says_what_is_known_of_the_score(classifier, regressor, samples):
    X, y, label = samples
    assert "There is no score" in model_page(regressor)
    assert "only score is that of cross-validation" in model_page(classifier)
    with_data = str(Text(model_page(classifier, X[160:], label[160:])))
    assert "only score is that of" not in with_data
    assert f"{100 * classifier.score(X[160:], label[160:]):.1f} %" in with_data
    assert "does not know whether the model was fitted to these samples" in with_data
    assert f"R² = {regressor.score(X[160:], y[160:]):.3f}" in str(Text(model_page(regressor, X[160:], y[160:])))


def test_the_first_sentence_names_classes_sizes_and_modes(classifier):
    text = str(Text(model_page(classifier, mode_names=NAMES)))
    assert "4 × 9 × 3 = 108 entries of a sample (channel × time × frequency)" in text
    assert EVIL in text
    assert f"{classifier.dual_gap_:.1e}".split("e", maxsplit=1)[0].removesuffix(".0") in text


def test_of_more_names_than_an_axis_has_room_for_the_largest_entries_of_each_factor_are_drawn(rng):
    names = [f"entry {i}" for i in range(150)]
    X = rng.standard_normal((100, 150, 3))
    model = TraceNormRegressor(alpha=0.3).fit(X, X[:, 70, 0] - X[:, 120, 1])
    drawn, short = data_of(model_page(model, coordinates=(names, None)))["components"]
    for factor, called, values in zip(model.mode_factors_[0][0].T, drawn["largest"], drawn["factors"], strict=False):
        largest = sorted(range(150), key=lambda i: -abs(factor[i]))[: len(called)]
        assert called == [names[i] for i in largest]
        np.testing.assert_allclose(values, factor[largest], rtol=1e-4)
    assert "entry 70" in drawn["largest"][0] + drawn["largest"][-1]
    assert 10 <= len(drawn["largest"][0]) <= 30
    assert "largest" not in short
    assert drawn["names"] is drawn["x"] is None


def test_drawn_factors_and_shares_are_those_of_the_model(classifier):
    data = data_of(model_page(classifier))
    for drawn, (U, s) in zip(data["components"], classifier.mode_factors_, strict=True):
        count = len(drawn["factors"])
        assert 0 < count <= MOST_COMPONENTS
        np.testing.assert_allclose(np.array(drawn["factors"]), U[:, :count].T, rtol=1e-4, atol=1e-12)
        np.testing.assert_allclose(drawn["shares"][0], s[:count] ** 2 / np.sum(s**2), rtol=1e-4)


def test_there_is_one_number_of_components_everywhere(classifier):
    html = model_page(classifier, mode_names=NAMES)
    text = str(Text(html))
    for component, drawn in zip(
        gather(classifier, mode_names=NAMES).components, data_of(html)["components"], strict=True
    ):
        count = component.carrying
        shares = np.cumsum(component.values**2) / np.sum(component.values**2)
        assert shares[count - 1] >= 0.99
        assert count == 1 or shares[count - 2] < 0.99
        assert drawn["carrying"] == count
        assert len(drawn["factors"]) == min(count, MOST_COMPONENTS)
        assert f"{count} of {len(component.mode.values)} in {component.title}" in text
        assert f"{count} of {len(component.mode.values)} carr" in text


def test_shares_of_one_class_add_up_to_at_most_one(classifier):
    for component in gather(classifier).components:
        assert (component.shares.sum(axis=1) <= 1.0 + 1e-9).all()


def test_drawn_weights_and_patterns_are_those_of_the_model(classifier):
    drawn = data_of(model_page(classifier))["weights"]
    for name, tensor in (("coef", classifier.coef_), ("patterns", classifier.patterns_)):
        found = np.reshape(drawn[name]["parts"], drawn["shape"]) * drawn[name]["limit"] / drawn["whole"]
        np.testing.assert_allclose(found, tensor, atol=2e-4 * np.abs(tensor).max())


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 3), st.integers(10, 400))
def test_thinned_weights_are_few_enough_and_are_entries_of_the_whole(shape, count, most):
    from tracelearn.plotting.modes import as_modes

    coef = np.arange(float(count * np.prod(shape))).reshape(count, *shape)
    kept = Weights.thinned(coef, coef, as_modes(shape), most)
    assert kept.coef.size * 2 <= most or max(kept.coef.shape[1:]) == 1
    assert np.isin(kept.coef, coef).all()
    assert [len(mode.values) for mode in kept.modes] == list(kept.coef.shape[1:])
    if 2 * coef.size <= most:
        assert kept.steps == (1,) * len(shape)


def test_a_page_of_large_weights_says_what_it_leaves_out(samples):
    X, y, _ = samples
    model = TraceNormRegressor(alpha=0.5).fit(X[:60], y[:60])
    assert "only every" not in render(gather(model))
    assert "shows only every 2nd entry of mode 0 and every 3rd entry of mode 1; the model" in render(
        gather(model, most=50)
    )


def test_many_classes_are_listed_by_their_confusions(classifier):
    counts = np.eye(40, dtype=int) * 5
    counts[3, 7] = 4
    html = render(gather(classifier), Evaluation(Confusion([f"k{k}" for k in range(40)], counts), "204 samples"))
    assert "The 1 most frequent confusions; the whole table of 40 classes" in html
    assert "confusion" not in re.findall(r'<table class="([^"]*)"', html)


@pytest.mark.parametrize("kind", ["tree", "pipeline", "targets", "class mode", "vector", "zero"])
def test_every_kind_of_model_has_a_page(kind, samples):
    X, y, label = samples
    X, y, label = X[:120], y[:120], label[:120]
    model, X, target = {
        "tree": lambda: (HierarchicalTraceNormClassifier(alpha=0.1).fit(X, label), X, label),
        "pipeline": lambda: (make_pipeline(TensorStandardScaler(), TraceNormRegressor()).fit(X, y), X, y),
        "targets": lambda: (TraceNormRegressor(alpha=0.1).fit(X, np.stack([y, -y], 1)), X, np.stack([y, -y], 1)),
        "class mode": lambda: (TraceNormClassifier(alpha=0.1, target_mode=True).fit(X, label), X, label),
        "vector": lambda: (TraceNormRegressor(alpha=0.1).fit(X[:, :, 0, 0], y), X[:, :, 0, 0], y),
        "zero": lambda: (TraceNormRegressor(alpha=1e6).fit(X, y), X, y),
    }[kind]()
    html = model_page(model, X, target)
    text = str(Text(html))
    assert "nan" not in text.lower().split()
    expected = {
        "tree": "goes down a tree of 2 decisions",
        "pipeline": "as they leave the steps before the model: TensorStandardScaler",
        "targets": "predicts 2 numbers",
        "class mode": "in class,",
        "vector": "the 4 entries of a sample",
        "zero": "All its weights are zero",
    }[kind]
    assert expected in text


@pytest.fixture(scope="module")
def signals():
    rng = np.random.default_rng(0)
    label = np.where(np.arange(90) % 2, "up", "down")
    X = rng.standard_normal((90, 3, 40))
    X[:, 1] *= np.where(label == "up", 2.0, 1.0)[:, None]
    return X, label


def test_the_page_shows_each_view_with_its_share_and_what_was_found(signals):
    X, label = signals
    views = [("raw", None), ("second_order_difference", SecondOrder(-1, difference=True, scaling=True, mean=0.05))]
    model = TensorClassifier(views, alphas=4, cv=3).fit(X, label)
    html = model_page(model, X, label, mode_names=("channel", "time"))
    text = str(Text(html))
    assert (
        "covariances over time of signals and their differences (second order, difference), of a sample of 3 × 40"
        in text
    )
    assert f'<meter value="{model.view_shares_["second_order_difference"]:.3f}">' in html
    assert "the strongest is largest at channel 1, and more of it makes up more likely" in text
    (component,) = data_of(html)["components"]
    assert component["names"] == ["0", "1", "2", "0 difference", "1 difference", "2 difference", "mean"]
    pattern = model.filters_by_view_["second_order_difference"].patterns[0, 0]
    np.testing.assert_allclose(component["factors"][0], pattern / np.linalg.norm(pattern), atol=1e-4)
    assert 'id="on-weights"' not in html


def test_the_page_lists_all_that_was_tried_with_what_became_of_it(signals):
    X, label = signals
    model = TensorClassifier(cv=3).fit(X, label)
    text, table = str(Text(model_page(model))), model.views_tried_
    assert f"All {len(table['views'])} views and paths that were tried" in text
    for score, error, reason in zip(table["score"], table["score_se"], table["reason"], strict=True):
        assert f"{score:.3f} ± {error:.3f}".replace("-", "−") in text
        assert reason in text


def test_sources_are_drawn_over_a_head_where_places_of_sensors_are_known(signals):
    X, label = signals
    view = SecondOrder(-1, difference=True, scaling=True)
    places = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.5]])
    sensors = Mode("channel", np.array(["C3", "C4", "Fz"]), positions=places)
    model = TensorClassifier([("second_order_difference", view)], alphas=4, cv=3).fit(X, label)
    model.name_modes([sensors, Mode("time", np.arange(40) / 100, "s")])
    (component,) = data_of(model_page(model))["components"]
    assert len(component["heads"]["places"]) == 3  # of the signals; their differences have no places
    assert len(component["heads"]["grids"]) == len(component["factors"])
    np.testing.assert_allclose(component["heads"]["places"], places / 1.06, rtol=1e-4)


def test_the_page_says_that_samples_are_seen_as_logarithms(signals):
    X, _ = signals
    model = TensorRegressor([("log", Logarithm())], cv=3).fit(np.exp(X), X[:, 0, :5].mean(axis=1))
    text = str(Text(model_page(model)))
    assert "the logarithms of the entries (log), of a sample of 3 × 40 (mode 0 × mode 1), plus" in text


def test_of_several_views_each_has_components_and_the_first_of_samples_its_weights(rng):
    X = rng.standard_normal((200, 3, 20)) * rng.uniform(0.5, 2.0, (200, 3, 1))
    y = X[:, 0, :5].mean(axis=1) + 0.3 * (X[:, 1] ** 2).mean(axis=1)
    model = TensorRegressor([("raw", None), ("second_order", SecondOrder(-1, windows=2))], cv=3).fit(X, y)
    assert list(model.views_) == ["second_order", "raw"] or list(model.views_) == ["raw", "second_order"]
    facts = gather(model)
    names = {"raw: mode 0", "raw: mode 1", *(f"second order, window {k}" for k in (1, 2))}
    assert set(facts.names_of_weights) == names
    np.testing.assert_allclose(facts.weights.coef[0], model.coef_by_view_["raw"])
    np.testing.assert_allclose(facts.weights.patterns[0], model.patterns_by_view_["raw"])
    assert "These are the ones of the view raw" in str(Text(model_page(model)))


def test_nothing_on_the_page_of_a_spectrum_is_about_brains(rng):
    X = rng.standard_normal((60, 80)).cumsum(axis=1)
    model = TensorRegressor(cv=3).fit(X, X[:, 40])
    text = str(Text(model_page(model, X, X[:, 40], mode_names=("wavenumber",), target_names=["glucose"])))
    assert "A linear model of glucose" in text
    assert not set(re.findall(r"\w+", text.lower())) & {
        "channel",
        "channels",
        "epochs",
        "eeg",
        "head",
        "sensor",
        "subject",
    }


def test_a_single_mode_of_a_single_target_is_not_taken_apart(rng):
    X = rng.standard_normal((60, 8))
    html = model_page(TraceNormRegressor(alpha=0.1).fit(X, X[:, 0]))
    assert 'href="#on-components"' not in html
    assert "carry 99 %" not in str(Text(html))


def test_targets_have_names(samples):
    X, y, _ = samples
    model = TraceNormRegressor(alpha=0.1).fit(X, np.stack([y, -y], axis=1))
    html = model_page(model, target_names=["fat", "water"])
    assert "A linear model of fat and water" in html
    assert data_of(html)["targets"] == ["fat", "water"]
    with pytest.raises(ValueError, match="Expected 2 target_names, got 1"):
        model_page(model, target_names=["fat"])


def test_the_methods_paragraph_tells_what_is_known_and_asks_for_the_rest(classifier, samples):
    X, _, label = samples
    test = inference.PermutationTest(0.81, 0.002, np.zeros(500), "targets within groups", None, "batch", "accuracy")
    study = Study(n_samples=160, n_groups=8, confounds=("age",), test=test)
    result = compare(label[160:], classifier.predict(X[160:]), classifier.classes_)
    told = methods(gather(classifier, mode_names=NAMES), Evaluation(result, "80 samples"), study)
    for words in (
        "Samples of shape 4 × 9 × 3 (channel × time × frequency; n = 160 in 8 groups)",
        "after age had been regressed out",
        "3-fold cross-validation, which held out whole groups, chose",
        f"alpha = {classifier.alpha_:.3g}",
        f"± {classifier.best_score_se_:.3f}"[:5],
        f"On 80 other samples, accuracy was {result.accuracy:.3f}",
        "500 permutations of targets within groups (p = 0.002)",
        "tracelearn 0.1.0",
    ):
        assert words in told
    asked = methods(gather(classifier), None, Study())
    assert "n = [number]" in asked
    assert "permutations" not in asked


def test_what_is_no_fitted_model_is_refused_in_one_sentence(samples, tmp_path):
    for thing in (TraceNormRegressor(), TensorStandardScaler().fit(samples[0])):
        with pytest.raises(ValueError, match="Expected a fitted regressor or classifier of tracelearn, got"):
            model_page(thing)
    with pytest.raises(ValueError, match="Expected 3 mode_names"):
        model_page(TraceNormRegressor().fit(samples[0], samples[1]), mode_names=("one",))
    with pytest.raises(ValueError, match="Expected targets y with X"):
        model_page(TraceNormRegressor().fit(samples[0], samples[1]), samples[0])


# --- nothing in it can run or load ------------------------------------------------------------------------------------


@given(st.text("<>&/!-script\"'\\\u2028"))
def test_no_text_can_leave_its_script_element(text):
    written = as_json({"text": text})
    assert json.loads(written) == {"text": text}
    assert not set("<>&") & set(written)


def test_hostile_names_stay_text(classifier, samples):
    X, _, label = samples
    result = compare(label[160:], classifier.predict(X[160:]), classifier.classes_)
    facts = gather(classifier, mode_names=(EVIL, "<b>", "&amp;"), units=(EVIL, None, None))
    html = render(facts, Evaluation(result, EVIL), Study(), Origin(EVIL, "00", EVIL, EVIL))
    plain = render(gather(classifier), Evaluation(result, "80 samples"), Study(), Origin("m", "00", "1", "c"))
    assert "<img" not in html
    assert Text(html).tags == Text(plain).tags
    assert html.count("</script>") == plain.count("</script>") == 2


def test_the_page_names_no_other_place_and_allows_only_its_own_script(classifier):
    html = model_page(classifier)
    assert not re.search(r"<link|<img|<iframe|@import|url\(", html)
    assert {*re.findall(r"https?://[^\"'\s<]*", html)} <= {"http://www.w3.org/2000/svg"}
    assert all(target.startswith("#") for target in re.findall(r'(?:src|href)="([^"]*)"', html))
    assert "default-src 'none'" in html
    assert "'unsafe-eval'" not in html
    assert not re.search(r"script-src[^;\"]*unsafe-inline", html)
    names = re.findall(r'\bid="([^"]*)"', html)
    assert len(names) == len(set(names))


# --- command line -----------------------------------------------------------------------------------------------------


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as leaving:
        cli.main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    return leaving.value.code, output.out, output.err


@pytest.fixture
def folder(tmp_path, monkeypatch, samples, classifier, regressor):
    X, y, label = samples
    np.savez(tmp_path / "new.npz", X=X[160:], y=y[160:], label=label[160:])
    save(classifier, tmp_path / "classifier.tracelearn")
    save(regressor, tmp_path / "regressor.tracelearn")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_inspect_writes_a_page_that_repeats_itself(folder, capsys):
    words = "inspect classifier.tracelearn --html page.html --data new.npz --target label --mode-names channel,time,frequency"
    code, out, err = call(capsys, *words.split())
    assert (code, err) == (0, "")
    assert "page.html" in out
    html = (folder / "page.html").read_text(encoding="utf-8")
    text = str(Text(html))
    assert f"tracelearn {words}" in text
    assert hashlib.sha256((folder / "classifier.tracelearn").read_bytes()).hexdigest() in text
    assert "80 samples in new.npz" in text
    code = re.search(r"from tracelearn import .*?\n\n.*?</code>", html, re.S)[0].removesuffix("</code>")
    code = unescape(code)
    scope = {"X": np.zeros((0,)), "y": None}
    exec(code.partition("again.fit")[0], scope)
    assert scope["again"].get_params() == load("classifier.tracelearn").get_params()
    np.testing.assert_array_equal(scope["model"].coef_, load("classifier.tracelearn").coef_)


def test_fit_writes_the_page_of_held_out_samples(folder, capsys):
    arguments = ("fit", "new.npz", "--target", "label", "--alpha", "0.1", "--cv", "3", "--out", "m", "--html", "m.html")
    code, out, err = call(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert facts["page"] == "m.html"
    text = str(Text((folder / "m.html").read_text(encoding="utf-8")))
    assert f"The mean over 3 folds is {facts['score']['mean']:.3f} ± {facts['score']['standard_error']:.3f}" in text
    assert "Of 80 held-out samples" in text
    assert "tracelearn fit new.npz --target label --alpha 0.1 --cv 3 --out m --html m.html --json" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("classifier.tracelearn", "--html", "no/page.html"), "Expected a file in a folder that exists"),
        (("classifier.tracelearn", "--data", "new.npz"), "Expected --html with --data"),
        (("classifier.tracelearn", "--mode-names", "a,b"), "Expected 3 different names"),
        (("classifier.tracelearn", "--html", "p", "--mode-names", "a,b"), "Expected 3 different names"),
        (("classifier.tracelearn", "--html", "p", "--data", "new.npz"), "name the target the model was fitted to"),
        (("regressor.tracelearn", "--html", "p", "--data", "new.npz", "--target", "no"), "choose one with --target"),
        (("regressor.tracelearn", "--html", "p", "--data", "gaps.npz"), "got NaN or infinity: leave out such samples"),
        (("regressor.tracelearn", "--html", ".", "--force"), "got the folder .: name a file in it with --html"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_page(folder, capsys, samples, arguments, told):
    X, y, _ = samples
    np.savez(folder / "gaps.npz", X=X[:5], y=np.where(np.arange(5) == 3, np.nan, y[:5]))
    code, out, err = call(capsys, "inspect", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert not (folder / "p").exists()


@pytest.mark.parametrize("words", ["inspect classifier.tracelearn", "fit new.npz --target label --alpha 0.1 --out m"])
def test_a_page_that_exists_is_replaced_only_by_force(folder, capsys, words):
    (folder / "page.html").write_text("of an earlier day")
    code, out, err = call(capsys, *words.split(), "--html", "page.html")
    assert (code, out) == (2, "")
    assert "Expected a new file for the page, got page.html, which exists: name another, or add --force." in err
    assert (folder / "page.html").read_text() == "of an earlier day"
    assert not (folder / "m").exists()
    assert call(capsys, *words.split(), "--html", "page.html", "--force")[0] == 0
    assert "<html" in (folder / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", ["inspect classifier.tracelearn", "fit new.npz --out classifier.tracelearn"])
def test_no_force_puts_a_page_in_the_place_of_its_model(folder, capsys, words):
    before = (folder / "classifier.tracelearn").read_bytes()
    code, out, err = call(capsys, *words.split(), "--html", folder / "classifier.tracelearn", "--force")
    assert (code, out) == (2, "")
    assert "Expected another file or folder for the page" in err
    assert (folder / "classifier.tracelearn").read_bytes() == before


# --- in a browser -----------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium with chromedriver: the page cannot be opened here"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: no browser can be driven")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    flags = "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update"
    flags += " --disable-sync --no-first-run --disable-dev-shm-usage --window-size=1200,900"
    for flag in (*flags.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ["SE_OFFLINE"] = "true"  # both programs are here: selenium need not look for them elsewhere
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page_paths(classifier, regressor, samples, tmp_path_factory):
    X, y, label = samples
    folder = tmp_path_factory.mktemp("pages")
    write_model_page(classifier, folder / "classifier.html", X[160:], label[160:], mode_names=(EVIL, "time", "band"))
    write_model_page(regressor, folder / "regressor.html", X[160:], y[160:], mode_names=NAMES)
    return folder


def open_page(browser, path: Path, width=1200):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    )
    for log in ("browser", "performance"):
        browser.get_log(log)  # what came before is not of this page
    browser.get(path.as_uri())


def find(browser, query):
    return browser.find_elements("css selector", query)


def classes(browser, query):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => [...e.classList])", query
    )


@needs_browser
@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_it_renders_without_an_error_or_a_request(browser, page_paths, name):
    open_page(browser, page_paths / f"{name}.html")
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.chart')].map(e => e.querySelectorAll('svg *').length)"
    )
    assert len(drawn) >= 8
    assert min(drawn) > 5
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert {url for url in asked if url.startswith("file:")} <= {(page_paths / f"{name}.html").as_uri()}


@needs_browser
def test_hostile_class_names_do_not_run(browser, page_paths):
    open_page(browser, page_paths / "classifier.html")
    assert browser.title == "A linear classifier for 3 classes"
    assert find(browser, "img") == []
    assert EVIL in [option.text for option in find(browser, "#weight-target option")]


@needs_browser
@pytest.mark.parametrize("way", ["button", "bar", "row", "line"])
def test_choosing_a_component_marks_it_in_every_mode(browser, page_paths, way):
    open_page(browser, page_paths / "regressor.html")
    query = {
        "button": '.buttons [data-pick="2"]',
        "row": 'tr [data-pick="2"]',
        "bar": '.values rect[data-component="2"]',
        "line": '.factors g[data-component="2"]',
    }[way]
    if way in ("button", "row"):
        find(browser, query)[0].send_keys("\n")  # by keyboard
    else:
        browser.execute_script("document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click'))", query)
    for place in (".factors g", ".values rect", ".shares tr"):
        chosen = classes(browser, f'{place}[data-component="2"]')
        assert len(chosen) == (1 if "tr" in place else 3)
        assert all("on" in one for one in chosen), place
        others = classes(browser, f'{place}[data-component]:not([data-component="2"])')
        assert others
        assert all("off" in one for one in others), place
    assert find(browser, '.buttons [data-pick="2"]')[0].get_attribute("aria-pressed") == "true"
    find(browser, '.buttons [data-pick="0"]')[0].click()
    assert not any({"on", "off"} & set(one) for one in classes(browser, "[data-component]"))


@needs_browser
def test_sliders_kinds_and_classes_change_what_is_drawn(browser, page_paths):
    open_page(browser, page_paths / "classifier.html")

    def image():
        return browser.execute_script("return document.querySelector('#slice image').getAttribute('href')")

    seen = [image()]
    slider = find(browser, ".slide input")[0]
    slider.send_keys("\ue014" if slider.get_attribute("value") == "0" else "\ue012")  # right or left arrow
    seen.append(image())
    find(browser, '[data-kind="coef"]')[0].click()  # patterns are shown first
    seen.append(image())
    shares = [cell.text for cell in find(browser, "[data-share]")]
    find(browser, "#share-target option")[3].click()
    seen.append(image())
    assert len(set(seen)) == 4
    assert [cell.text for cell in find(browser, "[data-share]")] != shares
    assert find(browser, "#weight-target")[0].get_attribute("value") == "2"
    assert browser.get_log("browser") == []


@needs_browser
def test_arrow_keys_read_single_entries(browser, page_paths, regressor):
    open_page(browser, page_paths / "regressor.html")
    find(browser, "#slice")[0].send_keys("\ue014\ue014")
    told = find(browser, "#reading")[0].text
    where = re.fullmatch(r"channel = (\d), time = (\d), frequency = (\d): pattern ([−\d.]+)", told)
    at = tuple(int(one) for one in where.groups()[:3])
    assert float(where[4].replace("−", "-")) == pytest.approx(regressor.patterns_[at], rel=0.02, abs=1e-3)


@needs_browser
@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_theme_follows_the_system_until_the_reader_chooses(browser, page_paths, system):
    wanted = {"features": [{"name": "prefers-color-scheme", "value": system}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    open_page(browser, page_paths / "classifier.html")

    def is_dark():
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) < 300

    assert is_dark() == (system == "dark")
    image = browser.execute_script("return document.querySelector('#slice image').getAttribute('href')")
    find(browser, "#theme")[0].click()
    assert is_dark() == (system == "light")
    assert image != browser.execute_script("return document.querySelector('#slice image').getAttribute('href')")


@needs_browser
@pytest.mark.parametrize("width", [320, 390, 800, 1900])
@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_no_width_makes_the_page_scroll_sideways(browser, page_paths, name, width):
    open_page(browser, page_paths / f"{name}.html", width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    outside = browser.execute_script(
        "return [...document.querySelectorAll('.chart text')].map(e => e.getBoundingClientRect())"
        ".filter(box => box.left < 0 || box.right > innerWidth + 1).length"
    )
    assert outside == 0


@needs_browser
@pytest.mark.parametrize("width", [390, 1200])
def test_labels_of_an_axis_do_not_overlap(browser, page_paths, width):
    open_page(browser, page_paths / "classifier.html", width)
    overlaps = browser.execute_script(
        """
        let found = 0;
        for (const svg of document.querySelectorAll('.chart svg')) {
          const boxes = [...svg.querySelectorAll('text:not(.mark-text)')].map(e => e.getBoundingClientRect());
          for (let i = 0; i < boxes.length; i++)
            for (let j = 0; j < i; j++) {
              const [a, b] = [boxes[i], boxes[j]];
              const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
              const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
              if (wide > 1 && tall > 2) found++;
            }
        }
        return found;
        """
    )
    assert overlaps == 0


@pytest.mark.parametrize("kind", ["permutation", "map", "bootstrap", "comparison", "decoding"])
def test_every_result_has_a_page_with_its_sentence_its_figure_and_its_numbers(kind):
    pytest.importorskip("matplotlib").use("agg")
    X, y, _ = make_low_rank_regression(60, (4, 3), rank=1, random_state=0)
    model = TraceNormRegressor(alpha=0.1)
    found = {
        "permutation": lambda: inference.permutation_test(model, X, y, n_permutations=9, cv=3, random_state=0),
        "map": lambda: inference.map_test(model, X, y, n_permutations=9, smooth=[1], random_state=0),
        "bootstrap": lambda: inference.bootstrap(model, X, y, n_bootstraps=4, random_state=0),
        "comparison": lambda: inference.compare(model, X, y, cv=3, repeats=1),
        "decoding": lambda: inference.decode_over_time(model, X, y, cv=3),
    }[kind]()
    page = result_page(found, title="Left <or> right")
    assert "<h1>Left &lt;or&gt; right</h1>" in page
    assert escape(str(found).splitlines()[0]) in page
    assert 'src="data:image/png;base64,' in page
    assert "<script" not in page
    with pytest.raises(ValueError, match="Expected a result of"):
        result_page(model)


def test_the_page_of_a_result_names_its_numbers_in_words():
    scores = np.array([[0.5, 0.9], [0.5, 0.7]])
    pytest.importorskip("matplotlib").use("agg")
    mode = Mode("time", np.array([0.1, 0.2]), "s")
    page = result_page(inference.Decoding(scores, np.arange(2), "accuracy", "batch", 0.5, 0.25, mode))
    for words in ("held-out over training samples of a fold", "time (s), from 0.1 to 0.2", "best at time = 0.2 s"):
        assert words in page
    assert "ratio" not in page.split("<table")[1]


def test_every_view_that_searches_try_has_words_of_its_own(regressor):
    assert {view_in_words(name) for name, _ in default_views(0, 0, are_unequal=True, are_numbers=True)} == set(
        what_views_are(gather(regressor))
    )


@pytest.mark.parametrize(("name", "holds"), [("similarities", True), ("raw", False)])
def test_a_page_says_whether_its_model_holds_samples(name, holds):
    X = np.random.default_rng(0).normal(size=(40, 3, 2))
    view = dict(default_views(None))[name]
    model = TensorClassifier([(name, view)], cv=3).fit(X, X[:, 0, 0] > 0)
    assert ("but for those that the model compares with" in model_page(model)) == holds
