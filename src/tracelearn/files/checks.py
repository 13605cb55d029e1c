"""Whether the parts of a model that was read fit each other, so that no later step fails on them."""

from __future__ import annotations

import warnings
from math import prod
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from tracelearn.moments import Moments

__all__ = ["check_parts", "check_use", "expect"]

_LARGEST_SAMPLE = 1 << 24  # entries; of larger ones only the shapes are compared
_WHOLE = ("n_features_in_", "n_iter_", "best_index_")
_NUMBERS = (*_WHOLE, "alpha_", "best_score_", "dual_gap_", "objective_", "ridge_")


def check_parts(thing: Any) -> None:
    """Refuse moments or an estimator whose parts do not fit each other; any exception is a refusal."""
    if isinstance(thing, Moments):
        (p,), (k,) = np.shape(thing.x_mean), np.shape(thing.y_mean)
        parts = [np.asarray(part) for part in vars(thing).values()]
        expect([part.shape for part in parts] == [(), (p,), (k,), (p, p), (p, k), (k,)], "moments of several sizes")
        expect(all(part.dtype.kind == "f" for part in parts), "moments that are no numbers")
    elif isinstance(thing, Pipeline):
        steps = [step for _, step in thing.steps]
        expect(all(step == "passthrough" or hasattr(step, "get_params") for step in steps), "steps that are none")
        expect(bool(steps) and thing.memory is None, "a Pipeline without steps, or with a cache")
    else:
        for name in _NUMBERS:
            kind = Integral if name in _WHOLE else Real
            expect(isinstance(vars(thing).get(name, 0), kind), f"{name} that is no number")
        if "sample_shape_" in vars(thing):
            _check_shapes(thing)


def _check_shapes(model: Any) -> None:
    """Compare weights, intercepts, classes and moments with the shape of a sample."""
    shape = model.sample_shape_
    is_shape = isinstance(shape, tuple) and all(type(size) is int and size > 0 for size in shape)
    expect(is_shape and getattr(model, "n_features_in_", prod(shape)) == prod(shape), "samples of no shape")
    if hasattr(model, "moments_"):
        expect(model.moments_.x_mean.shape == (prod(shape),), f"moments of other samples than those of shape {shape}")
    if hasattr(model, "coef_"):
        n, classes = np.size(model.intercept_), getattr(model, "classes_", None)
        shapes = (shape, (n, *shape), (prod(shape),), (n, prod(shape)))
        expect(np.size(vars(model).get("patterns_", model.coef_)) == n * prod(shape), "patterns_ of another shape")
        expect(model.coef_.shape in shapes and model.coef_.size == n * prod(shape), "coef_ of another shape")
        expect(all(np.asarray(part).dtype.kind == "f" for part in (model.coef_, model.intercept_)), "no numbers")
        # Two classes have one weight tensor; more have one each, or in a tree one less.
        fits = classes is None or (
            classes.ndim == 1 and n in {len(classes) - 1, len(classes) if len(classes) > 2 else 1}
        )
        expect(
            fits and (classes is None or len(np.unique(classes)) == len(classes)), f"other classes than {n} intercepts"
        )


def expect(good: bool, otherwise: str) -> None:
    """Refuse what is not good; whoever called ``unpack`` gets it in one sentence."""
    if not good:
        raise ValueError(otherwise)


def check_use(model: Any) -> None:
    """Have a fitted model judge a sample of zeros, as a later step will."""
    first = model.steps[0][1] if isinstance(model, Pipeline) else model
    shape = getattr(first, "sample_shape_", None)
    if shape is None or prod(shape) > _LARGEST_SAMPLE:
        return
    sample = np.zeros((1, *shape), getattr(getattr(model, "coef_", None), "dtype", float))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, name):
                getattr(model, name)(sample)
        getattr(model, "convergence_", None)  # computed from what is in the file
