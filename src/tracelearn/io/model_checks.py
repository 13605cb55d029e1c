"""Whether the parts of a model that was read from a file fit each other, so that no later step fails on them.

Every object is checked as soon as it is built, by what is public of it; at the end the whole model predicts samples of zeros.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from tracelearn.errors import expect
from tracelearn.estimators.base import TraceNormModel
from tracelearn.estimators.hierarchy import HierarchicalTraceNormClassifier
from tracelearn.estimators.lagged import LaggedRegressor
from tracelearn.features import ResampleTime
from tracelearn.features.base import TensorTransformer
from tracelearn.fitting import WarmStart
from tracelearn.moments import Moments
from tracelearn.penalties import Atom, Blocks, Latent, Overlap
from tracelearn.samples.modes import fit_modes
from tracelearn.samples.reading import Spec
from tracelearn.samples.scikit_learn import bad_parameter
from tracelearn.search import TensorClassifier, TensorRegressor
from tracelearn.search.intervals import HeldOutResiduals

__all__ = ["check_parts", "check_use"]

_LARGEST_SAMPLE = 1 << 20  # the largest samples that are predicted as a test; of larger ones only shapes are compared
_N_SAMPLES = 5  # several, so that what fits one sample by chance is noticed
_MOST_TERMS = 1000  # of a penalty


def check_parts(thing: Any) -> None:
    """Check that the parts of an object from a file fit each other; any exception means that they do not."""
    for kind, check in _CHECKS.items():
        if isinstance(thing, kind):
            check(thing)


# --- what single values must be ---------------------------------------------------------------------------------------


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_size(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64)  # what LAPACK takes


def _is_finite(value: Any) -> bool:
    return _is_array(value) and bool(np.all(np.isfinite(value)))


def _is_row(value: Any) -> bool:
    return _is_finite(value) and value.ndim == 1


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(size) is int and size > 0 for size in value)


def _are_classes(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and len(np.unique(value)) == len(value)


def _are_names(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "U"


def _is_curve(value: Any) -> bool:
    """Tell whether a value is a table of iterations and gaps; a gap may be infinite."""
    return _is_array(value) and value.ndim == 2 and value.shape[1] == 2 and bool(np.all(np.isfinite(value[:, 0])))


# --- values ------------------------------------------------------------------------------------------------------------


def _check_moments(moments: Moments) -> None:
    p, n_targets = np.size(moments.x_mean), np.size(moments.y_mean)
    shapes = {
        "x_mean": (p,),
        "y_mean": (n_targets,),
        "gram": (p, p),
        "cross": (p, n_targets),
        "target_sq": (n_targets,),
    }
    expect(p > 0 and n_targets > 0 and _is_size(moments.weight), "moments of nothing")
    for name, shape in shapes.items():
        array = getattr(moments, name)
        expect(_is_finite(array) and array.shape == shape, f"moments with a {name} that does not fit")


def _check_spec(spec: Spec) -> None:
    expect(_is_shape(spec.sample_shape), "samples of no shape")
    expect(spec.dtype in (np.float32, np.float64), "samples of no precision")
    expect(_is_count(spec.n_targets) and spec.n_targets > 0, "samples without targets")
    expect(type(spec.is_flat) is bool and type(spec.is_single) is bool, "samples of no layout")
    expect(_is_count(spec.n_confounds), "confounds of no number")
    expect(spec.classes is None or _are_classes(spec.classes), "classes that are none")
    expect(spec.modes is None or fit_modes(spec.modes, spec.sample_shape), "modes of other samples")
    names = spec.feature_names
    expect(names is None or (_are_names(names) and len(names) == spec.n_features), "names of other features")


def _check_penalty(penalty: Overlap | Latent) -> None:
    terms = penalty.terms
    expect(isinstance(terms, tuple) and 0 < len(terms) <= _MOST_TERMS, "a penalty without terms, or with too many")
    for weight, atom in terms:
        expect(_is_size(weight) and isinstance(atom, Atom), "a penalty of other terms than atoms with weights")


def _check_blocks(penalty: Blocks) -> None:
    expect(isinstance(penalty.shapes, tuple) and all(map(_is_shape, penalty.shapes)), "blocks of no shape")
    expect(isinstance(penalty.penalties, tuple), "blocks of no penalty")
    expect(len(penalty.penalties) == len(penalty.shapes), "blocks of other penalties")
    expect(all(isinstance(block, Overlap | Latent) for block in penalty.penalties), "blocks of no penalty")


def _check_warm_start(start: WarmStart) -> None:
    """Compare the arrays of a solution: T tensors, their split over the terms of the penalty, the certificates of B problems."""
    solution, penalty = start.solution, start.penalty
    W = solution.W
    expect(_is_finite(W) and W.ndim > 1 and len(W) > 0, "a solution without weights")

    def check_part(part: Any) -> None:
        expect(_is_finite(part) and part.shape[1] == len(W), "a split of other weights")
        expect(isinstance(penalty, Blocks) or part.shape[1:] == W.shape, "a split of weights of another shape")

    solution.split.map(check_part)
    if not isinstance(penalty, Blocks):
        expect(len(solution.split.parts) == len(penalty.terms), "a split over other terms")  # type: ignore[attr-defined]
    certificates = [solution.objective, solution.gap, *([] if solution.rho is None else [solution.rho])]
    expect(all(_is_row(row) for row in certificates), "a solution without certificates")
    expect(len({len(row) for row in certificates}) == 1 and len(W) % len(solution.gap) == 0, "certificates of others")
    expect(_is_count(solution.n_iter) and _is_count(start.n_targets), "a solution after no iterations")


def _check_pipeline(pipeline: Pipeline) -> None:
    expect(bad_parameter(pipeline) is None, "a Pipeline with parameters that cannot be")
    steps = [step for _, step in pipeline.steps]
    expect(all(step == "passthrough" or hasattr(step, "get_params") for step in steps), "steps that are none")
    expect(bool(steps) and pipeline.memory is None, "a Pipeline without steps, or with a cache")


# --- estimators --------------------------------------------------------------------------------------------------------

# What fitted attributes of any estimator are, where it has them.
_FITTED: dict[str, Callable[[Any], bool]] = {
    "sample_shape_": _is_shape,
    "n_features_in_": _is_count,
    "feature_names_in_": _are_names,
    "n_samples_seen_": _is_size,
    "classes_": _are_classes,
    "coef_": _is_finite,
    "intercept_": lambda value: _is_number(value) or _is_row(value),
    "confound_coef_": _is_finite,
    "patterns_": _is_finite,
    "alpha_": lambda value: _is_size(value) or _is_row(value),
    "objective_": _is_number,
    "dual_gap_": _is_size,
    "n_iter_": _is_count,
    "convergence_": _is_curve,
    "moments_": lambda value: isinstance(value, Moments),
    "ridge_": _is_size,
    "best_score_": _is_number,
    "best_index_": _is_count,
    "alphas_": _is_row,
    "ridges_": _is_row,
    "class_map_": _is_finite,
    "calibration_slope_": _is_number,
    "calibration_offsets_": _is_row,
    "resampler_": lambda value: value is None or isinstance(value, ResampleTime),
    "held_out_residuals_": lambda value: isinstance(value, HeldOutResiduals),
    "lags_": lambda value: isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i",
}

_OF_SAMPLES = ("sample_shape_", "n_features_in_", "intercept_")
_OF_SEARCH = (
    *_OF_SAMPLES,
    "view_factors_",
    "coef_by_view_",
    "patterns_by_view_",
    "view_shares_",
    "objective_",
    "dual_gap_",
    "n_iter_",
    "convergence_",
    "alpha_",
    "ridge_",
    "loss_",
    "alphas_",
    "ridges_",
    "score_path_",
    "score_path_se_",
    "best_score_",
    "cv_results_",
    "best_index_",
    "best_params_",
    "resampler_",
)
# What an estimator has besides, once it has ``coef_``.
_WITH_WEIGHTS: dict[type, tuple[str, ...]] = {
    TraceNormModel: (*_OF_SAMPLES, "patterns_", "alpha_", "objective_", "dual_gap_", "n_iter_", "convergence_"),
    HierarchicalTraceNormClassifier: (*_OF_SAMPLES, "classes_", "nodes_", "estimators_"),
    LaggedRegressor: ("n_features_in_", "intercept_", "patterns_", "lags_", "dual_gap_"),
}


def _check_estimator(model: BaseEstimator) -> None:
    """Refuse parameters that ``fit`` would refuse, and fitted attributes of another form than ``fit`` gives them."""
    parameter = bad_parameter(model)
    expect(parameter is None, f"a parameter {parameter} that cannot be")
    attributes = vars(model)
    for name in ("loss", "penalty", "solver"):  # names, or objects that ``fit`` looks at itself
        is_container = isinstance(attributes.get(name), list | tuple | dict | np.ndarray)
        expect(not is_container, f"a parameter {name} that cannot be")
    for name, is_good in _FITTED.items():
        expect(name not in attributes or is_good(attributes[name]), f"{name} that does not fit")
    if "coef_" in attributes:
        for kind, names in _WITH_WEIGHTS.items():
            missing = [name for name in names if isinstance(model, kind) and name not in attributes]
            expect(not missing, f"a fitted model without {', '.join(missing)}")
    if "sample_shape_" in attributes:
        _check_samples(model)


def _check_samples(model: Any) -> None:
    """Check that the attributes of an estimator that describe samples agree with their shape."""
    attributes = vars(model)
    p = math.prod(model.sample_shape_)
    # Of recordings, each column is a feature, and weights have one for each lag.
    expect(isinstance(model, LaggedRegressor) or attributes.get("n_features_in_", p) == p, "samples of no shape")
    expect("modes_" not in attributes or fit_modes(model.modes_, model.sample_shape_), "modes of other samples")
    names = attributes.get("feature_names_in_")
    expect(names is None or len(names) == p, "names of other features")


def _n_confounds(model: Any) -> int:
    return sum(np.shape(getattr(model, "confound_coef_", ()))[-1:])


def _check_linear(model: TraceNormModel) -> None:
    """Compare weights, intercepts and patterns with each other and with what is known of the samples."""
    if "moments_" in vars(model):
        size = math.prod(model.sample_shape_) + _n_confounds(model)
        expect(model.moments_.n_features == size, "moments of other samples")
    if "coef_" not in vars(model):
        return
    shape = model.sample_shape_
    targets = np.shape(model.intercept_)
    expect(model.coef_.shape in ((*targets, *shape), (*targets, math.prod(shape))), "coef_ of another shape")
    expect(model.patterns_.shape == (*targets, *shape), "patterns_ of another shape")
    expect(_n_confounds(model) == 0 or model.confound_coef_.shape[:-1] == targets, "confound_coef_ of another shape")
    _check_mode_weights(model)
    _check_targets(model)
    for part in vars(model).values():
        if isinstance(part, WarmStart):
            expect(part.solution.W.size == model.coef_.size, "a solution of other weights")


def _check_targets(model: Any) -> None:
    """Compare the intercepts of a fitted model with its classes, and both with what is known of samples and targets."""
    targets = np.shape(model.intercept_)
    if hasattr(model, "classes_"):
        n_classes = len(model.classes_)
        n_columns = 1 if n_classes == 2 else n_classes
        expect(n_classes > 1 and targets == (n_columns,), f"{n_classes} classes with other weights")
    for part in vars(model).values():
        if isinstance(part, Spec):
            is_same = (part.sample_shape, part.n_confounds) == (model.sample_shape_, _n_confounds(model))
            expect(is_same and part.n_targets == math.prod(targets), "weights of other samples")


def _check_mode_weights(model: TraceNormModel) -> None:
    weights = () if model.mode_weights is None else model.mode_weights
    is_row = np.asarray(weights, float).ndim == 1 and len(weights) <= 1 + len(model.sample_shape_)
    expect(is_row, "mode weights of other modes")


def _check_tree(model: HierarchicalTraceNormClassifier) -> None:
    """Compare the models of a tree with its nodes and its weights."""
    if "coef_" not in vars(model):
        return
    n_nodes = len(model.intercept_)
    expect(n_nodes <= len(model.classes_), "more nodes than classes")
    shapes = ((n_nodes, *model.sample_shape_), (n_nodes, math.prod(model.sample_shape_)))
    expect(model.coef_.shape in shapes, "coef_ of another shape")
    expect(len(model.nodes_) == len(model.estimators_) == n_nodes, "a tree of other nodes than it has weights")
    expect(all(len(left) and len(right) for left, right in model.nodes_), "a node without classes")
    for node in model.estimators_:
        expect(isinstance(node, TraceNormModel), "a node without a model")
        expect(node.coef_.shape == (1, *model.sample_shape_), "a node of other samples")
    moments = vars(model).get("class_moments_", [])
    expect(all(isinstance(of_class, Moments) for of_class in moments), "classes without moments")
    size = model.n_features_in_ + _n_confounds(model)
    expect(all(of_class.n_features == size for of_class in moments), "moments of other samples")
    expect("class_moments_" not in vars(model) or len(moments) == len(model.classes_), "moments of other classes")


def _check_lagged(model: LaggedRegressor) -> None:
    """Compare weights over lags and features with what they were learned from."""
    if "coef_" not in vars(model):
        return
    targets = np.shape(model.intercept_)
    shape = (len(model.lags_), model.n_features_in_)
    expect(np.array_equal(np.diff(model.lags_), np.ones(shape[0] - 1)), "lags that do not follow each other")
    weights_shape: tuple[int, ...] = (*targets, *shape)
    expect(model.coef_.shape == model.patterns_.shape == weights_shape, "weights of other lags")
    if "moments_" in vars(model):
        moments = model.moments_
        has_lags = moments.n_features == math.prod(shape) and moments.n_targets == math.prod(targets)
        expect(has_lags, "moments of other lags")


def _check_search(model: TensorRegressor | TensorClassifier) -> None:
    """Compare what is known of each view, and the scores of the path that was chosen."""
    attributes = vars(model)
    if "views_" not in attributes:
        return
    missing = [name for name in _OF_SEARCH if name not in attributes]
    expect(not missing, f"a fitted search without {', '.join(missing)}")
    _check_targets(model)
    for name in ("view_factors_", "coef_by_view_", "patterns_by_view_"):
        expect(attributes[name].keys() == model.views_.keys(), f"{name} of other views")
    expect(all(isinstance(view, str) for view in (*model.views_, *model.view_shares_)), "views without names")
    expect(
        all(view is None or isinstance(view, BaseEstimator) for view in model.views_.values()), "views that are none"
    )
    expect(all(map(_is_number, (*model.view_factors_.values(), *model.view_shares_.values()))), "factors of no size")
    for view, weights in model.coef_by_view_.items():
        patterns = model.patterns_by_view_[view]
        expect(_is_finite(weights) and _is_finite(patterns), "weights that are not finite")
        expect(weights.shape == patterns.shape, "patterns of another shape")
    scores = model.score_path_
    n_alphas = len(model.alphas_)
    expect(_is_array(scores) and scores.ndim == 2 and len(scores) == n_alphas > 0, "scores of other alphas")
    expect(_is_array(model.score_path_se_) and model.score_path_se_.shape == (n_alphas,), "errors of other scores")
    expect(len(model.ridges_) == n_alphas, "ridges of other alphas")
    _check_trials(model.views_tried_)
    expect(isinstance(model.cv_results_, dict) and "params" in model.cv_results_, "results without parameters")
    expect(all(isinstance(params, dict) for params in model.cv_results_["params"]), "parameters that are none")
    n_rows = len(model.cv_results_["params"])
    expect(all(len(column) == n_rows for column in model.cv_results_.values()), "results of several lengths")
    expect(model.best_index_ < n_rows and isinstance(model.best_params_, dict), "a choice that is none")


def _check_trials(table: Any) -> None:
    """Check the columns of the table of all views and paths that were tried."""
    kinds = {
        "views": str,
        "path": str,
        "reason": str,
        "taken": bool,
        "score": float,
        "score_se": float,
        "seconds": float,
    }
    expect(isinstance(table, dict) and kinds.keys() <= table.keys(), "a table of what was tried without its columns")
    for name, kind in kinds.items():
        column = table[name]
        expect(isinstance(column, list) and len(column) == len(table["views"]), "columns of several lengths")
        expect(all(type(value) is kind for value in column), f"a column {name} that cannot be")


def _check_residuals(residuals: HeldOutResiduals) -> None:
    """Check that the models of the folds agree with the residuals of the samples that each held out."""
    n_folds, n_targets, _ = residuals.coefs.shape
    n = len(residuals.folds)
    expect(_is_finite(residuals.coefs) and _is_finite(residuals.intercepts), "models of folds that are none")
    expect(residuals.intercepts.shape == (n_folds, n_targets), "intercepts of other folds")
    expect(_is_finite(residuals.sizes) and residuals.sizes.shape == (n, n_targets), "residuals of other samples")
    expect(residuals.folds.dtype.kind == "i" and residuals.folds.shape == (n,), "folds of other samples")
    expect(n == 0 or 0 <= residuals.folds.min() <= residuals.folds.max() < n_folds, "folds that are not there")


def _check_transformer(view: TensorTransformer) -> None:
    """Refuse learned numbers that are not finite; ``check_use`` finds those of another shape."""
    for name, value in vars(view).items():
        if name.endswith("_") and isinstance(value, np.ndarray):
            expect(value.dtype.kind != "f" or _is_finite(value), f"{name} that is not finite")


_CHECKS: dict[Any, Callable[[Any], None]] = {
    Moments: _check_moments,
    Spec: _check_spec,
    Overlap: _check_penalty,
    Latent: _check_penalty,
    Blocks: _check_blocks,
    WarmStart: _check_warm_start,
    Pipeline: _check_pipeline,
    BaseEstimator: _check_estimator,
    TraceNormModel: _check_linear,
    HierarchicalTraceNormClassifier: _check_tree,
    LaggedRegressor: _check_lagged,
    TensorTransformer: _check_transformer,
    TensorRegressor: _check_search,
    TensorClassifier: _check_search,
    HeldOutResiduals: _check_residuals,
}


# --- the whole ---------------------------------------------------------------------------------------------------------


def check_use(model: Any) -> None:
    """Let a fitted model predict samples of zeros, as its user will: any exception means that it is damaged."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    if isinstance(first, LaggedRegressor):
        n_samples = len(getattr(first, "lags_", ())) + _N_SAMPLES
        shape = (getattr(first, "n_features_in_", 0),)
    else:
        n_samples = _N_SAMPLES
        shape = getattr(first, "sample_shape_", (0,))
    if not 0 < math.prod(shape) * n_samples <= _N_SAMPLES * _LARGEST_SAMPLE:
        return
    samples = np.zeros((n_samples, *shape), getattr(getattr(model, "coef_", None), "dtype", float))
    n_confounds = _n_confounds(model)
    confounds = {"confounds": np.zeros((n_samples, n_confounds))} if n_confounds else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, name):
                answer = getattr(model, name)(samples, **confounds)
                expect(len(answer) == n_samples, f"{name} of other samples")
