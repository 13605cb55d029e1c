"""Whether the parts of a model that was read fit each other, so that no later step fails on them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from tracelearn.errors import expect
from tracelearn.estimators.base import TraceNormModel
from tracelearn.estimators.hierarchy import HierarchicalTraceNormClassifier
from tracelearn.estimators.lagged import LaggedRegressor
from tracelearn.features import ModePCA, TensorTransformer
from tracelearn.features.mode_pca import describe_components
from tracelearn.moments import Cancelled, Moments
from tracelearn.penalties import Atom, Blocks, Latent, Overlap, Split, as_penalty
from tracelearn.problems.problem import Solution
from tracelearn.samples.modes import fit_modes
from tracelearn.samples.scikit_learn import make_constraint
from tracelearn.search.estimators import TensorSearch

__all__ = ["check_parts", "check_use"]

_LARGEST_SAMPLE = 1 << 24  # entries; of larger ones only the shapes are compared
_SAMPLES = 5  # several, so that what fits one sample by chance is noticed


# --- single parts -----------------------------------------------------------------------------------------------------


def _whole(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _size(value: Any) -> bool:
    return _number(value) and value >= 0


def _truth(value: Any) -> bool:
    return type(value) is bool


def _floats(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64)  # those that LAPACK knows


def _numbers(value: Any) -> bool:
    return _floats(value) and bool(np.all(np.isfinite(value)))


def _row(value: Any) -> bool:
    return _numbers(value) and value.ndim == 1


def _map(value: Any) -> bool:
    return _numbers(value) and value.ndim == 2 and value.shape[0] == value.shape[1] + 1


def _shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(size) is int and size > 0 for size in value)


_FORMS: dict[str, Callable[[Any], bool]] = {
    "sample_shape_": _shape, "n_features_in_": _whole, "n_samples_seen_": _size,
    "classes_": lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and len(np.unique(value)) == len(value),
    "mean_scale_": _size, "feature_names_in_": lambda value: value.dtype.kind == "U" and value.ndim == 1,
    "coef_": _numbers, "intercept_": lambda value: _number(value) or _row(value), "patterns_": _numbers,
    "confound_coef_": _numbers,
    "n_iter_": _whole, "objective_": _number, "dual_gap_": _size, "_flat": _truth, "_single": _truth,
    # Iterations, and the gap after each.
    "_convergence": lambda pair: len(pair) == 2 and _row(pair[0]) and _floats(pair[1]) and pair[1].shape == pair[0].shape,
    "moments_": lambda value: isinstance(value, Moments), "ridge_": _size, "target_mode_": _truth,
    "alpha_": lambda value: _size(value) or _row(value),
    "mode_weights_": lambda value: (
        value is None or (isinstance(value, list | tuple | np.ndarray) and all(map(_size, value)))
    ),
    "best_score_": _number, "best_index_": _whole,
    "best_score_se_": lambda value: type(value) is float,
    "alphas_": _row, "ridges_": _row, "features_": lambda value: value is None or isinstance(value, TensorTransformer),
    "best_estimator_": lambda value: isinstance(value, TraceNormModel) and hasattr(value, "coef_"),
    "view_": lambda value: isinstance(value, str),
    "view_shares_": lambda value: all(isinstance(name, str) and _size(share) for name, share in value.items()),
    "calibration_": _number, "class_map_": _map, "_class_map": _map, "_dtype": lambda value: value in (np.float32, np.float64),
    "_solution": lambda value: isinstance(value, Solution), "_solved": lambda value: len(value) >= 3,
}  # fmt: skip

_LINEAR = ("sample_shape_", "n_features_in_", "coef_", "intercept_", "n_iter_", "dual_gap_")
# What every fitted one has. What is known before there are weights does not make it one.
_NEEDED: dict[type, tuple[str, ...]] = {
    TensorTransformer: ("sample_shape_", "n_features_in_", "n_samples_seen_"),
    TraceNormModel: (*_LINEAR, "objective_", "patterns_", "_convergence", "_dtype"),
    HierarchicalTraceNormClassifier: (*_LINEAR, "classes_", "nodes_", "estimators_"),
    LaggedRegressor: (*_LINEAR[1:], "patterns_", "lags_", "model_", "moments_", "mode_ranks_", "_single"),
    TensorSearch: (
        *_LINEAR,
        "objective_",
        "alpha_",
        "ridge_",
        "mode_weights_",
        "target_mode_",
        "best_estimator_",
        "view_",
    ),
}
_BEFORE = ("sample_shape_", "n_features_in_", "feature_names_in_", "modes_", "classes_", "moments_")


def check_parts(thing: Any) -> None:
    """Refuse moments or an estimator whose parts do not fit each other; any exception is a refusal."""
    if isinstance(thing, Moments):
        _check_moments(thing)
    elif isinstance(thing, Overlap | Latent | Blocks):
        _check_penalty(thing)
    elif isinstance(thing, Pipeline):
        _check_parameters(thing)
        steps = [step for _, step in thing.steps]
        expect(all(step == "passthrough" or hasattr(step, "get_params") for step in steps), "steps that are none")
        expect(bool(steps) and thing.memory is None, "a Pipeline without steps, or with a cache")
    elif any(kind.__module__.startswith("tracelearn.") for kind in type(thing).__mro__):
        _check_estimator(thing)


def _check_parameters(model: Any) -> None:
    """Refuse what ``fit`` would, in words of our own: scikit-learn's hold the whole value, which may be of any size."""
    for name, allowed in getattr(model, "_parameter_constraints", {}).items():
        value = getattr(model, name)
        if allowed == "no_validation":  # a name, or an object of its own
            good = not isinstance(value, list | tuple | dict | np.ndarray)
        else:
            good = any(make_constraint(one).is_satisfied_by(value) for one in allowed)
        expect(good, f"a parameter {name} that cannot be")


def _check_penalty(penalty: Overlap | Latent | Blocks) -> None:
    if isinstance(penalty, Blocks):
        expect(isinstance(penalty.shapes, tuple) and all(map(_shape, penalty.shapes)), "blocks of no shape")
        parts = penalty.penalties
        expect(isinstance(parts, tuple) and len(parts) == len(penalty.shapes), "blocks of other penalties")
        expect(all(isinstance(part, Overlap | Latent) for part in parts), "blocks of no penalty")
    else:
        expect(isinstance(penalty.terms, tuple) and len(penalty.terms) > 0, "a penalty without terms")
        for weight, atom in penalty.terms:
            expect(_size(weight) and isinstance(atom, Atom), "terms that are none")


def _check_moments(moments: Moments) -> None:
    (p,), (k,) = np.shape(moments.x_mean), np.shape(moments.y_mean)
    parts = [np.asarray(part) for name, part in vars(moments).items() if name != "cancelled"]
    shapes = [(), (p,), (k,), (p, p), (p, k), (k,)]
    if moments.cancelled is not None:
        expect(isinstance(moments.cancelled, Cancelled), "moments of another kind")
        parts += [np.asarray(part) for part in vars(moments.cancelled).values()]
        shapes += [(p,), (k,), (p,), (k,)]
    expect([part.shape for part in parts] == shapes, "moments of several sizes")
    expect(p > 0 and k > 0 and all(map(_numbers, parts)), "moments that are no numbers")


def _check_estimator(model: Any) -> None:
    known = vars(model)
    _check_parameters(model)
    for name, is_good in _FORMS.items():
        expect(name not in known or is_good(known[name]), f"{name} that does not fit")
    if any(name.endswith("_") and name not in _BEFORE for name in known):
        needed = [name for kind, names in _NEEDED.items() if isinstance(model, kind) for name in names]
        if isinstance(model, TraceNormModel) and model.alpha == "auto":  # older files have only numbers, and no alpha_
            needed.append("alpha_")
        missing = [name for name in needed if not hasattr(model, name)]
        expect(not missing, f"a fitted model without {', '.join(missing)}")
    for kind, attribute, check in _CHECKS:
        if isinstance(model, kind) and attribute in known:
            check(model)


def _check_shapes(model: Any) -> None:
    """Compare weights, intercepts, classes and moments with the shape of a sample."""
    shape, p = model.sample_shape_, math.prod(model.sample_shape_)
    expect(getattr(model, "n_features_in_", p) == p, "samples of no shape")
    expect("modes_" not in vars(model) or fit_modes(model.modes_, shape), "modes of other samples")
    if "moments_" in vars(model):
        confounds = np.shape(getattr(model, "confound_coef_", ()))[-1:]
        size = p + sum(confounds)
        expect(model.moments_.x_mean.shape == (size,), f"moments of other samples than those of shape {shape}")
    if isinstance(model, TraceNormModel | HierarchicalTraceNormClassifier) and "coef_" in vars(model):
        targets = np.shape(model.intercept_)
        expect(model.coef_.shape == (*targets, *((p,) if model._flat else shape)), "coef_ of another shape")
        # Two classes have one weight tensor; more have one each, or in a tree one less.
        count, n = len(getattr(model, "classes_", ())), np.size(model.intercept_)
        expect(count == 0 or n in {count - 1, count if count > 2 else 1}, f"other classes than {n} intercepts")
        expect(getattr(model, "_class_map", None) is None or model._class_map.shape[1] == n, "a map of other classes")
        if "confound_coef_" in vars(model):
            expect(model.confound_coef_.shape[:-1] == targets, "confound_coef_ of another shape")
    if isinstance(model, TraceNormModel) and "coef_" in vars(model):
        expect(model.patterns_.shape == (*targets, *shape), "patterns_ of another shape")
        weights = () if model.mode_weights is None else model.mode_weights
        expect(len(weights) <= 1 + len(shape) and np.asarray(weights, float).ndim == 1, "mode weights of other modes")
        if "_solution" in vars(model):
            _check_solution(model, n)


def _check_transformer(view: TensorTransformer) -> None:
    """Compare what a transformer has learned with what follows from the moments in it: forms, not values."""
    summary = view.past_summary()
    expect(all(_numbers(np.asarray(part)) for part in (summary.mean, *summary.sums)), "a transformer of no numbers")
    attributes = view.attributes_from(summary, view.sample_shape_)
    if isinstance(view, ModePCA):  # how many components have a share of the variance may depend on rounding
        attributes |= describe_components(view.components_, view.mode_covariances_)
    for name, expected in attributes.items():
        expect(_form(vars(view).get(name)) == _form(expected), f"a transformer with another {name}")


def _form(value: Any) -> Any:
    """Find the form of a value: of arrays and numbers that they are such, and finite; anything else is its own form."""
    if isinstance(value, np.ndarray):
        return _numbers(value) and value.shape
    if isinstance(value, list):
        return [_form(one) for one in value]
    return _number(value) if isinstance(value, float) else value


def _check_solution(model: TraceNormModel, n_targets: int) -> None:
    """Compare what a solver would start from with where it would have started otherwise."""
    whole = (n_targets, *model.sample_shape_) if model.target_mode and n_targets > 1 else model.sample_shape_
    penalty, shape = as_penalty(model.penalty, whole, model.mode_weights), whole
    problem = (penalty, model._loss(n_targets), n_targets)
    if model._solved[:3] == problem:
        found, count = model._solution, n_targets * math.prod(model.sample_shape_) // math.prod(shape)
        expect(_numbers(found.W) and found.W.shape == (count, *shape), "a solution of another shape")
        expect(_whole(found.n_iter), "a solution after no iterations")
        expect(_shapes(found.split) == _shapes(penalty.start(found.W)), "a split of another shape")
        certificates = [part for part in (found.objective, found.gap, found.rho) if part is not None]
        problems = count if problem[1].is_separable else 1  # several tensors may be one problem
        expect(all(_row(part) and len(part) == problems for part in certificates), "a solution of other problems")


def _shapes(split: Split) -> list[Any]:
    """List the shapes of a split; what is no array of numbers has none."""
    found: list[Any] = []
    split.map(lambda part: found.append(part.shape if _numbers(part) else None))
    return found


def _check_search(model: Any) -> None:
    """Compare what was measured with what was tried."""
    scores, rows = model.score_path_, len(model.cv_results_["params"])
    expect(_floats(scores) and scores.ndim == 2, "score_path_ that is no table of numbers")
    errors = getattr(model, "score_path_se_", scores[:, 0])  # files of before have none
    expect(_floats(errors) and errors.shape == scores.shape[:1], "score_path_se_ that is not an error for each alpha")
    expect(len(scores) == len(model.alphas_) == len(model.ridges_) > 0, "a score for other alphas")
    expect(bool(np.any(np.all(np.isfinite(scores), axis=0))), "scores of no fold")
    expect(all(len(column) == rows for column in model.cv_results_.values()), "results of several lengths")
    expect(isinstance(model.best_params_, dict) and model.best_index_ < rows, "a choice that is none")
    expect("best_score_" in vars(model), "a choice without its score")
    expect(all(isinstance(tried, dict) for tried in model.cv_results_["params"]), "candidates that are none")


def _check_tree(model: HierarchicalTraceNormClassifier) -> None:
    """Compare the models of a tree, and what it says of its classes, with each other."""
    n, count = len(model.intercept_), len(model.classes_)
    expect(len(model.nodes_) == len(model.estimators_) == n, "a tree of other steps than it has weights")
    expect(all(len(left) and len(right) for left, right in model.nodes_), "a step that is none")
    for step in model.estimators_:
        expect(
            isinstance(step, TraceNormModel) and step.coef_.shape == (1, *model.sample_shape_), "a step that is none"
        )
    expect(all(_whole(k) and k < count for k in model._seen), "a tree of other classes")
    size = model.n_features_in_ + sum(np.shape(getattr(model, "confound_coef_", ()))[-1:])
    expect(all(m.x_mean.shape == (size,) for m in vars(model).get("class_moments_", [])), "other moments")


def _check_lagged(model: LaggedRegressor) -> None:
    """Compare weights over lags and features with the model that they are of."""
    first, last = model._range()
    shape = (last - first + 1, model.n_features_in_)
    inner, targets = model.model_, np.shape(model.intercept_)
    expect(isinstance(inner, TraceNormModel) and inner.sample_shape_ == shape, "lags of another model")
    expect(inner.coef_.shape == model.coef_.shape == model.patterns_.shape == (*targets, *shape), "other weights")
    expect(np.array_equal(model.lags_, np.arange(first, last + 1)), "other lags")
    expect(model._single == (targets == ()), "other outputs")
    expect((model.moments_.n_features, model.moments_.n_targets) == (math.prod(shape), math.prod(targets)), "moments")


# Of which models the parts are compared once they have an attribute, and how.
_CHECKS: tuple[tuple[type, str, Callable[[Any], None]], ...] = (
    (object, "sample_shape_", _check_shapes),
    (TensorTransformer, "sample_shape_", _check_transformer),
    (TensorSearch, "cv_results_", _check_search),
    (HierarchicalTraceNormClassifier, "coef_", _check_tree),
    (LaggedRegressor, "coef_", _check_lagged),
)


def check_use(model: Any) -> None:
    """Have a fitted model judge samples of zeros, as a later step will."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    shape = getattr(first, "sample_shape_", None)
    if shape is None or math.prod(shape) > _LARGEST_SAMPLE:
        return
    samples = np.zeros((_SAMPLES, *shape), getattr(getattr(model, "coef_", None), "dtype", float))
    weights = getattr(model, "confound_coef_", None)
    known = {} if weights is None else {"confounds": np.zeros((_SAMPLES, weights.shape[-1]))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, name):
                expect(len(getattr(model, name)(samples, **known)) == _SAMPLES, f"{name} of other samples")
