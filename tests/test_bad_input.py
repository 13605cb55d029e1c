"""Bad input of every kind gets one sentence: what was expected, what came, what to do."""

import math
import re
import warnings
from fractions import Fraction

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from tracelearn import ModeWhitener, TensorClassifier, TensorRegressor, TraceNormClassifier, TraceNormRegressor
from tracelearn.errors import brief
from tracelearn.losses import Huber
from tracelearn.penalties import Latent, Nuclear, Overlap

SHAPE = (3, 2, 2)
N = 30
_rng = np.random.default_rng(5)
X = _rng.standard_normal((N, *SHAPE))
Y = X.reshape(N, -1) @ _rng.standard_normal(12) + 0.1 * _rng.standard_normal(N)
LABELS = np.where(Y > 0, "up", "down")

both = pytest.mark.parametrize(
    ("make", "y"), [(TraceNormRegressor, Y), (TraceNormClassifier, LABELS)], ids=["regressor", "classifier"]
)
every_loss = pytest.mark.parametrize(
    ("make", "loss", "y"),
    [
        (TraceNormRegressor, "squared_error", Y),
        (TraceNormRegressor, "huber", Y),
        (TraceNormClassifier, "squared_error", LABELS),
        (TraceNormClassifier, "log_loss", LABELS),
        (TraceNormClassifier, "squared_hinge", LABELS),
    ],
)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def refusal(call, *parts, error=ValueError, ours=True):
    """Return the message of an error, checked to be one sentence with all the parts in it."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is error or issubclass(type(caught.value), error)
    if ours:
        assert message.startswith("Expected "), message
        assert re.search(r"\bgot\b", message), message
        assert message.endswith("."), message
    for part in parts:
        assert part in message, message
    return message


@pytest.mark.parametrize("views", [None, [None, ModeWhitener()]], ids=["samples", "two views"])
def test_a_search_refuses_samples_of_another_shape_in_its_own_name(views):
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((60, 4, 20))
    model = TensorClassifier(views=views, alphas=3, cv=2).fit(samples, np.arange(60) % 2)
    name = "TensorClassifier is expecting 80 features"
    refusal(lambda: model.predict(samples[:, :3]), "shape (4, 20) as in fit", "shape (3, 20)", name)
    refusal(lambda: model.predict(samples[0]), "of a single sample pass X[None]", name)


# --- samples ---------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")], ids=["nan", "inf", "-inf"]
)
def test_a_number_that_is_not_finite_is_named_with_its_place(make, y, value, name):
    bad = changed(X, (4, 1, 0, 1), value)
    where = f"got {name} at sample 4, entry (1, 0, 1)"
    refusal(lambda: make().fit(bad, y), "finite numbers in X", where)
    refusal(lambda: make(tensor_shape=SHAPE).fit(bad.reshape(N, -1), y), where)
    model = make().fit(X, y)
    refusal(lambda: model.predict(bad), where)
    first = {} if make is TraceNormRegressor else {"classes": ["up", "down"]}
    refusal(lambda: make().partial_fit(bad, y, **first), where)


def test_huge_numbers_whose_sum_overflows_are_not_taken_for_infinity():
    message = refusal(lambda: TraceNormRegressor().fit(X * 4e307, Y), "largest number in X")
    assert "infinity" not in message


@every_loss
@pytest.mark.parametrize("scale", [1e80, 1e155, 1e200, 1e300, 1e-80, 1e-160])
def test_features_whose_products_leave_the_range_are_refused(make, loss, y, scale):
    refusal(
        lambda: make(loss=loss).fit(X * scale, y), "largest number in X to be between 1e-50 and 1e+50", "multiply X"
    )


@every_loss
@pytest.mark.parametrize("scale", [1e-40, 1e-20, 1e-9, 1e9, 1e20, 1e40])
def test_features_of_unusual_size_give_the_answer_of_the_scaled_problem(make, loss, y, scale):
    usual = make(alpha=0.1, loss=loss).fit(X, y)
    unusual = make(alpha=0.1 * scale, loss=loss).fit(X * scale, y)
    assert unusual.dual_gap_ <= 1e-6
    assert unusual.objective_ == pytest.approx(usual.objective_, rel=1e-5)
    np.testing.assert_allclose(unusual.coef_ * scale, usual.coef_, atol=5e-3 * np.abs(usual.coef_).max())


def test_the_range_of_single_precision_is_smaller():
    refusal(lambda: TraceNormRegressor().fit((X * 1e20).astype(np.float32), Y), "1e+15", "float32")
    refusal(lambda: TraceNormRegressor(loss="huber").fit((X * 1e20).astype(np.float32), Y), "1e+15", "float32")
    assert np.isfinite(TraceNormRegressor().fit((X * 1e9).astype(np.float32), Y).predict(X * 1e9)).all()


@pytest.mark.parametrize("loss", ["squared_error", "huber"])
def test_targets_whose_squares_overflow_are_refused(loss):
    refusal(lambda: TraceNormRegressor(loss=loss).fit(X, Y * 1e200), "largest number in y", "multiply y")


def test_a_batch_that_overflows_leaves_the_online_model_as_it_was():
    model = TraceNormRegressor().partial_fit(X, Y)
    before = model.predict(X)
    refusal(lambda: model.partial_fit(X * 1e200, Y), "largest number in X")
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.moments_.weight == N


@both
def test_samples_of_another_order_or_with_other_mode_sizes_are_refused_at_prediction(make, y):
    model = make().fit(X, y)
    shapes = "samples of shape (3, 2, 2) as in fit, got samples of shape "
    refusal(lambda: model.predict(X[:, 0]), shapes + "(2, 2)", "X has 4 features", "expecting 12 features")
    refusal(lambda: model.predict(X[0]), shapes + "(2, 2)", "of a single sample pass X[None]")
    refusal(lambda: model.predict(X[:, :, :1]), shapes + "(3, 1, 2)", "X has 6 features")
    refusal(lambda: model.predict(np.swapaxes(X, 1, 2)), shapes + "(2, 3, 2)", "order of fit")
    refusal(lambda: model.predict(X.reshape(N, 6, 2)), shapes + "(6, 2)", "order of fit")
    refusal(lambda: model.predict(X.reshape(N, -1)[:, :7]), shapes + "(7,)", "X has 7 features")
    refusal(lambda: model.predict(X[0, 0, 0]), "got a 1D array", ours=False)


def test_a_later_batch_must_have_the_shape_of_the_first():
    model = TraceNormRegressor().partial_fit(X, Y)
    refusal(lambda: model.partial_fit(np.swapaxes(X, 1, 2), Y), "got samples of shape (2, 3, 2)")
    refusal(lambda: model.partial_fit(X, np.stack([Y, Y], axis=1)), "keep its number of targets")
    two = TraceNormRegressor().partial_fit(X, np.stack([Y, Y], axis=1))
    refusal(lambda: two.partial_fit(X, np.stack([Y, Y, Y], axis=1)), "2 targets", "3")


@both
def test_a_tensor_shape_that_does_not_fit_is_refused(make, y):
    flat = X.reshape(N, -1)
    refusal(lambda: make(tensor_shape=(3, 5)).fit(flat, y), "tensor_shape (3, 5), or flat with 15 features", "(12,)")
    refusal(lambda: make(tensor_shape=(2, 3, 2)).fit(X, y), "tensor_shape (2, 3, 2)", "got samples of shape (3, 2, 2)")
    refusal(lambda: make(tensor_shape=(12, 0)).fit(flat, y), "mode sizes of at least 1", "(12, 0)")
    refusal(lambda: make(tensor_shape=(-3, -4)).fit(flat, y), "mode sizes of at least 1", "(-3, -4)")
    refusal(lambda: make(tensor_shape=(3.5, 4)).fit(flat, y), "whole mode sizes", "(3.5, 4)")
    refusal(lambda: make(tensor_shape=()).fit(flat, y), "mode sizes of at least 1", "()")
    refusal(lambda: make(tensor_shape=("a", "b")).fit(flat, y), "sequence of mode sizes", "('a', 'b')")
    refusal(lambda: make(tensor_shape=12).fit(flat, y), "'tensor_shape'", ours=False)


@both
def test_no_samples_and_samples_without_entries_are_refused(make, y):
    refusal(lambda: make().fit(X[:0], y[:0]), "at least one sample", "(0, 3, 2, 2)")
    refusal(lambda: make().fit(X[:, :, :0], y), "at least one entry", "(30, 3, 0, 2)")
    refusal(lambda: make().fit(np.zeros((0, 4)), y[:0]), "0 sample(s)", "minimum of 1", ours=False)
    refusal(lambda: make().fit(np.zeros((N, 0)), y), "0 feature(s)", "minimum of 1", ours=False)
    refusal(lambda: make().fit(X, y).predict(X[:0]), "at least one sample")


@both
def test_samples_that_are_no_array_of_samples_are_refused(make, y):
    for nothing in (None, 3.0, {"a": 1}):
        refusal(lambda nothing=nothing: make().fit(nothing, y), "got a 0D array")
    refusal(lambda: make().fit(X[:, 0, 0, 0], y), "got a 1D array", "Reshape your data")
    refusal(lambda: make().fit([[1.0, 2.0], [3.0]], y[:2]), "several shapes")
    refusal(lambda: make().fit("abc", y), "got 'abc', which does not exist", error=FileNotFoundError)


@both
def test_samples_that_are_not_numbers_are_refused(make, y):
    refusal(lambda: make().fit(np.full((N, 3, 2), "a"), y), "numbers in X, got text such as 'a' at sample 0", "encode")
    refusal(lambda: make().fit(np.full((N, 3, 2), b"a"), y), "Expected numbers in X", "b'a'")
    refusal(lambda: make().fit(np.full((N, 3), "2020-01-01", dtype="datetime64[D]"), y), "datetime64")
    refusal(lambda: make().fit(np.full((N, 3, 2), "a", dtype=object), y), "'a'")
    refusal(lambda: make().fit(X + 1j, y), "Complex data not supported", ours=False)


# --- targets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_a_target_that_is_not_finite_is_named_with_its_place(value, name):
    bad = changed(Y, 7, value)
    refusal(lambda: TraceNormRegressor().fit(X, bad), f"finite numbers in y, got {name} at sample 7")
    refusal(lambda: TraceNormRegressor().fit(X, np.stack([Y, bad], axis=1)), f"got {name} at sample 7")
    refusal(lambda: TraceNormClassifier().fit(X, changed((Y > 0).astype(float), 7, value)), f"got {name} at sample 7")


@both
def test_targets_of_the_wrong_length_or_order_are_refused(make, y):
    ours = make is TraceNormRegressor
    refusal(lambda: make().fit(X, y[:-1]), "inconsistent numbers of samples", "29", ours=ours)
    refusal(lambda: make().fit(X, y[0]), ours=ours)
    refusal(lambda: make().fit(X, np.zeros((N, 0))), "(30, 0)", ours=ours)
    refusal(lambda: make().fit(X, y[:, None, None]), "(30, 1, 1)" if ours else "dim 3", ours=ours)
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        make().fit(X, None)


def test_one_class_is_nothing_to_learn():
    refusal(lambda: TraceNormClassifier().fit(X, np.full(N, "up")), "at least two classes in y, got one class, 'up'")
    refusal(lambda: TraceNormClassifier().fit(X, np.ones(N, int)), "got one class, 1:")
    refusal(lambda: TraceNormClassifier().partial_fit(X, LABELS, classes=["up"]), "at least two classes")


def test_labels_of_the_wrong_kind_are_refused():
    refusal(lambda: TraceNormClassifier().fit(X, Y), "continuous", "discrete classes", ours=False)
    refusal(lambda: TraceNormClassifier().fit(X, np.stack([Y > 0, Y < 1], axis=1)), "1d array", "(30, 2)", ours=False)
    refusal(lambda: TraceNormRegressor().fit(X, LABELS), "Expected numbers in y", "text such as", "TensorClassifier")
    refusal(lambda: TraceNormRegressor().fit(X, LABELS.astype(object)), "Expected numbers in y", "text such as")
    refusal(lambda: TraceNormRegressor().fit(X, Y + 1j), "Expected real numbers in y", "complex128")
    refusal(lambda: TraceNormRegressor().fit(X, np.full(N, "2020-01-01", dtype="datetime64[D]")), "datetime64")


def test_labels_that_were_never_named_are_refused_online():
    model = TraceNormClassifier().partial_fit(X, LABELS, classes=["up", "down"])
    refusal(lambda: model.partial_fit(X, np.full(N, "left")), "the classes ['down', 'up'], got ['left']")
    refusal(lambda: model.partial_fit(X, LABELS, classes=["up", "left"]), "the classes of the first call")
    refusal(lambda: TraceNormClassifier().partial_fit(X, LABELS), "Expected classes in the first call", "got None")


# --- weights and parameters ------------------------------------------------------------------------------------------


@every_loss
def test_weights_that_cannot_be_weights_are_refused(make, loss, y):
    model = make(loss=loss)
    refusal(lambda: model.fit(X, y, changed(np.ones(N), 3, -1.0)), "sample_weight below zero")
    refusal(lambda: model.fit(X, y, np.zeros(N)), "sample weight above zero, got only zeros")
    refusal(lambda: model.fit(X, y, np.ones(N - 1)), "(29,)", "(30,)")
    refusal(lambda: model.fit(X, y, np.ones((N, 2))), "(30, 2)", "one weight for each sample")
    refusal(lambda: model.fit(X, y, changed(np.ones(N), 3, np.nan)), "sample_weight", "NaN at sample 3")
    refusal(lambda: model.fit(X, y, changed(np.ones(N), 3, np.inf)), "sample_weight", "infinity at sample 3")


@both
def test_weights_that_are_no_real_numbers_are_refused(make, y):
    refusal(lambda: make().fit(X, y, "heavy"), "numbers in sample_weight")
    refusal(lambda: make().fit(X, y, ["1", "two"] * 15), "numbers in sample_weight")
    refusal(lambda: make().fit(X, y, ["1"] * 29 + [None]), "NaN at sample 29")
    for weight in (1j, np.full(N, 1j), [1j] * N, np.full(N, 1j, dtype=object)):
        message = refusal(lambda weight=weight: make().fit(X, y, weight), "real numbers in sample_weight")
        assert message.endswith("one real number for each.")  # real and imaginary part cannot be two weights


@both
def test_one_number_weighs_all_samples_alike(make, y):
    expected = make().fit(X, y).coef_
    assert_allclose(make().fit(X, y, 2.0).coef_, expected, atol=1e-9)
    assert_allclose(make().fit(da.from_array(X, chunks=(10, *SHAPE)), y, 2.0).coef_, expected, atol=1e-9)
    refusal(lambda: make().fit(X, y, np.nan), "NaN", "sample_weight")


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
def test_class_weights_that_cannot_be_weights_are_refused(loss):
    def fit(weight):
        return lambda: TraceNormClassifier(loss=loss, class_weight=weight).fit(X, LABELS)

    refusal(fit({"up": 0, "down": 0}), "sample weight above zero")
    refusal(fit({"up": -1, "down": 1}), "sample_weight below zero")
    refusal(fit({"left": 1}), "not in class_weight", ours=False)
    refusal(fit("fair"), "'class_weight'", ours=False)


@both
def test_mode_weights_that_cannot_be_weights_are_refused(make, y):
    def fit(weights, **options):
        return lambda: make(mode_weights=weights, **options).fit(X, y)

    refusal(fit((1, 2)), "3 mode weights", "(3, 2, 2)", "got 2")
    refusal(fit((1, -2, 1)), "not negative", "got -2.0")
    refusal(fit((0, 0, 0)), "some weight above zero", "use alpha=0")
    refusal(fit((1, np.nan, 1)), "finite", "nan")
    refusal(fit((1, np.inf, 1)), "finite", "inf")
    refusal(fit(("a", 1, 1)), "mode_weights to be a sequence of numbers")
    refusal(fit(np.ones((3, 2))), "mode_weights to be a sequence of numbers")
    refusal(fit((0, 1, 1), penalty="latent"), "above zero in a latent norm")
    refusal(fit("abc"), "'mode_weights'", ours=False)


def test_with_the_classes_as_a_mode_the_weights_count_it():
    three = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
    model = TraceNormClassifier(target_mode=True, mode_weights=(1, 1, 1))
    refusal(lambda: model.fit(X, three), "4 mode weights for weights of shape (3, 3, 2, 2), got 3")


@both
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("alpha", [-1.0, np.nan, np.inf, "a", None]),
        ("ridge", [-1.0, np.nan, np.inf, "a"]),
        ("tol", [0.0, -1.0, np.nan]),
        ("max_iter", [0, -5, 1.5]),
        ("forgetting", [0.0, 1.5, -1.0]),
        ("fit_intercept", ["yes"]),
        ("target_mode", ["yes"]),
        ("warm_start", ["yes"]),
        ("verbose", ["loud", -1]),
    ],
)
def test_a_parameter_outside_its_range_is_refused_by_name(make, y, name, values):
    for value in values:
        refusal(lambda value=value: make(**{name: value}).fit(X, y), f"'{name}'", ours=False)


@both
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("loss", ["square", None, "hinge", 3]),
        ("penalty", ["trace", None, 3]),
        ("solver", ["fista", None, 3]),
    ],
)
def test_a_loss_penalty_or_solver_that_is_none_is_refused_with_those_that_there_are(make, y, name, values):
    known = {"loss": "'squared_error'", "penalty": "'overlapped'", "solver": "'admm'"}[name]
    for value in values:
        refusal(lambda value=value: make(**{name: value}).fit(X, y), name, known, repr(value))


@pytest.mark.parametrize("delta", [0.0, math.inf, math.nan, "wide", np.ones(3)])
def test_the_width_of_the_huber_loss_is_a_number_above_zero(delta):
    refusal(lambda: TraceNormRegressor(loss=Huber(delta)).fit(X, Y), "finite delta above 0", brief(delta))


def test_a_class_in_place_of_a_loss_or_a_penalty_is_refused():
    refusal(lambda: TraceNormRegressor(loss=Huber).fit(X, Y), "a loss for numbers", "Huber")
    for penalty in (Overlap, Nuclear):
        refusal(lambda penalty=penalty: TraceNormRegressor(penalty=penalty).fit(X, Y), "a penalty", penalty.__name__)


@pytest.mark.parametrize("mode", [0.5, "first", None, 7])
def test_a_term_of_no_mode_is_refused(mode):
    refusal(lambda: TraceNormRegressor(penalty=Nuclear(mode)).fit(X, Y), "fit weights of shape (3, 2, 2)", repr(mode))


def test_sums_of_overlapping_and_latent_terms_are_refused():
    overlap, latent = 1.0 * Nuclear(0), Latent(((1.0, Nuclear(1)),))
    for first, second in ((overlap, latent), (latent, overlap), (Nuclear(0), latent)):
        refusal(lambda first=first, second=second: first + second, "Overlap", "Latent")
    with pytest.raises(TypeError):
        overlap + 3


def test_weights_of_terms_may_be_numbers_of_any_library():
    expected = TraceNormRegressor(penalty=0.5 * Nuclear(0)).fit(X, Y).coef_
    for weight in (np.float32(0.5), Fraction(1, 2)):
        np.testing.assert_array_equal(
            TraceNormRegressor(penalty=Overlap(((weight, Nuclear(0)),))).fit(X, Y).coef_, expected
        )


# --- what a model cannot do ------------------------------------------------------------------------------------------


@both
def test_a_model_that_was_not_fitted_says_so(make, y):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        make().predict(X)
    for attribute in ("mode_ranks_", "mode_factors_"):
        with pytest.raises(NotFittedError):
            getattr(make(), attribute)


def hidden(model, method, *parts):
    """Check that a method is hidden, and that the error behind it says why."""
    assert not hasattr(model, method)
    with pytest.raises(AttributeError) as caught:
        getattr(model, method)
    reason = str(caught.value.__cause__)
    assert reason.startswith(("Expected loss=", "probability estimates are not available for loss="))
    for part in parts:
        assert part in reason


def test_partial_fit_is_hidden_where_the_loss_has_no_moments():
    hidden(TraceNormRegressor(loss="huber"), "partial_fit", "'squared_error'", "'huber'", "with fit")
    hidden(TraceNormClassifier(loss="log_loss"), "partial_fit", "'log_loss'")
    hidden(TraceNormClassifier(loss="squared_hinge"), "partial_fit", "'squared_hinge'")


def test_probabilities_are_hidden_where_the_loss_has_none():
    for loss in ("squared_error", "squared_hinge"):
        for method in ("predict_proba", "predict_log_proba"):
            hidden(TraceNormClassifier(loss=loss), method, "'log_loss'", f"'{loss}'", "CalibratedClassifierCV")


def test_balanced_classes_are_refused_online():
    model = TraceNormClassifier(class_weight="balanced")
    refusal(lambda: model.partial_fit(X, LABELS, classes=["up", "down"]), "'balanced'", "sample_weight")


def test_a_model_fitted_without_moments_cannot_go_on_online():
    rng = np.random.default_rng(0)
    few, y = rng.standard_normal((5, 4, 4, 4)), rng.standard_normal(5)
    assert TraceNormRegressor(keep_moments=True).fit(few, y).partial_fit(few, y).moments_.weight == 10.0
    model = TraceNormRegressor().fit(few, y)
    assert not hasattr(model, "moments_")
    refusal(lambda: model.partial_fit(few, y), "model that keeps its moments", "begin with partial_fit")


# --- what hides a value ------------------------------------------------------------------------------------------------


@both
def test_masked_entries_are_refused_since_anything_may_be_below_the_mask(make, y):
    hidden = np.ma.masked_greater(X, 1.0)
    late = np.ma.array(y, mask=np.arange(N) > 25)
    weight = np.ma.array(np.ones(N), mask=np.arange(N) > 25)
    refusal(lambda: make().fit(hidden, y), "masked entries", "in X")
    refusal(lambda: make().fit(X, late), "masked entries", "in y")
    refusal(lambda: make().fit(X, y, sample_weight=weight), "masked entries", "in sample_weight")
    refusal(lambda: make().fit(X, y).predict(hidden), "masked entries")
    assert np.array_equal(make().fit(np.ma.array(X), np.ma.array(y)).coef_, make().fit(X, y).coef_)


@both
def test_samples_of_several_shapes_are_refused_with_two_of_them(make, y):
    cut = [*X[1:], X[0][:2]]
    refusal(lambda: make().fit(cut, y), "rows of several shapes, such as (2, 2, 2) and (3, 2, 2)")
    refusal(lambda: make().fit(X, y).predict(cut), "rows of several shapes")
    apart = np.empty(N, dtype=object)
    apart[:] = list(X)
    assert np.array_equal(make().fit(apart, y).coef_, make().fit(X, y).coef_)


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT], ids=str)
@both
def test_a_missing_number_is_refused_with_its_sample(make, y, nothing):
    objects = X.reshape(N, -1).astype(object)
    objects[7, 3] = nothing
    model = make().fit(X, y)
    for samples in (objects, objects.reshape(X.shape), objects.tolist(), pd.DataFrame(objects)):
        refusal(lambda samples=samples: make(tensor_shape=SHAPE).fit(samples, y), "at sample 7")
        refusal(lambda samples=samples: model.predict(samples), "at sample 7")
    refusal(lambda: TraceNormRegressor().fit(X, changed(Y.astype(object), 7, nothing)), "at sample 7")


@pytest.mark.parametrize("nothing", [None, pd.NA, pd.NaT], ids=str)
def test_what_is_missing_is_a_gap_to_a_search_whatever_stands_for_it(nothing):
    gap = changed(X, (7, 0, 0, 1), np.nan)
    objects = changed(X.astype(object), (7, 0, 0, 1), nothing)
    by_nan, by_object = (TensorRegressor(views=None, cv=2).fit(samples, Y).predict(gap) for samples in (gap, objects))
    assert np.array_equal(by_nan, by_object)


@both
def test_text_and_complex_numbers_among_numbers_are_refused_with_their_sample(make, y):
    objects = X.reshape(N, -1).astype(object)
    refusal(lambda: make().fit(changed(objects, (7, 3), "high"), y), "text such as 'high' at sample 7")
    refusal(lambda: make().fit(changed(objects, (7, 3), 1j), y), "real numbers in X", "at sample 7")
    refusal(lambda: make().fit(X + 1j, y), "real numbers in X", "complex128")
    refusal(lambda: make().fit(X, np.arange(N) % 2 + 1j), "numbers in y", "complex128")
    as_text = changed(objects, (7, 3), str(objects[7, 3]))  # which NumPy reads
    assert np.array_equal(make().fit(as_text, y).coef_, make().fit(objects, y).coef_)


@pytest.mark.parametrize("mistake", [np.ones((40, 50)), list(range(5000)), "long" * 900], ids=["array", "list", "text"])
@pytest.mark.parametrize("name", TraceNormRegressor().get_params())
def test_what_was_passed_by_mistake_is_not_printed_whole(name, mistake):
    message = refusal(lambda: TraceNormRegressor(**{name: mistake}).fit(X, Y), ours=False)
    assert len(message) < 350
    assert "\n" not in message


def test_labels_of_a_mistake_are_not_printed_whole():
    labels = np.array([f"a long label {k}" for k in range(N)])
    model = TraceNormClassifier().partial_fit(X, labels, classes=labels)
    assert len(refusal(lambda: model.partial_fit(X[:1], ["new"]))) < 300


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT], ids=str)
def test_a_missing_label_is_refused_with_its_sample(nothing):
    labels = LABELS.astype(object)
    labels[7] = nothing
    refusal(lambda: TraceNormClassifier().fit(X, labels), "got none at sample 7")
    refusal(lambda: TensorClassifier().fit(X, pd.Series(labels)), "got none at sample 7")


def test_labels_of_two_kinds_are_refused():
    labels = LABELS.astype(object)
    labels[3] = 1
    refusal(lambda: TraceNormClassifier().fit(X, labels), "labels of one kind")
    named = np.where(Y > 0, "nan", "NaT").astype(object)  # text may be anything
    assert TraceNormClassifier().fit(X, named).classes_.tolist() == ["NaT", "nan"]


def test_one_group_cannot_be_held_out():
    refusal(lambda: TensorClassifier().fit(X, LABELS, groups=np.ones(N)), "at least two groups", "got one")


def test_a_frame_whose_columns_form_a_grid_asks_for_its_shape():
    names = [f"s{c}_t{k}" for c in range(3) for k in range(4)]
    frame = pd.DataFrame(X.reshape(N, -1), columns=names)
    with pytest.warns(UserWarning, match=r"^Expected tensor_shape=\(3, 4\), as the names of columns from 's0_t0'"):
        TraceNormRegressor().fit(frame, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TraceNormRegressor(tensor_shape=(3, 4)).fit(frame, Y)
        model.predict(frame)
        TraceNormRegressor().fit(frame[names[::-1]], Y)  # not in the order of a tensor
        for other in ([*names[:11], "age"], [f"f{i}" for i in range(12)], range(12)):
            TraceNormRegressor().fit(frame.set_axis(list(other), axis=1), Y)
