"""Whether a model that was read from a file can be used: its parameters are valid, and what it goes on learning from fits.

Every object is checked as soon as it is built, by what is public of it; at the end the whole model predicts samples of zeros.
What a forged file says of how a model was found, such as scores and patterns, need not be true, nor of the right form.
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
from tracelearn.estimators.lagged import LaggedRegressor
from tracelearn.fitting import WarmStart
from tracelearn.moments import Moments
from tracelearn.penalties import Atom, Blocks, Latent, Overlap
from tracelearn.samples.modes import are_modes_of
from tracelearn.samples.reading import Spec
from tracelearn.samples.scikit_learn import bad_parameter

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


def _are_lags(value: Any) -> bool:
    is_row = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "i"
    return is_row and bool(np.all(np.diff(value) == 1))


def _are_names(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "U"


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
    expect(spec.modes is None or are_modes_of(spec.modes, spec.sample_shape), "modes of other samples")
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

# What a prediction of zeros needs to know beforehand, and what it would not show to be wrong.
_FITTED: dict[str, Callable[[Any], bool]] = {
    "sample_shape_": _is_shape,
    "n_features_in_": _is_count,
    "feature_names_in_": _are_names,
    "classes_": _are_classes,
    "lags_": _are_lags,
    "moments_": lambda value: isinstance(value, Moments),
    "intercept_": lambda value: _is_number(value) or _is_row(value),
}


def _check_estimator(model: BaseEstimator) -> None:
    """Refuse parameters that ``fit`` would refuse, and fitted attributes of another type or shape than ``fit`` writes."""
    parameter = bad_parameter(model)
    expect(parameter is None, f"a parameter {parameter} that cannot be")
    attributes = vars(model)
    for name in ("loss", "penalty", "solver"):  # names, or objects that ``fit`` looks at itself
        is_container = isinstance(attributes.get(name), list | tuple | dict | np.ndarray)
        expect(not is_container, f"a parameter {name} that cannot be")
    for name, is_good in _FITTED.items():
        expect(name not in attributes or is_good(attributes[name]), f"{name} that does not fit")
    if "classes_" in attributes and "intercept_" in attributes and not hasattr(model, "nodes_"):
        n_classes = len(attributes["classes_"])
        n_columns = 1 if n_classes == 2 else n_classes
        is_same = n_classes > 1 and np.shape(attributes["intercept_"]) == (n_columns,)
        expect(is_same, f"{n_classes} classes with other weights")
    if "sample_shape_" in attributes:
        expect(
            "modes_" not in attributes or are_modes_of(attributes["modes_"], attributes["sample_shape_"]),
            "modes of other samples",
        )


def _n_confounds(model: Any) -> int:
    return sum(np.shape(getattr(model, "confound_coef_", ()))[-1:])


def _check_linear(model: TraceNormModel) -> None:
    """Compare what a model goes on learning from with the samples that it was fitted to."""
    attributes = vars(model)
    if "moments_" in attributes:
        size = math.prod(model.sample_shape_) + _n_confounds(model)
        expect(model.moments_.n_features == size, "moments of other samples")
    if "coef_" not in attributes:
        return
    weights = () if model.mode_weights is None else model.mode_weights
    is_row = len(weights) <= 1 + len(model.sample_shape_) and np.asarray(weights, float).ndim == 1
    expect(is_row, "mode weights of other modes")
    targets = np.shape(model.intercept_)
    expect(_n_confounds(model) == 0 or model.confound_coef_.shape[:-1] == targets, "confound_coef_ of another shape")
    for part in attributes.values():
        if isinstance(part, WarmStart):
            expect(part.solution.W.size == model.coef_.size, "a solution of other weights")
        if isinstance(part, Spec):
            is_same = (part.sample_shape, part.n_confounds) == (model.sample_shape_, _n_confounds(model))
            expect(is_same and part.n_targets == math.prod(targets), "weights of other samples")


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
}


# --- the whole ---------------------------------------------------------------------------------------------------------


def check_use(model: Any) -> None:
    """Let a fitted model predict samples of zeros, as its user will: any exception means that it is damaged."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    is_lagged = isinstance(first, LaggedRegressor)
    if is_lagged:
        n_samples = len(getattr(first, "lags_", ())) + _N_SAMPLES
        shape = (getattr(first, "n_features_in_", 0),)
    else:
        n_samples = _N_SAMPLES
        shape = getattr(first, "sample_shape_", (0,))
    if not 0 < math.prod(shape) * n_samples <= _N_SAMPLES * _LARGEST_SAMPLE:
        return
    samples = np.zeros((n_samples, *shape), getattr(getattr(model, "coef_", None), "dtype", float))
    n_confounds = _n_confounds(model)
    metadata: dict[str, Any] = {"confounds": np.zeros((n_samples, n_confounds))} if n_confounds else {}
    if getattr(model, "alignment_", None) is not None:
        metadata["groups"] = np.zeros(n_samples)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, name):
                answer = getattr(model, name)(samples, **metadata)
                expect(len(answer) == n_samples, f"{name} of other samples")
                if np.asarray(answer).dtype.kind == "f":
                    is_good = np.any if is_lagged else np.all  # nothing precedes the first samples of a recording
                    expect(is_good(np.isfinite(answer)), f"{name} that is not finite")
