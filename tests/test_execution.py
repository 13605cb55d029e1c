"""Blocks of samples, here and on Dask: the same answer as all samples at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from tracelearn import (
    TensorClassifier,
    TensorRegressor,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)
from tracelearn.moments import Moments
from tracelearn.samples.cluster import Dask
from tracelearn.samples.execution import Local
from tracelearn.samples.source import as_source, is_dask

da = pytest.importorskip("dask.array", reason="Dask is an extra")

SHAPE = (4, 3, 2)
N = 90


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, *SHAPE)) + 1.0
    W = np.einsum("i,j,k", *(rng.standard_normal(size) for size in SHAPE))
    scores = np.tensordot(X - 1.0, W, 3)
    return {
        "X": X,
        "number": scores + 0.3 * rng.standard_normal(N),
        "numbers": np.stack([scores, -scores + rng.standard_normal(N)], axis=1),
        "two": np.array(["left", "right"])[(scores > 0).astype(int)],
        "three": np.digitize(scores, [-1.0, 1.0]),
        "weight": rng.uniform(0.5, 2.0, N),
    }


def in_chunks(array, rows):
    return da.from_array(array, chunks=(rows, *array.shape[1:]))


MODELS = {
    "squared_error": (TraceNormRegressor(), "number"),
    "squared, two targets": (TraceNormRegressor(), "numbers"),
    "squared, no intercept": (TraceNormRegressor(fit_intercept=False), "number"),
    "huber": (TraceNormRegressor(loss="huber"), "number"),
    "huber, joint targets": (TraceNormRegressor(loss="huber", target_mode=True), "numbers"),
    "squared classifier": (TraceNormClassifier(class_weight={"left": 1.0, "right": 3.0}), "two"),
    "balanced classifier": (TraceNormClassifier(class_weight="balanced"), "three"),
    "log_loss": (TraceNormClassifier(loss="log_loss"), "two"),
    "logistic, no intercept": (TraceNormClassifier(loss="log_loss", fit_intercept=False), "two"),
    "multinomial": (TraceNormClassifier(loss="log_loss", class_weight="balanced"), "three"),
    "squared hinge": (TraceNormClassifier(loss="squared_hinge"), "three"),
    "squared hinge, joint classes": (TraceNormClassifier(loss="squared_hinge", target_mode=True), "three"),
}


@pytest.mark.parametrize("rows", [1 + N // 2, 13])
@pytest.mark.parametrize("name", MODELS)
def test_dask_arrays_give_the_answer_of_arrays(name, rows, data):
    model, target = MODELS[name]
    model = clone(model).set_params(alpha=0.05, tol=1e-10, max_iter=5000)  # Newton counts those of ADMM inside it
    expected = clone(model).fit(data["X"], data[target], data["weight"])
    found = clone(model).fit(in_chunks(data["X"], rows), in_chunks(data[target], 20), in_chunks(data["weight"], 7))
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * np.abs(expected.coef_).max())
    assert_allclose(found.intercept_, expected.intercept_, rtol=0, atol=1e-8)
    assert_allclose(found.patterns_, expected.patterns_, rtol=0, atol=1e-8 * np.abs(expected.patterns_).max())
    assert found.dual_gap_ <= 1e-10


def test_samples_too_large_for_a_square_matrix_are_read_once_for_each_gradient(data, monkeypatch):
    monkeypatch.setattr("tracelearn.problems.forms._SMALL_MATRIX", 0)
    monkeypatch.setattr("tracelearn.samples.cluster.available_memory", lambda: 0)
    for name in ("squared_error", "log_loss"):
        model, target = MODELS[name]
        model = clone(model).set_params(alpha=0.1, tol=1e-7)
        expected = clone(model).fit(data["X"], data[target])
        found = clone(model).fit(in_chunks(data["X"], 20), in_chunks(data[target], 20))
        assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-5)
        assert not hasattr(found, "moments_")


SEARCHES = {
    "regressor": (TensorRegressor(alphas=5, cv=3, views=None), "number"),
    "two targets, their axis a mode": (
        TraceNormRegressorCV(alphas=4, cv=3, mode_weights="auto", target_mode=True),
        "numbers",
    ),
    "classifier": (TensorClassifier(alphas=5, cv=3, views=None, class_weight="balanced"), "three"),
    "log_loss": (  # every gradient is a pass, so few of them
        TraceNormClassifierCV(
            alphas=3,
            eps=0.05,
            cv=2,
            loss="log_loss",
            ridges=(0.1,),
            class_weight="balanced",
        ),
        "two",
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_dask_arrays_select_the_model_that_arrays_select(name, data):
    model, target = SEARCHES[name]
    expected = clone(model).fit(data["X"], data[target], data["weight"])
    found = clone(model).fit(in_chunks(data["X"], 17), in_chunks(data[target], 20), data["weight"])
    assert_allclose(found.alpha_, expected.alpha_)
    assert getattr(found, "mode_weights_", None) == getattr(expected, "mode_weights_", None)
    assert found.score_path_.shape == expected.score_path_.shape
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * np.abs(expected.coef_).max())


@pytest.mark.parametrize("name", SEARCHES)
def test_the_scores_of_a_search_are_the_same_for_dask_arrays(name, data):
    model, target = SEARCHES[name]
    expected = clone(model).fit(data["X"], data[target], data["weight"])
    found = clone(model).fit(in_chunks(data["X"], 17), in_chunks(data[target], 20), data["weight"])
    assert_allclose(found.score_path_, expected.score_path_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("target", ["two", "three"])
def test_probabilities_of_a_search_are_calibrated_alike_wherever_samples_are(target, data, tmp_path):
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(tmp_path / "samples.zarr", mode="w")
    for name, values in (("X", data["X"]), ("y", data[target])):
        root.create_array(name, data=np.asarray(values), chunks=(17, *np.shape(values)[1:]))
    model = TensorClassifier(alphas=5, cv=3, views=None, class_weight="balanced")
    expected = clone(model).fit(data["X"], data[target])
    for found in (
        clone(model).fit(str(tmp_path / "samples.zarr")),
        clone(model).fit(in_chunks(data["X"], 17), in_chunks(data[target], 20)),
    ):
        assert_allclose(found.calibration_slope_, expected.calibration_slope_, rtol=1e-5)
        assert_allclose(found.calibration_offsets_, expected.calibration_offsets_, atol=1e-5)
        assert_allclose(found.predict_proba(data["X"]), expected.predict_proba(data["X"]), rtol=0, atol=1e-6)
        assert_allclose(found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], atol=1e-9)


def test_probabilities_without_confounds_are_calibrated_alike_in_blocks(data):
    model, confounds = TensorClassifier(alphas=5, cv=3, views=None), data["X"][:, 0, 0, :2] + 1.0
    expected = clone(model).fit(data["X"], data["two"], confounds=confounds)
    found = clone(model).fit(in_chunks(data["X"], 17), data["two"], confounds=confounds)
    assert_allclose(found.calibration_slope_, expected.calibration_slope_, rtol=1e-5)
    assert_allclose(found.calibration_offsets_, expected.calibration_offsets_, atol=1e-5)
    assert_allclose(found.score_path_, expected.score_path_)


def test_probabilities_of_a_loss_without_moments_are_calibrated_alike_in_blocks(data):
    options = {"alphas": 3, "eps": 0.1, "cv": 2, "loss": "squared_hinge", "views": None}
    expected = TensorClassifier(**options).fit(data["X"], data["two"])
    found = TensorClassifier(**options).fit(in_chunks(data["X"], 17), data["two"])
    # Paths are solved only as far as a choice needs.
    assert_allclose(found.calibration_slope_, expected.calibration_slope_, rtol=1e-3)
    assert_allclose(found.calibration_offsets_, expected.calibration_offsets_, atol=1e-3)
    assert_allclose(found.score_path_, expected.score_path_, atol=0.03)


def test_a_search_reads_the_samples_once(data):
    reads = []

    def read(block):
        reads.append(len(block))
        return block

    X = in_chunks(data["X"], 30).map_blocks(read, dtype=float, meta=np.zeros((0, *SHAPE)))
    TensorRegressor(alphas=4, cv=3).fit(X, data["number"])
    assert sorted(reads) == [30, 30, 30]


def test_groups_and_other_folds_are_those_of_arrays(data):
    from sklearn.model_selection import GroupKFold, ShuffleSplit

    X, groups = in_chunks(data["X"], 17), np.arange(N) // 9
    model = TensorRegressor(alphas=4, cv=GroupKFold(3), views=None)
    expected = clone(model).fit(data["X"], data["number"], groups=groups)
    found = clone(model).fit(X, data["number"], groups=groups)
    assert_allclose(found.alpha_, expected.alpha_)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8)
    model.set_params(cv=ShuffleSplit(2, random_state=0), scoring="r2")
    found, expected = clone(model).fit(X, data["number"]), clone(model).fit(data["X"], data["number"])
    assert_allclose(found.score_path_, expected.score_path_, atol=1e-8)


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba", "predict_log_proba"])
@pytest.mark.parametrize("target", ["two", "three"])
def test_predictions_of_a_dask_array_are_lazy_and_the_same(method, target, data):
    model = TraceNormClassifier(loss="log_loss").fit(data["X"], data[target])
    calls = []

    def read(block):
        calls.append(len(block))
        return block

    X = in_chunks(data["X"], 40).map_blocks(read, dtype=float, meta=np.zeros((0, *SHAPE)))
    found, expected = getattr(model, method)(X), getattr(model, method)(data["X"])
    assert not calls
    assert is_dask(found)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if method == "predict":
        assert np.array_equal(found.compute(), expected)
    else:
        assert_allclose(found.compute(), expected, rtol=1e-12)


def with_nan(X, sample):
    X[sample, 0, 0, 0] = np.nan
    return X


UNEVEN = {
    # What a mask leaves of a chunk is known only when it is computed, and may be nothing.
    "regressor": (TraceNormRegressor(alpha=0.05, tol=1e-10), "number"),
    "huber": (TraceNormRegressor(alpha=0.05, tol=1e-10, loss="huber"), "number"),
    "classifier": (TraceNormClassifier(alpha=0.05, tol=1e-10), "three"),
    "log_loss": (TraceNormClassifier(alpha=0.05, tol=1e-10, loss="log_loss"), "two"),
    "regressor CV": (TensorRegressor(alphas=4, cv=3, views=None), "number"),
    "classifier CV": (TensorClassifier(alphas=4, cv=3, views=None), "three"),
}


@pytest.mark.parametrize("first", [0, 40], ids=["some left of each chunk", "nothing left of the first chunks"])
@pytest.mark.parametrize("name", UNEVEN)
def test_chunks_of_unknown_size_and_empty_ones_are_welcome(name, first, data):
    model, target = UNEVEN[name]
    keep = (data["X"][:, 0, 0, 0] > 0.5) & (np.arange(N) >= first)
    X, y = in_chunks(data["X"], 20), in_chunks(data[target], 20)
    mask = da.from_array(keep, chunks=20)
    found = clone(model).fit(X[mask], y[mask])
    expected = clone(model).fit(data["X"][keep], data[target][keep])
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * max(1.0, np.abs(expected.coef_).max()))
    predicted, wanted = found.predict(X[mask]).compute(), expected.predict(data["X"][keep])
    assert predicted.tolist() == (pytest.approx(wanted.tolist()) if target == "number" else wanted.tolist())


@pytest.mark.parametrize("name", UNEVEN)
def test_a_block_may_weigh_nothing(name, data):
    model, target = UNEVEN[name]
    weight = data["weight"].copy()
    weight[20:40] = 0.0
    found = clone(model).fit(in_chunks(data["X"], 20), in_chunks(data[target], 20), in_chunks(weight, 20))
    expected = clone(model).fit(data["X"], data[target], weight)
    assert_allclose(found.coef_, expected.coef_, rtol=0, atol=1e-8 * max(1.0, np.abs(expected.coef_).max()))
    with pytest.raises(ValueError, match=r"^Expected some sample weight above zero"):
        clone(model).fit(in_chunks(data["X"], 20), data[target], np.zeros(N))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X, None), "requires y to be passed"),
        (
            lambda X, y: (in_chunks(with_nan(X.compute(), 47), 20), y),
            r"Expected finite numbers in X, got NaN at sample 7.*block that begins at sample 40",
        ),
        (lambda X, y: (X.reshape(-1), y), "Expected a 2D array"),
    ],
)
def test_bad_dask_arrays_get_a_sentence(change, message, data):
    X, y = change(in_chunks(data["X"], 20), data["number"])
    with pytest.raises(ValueError, match=message):
        TraceNormRegressor().fit(X, y)


def test_flat_chunks_take_the_shape_they_are_given(data):
    flat = data["X"].reshape(N, -1)
    expected = TraceNormRegressor(tensor_shape=SHAPE).fit(flat, data["number"])
    found = TraceNormRegressor(tensor_shape=SHAPE).fit(in_chunks(flat, 20), data["number"])
    assert found.coef_tensor_.shape == SHAPE
    assert found.coef_.shape == (24,)
    assert_allclose(found.coef_, expected.coef_, atol=1e-8)


@pytest.mark.parametrize("execution", [Local(), Dask()], ids=["local", "dask"])
def test_both_agree_on_what_a_column_is(execution, data):
    source = as_source(in_chunks(data["X"], 20), data["number"])
    batches = source.blocks if isinstance(execution, Dask) else source.execution.gather(source.blocks)
    sizes = execution.map(lambda batch: len(batch[1]), batches)
    assert execution.gather(sizes) == [20, 20, 20, 20, 10]
    assert execution.total(lambda batch, size: float(size) * len(batch[1]), batches, sizes) == 4 * 400.0 + 100.0
    assert execution.first(execution.view(lambda batch: batch[0], batches)) == 0
    moments = execution.total(lambda batch: Moments.of(batch[1], batch[2]), batches)
    assert_allclose(moments.gram, Moments.of(data["X"], data["number"]).gram, rtol=1e-10, atol=1e-10)
