"""Displays: they draw the numbers of the model, where they are told to, and say in a sentence what they cannot."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.decomposition import PCA

mpl.use("agg")

import matplotlib.pyplot as plt

from tracelearn import (
    HierarchicalTraceNormClassifier,
    LaggedRegressor,
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormRegressor,
    TraceNormRegressorCV,
    load,
    save,
    stream,
)
from tracelearn.features import Convolutions, SecondOrder, Similarities
from tracelearn.fitting import ZeroWeightsWarning
from tracelearn.inference import bootstrap
from tracelearn.io.streams import StreamReport
from tracelearn.plotting import (
    ConvergenceDisplay,
    ModeFactorsDisplay,
    ModeSpectrumDisplay,
    PathDisplay,
    PrequentialDisplay,
    ViewsDisplay,
    WeightsDisplay,
)
from tracelearn.plotting.modes import as_modes
from tracelearn.plotting.views import describe_views

ORDERS = [(7,), (5, 4), (4, 3, 5), (2, 3, 4, 3)]
DISPLAYS = [ModeSpectrumDisplay, ModeFactorsDisplay, WeightsDisplay, ConvergenceDisplay]


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
        for number in plt.get_fignums():
            plt.figure(number).canvas.draw()  # layout and texts are made here, and so are most warnings


@cache
def fitted(shape, kind="one"):
    """Fit a model: of one target, two targets, two classes, three classes, or three classes as a mode."""
    rng = np.random.default_rng([1, *shape])
    X = rng.standard_normal((80, *shape))
    rows = X.reshape(80, -1)
    signals = rows @ rng.standard_normal((rows.shape[1], 3)) + rng.standard_normal((80, 3))
    if kind == "one":
        return TraceNormRegressor(0.1).fit(X, signals[:, 0])
    if kind == "two targets":
        return TraceNormRegressor(0.1).fit(X, signals[:, :2])
    if kind == "two classes":
        return TraceNormClassifier(0.01).fit(X, np.where(signals[:, 0] > 0, "yes", "no"))
    names = np.array(["ash", "birch", "cedar"])[np.argmax(signals, axis=1)]
    return TraceNormClassifier(0.01, target_mode=kind == "class mode").fit(X, names)


KINDS = ["one", "two targets", "two classes", "three classes", "class mode"]
every_model = [pytest.param(shape, kind, id=f"{len(shape)}-{kind}") for shape in ORDERS for kind in KINDS]


def strangers(display):
    """Everything that was drawn on the axes of a figure which the display does not name."""
    own = list(display.axes_) if hasattr(display, "axes_") else [display.ax_]
    return [ax for ax in display.figure_.axes if ax not in own and ax.has_data()]


# --- every display ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "kind"), every_model)
def test_spectra_are_the_singular_values_with_the_rank_marked(shape, kind):
    model = fitted(shape, kind)
    display = ModeSpectrumDisplay.from_estimator(model)
    assert len(display.axes_) == len(shape) + (kind == "class mode")
    ranks = np.atleast_2d(model.mode_ranks_)
    for n, (line, (_, values)) in enumerate(zip(display.lines_, model.mode_factors_, strict=True)):
        np.testing.assert_array_equal(line.get_ydata(), values)
        marks = {other.get_xdata()[0] - 0.5 for other in line.axes.lines if other is not line}
        assert marks == set(ranks[:, n])


@pytest.mark.parametrize(("shape", "kind"), every_model)
def test_factors_are_those_of_the_model(shape, kind):
    model = fitted(shape, kind)
    display = ModeFactorsDisplay.from_estimator(model, n_components=2)
    for lines, (factors, values) in zip(display.lines_, model.mode_factors_, strict=True):
        assert len(lines) == min(2, int(np.sum(values > 1e-10)))
        for k, line in enumerate(lines):
            np.testing.assert_array_equal(line.get_ydata(), factors[:, k])
            assert max(line.get_ydata(), key=abs) > 0


@pytest.mark.parametrize(("shape", "kind"), every_model)
@pytest.mark.parametrize("what", ["weights", "patterns"])
def test_weights_are_slices_of_the_model(shape, kind, what):
    model = fitted(shape, kind)
    whole = (model.coef_ if what == "weights" else model.patterns_).reshape(-1, *shape)
    display = WeightsDisplay.from_estimator(model, kind=what, slices=100)
    if len(shape) == 1:
        drawn = np.stack([line.get_ydata() for line in display.lines_])
    else:
        drawn = np.stack([image.get_array() for image in display.images_])
        limits = {image.get_clim() for image in display.images_}
        assert limits == {(-np.abs(whole).max(), np.abs(whole).max())}
        assert display.colorbar_ is not None
    np.testing.assert_array_equal(drawn.reshape(whole.shape), whole)


@pytest.mark.parametrize(("shape", "kind"), every_model)
def test_convergence_is_drawn_down_to_the_gap_of_the_model(shape, kind):
    model = fitted(shape, kind)
    display = ConvergenceDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.line_.get_xydata(), model.convergence_)
    assert display.line_.get_ydata()[-1] == model.dual_gap_
    assert display.ax_.lines[-1].get_ydata()[0] == model.tol


@pytest.mark.parametrize("kind", ["one", "class mode"])
@pytest.mark.parametrize("shape", ORDERS[:3], ids=len)
@pytest.mark.parametrize("display", DISPLAYS)
def test_on_given_axes_it_draws_there_and_nowhere_else(display, shape, kind):
    model = fitted(shape, kind)
    first = display.from_estimator(model)
    count = len(first.axes_) if hasattr(first, "axes_") else 1
    plt.close(first.figure_)
    figure, axes = plt.subplots(1, count + 1, squeeze=False)
    given = axes[0, :count] if count > 1 else axes[0, 0]
    again = display.from_estimator(model, ax=given)
    assert plt.get_fignums() == [figure.number]
    assert again.figure_ is figure
    assert len(figure.axes) == count + 1
    assert not strangers(again)
    assert all(ax.has_data() for ax in axes[0, :count])


@pytest.mark.parametrize("display", DISPLAYS[:3])
def test_too_few_axes_are_refused(display):
    ax = plt.figure().add_subplot()
    with pytest.raises(ValueError, match=r"Expected \d axes of matplotlib, one for each \w+, got 1: pass as many"):
        display.from_estimator(fitted((4, 3, 5)), ax=ax)
    with pytest.raises(ValueError, match="Expected 1 axes of matplotlib, a single one, got str: pass"):
        ConvergenceDisplay.from_estimator(fitted((4, 3)), ax="here")


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_display_can_be_drawn_again(display):
    drawn = display.from_estimator(fitted((4, 3)))
    before = drawn.figure_
    assert drawn.plot() is drawn
    assert drawn.figure_ is not before


@pytest.mark.parametrize("display", DISPLAYS)
def test_models_with_cross_validation_are_drawn_as_the_model_they_found(display):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 4))
    model = TensorClassifier(views=None, alphas=4, cv=2).fit(X, X[:, 0, 0] > 0)
    drawn = display.from_estimator(model)
    assert all(np.isfinite(axes.axis()).all() for axes in drawn.figure_.axes)


@pytest.mark.parametrize("display", DISPLAYS)
def test_weights_that_are_zero_are_drawn(display):
    X, y = np.random.default_rng(0).standard_normal((30, 3, 4)), np.arange(30.0)
    with pytest.warns(ZeroWeightsWarning):
        model = TraceNormRegressor(1e4).fit(X, y)
    drawn = display.from_estimator(model)
    assert drawn.figure_.axes
    assert all(np.isfinite(axes.axis()).all() for axes in drawn.figure_.axes)


@pytest.mark.parametrize("display", DISPLAYS)
def test_a_tree_of_models_is_drawn_model_by_model(display):
    rng = np.random.default_rng(0)
    model = HierarchicalTraceNormClassifier().fit(rng.standard_normal((40, 3, 2)), np.arange(40) % 3)
    with pytest.raises(
        ValueError, match=r"Expected .* got .*HierarchicalTraceNormClassifier: pass one of its estimators_"
    ):
        display.from_estimator(model)
    display.from_estimator(model.estimators_[0])


@pytest.mark.parametrize("display", DISPLAYS)
def test_arrays_of_torch_are_brought_to_numpy(display):
    torch = pytest.importorskip("torch", reason="torch is not installed: its arrays cannot be tested here")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3, 4))
    y = X[:, 0, 0] + X[:, 1, 1]
    drawn = display.from_estimator(TraceNormRegressor().fit(torch.asarray(X), torch.asarray(y)))
    wanted = display.from_estimator(TraceNormRegressor().fit(X, y))
    limits = [[axes.axis() for axes in one.figure_.axes] for one in (drawn, wanted)]
    np.testing.assert_allclose(*limits, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("error")
def test_an_answer_that_is_exact_at_once_is_drawn_without_a_warning():
    with pytest.warns(ZeroWeightsWarning):
        model = TraceNormRegressor(alpha=1.0).fit(np.ones((1, 6)), [1.0])
    assert model.convergence_.tolist() == [[0.0, 0.0]]
    low, high = ConvergenceDisplay.from_estimator(model).ax_.get_ylim()
    assert low < model.tol < high


def test_matplotlib_is_imported_only_to_draw_and_its_extra_is_named():
    code = """
import sys
import sklearn.utils.estimator_checks
sys.modules["matplotlib"] = None
import tracelearn.plotting as plotting
try:
    plotting.ConvergenceDisplay(convergence=None, tol=1.0).plot()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "This needs matplotlib, which is not installed: pip install 'tracelearn[plot]'."


# --- coordinates ------------------------------------------------------------------------------------------------------


def test_coordinates_are_where_factors_and_images_lie():
    times, names = np.linspace(0.0, 0.4, 5), ["Fz", "Cz", "Pz", "Oz"]
    options = {
        "mode_names": ("channel", "place", "time"),
        "coordinates": [names, [1.0, 2.0, 4.0], times],
        "units": [None, "m", "s"],
    }
    model = fitted((4, 3, 5))
    factors = ModeFactorsDisplay.from_estimator(model, **options)
    assert [ax.get_xlabel() for ax in factors.axes_] == ["channel", "place (m)", "time (s)"]
    np.testing.assert_array_equal(factors.lines_[2][0].get_xdata(), times)
    assert [text.get_text() for text in factors.axes_[0].get_xticklabels()] == names
    weights = WeightsDisplay.from_estimator(model, **options)
    assert [ax.get_title() for ax in weights.axes_] == [f"channel {name}" for name in names]
    np.testing.assert_allclose(weights.images_[0].get_extent(), (-0.05, 0.45, -0.5, 2.5))
    assert [text.get_text() for text in weights.axes_[0].get_yticklabels()] == ["1", "2", "4"]


def test_names_and_counted_rows_are_read_from_the_top_of_an_image_and_coordinates_from_the_bottom():
    model = fitted((5, 4))
    named = WeightsDisplay.from_estimator(model, coordinates=[list("abcde"), None]).axes_[0]
    counted = WeightsDisplay.from_estimator(model).axes_[0]  # the rows of a picture
    measured = WeightsDisplay.from_estimator(model, coordinates=[np.linspace(0.0, 4.0, 5), None]).axes_[0]
    assert named.get_ylim() == counted.get_ylim() == (4.5, -0.5)
    assert measured.get_ylim() == (-0.5, 4.5)


def test_many_names_are_thinned():
    model = fitted((60, 2))
    ax = ModeFactorsDisplay.from_estimator(model, coordinates=[[f"sensor {i}" for i in range(60)], None]).axes_[0]
    shown = [text.get_text() for text in ax.get_xticklabels()]
    assert len(shown) <= 30  # on a panel twice as wide
    for text, place in zip(shown, ax.get_xticks(), strict=True):
        assert text == f"sensor {place:.0f}"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"mode_names": ["time"]}, r"Expected 2 mode_names for samples of shape \(3, 4\), got 1: give one"),
        ({"units": "sm"}, r"Expected 2 units for samples of shape \(3, 4\), got 'sm'"),
        ({"coordinates": [None, [1, 2]]}, r"Expected 4 coordinates for mode 1, got shape \(2,\): give one"),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        as_modes((3, 4), **options)


# --- weights ----------------------------------------------------------------------------------------------------------


def test_a_class_is_chosen_by_name_or_number():
    model = fitted((5, 4), "three classes")
    for target in ("birch", 1, np.str_("birch")):
        (image,) = WeightsDisplay.from_estimator(model, target=target).images_
        np.testing.assert_array_equal(image.get_array(), model.coef_[1])
        assert image.axes.get_title() == "class birch"
    display = WeightsDisplay.from_estimator(model, target=["cedar", "ash"])
    assert [ax.get_title() for ax in display.axes_] == ["class cedar", "class ash"]


def test_numbers_among_labels_are_labels():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2))
    model = TraceNormClassifier().fit(X, np.array([2, 0, 1])[np.arange(60) % 3] + 1)
    (image,) = WeightsDisplay.from_estimator(model, target=1).images_
    np.testing.assert_array_equal(image.get_array(), model.coef_[0])


@pytest.mark.parametrize("modes", [(0, 1), (3, 1), (2, 0)])
def test_any_two_modes_make_an_image(modes):
    model = fitted((2, 3, 4, 3))
    rest = [n for n in range(4) if n not in modes]
    display = WeightsDisplay.from_estimator(model, modes=modes, slices=[(1, 2), (0, 0)])
    moved = np.transpose(model.coef_, (*rest, *modes))
    np.testing.assert_array_equal(display.images_[0].get_array(), moved[1, 2])
    assert display.axes_[0].get_title() == f"mode {rest[0]} = 1, mode {rest[1]} = 2"
    (mean,) = WeightsDisplay.from_estimator(model, modes=modes, slices="mean").images_
    np.testing.assert_allclose(mean.get_array(), moved.mean(axis=(0, 1)), atol=1e-15)


def test_slices_are_spread_evenly_and_as_many_as_asked():
    model = fitted((9, 2, 3))
    display = WeightsDisplay.from_estimator(model, slices=3)
    assert [ax.get_title() for ax in display.axes_] == ["mode 0 = 0", "mode 0 = 4", "mode 0 = 8"]


def test_a_colour_bar_on_given_axes_is_drawn_when_asked_for():
    ax = plt.figure().add_subplot()
    display = WeightsDisplay.from_estimator(fitted((5, 4)), ax=ax, colorbar=True)
    assert display.colorbar_.ax.get_ylabel() == "weight"


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("one", {"kind": "coef"}, "Expected kind 'weights' or 'patterns', got 'coef': choose"),
        ("one", {"modes": (0, 0)}, r"Expected two different modes between 0 and 2, got \(0, 0\): name"),
        ("one", {"modes": (0, 3)}, r"Expected two different modes between 0 and 2, got \(0, 3\): name"),
        ("one", {"modes": 1}, "Expected two different modes between 0 and 2, got 1: name"),
        ("one", {"slices": 0}, "Expected slices as a count, 'mean', or a list of entries of mode 0"),
        ("one", {"slices": [4]}, r"below \(4,\), got \[4\]: give one number for each"),
        ("one", {"slices": "median"}, "got 'median': give one number"),
        ("two targets", {"target": 2}, r"Expected a target among \[0, 1\], those that have weights, got 2: choose"),
        ("two classes", {"target": "no"}, r"Expected a class among \['yes'\], the only one that has weights, got 'no'"),
        ("three classes", {"target": 3}, r"Expected a class among \['ash', 'birch', 'cedar'\], .* got 3: choose"),
    ],
)
def test_wrong_choices_of_weights_are_refused(kind, options, sentence):
    before = plt.get_fignums()
    with pytest.raises(ValueError, match=sentence):
        WeightsDisplay.from_estimator(fitted((4, 3, 5), kind), **options)
    assert plt.get_fignums() == before


def test_no_factor_at_all_is_refused():
    with pytest.raises(ValueError, match="Expected n_components of at least 1, got 0: ask"):
        ModeFactorsDisplay.from_estimator(fitted((4, 3)), n_components=0)


# --- curves -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_the_score_of_cross_validation_is_drawn_with_its_standard_error_and_choice(scoring):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2, 2))
    labels = np.digitize(X[:, 0, 0, 0] + 0.3 * rng.standard_normal(60), [-0.4, 0.4])
    model = TensorClassifier(alphas=6, cv=3, scoring=scoring, loss="squared_error").fit(X, labels)
    ax = plt.figure().add_subplot()
    display = PathDisplay.from_estimator(model, ax=ax)
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), model.alphas_)
    np.testing.assert_allclose(display.lines_[0].get_ydata(), model.score_path_.mean(axis=1))
    spread = model.score_path_.std(axis=1, ddof=1) * np.sqrt(
        1 / 3 + 1 / 2
    )  # Nadeau and Bengio: each fold is half of the rest
    heights = display.band_.get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx((display.values + spread).max())
    assert ax.lines[-1].get_xdata()[0] == model.alpha_
    assert ax.get_ylabel() == ("held-out accuracy")
    assert ax.get_xscale() == "log"


def test_where_there_is_no_trace_norm_scores_are_drawn_over_ridges():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2, 2))
    labels = np.digitize(X[:, 0, 0, 0] + 0.3 * rng.standard_normal(60), [-0.4, 0.4])
    model = TensorClassifier(alphas=6, cv=3).fit(X, labels)
    assert model.alpha_ == 0.0  # logistic regression it is
    display = PathDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.lines_[0].get_xdata(), model.ridges_)
    assert display.alpha == model.ridge_
    assert (display.ax_.get_xlabel(), display.ax_.get_xscale()) == ("ridge", "log")


def test_an_alpha_of_zero_has_its_place():
    values = {"values": np.array([0.1, 0.3, 0.2]), "labels": ["mean over folds"], "quantity": "held-out score"}
    display = PathDisplay(alphas=np.array([0.1, 0.01, 0.0]), **values).plot()
    assert display.ax_.get_xscale() == "symlog"
    assert display.ax_.get_ylabel() == "held-out score"


def test_a_score_of_ones_own_is_called_a_score():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2))
    model = TensorRegressor(alphas=[0.01, 0.1], scoring=lambda m, X, y: m.score(X, y)).fit(X, X[:, 0, 0])
    assert PathDisplay.from_estimator(model).ax_.get_ylabel() == "held-out score"


@pytest.mark.parametrize("shape", ORDERS, ids=len)
@pytest.mark.parametrize("targets", [None, 2])
@pytest.mark.filterwarnings("ignore:Expected the best alpha among others")
def test_ranks_along_a_path_are_those_of_models(tiny, shape, targets):
    X, y = tiny(shape, n=60, targets=targets)
    model = TraceNormRegressorCV(5, cv=3).fit(X, y)
    display = PathDisplay.from_path(model, mode_names=list("abcd")[: len(shape)])
    assert len(display.lines_) == len(shape)
    assert display.lines_[0].get_label() == "a"
    drawn = np.stack([line.get_ydata() for line in display.lines_], axis=1)
    low, high = display.ax_.get_ylim()
    assert low <= 0
    assert high >= drawn.max() > 0
    left, right = display.ax_.get_xlim()
    assert left <= model.alphas_.min() < model.alphas_.max() <= right
    for alpha, ranks in zip(model.alphas_[1:3], drawn[1:3], strict=True):
        single = TraceNormRegressor(alpha).fit(X, y)
        np.testing.assert_array_equal(ranks, np.atleast_2d(single.mode_ranks_).max(axis=0))


def test_models_without_a_path_are_refused():
    with pytest.raises(ValueError, match="Expected a model with path_, got TraceNormRegressor: pass"):
        PathDisplay.from_path(fitted((3, 2)))
    with pytest.raises(ValueError, match="Expected a model with score_path_, got TraceNormRegressor: pass"):
        PathDisplay.from_estimator(fitted((3, 2)))


def test_a_stream_is_drawn_in_intervals_and_in_all(tiny):
    X, y = tiny((3, 2), n=600)
    batches = [(X[i : i + 50], y[i : i + 50]) for i in range(0, 600, 50)]
    report = stream(batches, TraceNormRegressor(0.1), refresh_samples=100)
    ax = plt.figure().add_subplot()
    display = PrequentialDisplay.from_report(report, measure="mean squared error", ax=ax)
    assert display.ax_ is ax
    for line, name in zip(display.lines_, ("error", "cumulative_error"), strict=True):
        assert line.get_xdata().tolist() == [point.n_seen for point in report.curve]
        assert line.get_ydata().tolist() == [getattr(point, name) for point in report.curve]
    assert ax.get_ylabel() == "mean squared error"


def test_a_stream_without_a_curve_is_refused():
    with pytest.raises(ValueError, match="Expected a report with points, got an empty curve: let"):
        PrequentialDisplay.from_report(StreamReport(10, (), 0.1, 1))
    with pytest.raises(ValueError, match="Expected what stream returns, got dict: pass"):
        PrequentialDisplay.from_report({})


# --- convergence_ -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["admm", "apg", "newton"])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
def test_the_record_rises_in_iterations_and_ends_with_what_was_found(solver, loss, recwarn):
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 4))
    labels = np.digitize(X[:, 0, 0] + 0.3 * rng.standard_normal(60), [-0.4, 0.4])
    model = TraceNormClassifier(0.02, solver=solver, loss=loss, max_iter=300).fit(X, labels)
    record = model.convergence_
    assert type(record) is np.ndarray
    assert record.dtype == np.float64
    assert record.shape[1] == 2
    assert np.all(np.diff(record[:, 0]) > 0)
    assert tuple(record[-1]) == (model.n_iter_, model.dual_gap_)
    assert len(record) > 1


def test_a_record_of_one_point_is_drawn():
    display = ConvergenceDisplay(convergence=np.array([[3.0, 0.1]]), tol=1e-6).plot()
    assert display.line_.get_xydata().tolist() == [[3.0, 0.1]]


def test_the_record_is_that_of_the_last_solve(tiny):
    X, y = tiny((3, 4), n=100)
    model = TraceNormRegressor(0.1).partial_fit(X[:60], y[:60])
    first = model.convergence_
    model.partial_fit(X[60:], y[60:])
    assert not np.array_equal(first, model.convergence_)
    assert tuple(model.convergence_[-1]) == (model.n_iter_, model.dual_gap_)
    model.fit(X, y).set_params(warm_start=True).fit(X, y)
    assert model.convergence_.tolist() == [[0.0, model.dual_gap_]]


def test_the_record_survives_files_and_pickle(tiny, tmp_path):
    model = TraceNormRegressor(0.1).fit(*tiny((3, 4)))
    save(model, tmp_path / "model.tracelearn")
    for again in (load(tmp_path / "model.tracelearn"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.convergence_, model.convergence_)


# --- views ------------------------------------------------------------------------------------------------------------


VIEWS = {
    "second_order": SecondOrder(),
    "second_order_two_windows": SecondOrder(windows=2),
    "convolutions": Convolutions(),
    "similarities": Similarities(scaling=False, n_landmarks=20),
    "similarities_second_order": Similarities(SecondOrder(), n_landmarks=20),
    "raw": None,
}


@cache
def model_of_view(view, n_classes=2, shape=(4, 40)):
    """Fit a search of one view to signals of which the first is stronger in the last class."""
    rng = np.random.default_rng(0)
    label = rng.integers(n_classes, size=90)
    X = rng.standard_normal((90, *shape))
    X[:, 0] *= (1.0 + 0.6 * label).reshape(-1, *[1] * (len(shape) - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # four alphas are few, and what is raw says little here
        return TensorClassifier([(view, VIEWS[view])], alphas=4, cv=3, loss="squared_error").fit(X, label)


def test_each_window_of_second_order_has_its_panels_and_numbers():
    model = model_of_view("second_order_two_windows")
    display = ViewsDisplay.from_estimator(
        model, mode_names=("channel", "time"), coordinates=[["a", "b", "c", "d"], None]
    )
    titles = [ax.get_title() for ax in display.axes_]
    panels = [f"second order, two windows, window {k}: {what}" for k in (1, 2) for what in ("filters", "patterns")]
    assert titles[:4] == panels
    (filters,) = model.filters_by_view_.values()
    for place, (window, numbers) in enumerate([(0, "filters"), (0, "patterns"), (1, "filters"), (1, "patterns")]):
        drawn = display.axes_[place].lines[1].get_ydata()
        np.testing.assert_allclose(drawn, getattr(filters, numbers)[0, window, 0], atol=1e-6)
    assert display.axes_[0].get_xticklabels()[0].get_text() == "a"


def test_shares_are_bars_of_all_views_that_were_tried():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 4, 40))
    label = rng.integers(2, size=90)
    X[:, 0] *= (1.0 + 0.6 * label)[:, None]
    views = [("raw", None), ("second_order", VIEWS["second_order"])]
    model = TensorClassifier(views, alphas=4, cv=3, loss="squared_error").fit(X, label)
    axes = ViewsDisplay.from_estimator(model).axes_[-1]
    assert [text.get_text()[6:] for text in axes.texts] == ["second order", "raw"]  # the largest share first
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], list(model.view_shares_.values()))


def test_the_share_of_an_only_view_is_not_drawn():
    assert ViewsDisplay.from_estimator(model_of_view("second_order")).shares == {}


@pytest.mark.parametrize("shape", [(4, 40), (2, 2, 40)])
@pytest.mark.parametrize("view", ["raw", "second_order"])
def test_views_of_several_classes_and_orders_are_drawn(shape, view):
    model = model_of_view(view, 3, shape)
    display = ViewsDisplay.from_estimator(model, target=2)
    assert len(display.parts) == 1
    if view == "raw":
        np.testing.assert_allclose(display.parts[0].coef[0], model.coef_by_view_["raw"][2])


def test_convolutions_are_drawn_over_waveforms_and_thresholds():
    model = model_of_view("convolutions", 2, (2, 2, 40))
    display = ViewsDisplay.from_estimator(model, mode_names=("side", "sensor", "time"))
    part = display.parts[0]
    assert [mode.name for mode in part.modes] == ["side × sensor and dilation", "waveform and threshold"]
    np.testing.assert_allclose(part.coef[0], model.coef_by_view_["convolutions"][0])
    assert display.axes_[0].get_title().startswith("convolutions: weights")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where names leave no room for axes
        display.figure_.canvas.draw()
    assert "of waveform" in describe_views(model)["convolutions"]


def test_similarities_are_drawn_as_training_samples_that_are_summed_up():
    model = model_of_view("similarities", 2, (4, 40))
    view, (part,) = model.views_["similarities"], ViewsDisplay.from_estimator(model).parts
    weights = view.landmark_weights(model.coef_by_view_["similarities"])
    expected = np.tensordot(weights[0], view.landmarks_ - view.landmarks_.mean(axis=0), 1)
    np.testing.assert_allclose(part.coef[0] / np.abs(part.coef).max(), expected / np.abs(expected).max(), atol=1e-8)
    assert describe_views(model)["similarities"].startswith(f"{len(view.landmarks_)} training samples to compare with")


def test_similarities_of_second_order_are_drawn_as_sources():
    display = ViewsDisplay.from_estimator(model_of_view("similarities_second_order", 2, (4, 40)))
    assert [ax.get_title() for ax in display.axes_][:2] == [
        "similarities, second order: filters",
        "similarities, second order: patterns",
    ]


@pytest.mark.filterwarnings("ignore:Expected the best")
def test_a_view_of_other_entries_is_drawn_over_its_features():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 4))
    model = TensorRegressor([("pca", PCA(5))], alphas=3, cv=3).fit(X, X[:, 0, 0] + X[:, 1, 1])
    (part,) = ViewsDisplay.from_estimator(model).parts
    assert [mode.name for mode in part.modes] == ["feature"]
    np.testing.assert_allclose(part.coef.ravel(), np.ravel(model.coef_by_view_["pca"]))


def test_weights_of_views_have_no_place_in_the_modes_of_samples():
    for display in (ModeSpectrumDisplay, ModeFactorsDisplay, WeightsDisplay):
        with pytest.raises(
            ValueError, match=r"^Expected weights in the modes of samples.*: draw them with ViewsDisplay"
        ):
            display.from_estimator(model_of_view("second_order"))
    with pytest.raises(ValueError, match=r"^Expected a model with coef_by_view_, got TraceNormRegressor"):
        ViewsDisplay.from_estimator(fitted((5, 4)))


def test_weights_of_recordings_are_drawn_over_lags_and_features(rng):
    X = rng.standard_normal((60, 3))
    model = LaggedRegressor(4).fit(X, X[:, 0])
    for display in (ModeSpectrumDisplay, ModeFactorsDisplay, WeightsDisplay):
        assert display.from_estimator(model).figure_ is not None


def test_of_samples_of_one_mode_the_pattern_has_its_band(rng):
    X = rng.standard_normal((60, 12))
    y = X[:, 3] + 0.1 * rng.standard_normal(60)
    draws = bootstrap(TraceNormRegressor(alpha=0.01), X, y, n_bootstraps=30, random_state=0)
    wavelength = np.linspace(900.0, 1700.0, 12)
    _, pattern = draws.plot(coordinates=wavelength)
    (line, _) = pattern.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), wavelength)
    assert np.argmax(line.get_ydata()) == 3
    low, high = draws.interval("patterns", simultaneous=True)
    ends = pattern.collections[0].get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (low.min(), high.max())
    with pytest.raises(ValueError, match="Expected 12 coordinates"):
        draws.plot(coordinates=wavelength[:5])
