"""Other people's tools with our estimators, each with the real library; docs/tools.md lists what is shown here.

Libraries that hold NumPy or others back are in the extra ``tools``, to be installed into an environment of its own.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from tracelearn import (
    ModePCA,
    ModeWhitener,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
    to_onnx,
    trusted_types,
)
from tracelearn.penalties import L1, Nuclear

SHAPE = (4, 6)
MATTERS = (0, 2)  # the entry that targets depend on most
LINEAR = [None, ModeWhitener()]  # views with weights of the samples themselves


def library(name, extra="tools"):
    return pytest.importorskip(name, reason=f"{name} is in the extra {extra!r}, see docs/tools.md")


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, *SHAPE))
    y = 2.0 * X[:, 0, 2] - X[:, 1, 2] + 0.5 * X[:, 0, 1] + 0.3 * rng.standard_normal(120)
    return X, y, np.where(y > 0, "up", "down")


@pytest.fixture(params=["regressor", "classifier", "regressor CV", "classifier CV", "one view", "two views"])
def flat(request, samples):
    """A model of flat samples, unfitted, with samples and targets."""
    X, y, labels = samples
    model, target = {
        "regressor": (TraceNormRegressor(alpha=0.05), y),
        "classifier": (TraceNormClassifier(alpha=0.05), labels),
        "regressor CV": (TraceNormRegressorCV(alphas=4, cv=3), y),
        "classifier CV": (TraceNormClassifierCV(alphas=4, cv=3), labels),
        "one view": (TensorClassifier(ModeWhitener(), alphas=4, cv=3), labels),
        "two views": (TensorRegressor(LINEAR, alphas=4, cv=3), y),
    }[request.param]
    return model.set_params(tensor_shape=SHAPE), X.reshape(120, -1), target


def scores_of(model, X):
    return (model.decision_function if hasattr(model, "decision_function") else model.predict)(X)


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def test_weights_of_flat_samples_are_flat_and_predict_whatever_linear_views_were_chosen(flat):
    model, F, target = flat
    model.fit(F, target)
    assert model.coef_.shape[-1] == 24
    np.testing.assert_allclose(
        F @ np.squeeze(model.coef_) + np.squeeze(model.intercept_), scores_of(model, F), atol=1e-9
    )


def test_patterns_are_covariances_of_entries_with_scores_whatever_linear_views_were_chosen(flat):
    model, F, target = flat
    model.fit(F, target)
    scores = scores_of(model, F)
    expected = (F - F.mean(0)).T @ (scores - scores.mean()) / len(F)
    np.testing.assert_allclose(np.ravel(model.patterns_), expected, atol=1e-9)


def test_select_from_model_keeps_the_entries_that_matter(flat):
    model, F, target = flat
    chosen = SelectFromModel(model, threshold=-np.inf, max_features=5).fit(F, target)
    assert chosen.transform(F).shape == (120, 5)
    assert chosen.get_support().reshape(SHAPE)[MATTERS]


def test_select_from_model_takes_tensors_and_says_which_slices_matter(samples):
    X, y, _ = samples
    support = SelectFromModel(TraceNormRegressor(alpha=0.05)).fit(X, y).get_support()
    assert support[MATTERS[1]]  # it adds up the weights over all modes but the last
    assert support.shape == SHAPE[1:]


def test_recursive_elimination_takes_flat_samples_without_a_shape(flat):
    model, F, target = flat
    if hasattr(model, "views"):
        model.set_params(views=None)
    found = RFE(model.set_params(tensor_shape=None), n_features_to_select=6, step=6).fit(F, target)
    assert found.support_.sum() == 6
    assert found.support_.reshape(SHAPE)[MATTERS]


def test_permutation_importance_finds_the_entry_that_matters(flat):
    model, F, target = flat
    found = permutation_importance(model.fit(F, target), F, target, n_repeats=3, random_state=0)
    assert np.argmax(found.importances_mean) == np.ravel_multi_index(MATTERS, SHAPE)


def test_partial_dependence_of_a_linear_model_is_a_line_with_its_weight(samples):
    X, y, _ = samples
    F, entry = X.reshape(120, -1), int(np.ravel_multi_index(MATTERS, SHAPE))
    model = TensorRegressor(alphas=4, cv=3, views=ModeWhitener(), tensor_shape=SHAPE).fit(F, y)
    found = partial_dependence(model, F, [entry], kind="average")
    slopes = np.diff(found["average"][0]) / np.diff(found["grid_values"][0])
    np.testing.assert_allclose(slopes, model.coef_[entry], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("flatten", [False, True])
def test_probabilities_are_numbers_wherever_scikit_learn_asks_for_them(samples, flatten):
    X, _, labels = samples
    X = X.reshape(120, -1) if flatten else X
    model = TensorClassifier(alphas=4, cv=3, tensor_shape=SHAPE if flatten else None)
    others = [("ridge", LogisticRegression())] if flatten else [("plain", TraceNormClassifier(alpha=0.1))]
    assert np.isfinite(cross_val_score(model, X, labels, scoring="neg_log_loss", cv=3)).all()
    stack = StackingClassifier([("ours", model), *others], cv=3).fit(X, labels)
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, labels)
    for found in (stack, calibrated):
        probabilities = found.predict_proba(X)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(1), 1.0)
        assert found.score(X, labels) > 0.8


# --- data frames -----------------------------------------------------------------------------------------------------

FRAMES = {
    "pandas": lambda rows, names: pd.DataFrame(rows, columns=names),
    "polars": lambda rows, names: library("polars", "test").DataFrame(rows, names),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_data_frames_go_in_and_their_columns_are_remembered_and_checked(flat, kind):
    model, F, target = flat
    names = [f"c{i}" for i in range(24)]
    frame = FRAMES[kind](F, names)
    expected = model.fit(F, target).predict(F)
    model.fit(frame, target)
    assert model.feature_names_in_.tolist() == names
    found = model.predict(frame)
    assert np.allclose(found, expected) if found.dtype.kind == "f" else np.array_equal(found, expected)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[names[::-1]])


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("make", [TensorStandardScaler, ModeWhitener, lambda **known: ModePCA(2, **known)])
def test_set_output_makes_frames_of_flat_samples(samples, kind, make):
    F = samples[0].reshape(120, -1)
    frame = FRAMES[kind](F, [f"c{i}" for i in range(24)])
    step = make(tensor_shape=SHAPE).set_output(transform=kind)
    found = step.fit_transform(frame)
    assert type(found) is type(frame)
    assert list(found.columns) == step.get_feature_names_out().tolist()
    expected = make(tensor_shape=SHAPE).fit(F).transform(F)
    np.testing.assert_allclose(np.asarray(found), expected.reshape(120, -1), atol=1e-12)


# --- explaining ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_shap_explains_scores_of_flat_samples_exactly(flat):
    shap = library("shap")
    model, F, target = flat
    model.fit(F, target)
    explainer = shap.LinearExplainer(model, F)
    found = explainer.shap_values(F)
    assert found.shape == F.shape
    np.testing.assert_allclose(found.sum(1) + explainer.expected_value, scores_of(model, F), atol=1e-9)


# --- neuroscience ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("search", [False, True])
def test_mne_reads_filters_and_patterns_of_a_linear_model(samples, search):
    decoding = library("mne.decoding", "test")
    X, _, labels = samples
    ours = (
        TensorClassifier(alphas=4, cv=3, views=ModeWhitener(), tensor_shape=SHAPE)
        if search
        else TraceNormClassifier(alpha=0.05, tensor_shape=SHAPE)
    )
    linear = decoding.LinearModel(ours)
    model = make_pipeline(decoding.Vectorizer(), StandardScaler(), linear).fit(X, labels == "up")
    inner = model[-1].model_
    np.testing.assert_array_equal(decoding.get_coef(model, "filters_"), inner.coef_[0])
    # Theirs are in units of the scores, ours in those of the covariance with them.
    assert np.corrcoef(decoding.get_coef(model, "patterns_"), inner.patterns_.ravel())[0, 1] > 0.999
    flat = make_pipeline(decoding.Vectorizer(), StandardScaler(), decoding.LinearModel(LogisticRegression()))
    flat.fit(X, labels == "up")
    for what in ("filters_", "patterns_"):
        mine, theirs = (decoding.get_coef(one, what, inverse_transform=True) for one in (model, flat))
        assert mine.shape == theirs.shape


def test_mne_reads_coefficients_of_our_own_models_as_tensors(samples):
    decoding = library("mne.decoding", "test")
    X, _, labels = samples
    model = make_pipeline(TensorStandardScaler(), TraceNormClassifier(alpha=0.05)).fit(X, labels)
    for what in ("coef_", "patterns_"):
        np.testing.assert_array_equal(decoding.get_coef(model, what), getattr(model[-1], what))


@pytest.mark.slow
def test_mne_slides_and_generalises_over_time(samples):
    decoding = library("mne.decoding", "test")
    X, _, labels = samples
    target = (labels == "up").astype(int)
    model = decoding.LinearModel(TraceNormClassifier(alpha=0.05))
    sliding = decoding.SlidingEstimator(model, scoring="roc_auc", verbose=False)
    scores = decoding.cross_val_multiscore(sliding, X, target, cv=3, verbose=False).mean(0)
    assert np.argmax(scores) == MATTERS[1]
    assert scores.max() > 0.9
    general = decoding.GeneralizingEstimator(model, scoring="roc_auc", verbose=False).fit(X, target)
    assert general.score(X, target).shape == (6, 6)
    assert decoding.get_coef(general, "patterns_").shape == SHAPE


@pytest.fixture(scope="module")
def volumes():
    """Forty volumes whose middle is larger in one condition, with a mask that is no box."""
    nibabel = library("nibabel", "test")
    rng = np.random.default_rng(0)
    labels = np.array(["rest", "task"])[np.arange(40) % 2]
    voxels = rng.standard_normal((5, 5, 4, 40))
    voxels[1:3, 1:3, 1:3] += 1.5 * (labels == "task")
    mask = np.ones((5, 5, 4), dtype=bool)
    mask[0], mask[:, 0, 0] = False, False
    images = [nibabel.Nifti1Image(part, np.eye(4)) for part in (voxels, mask.astype(np.int8))]
    return *images, mask, labels


@pytest.mark.slow
def test_nilearn_decodes_masked_voxels_and_draws_the_weights(volumes):
    decoding = library("nilearn.decoding", "test")
    images, mask_image, mask, labels = volumes
    known = {"mask": mask_image, "cv": 3, "scoring": "accuracy", "standardize": None, "screening_percentile": 100}
    ours, ridge = (
        decoding.Decoder(estimator=one, **known).fit(images, labels)
        for one in (TraceNormClassifier(alpha=0.05), RidgeClassifier())
    )
    assert np.mean(ours.cv_scores_["task"]) > 0.8
    drawn, theirs = (one.coef_img_["task"].get_fdata() for one in (ours, ridge))
    assert not drawn[~mask].any()
    assert np.corrcoef(drawn[mask], theirs[mask])[0, 1] > 0.7


@pytest.mark.slow
def test_nilearn_moves_a_searchlight(volumes):
    decoding = library("nilearn.decoding", "test")
    images, mask_image, _, labels = volumes
    light = decoding.SearchLight(mask_image, estimator=TraceNormClassifier(alpha=0.05), radius=1.5, cv=3)
    light.fit(images, labels)
    assert light.scores_[1:3, 1:3, 1:3].mean() > 0.75 > light.scores_[4].mean()


@pytest.mark.slow
def test_masked_voxels_get_their_box_back_in_a_pipeline(volumes):
    maskers = library("nilearn.maskers", "test")
    images, mask_image, mask, labels = volumes

    def unmask(rows):
        boxes = np.zeros((len(rows), *mask.shape))
        boxes[:, mask] = rows
        return boxes

    masker = maskers.NiftiMasker(mask_image, standardize=None)
    model = make_pipeline(masker, FunctionTransformer(unmask), TraceNormClassifier(alpha=0.05)).fit(images, labels)
    assert model[-1].sample_shape_ == mask.shape
    assert model.score(images, labels) > 0.9


@pytest.mark.slow
def test_moabb_evaluates_our_search_on_simulated_recordings(tmp_path, monkeypatch):
    library("moabb")
    from moabb.datasets.fake import FakeDataset
    from moabb.evaluations import WithinSessionEvaluation
    from moabb.paradigms import LeftRightImagery

    monkeypatch.setenv("MNE_DATA", str(tmp_path))
    recordings = FakeDataset(["left_hand", "right_hand"], n_sessions=2, n_subjects=1, n_runs=1, paradigm="imagery")
    evaluation = WithinSessionEvaluation(
        paradigm=LeftRightImagery(), datasets=[recordings], overwrite=True, hdf5_path=str(tmp_path)
    )
    found = evaluation.process({"ours": TensorClassifier(alphas=3, cv=2)})
    assert len(found) == 2  # a row for each session
    assert found["score"].between(0.0, 1.0).all()  # noise: only that it runs and gives numbers


# --- time series -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def series():
    """Sixty series of three channels, of which one is louder in one class."""
    rng = np.random.default_rng(0)
    labels = np.array(["quiet", "loud"])[np.arange(60) % 2]
    X = rng.standard_normal((60, 3, 40))
    X[labels == "loud", 0] *= 3.0
    return X, labels


@pytest.mark.slow
def test_transformers_of_aeon_and_our_models_share_a_pipeline(series):
    collection = library("aeon.transformations.collection")
    X, labels = series
    model = make_pipeline(collection.AutocorrelationFunctionTransformer(n_lags=5), TensorClassifier())
    assert model.fit(X, labels).predict(X).shape == (60,)
    assert model[-1].sample_shape_ == (3, 5)
    plain = make_pipeline(collection.Normalizer(), TensorClassifier(views=None, alphas=3, cv=2))
    assert plain.fit(X, labels)[-1].sample_shape_ == (3, 40)


@cache
def series_classifier():
    """A class as aeon wants it, found again by its name when it is unpickled."""
    wrapper = library("aeon.classification.sklearn").SklearnClassifierWrapper

    class SeriesClassifier(wrapper):
        _tags = {"X_inner_type": "numpy3D", "capability:multivariate": True}  # noqa: RUF012 - aeon's convention

        @classmethod
        def _get_test_params(cls, parameter_set="default"):
            return {"classifier": TensorClassifier(alphas=3, cv=2)}

    SeriesClassifier.__qualname__ = "SeriesClassifier"
    globals()["SeriesClassifier"] = SeriesClassifier
    return SeriesClassifier


@pytest.mark.slow
def test_aeon_takes_our_models_for_multivariate_series_through_its_own_wrapper(series):
    SeriesClassifier = series_classifier()
    checking = library("aeon.testing.estimator_checking")
    compose = library("aeon.classification.compose")
    noise = library("aeon.transformations.collection").Normalizer()

    X, labels = series
    alone = SeriesClassifier(TensorClassifier()).fit(X, labels)
    assert alone.score(X, labels) > 0.9
    piped = compose.ClassifierPipeline([noise], SeriesClassifier(TensorClassifier(alphas=3, cv=2)))
    assert set(piped.fit(X, labels).predict(X)) <= {"quiet", "loud"}
    found = checking.check_estimator(SeriesClassifier(TensorClassifier(alphas=3, cv=2)), raise_exceptions=True)
    assert found


@pytest.mark.slow
def test_sktime_takes_our_models_at_the_end_of_its_pipelines(series):
    transformer = library("sktime.transformations.series.exponent").ExponentTransformer(2)
    X, labels = series
    model = transformer * TensorClassifier(views=None, tensor_shape=(3, 40))
    model.fit(X, labels)
    assert model.score(X, labels) > 0.9
    found = model.classifier_.coef_tensor_[0]
    assert np.abs(found[0]).sum() > 3 * np.abs(found[1:]).sum()  # channels are where they were


# --- keeping models --------------------------------------------------------------------------------------------------


def fitted_models(samples):
    X, y, labels = samples
    yield TraceNormRegressor(alpha=0.05, penalty=0.5 * Nuclear(0) + 0.1 * L1()).fit(X, y)
    yield TraceNormClassifier(alpha=0.05, loss="log_loss", keep_moments=False).fit(X, labels)
    yield TensorClassifier(alphas=3, cv=2, views=LINEAR).fit(X, labels)
    yield make_pipeline(TensorStandardScaler(), ModePCA(3), TensorRegressor(alphas=3, cv=2)).fit(X, y)


def test_skops_reads_our_models_with_the_types_that_we_name(samples):
    skops = library("skops.io", "test")
    for model in fitted_models(samples):
        data = skops.dumps(model)
        assert set(skops.get_untrusted_types(data=data)) <= set(trusted_types())
        found = skops.loads(data, trusted=trusted_types())
        np.testing.assert_array_equal(found.predict(samples[0]), model.predict(samples[0]))


@pytest.fixture
def tracking(tmp_path, monkeypatch):
    mlflow = library("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # no server and no database
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow
    mlflow.sklearn.autolog(disable=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_logs_parameters_and_scores_of_a_pipeline_by_itself(tracking, samples):
    X, _, labels = samples
    tracking.sklearn.autolog(log_models=False, log_datasets=False)
    with tracking.start_run() as run:
        make_pipeline(TensorStandardScaler(), TraceNormClassifier(alpha=0.05)).fit(X, labels)
    logged = tracking.get_run(run.info.run_id).data
    assert logged.params["tracenormclassifier__alpha"] == "0.05"
    assert logged.metrics["training_accuracy_score"] > 0.8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_mlflow_keeps_and_returns_our_models(tracking, samples):
    library("skops")
    quick = {"pip_requirements": []}  # it would look for them in a process of its own
    for model in fitted_models(samples):
        with tracking.start_run():
            kept = tracking.sklearn.log_model(model, name="model", skops_trusted_types=trusted_types(), **quick)
        found = tracking.sklearn.load_model(kept.model_uri)
        np.testing.assert_array_equal(found.predict(samples[0]), model.predict(samples[0]))


# --- ONNX ------------------------------------------------------------------------------------------------------------


def run(graph, X):
    runtime = library("onnxruntime", "test")
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"X": X}), strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", np.float32, np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("classify", [False, True])
def test_onnx_has_pipelines_with_our_transformers_and_takes_either_precision(samples, dtype, classify):
    X, y, labels = samples
    last, target = (TraceNormClassifier(loss="log_loss"), labels) if classify else (TensorRegressor(), y)
    steps = TensorStandardScaler(), ModeWhitener(center=True), ModePCA((3, 4))
    model = make_pipeline(*steps, last.set_params(tol=1e-8)).fit(X * 3.0 + 5.0, target)
    found = run(to_onnx(model, dtype=dtype), (X * 3.0 + 5.0).astype(dtype))
    tolerance = 1e-4 if np.dtype(dtype) == np.float32 else 1e-10
    if classify:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(X * 3.0 + 5.0), atol=tolerance)
    else:
        np.testing.assert_allclose(found["prediction"], model.predict(X * 3.0 + 5.0), atol=tolerance)


@pytest.mark.parametrize("dtype", ["int8", np.int8, "precise"], ids=str)
def test_onnx_refuses_other_precisions(samples, dtype):
    X, y, _ = samples
    model = TraceNormRegressor(alpha=0.05).fit(X, y)
    with pytest.raises(ValueError, match=r"^Expected dtype to be 'float32', 'float64' or None, got .*: choose"):
        to_onnx(model, dtype=dtype)
