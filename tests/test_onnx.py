"""Models as ONNX graphs: a runtime says what the model says."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tracelearn.features
from tracelearn import (
    Chain,
    Convolutions,
    Detrend,
    Lengths,
    Logarithm,
    ModePCA,
    ModeWhitener,
    ResampleTime,
    SavitzkyGolay,
    ScatterCorrection,
    SecondOrder,
    Similarities,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    Thresholds,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    Views,
    to_onnx,
)
from tracelearn.features import TensorTransformer, default_views
from tracelearn.io.onnx_views import NODES_OF
from tracelearn.losses import Poisson, SquaredError

runtime = pytest.importorskip("onnxruntime")


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 4, 3, 2))
    return X, X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(120)


def run(graph, X):
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_a_regressor_predicts_the_same(samples, dtype, n_targets):
    X, y = samples[0].astype(dtype), samples[1]
    model = TraceNormRegressor(alpha=0.05).fit(X, y if n_targets == 1 else np.stack([y, -2.0 * y + 1.0], axis=1))
    found = run(to_onnx(model), X)
    assert set(found) == {"prediction"}
    assert found["prediction"].dtype == dtype
    assert found["prediction"].shape == model.predict(X).shape
    np.testing.assert_allclose(found["prediction"], model.predict(X), atol=1e-12 if dtype == np.float64 else 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "squared_hinge"])
@pytest.mark.parametrize("labels", ["binary", "text", "three", "truth", "decimal"])
def test_a_classifier_predicts_and_scores_the_same(samples, dtype, loss, labels):
    X, signal = samples[0].astype(dtype), samples[1]
    y = {
        "binary": np.where(signal > 0, 7, -2),
        "text": np.array(["low", "mid", "high"])[np.digitize(signal, [-0.7, 0.7])],
        "three": np.digitize(signal, [-0.7, 0.7]).astype(np.int32),
        "truth": signal > 0,
        "decimal": np.where(signal > 0, 1.0, 0.0),
    }[labels]
    model = TraceNormClassifier(alpha=0.02, loss=loss).fit(X, y)
    found = run(to_onnx(model), X)
    assert set(found) == {"prediction", "scores"} | ({"probabilities"} if loss == "log_loss" else set())
    assert found["prediction"].tolist() == model.predict(X).tolist()
    wanted = {"text": object, "decimal": np.float64}.get(labels, np.int64)
    assert found["prediction"].dtype == wanted
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(found["scores"], model.decision_function(X), atol=tolerance)
    if loss == "log_loss":
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), atol=tolerance)


@pytest.mark.parametrize(
    "model", [TraceNormRegressorCV(alphas=3, cv=2), TraceNormClassifierCV(alphas=3, cv=2)], ids=str
)
def test_the_model_found_by_cross_validation_is_what_is_translated(samples, model, tmp_path):
    X, y = samples
    model = clone(model).fit(X, np.where(y > 0, 1, 0))
    graph = to_onnx(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == graph.SerializeToString()
    assert [size.dim_value for size in graph.graph.input[0].type.tensor_type.shape.dim[1:]] == [4, 3, 2]
    np.testing.assert_allclose(run(graph, X)["prediction"], model.predict(X))


TRANSFORMERS = {
    "scaler": TensorStandardScaler(per=(0, 2)),
    "whitener": ModeWhitener(-0.25, shrinkage=0.2, center=True),
    "compression": ModePCA((2, 1, 9)),
    "logarithm": Logarithm(),
    "derivative": SavitzkyGolay(1, window=7, scaling=True),
    "second derivative along a mode as long as the window": SavitzkyGolay(2, window=3, mode=0),
    "detrended": Detrend(2),
    "powers without a trend": Chain([Detrend(2), SecondOrder()]),
    "detrended along the first mode": Detrend(0, mode=0),
    "normal variate": ScatterCorrection(),
    "multiplicative scatter correction": ScatterCorrection("msc", mode=0),
    "derivative, corrected": Chain([SavitzkyGolay(1, window=5), ScatterCorrection("msc")]),
    "thresholds": Thresholds(),
    "thresholds of every entry": Thresholds(3, n_intervals=100, mode=1),
    "second order": SecondOrder(keep=1),
    "second order with lags": SecondOrder(scaling=True, mean=0.05, lags=1, lag_step=2),
    "second order of differences in windows": SecondOrder(mean=False, difference=True, windows=2, shrinkage=0.1),
    "second order without reference": SecondOrder(reference=None),
    "convolutions": Convolutions(thresholds=2),
    "convolutions of the mean": Convolutions(average=True, n_entries=1344),
    "similarities": Similarities(n_landmarks=20),
    "similarities of second order": Similarities(SecondOrder(), kernel="gaussian", width=2.0, scaling=False),
    "views": Views(
        [("raw", None), ("power", SecondOrder()), ("waves", Convolutions(thresholds=1))], view_weights=(1, 2, 3)
    ),
}


@pytest.fixture(scope="module")
def signals():
    rng = np.random.default_rng(1)
    power = np.where(np.arange(80) % 2, 1.5, 1.0)[:, None, None, None]
    return np.exp(0.3 * power * rng.standard_normal((80, 3, 2, 30)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_transformer_of_a_pipeline_is_part_of_the_graph(signals, name, dtype):
    X = signals.astype(dtype)
    classifier = TraceNormClassifier(alpha=1e-3, loss="log_loss")
    model = make_pipeline(clone(TRANSFORMERS[name]), classifier).fit(X[:60], np.arange(60) % 2)
    new = X.copy()
    new[60:, 0, 0, 3] *= -1.0  # no logarithm
    found = run(to_onnx(model), new)
    assert found["prediction"].tolist() == model.predict(new).tolist()
    tolerance = 1e-10 if dtype == np.float64 else 1e-5
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(new), atol=tolerance)
    assert np.ptp(found["probabilities"]) > 0.1


def test_a_pipeline_of_several_steps(signals):
    y = signals[:, 0, 0, 0]
    steps = (TensorStandardScaler(), "passthrough", ModePCA((3, 2, 20)), SecondOrder(), TraceNormRegressor(alpha=1e-3))
    model = make_pipeline(*steps).fit(signals, y)
    np.testing.assert_allclose(run(to_onnx(model), signals)["prediction"], model.predict(signals), atol=1e-10)


def test_matrix_logarithms_of_many_sizes_and_of_constant_signals(signals):
    for n_channels in (1, 2, 5):
        X = signals.reshape(80, 6, 30)[:, :n_channels].copy()
        X[:, 0] = 3.0
        model = make_pipeline(SecondOrder(shrinkage=0.0), TraceNormRegressor(alpha=1e-6)).fit(X, signals[:, 0, 0, 0])
        np.testing.assert_allclose(run(to_onnx(model), X)["prediction"], model.predict(X), atol=1e-8)


def test_transformers_of_others_are_refused(signals):
    model = make_pipeline(StandardScaler(), TraceNormRegressor(alpha=1e-3)).fit(
        signals[:, :, 0, 0], signals[:, 0, 0, 0]
    )
    with pytest.raises(ValueError, match=r"^Expected transformers that have a graph, .*got StandardScaler"):
        to_onnx(model)


@pytest.mark.parametrize("view", [ScatterCorrection(), ScatterCorrection("msc"), Detrend(), Thresholds(), None])
def test_constant_samples_have_the_same_graph(signals, view):
    X = signals.copy()
    X[::3] = 5.0
    X[:, 1] = -0.1
    view = SavitzkyGolay(1, scaling=True) if view is None else clone(view)
    model = make_pipeline(view, TraceNormRegressor(alpha=1e-6)).fit(X, signals[:, 0, 0, 0])
    np.testing.assert_allclose(run(to_onnx(model), X)["prediction"], model.predict(X), atol=1e-8)


def test_every_transformer_has_nodes_but_those_of_samples_of_several_lengths():
    classes = {value for value in vars(tracelearn.features).values() if isinstance(value, type)}
    transformers = {kind for kind in classes if issubclass(kind, TensorTransformer)} - {TensorTransformer}
    assert transformers - set(NODES_OF) == {Lengths, ResampleTime}


@pytest.mark.filterwarnings("ignore:Expected")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_default_search_of_spectra_is_a_graph(dtype):
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 120)
    backgrounds = np.cumsum(rng.standard_normal((150, 3)), axis=1) @ np.stack([x**0, x, x**2])
    heights = rng.uniform(0.0, 1.0, (150, 4))
    peaks = np.exp(-(((x - np.array([[0.2], [0.4], [0.6], [0.8]])) / 0.03) ** 2))
    X = (backgrounds + heights @ peaks + 0.01 * rng.standard_normal((150, 120))).astype(dtype)
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    model = TensorRegressor(cv=3).fit(X, heights[:, 1])
    assert "derivative" in "".join(model.views_)
    np.testing.assert_allclose(run(to_onnx(model), X)["prediction"], model.predict(X), atol=tolerance)
    classifier = TensorClassifier(cv=3).fit(X, np.digitize(heights[:, 1], [0.3, 0.7]))
    outputs = run(to_onnx(classifier), X)
    assert outputs["prediction"].tolist() == classifier.predict(X).tolist()
    np.testing.assert_allclose(outputs["probabilities"], classifier.predict_proba(X), atol=tolerance)


DEFAULT_VIEWS = [view for _, view in default_views(2, 2, are_numbers=True) if view is not None]


@pytest.mark.parametrize("view", DEFAULT_VIEWS, ids=[type(view).__name__ for view in DEFAULT_VIEWS])
def test_every_default_view_is_a_graph(signals, view):
    model = make_pipeline(clone(view), TraceNormRegressor(alpha=1e-2)).fit(signals, signals[:, 0, 0, 0])
    np.testing.assert_allclose(run(to_onnx(model), signals)["prediction"], model.predict(signals), atol=1e-8)


SEARCHED = {
    "as they are": None,
    "whitened": ModeWhitener(),
    "second order": SecondOrder(),
    "second order in windows": SecondOrder(windows=2),
    "convolutions": Convolutions(thresholds=1),
    "similarities": Similarities(n_landmarks=10),
    "several": [
        ("raw", None),
        ("logarithm", Logarithm()),
        ("waves", Convolutions(thresholds=1)),
        ("power", SecondOrder()),
    ],
}


@pytest.mark.filterwarnings("ignore:Expected")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("views", SEARCHED)
def test_views_of_a_search_are_part_of_the_graph(signals, views, dtype):
    X = signals.astype(dtype)
    tolerance = 1e-9 if dtype == np.float64 else 1e-5
    y = X[:, 0, 0, 0] + 0.5 * (np.arange(80) % 2)
    model = TensorRegressor(alphas=3, cv=2, views=SEARCHED[views]).fit(X, y)
    np.testing.assert_allclose(run(to_onnx(model, dtype=dtype), X)["prediction"], model.predict(X), atol=tolerance)
    for labels in (np.arange(80) % 2, np.digitize(y, [1.0, 1.4])):
        classifier = TensorClassifier(alphas=3, cv=2, views=SEARCHED[views]).fit(X, labels)
        outputs = run(to_onnx(classifier, dtype=dtype), X)
        assert outputs["prediction"].tolist() == classifier.predict(X).tolist()
        np.testing.assert_allclose(outputs["scores"], classifier.decision_function(X), atol=tolerance)
        np.testing.assert_allclose(outputs["probabilities"], classifier.predict_proba(X), atol=tolerance)


def test_a_default_search_and_a_map_between_classes_are_part_of_the_graph():
    rng = np.random.default_rng(0)
    labels = np.repeat(["ash", "birch", "cedar"], 60)
    X = rng.standard_normal((180, 3, 40)) * (1.0 + (np.arange(180) // 60)[:, None, None])
    model = TensorClassifier().fit(X, labels)
    model.class_map_ = np.array([[1.0, 0.3, 0.0], [0.0, 1.0, -0.2], [0.4, 0.0, 1.0], [0.1, 0.0, -0.1]])
    outputs = run(to_onnx(model), X)
    assert outputs["prediction"].tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(outputs["scores"], model.decision_function(X), atol=1e-9)
    np.testing.assert_allclose(outputs["probabilities"], model.predict_proba(X), atol=1e-9)


@pytest.mark.filterwarnings("ignore:Expected")
def test_a_search_with_views_that_a_graph_has_not_is_refused(signals):
    model = TensorRegressor([("scaled", StandardScaler())], cv=2).fit(signals, signals[:, 0, 0, 0])
    with pytest.raises(ValueError, match=r"^Expected transformers that have a graph, .*got StandardScaler"):
        to_onnx(model)


def test_flat_samples_and_matrices_of_one_mode(samples):
    X, y = samples
    flat = TraceNormRegressor(alpha=0.05, tensor_shape=(4, 3, 2)).fit(X.reshape(120, -1), y)
    np.testing.assert_allclose(run(to_onnx(flat), X)["prediction"], flat.predict(X.reshape(120, -1)))
    line = TraceNormRegressor(alpha=0.05).fit(X[:, :, 0, 0], y)
    np.testing.assert_allclose(run(to_onnx(line), X[:, :, 0, 0])["prediction"], line.predict(X[:, :, 0, 0]))


def test_what_is_no_model_or_not_fitted_is_refused(samples):
    with pytest.raises(ValueError, match=r"^Expected a TraceNormRegressor.*got TensorStandardScaler"):
        to_onnx(TensorStandardScaler().fit(samples[0]))
    with pytest.raises(ValueError, match="not fitted"):
        to_onnx(TraceNormRegressor())


def test_without_onnx_the_extra_is_named():
    code = """
import sys
sys.modules["onnx"] = None
from tracelearn import TraceNormRegressor, to_onnx
try:
    to_onnx(TraceNormRegressor())
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tracelearn[onnx]" in done.stdout


def test_a_link_is_part_of_the_graph_or_the_loss_is_refused(samples):
    X, y = samples
    for targets in (np.exp(y), np.exp(np.stack([y, 0.5 * y], axis=1))):
        model = TraceNormRegressor(alpha=0.05, loss="poisson").fit(X, targets)
        np.testing.assert_allclose(run(to_onnx(model), X)["prediction"], model.predict(X), rtol=1e-12)

    class Doubled(Poisson):
        def inverse_link(self, z):
            return 2.0 * z

    class Twofold(SquaredError):  # noqa: N818 - no exception
        def inverse_link(self, z):
            return 2.0 * z

    with pytest.raises(ValueError, match="Expected a loss whose link a graph has"):
        to_onnx(TraceNormRegressor(alpha=0.05, loss=Twofold()).fit(X, y))
    with pytest.raises(ValueError, match="Expected a loss whose link a graph has"):
        to_onnx(TraceNormRegressor(alpha=0.05, loss=Doubled()).fit(X, np.exp(y)))
