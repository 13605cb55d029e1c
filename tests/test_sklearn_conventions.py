"""Scikit-learn's manners: displays, containers and names, metadata routing, copies."""

import ast
import copy
import pickle
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline

from tracelearn import (
    HierarchicalTraceNormClassifier,
    ModePCA,
    TensorClassifier,
    TensorRegressor,
    TensorStandardScaler,
    TraceNormClassifier,
    TraceNormClassifierCV,
    TraceNormRegressor,
    TraceNormRegressorCV,
)

SHAPE = (3, 2, 2)
rng = np.random.default_rng(0)
X = rng.standard_normal((60, *SHAPE)) + 1.0
y = X[:, 0, 0, 0] - X[:, 1, 1, 0] + 0.3 * rng.standard_normal(60)
labels = np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.5, 0.5])]
groups = np.arange(60) // 10
weight = rng.uniform(0.1, 3.0, 60)
flat = X.reshape(60, -1)
names = [f"entry {number}" for number in range(12)]
frame = pd.DataFrame(flat, columns=names, index=np.arange(100, 160))

MODELS = {
    "regressor": (TraceNormRegressor(alpha=0.05), y),
    "classifier": (TraceNormClassifier(alpha=0.05), labels),
    "regressor CV": (TraceNormRegressorCV(alphas=3, cv=2), y),
    "classifier CV": (TraceNormClassifierCV(alphas=3, cv=2), labels),
    "regressor search": (TensorRegressor(alphas=3, cv=2, views=None), y),
    "classifier search": (TensorClassifier(alphas=3, cv=2, views=None), labels),
    "hierarchy": (HierarchicalTraceNormClassifier(alpha=0.05), labels),
}
TRANSFORMERS = {"scaler": (TensorStandardScaler("global"), y), "compression": (ModePCA(2), y)}
ALL = {**MODELS, **TRANSFORMERS}
SEARCHES = {name: MODELS[name] for name in MODELS if "CV" in name or "search" in name}

every = pytest.mark.parametrize("name", ALL)
every_search = pytest.mark.parametrize("name", SEARCHES)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# --- in a notebook ---------------------------------------------------------------------------------------------------


@every
def test_a_notebook_shows_the_name_the_parameters_and_whether_it_is_fitted(name):
    model, target = clone(ALL[name][0]), ALL[name][1]
    page = model._repr_html_()
    assert type(model).__name__ in page
    assert "Not fitted" in page
    assert all(parameter in page for parameter in model.get_params())
    fitted = model.fit(X, target)._repr_html_()
    assert "Not fitted" not in fitted
    assert "<span>Fitted</span>" in fitted
    assert "sample_shape_" in fitted
    assert set(model._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_a_notebook_shows_what_a_search_found():
    model = TensorRegressor([("<raw>", None), ("reduced", ModePCA(2))], alphas=3, cv=2).fit(X, y)
    for page in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        answer = page.rsplit("<p>", 1)[1]
        for words in (f"alpha {model.alpha_:.3g}", f"score {model.best_score_:.3f} ±", f"gap {model.dual_gap_:.1g}"):
            assert words in answer
        assert all(name.replace("<", "&lt;").replace(">", "&gt;") in answer for name in model.views_)


@every
def test_no_link_leads_to_documentation_of_scikit_learn_that_is_not_there(name):
    page = clone(ALL[name][0]).fit(X, ALL[name][1])._repr_html_()
    assert "href=" not in page
    assert "Online documentation" not in page


def test_a_notebook_shows_every_step_of_a_pipeline():
    pipe = make_pipeline(TensorStandardScaler("global"), ModePCA(2), TensorRegressor(alphas=3, cv=2))
    for page in (pipe._repr_html_(), pipe.fit(X, y)._repr_html_()):
        for step in ("TensorStandardScaler", "ModePCA", "TensorRegressor"):
            assert step in page


# --- names and containers --------------------------------------------------------------------------------------------


@every
def test_the_number_of_features_is_that_of_the_entries_of_a_sample(name):
    model = clone(ALL[name][0]).fit(X, ALL[name][1])
    assert model.n_features_in_ == 12
    assert model.sample_shape_ == SHAPE
    assert not hasattr(model, "feature_names_in_")
    flattened = clone(model).set_params(tensor_shape=SHAPE).fit(flat, ALL[name][1])
    assert flattened.n_features_in_ == 12
    assert flattened.sample_shape_ == SHAPE


@every
def test_names_of_columns_are_kept_checked_and_forgotten(name):
    model, target = clone(ALL[name][0]).set_params(tensor_shape=SHAPE), ALL[name][1]
    model.fit(frame, target)
    assert model.feature_names_in_.tolist() == names
    use = model.transform if hasattr(model, "transform") else model.predict
    with pytest.raises(ValueError, match="feature names should match"):
        use(frame[names[::-1]])
    with pytest.warns(UserWarning, match="valid feature names"):
        use(flat)
    assert not hasattr(model.fit(X, target), "feature_names_in_")


def test_names_that_come_out_are_those_that_went_in_or_of_the_components():
    scaler = TensorStandardScaler("global", tensor_shape=SHAPE).fit(frame)
    assert scaler.get_feature_names_out().tolist() == names
    assert TensorStandardScaler().fit(X).get_feature_names_out()[:2].tolist() == ["x0", "x1"]
    compression = ModePCA((2, 1, 2), tensor_shape=SHAPE).fit(frame)
    wanted = ["modepca0_0_0", "modepca0_0_1", "modepca1_0_0", "modepca1_0_1"]
    assert compression.get_feature_names_out().tolist() == wanted
    pipe = make_pipeline(TensorStandardScaler("global"), ModePCA((2, 1, 2))).fit(X)
    assert pipe.get_feature_names_out().tolist() == wanted


def test_flat_samples_become_data_frames_where_that_is_asked_for():
    scaler = TensorStandardScaler("global", tensor_shape=SHAPE).set_output(transform="pandas")
    table = scaler.fit_transform(frame)
    assert table.columns.tolist() == names
    assert table.index.tolist() == frame.index.tolist()
    np.testing.assert_allclose(table, TensorStandardScaler("global", tensor_shape=SHAPE).fit_transform(flat))
    compression = ModePCA((2, 1, 2), tensor_shape=SHAPE)
    tensors = compression.fit_transform(frame)
    assert tensors.shape == (60, 2, 1, 2)
    table = compression.set_output(transform="pandas").transform(frame)
    assert table.columns.tolist() == compression.get_feature_names_out().tolist()
    assert table.index.tolist() == frame.index.tolist()
    np.testing.assert_array_equal(table, tensors.reshape(60, -1))
    np.testing.assert_allclose(compression.inverse_transform(table), compression.inverse_transform(tensors))


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_tensors_do_not_become_data_frames_and_the_refusal_says_what_to_do(name):
    model = clone(TRANSFORMERS[name][0]).fit(X)
    for way in (model.set_output(transform="pandas").transform, model.fit_transform):
        with pytest.raises(
            ValueError, match=r"^Expected flat samples .*, pandas, got tensors: .* tensor_shape, .*'default'"
        ):
            way(X)
    assert model.set_output(transform="default").transform(X).ndim == 4
    with (
        sklearn.config_context(transform_output="pandas"),
        pytest.raises(ValueError, match="pandas, got tensors"),
    ):
        type(model)().fit(X).transform(X)


def test_a_pipeline_hands_data_frames_on_to_a_model_that_knows_their_columns():
    steps = TensorStandardScaler("global", tensor_shape=SHAPE), ModePCA(2, tensor_shape=SHAPE)
    pipe = make_pipeline(*steps, TraceNormRegressor(alpha=0.05, tensor_shape=(2, 2, 2))).set_output(transform="pandas")
    pipe.fit(frame, y)
    assert pipe[-1].feature_names_in_.tolist() == pipe[:-1].get_feature_names_out().tolist()
    assert pipe[:-1].transform(frame).shape == (60, 8)
    plain = make_pipeline(TensorStandardScaler("global"), ModePCA(2), TraceNormRegressor(alpha=0.05)).fit(X, y)
    np.testing.assert_allclose(pipe.predict(frame), plain.predict(X), atol=1e-5)


# --- metadata routing ------------------------------------------------------------------------------------------------


class Watching(GroupKFold):
    """Remembers the groups that it was given."""

    seen: list  # shared by all copies

    def split(self, X, y=None, groups=None):
        self.seen.append(groups)
        return super().split(X, y, groups)


@pytest.fixture
def watching():
    Watching.seen = []
    return Watching(2)


@pytest.mark.usefixtures("routing")
@every
def test_weights_are_requested_of_every_method_that_takes_them(name):
    model = clone(ALL[name][0])
    for method in ("fit", "partial_fit", "score"):
        if not hasattr(model, method):
            continue
        getattr(model, f"set_{method}_request")(sample_weight=True)
        asked = model._get_metadata_request()._serialize()
        assert asked[method]["sample_weight"] is True
        assert clone(model)._get_metadata_request()._serialize() == asked


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("name", MODELS)
def test_weights_reach_the_model_in_a_pipeline_and_in_cross_validation(name):
    model, target = clone(MODELS[name][0]), MODELS[name][1]
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        make_pipeline(model).fit(X, target, sample_weight=weight)
    model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    pipe = make_pipeline(TensorStandardScaler("global").set_fit_request(sample_weight=True), model)
    pipe.fit(X, target, sample_weight=weight)
    scaled = TensorStandardScaler("global").fit(X, sample_weight=weight).transform(X)
    wanted = clone(model).fit(scaled, target, sample_weight=weight)
    np.testing.assert_allclose(pipe[-1].coef_, wanted.coef_)
    other = clone(model).fit(scaled, target).coef_
    assert other.shape != wanted.coef_.shape or not np.allclose(wanted.coef_, other)
    assert pipe.score(X, target, sample_weight=weight) == wanted.score(scaled, target, weight)

    folds = KFold(2, shuffle=True, random_state=0)
    scores = cross_validate(model, X, target, cv=folds, params={"sample_weight": weight})["test_score"]
    for score, (train, test) in zip(scores, folds.split(X), strict=True):
        one = clone(model).fit(X[train], target[train], sample_weight=weight[train])
        assert score == one.score(X[test], target[test], weight[test])


@pytest.mark.usefixtures("routing")
@every_search
def test_a_splitter_of_groups_gets_them_and_the_fit_its_weights_through_every_level(name, watching):
    model, target = clone(SEARCHES[name][0]).set_params(cv=watching), SEARCHES[name][1]
    model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    alone = clone(model).fit(X, target, sample_weight=weight, groups=groups)
    np.testing.assert_array_equal(watching.seen.pop(), groups)

    piped = make_pipeline(model).fit(X, target, sample_weight=weight, groups=groups)
    np.testing.assert_array_equal(watching.seen.pop(), groups)
    np.testing.assert_array_equal(piped[-1].coef_, alone.coef_)
    assert piped[-1].alpha_ == alone.alpha_

    params = {"sample_weight": weight, "groups": groups}
    outer = GroupKFold(3)
    cross_validate(make_pipeline(model), X, target, cv=outer, params=params, error_score="raise")
    inner = [groups[train] for train, _ in outer.split(X, target, groups)]
    assert [seen.tolist() for seen in watching.seen] == [part.tolist() for part in inner]

    search = GridSearchCV(model, {"one_standard_error": [False, True]}, cv=outer, error_score="raise")
    search.fit(X, target, **params)
    assert search.best_estimator_.coef_.shape == alone.coef_.shape


@pytest.mark.usefixtures("routing")
@every_search
def test_folds_without_groups_ignore_those_of_the_outer_folds(name):
    model, target = SEARCHES[name]
    found = cross_validate(
        model, X, target, cv=LeaveOneGroupOut(), params={"groups": groups}, error_score="raise", return_estimator=True
    )
    assert len(found["estimator"]) == 6
    train = groups != 0
    np.testing.assert_array_equal(found["estimator"][0].coef_, clone(model).fit(X[train], target[train]).coef_)


@pytest.mark.usefixtures("routing")
@every_search
def test_groups_come_under_the_name_that_the_splitter_or_the_user_gives_them(name, watching):
    target = SEARCHES[name][1]
    named = clone(SEARCHES[name][0]).set_params(cv=watching.set_split_request(groups="subject"))
    wanted = clone(named).fit(X, target, groups=groups)
    direct = clone(named).fit(X, target, subject=groups)
    piped = make_pipeline(named).fit(X, target, subject=groups)
    for seen in watching.seen:
        np.testing.assert_array_equal(seen, groups)
    assert direct.alpha_ == piped[-1].alpha_ == wanted.alpha_
    with pytest.raises(TypeError, match="subjects"):
        clone(named).fit(X, target, subjects=groups)

    class Silent:
        """A splitter that needs groups and does not say so."""

        def get_n_splits(self, X=None, y=None, groups=None):
            return 2

        def split(self, X, y=None, groups=None):
            return watching.split(X, y, groups)

    watching.seen.clear()
    silent = clone(SEARCHES[name][0]).set_params(cv=Silent()).set_fit_request(groups=True)
    make_pipeline(silent).fit(X, target, groups=groups)
    np.testing.assert_array_equal(watching.seen.pop(), groups)
    make_pipeline(silent.set_fit_request(groups="who")).fit(X, target, who=groups)
    np.testing.assert_array_equal(watching.seen.pop(), groups)


@every_search
def test_without_routing_groups_are_an_argument_of_fit(name, watching):
    model, target = clone(SEARCHES[name][0]).set_params(cv=watching), SEARCHES[name][1]
    model.fit(X, target, groups=groups)
    make_pipeline(model).fit(X, target, **{f"{type(model).__name__.lower()}__groups": groups})
    for seen in watching.seen:
        np.testing.assert_array_equal(seen, groups)
    with pytest.raises(ValueError, match="enable_metadata_routing"):
        model.fit(X, target, subject=groups)


@every_search
def test_to_be_asked_for_its_routing_costs_no_folds(name):
    folds = iter(list(KFold(2).split(X)))
    model = clone(SEARCHES[name][0])
    model.cv = folds
    model.get_metadata_routing()
    assert model.fit(X, SEARCHES[name][1]).score_path_.shape[1] == 2


# --- copies ----------------------------------------------------------------------------------------------------------


def stored(model, folder):
    joblib.dump(model, folder / "model")
    return joblib.load(folder / "model")


WAYS = {
    "pickle": lambda model, folder: pickle.loads(pickle.dumps(model)),
    "joblib": stored,
    "deepcopy": lambda model, folder: copy.deepcopy(model),
    "copy": lambda model, folder: copy.copy(model),
}


@pytest.mark.parametrize("way", WAYS)
@every
def test_copies_are_what_they_were_fitted_or_not(name, way, tmp_path):
    model = clone(ALL[name][0])
    again = WAYS[way](model, tmp_path)
    assert repr(again) == repr(model)
    assert again.get_params() == model.get_params()
    model.fit(X, ALL[name][1])
    fitted = WAYS[way](model, tmp_path)
    # Copies leave out the solution that only a warm start would begin from, and the samples that a path would be fitted to.
    private = {"_warm_start", "_warm_starts", "_training"}
    assert [name for name in vars(fitted) if name not in private] == [n for n in vars(model) if n not in private]
    use = "transform" if hasattr(model, "transform") else "predict"
    np.testing.assert_array_equal(getattr(fitted, use)(X), getattr(model, use)(X))
    again.fit(X, ALL[name][1])
    np.testing.assert_array_equal(getattr(again, use)(X), getattr(model, use)(X))


@every
def test_a_clone_has_equal_parameters_and_has_learned_nothing(name):
    model = clone(ALL[name][0]).fit(X, ALL[name][1])
    again = clone(model)
    assert repr(again) == repr(model)
    assert set(vars(again)) <= {*model.get_params(), "_sklearn_output_config"}


def test_parameters_are_read_and_set_through_nested_estimators():
    pipe = make_pipeline(ModePCA(2), GridSearchCV(TraceNormRegressor(), {"alpha": [0.1, 0.2]}, cv=2))
    assert pipe.get_params()["gridsearchcv__estimator__alpha"] == "auto"
    pipe.set_params(gridsearchcv__estimator__ridge=0.5, modepca__n_components=1)
    assert pipe[1].estimator.ridge == 0.5
    assert pipe.fit(X, y)[1].best_estimator_.ridge == 0.5
    assert pipe[1].best_estimator_.sample_shape_ == (1, 1, 1)
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        pipe.set_params(gridsearchcv__estimator__beta=1)


# --- selection of features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_flat_samples_have_flat_weights_that_scikit_learn_selects_by(name):
    model, target = clone(MODELS[name][0]).set_params(tensor_shape=SHAPE), MODELS[name][1]
    fitted = clone(model).fit(flat, target)
    assert fitted.coef_.shape[-1] == 12
    assert fitted.coef_tensor_.shape == (*fitted.coef_.shape[:-1], *SHAPE)
    np.testing.assert_array_equal(fitted.coef_tensor_.reshape(fitted.coef_.shape), fitted.coef_)
    sizes = np.abs(np.atleast_2d(fitted.coef_)).sum(axis=0)
    chosen = SelectFromModel(model, max_features=4, threshold=-np.inf).fit(frame, target)
    assert chosen.transform(frame).shape == (60, 4)
    assert set(chosen.get_feature_names_out()) == {names[i] for i in np.argsort(-sizes)[:4]}
    # RFE leaves features out, and with them the shape: each left is a mode of its own.
    rfe = RFE(model.set_params(tensor_shape=None), n_features_to_select=4, step=4).fit(flat, target)
    assert rfe.transform(flat).shape == (60, 4)
    assert rfe.support_[0]  # the entry (0, 0, 0), on which the target depends


def test_whatever_the_tensor_came_as_the_tensor_of_weights_is_one_attribute_away():
    tensors = TraceNormRegressor(alpha=0.05).fit(X, y)
    rows = TraceNormRegressor(alpha=0.05, tensor_shape=SHAPE).fit(flat, y)
    assert tensors.coef_.shape == SHAPE
    assert rows.coef_.shape == (12,)
    np.testing.assert_allclose(rows.coef_tensor_, tensors.coef_tensor_, atol=1e-12)
    two = TraceNormRegressor(alpha=0.05, tensor_shape=SHAPE).fit(flat, np.stack([y, -y], axis=1))
    assert two.coef_.shape == (2, 12)
    assert two.coef_tensor_.shape == (2, *SHAPE)


# --- what is scikit-learn's own --------------------------------------------------------------------------------------


def private_imports(path):
    """List what a file imports of scikit-learn that begins with an underscore."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklearn":
            found += [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.split(".")[0] == "sklearn"]
    return [name for name in found if any(part.startswith("_") for part in name.split("."))]


def test_private_modules_of_scikit_learn_are_imported_in_one_file():
    package = Path(__file__).parents[1] / "src" / "tracelearn"
    one = package / "samples" / "scikit_learn.py"
    assert private_imports(one)  # or this test sees nothing
    assert {str(path) for path in package.rglob("*.py") if path != one and private_imports(path)} == set()


# --- types -----------------------------------------------------------------------------------------------------------


def test_the_wheel_carries_the_marker_of_types_and_every_module(tmp_path):
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="the wheel is built with hatchling")
    root = Path(__file__).parents[1]
    (built,) = wheel.WheelBuilder(str(root)).build(directory=str(tmp_path))
    with zipfile.ZipFile(built) as archive:
        files = set(archive.namelist())
    assert "tracelearn/py.typed" in files
    modules = {
        f"tracelearn/{path.relative_to(root / 'src/tracelearn')}" for path in root.glob("src/tracelearn/**/*.py")
    }
    assert modules <= files
    assert not {name for name in files if name.startswith("tests")}
