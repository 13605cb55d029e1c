"""The fitted attributes of a search: what its samples are like, its model, and the evidence for the choice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sklearn.base import clone

from tracelearn.arrays.array_api import Array, array_namespace, move_to
from tracelearn.fitting import Fitted, Settings
from tracelearn.moments import Moments
from tracelearn.samples.reading import Spec
from tracelearn.search.choice import Choice
from tracelearn.search.correction import corrected_score
from tracelearn.search.data import SearchData
from tracelearn.search.results import cv_results, views_tried
from tracelearn.search.task import Task
from tracelearn.search.views import ShownByViews

__all__ = ["about_choice", "about_model", "about_samples"]


def about_samples(data: SearchData) -> dict[str, Any]:
    """List the attributes that say what samples are like."""
    spec = data.spec
    attributes = {
        "_spec": spec,
        "sample_shape_": spec.sample_shape,
        "n_features_in_": spec.n_features,
        "resampler_": data.resampler,
        "stale_": (),
    }
    if spec.classes is not None:
        attributes["classes_"] = spec.classes
    if spec.modes is not None:
        attributes["modes_"] = spec.modes
    if spec.feature_names is not None:
        attributes["feature_names_in_"] = spec.feature_names
    return attributes


def about_model(
    names: Sequence[str],
    shown: ShownByViews,
    fitted: Fitted,
    spec: Spec,
    shapes: Sequence[tuple[int, ...]],
    moments: Moments | None,
) -> dict[str, Any]:
    """List the attributes of the model and of its certificate; ``moments`` of samples as views show them, if they are kept."""
    xp = array_namespace(fitted.coef)
    target_shape = () if spec.is_single else (spec.n_targets,)
    factors = dict(zip(names, shown.factors, strict=True))
    inverse = {name: 1.0 / factor for name, factor in factors.items()}
    attributes = {
        "views_": dict(zip(names, shown.transformers, strict=True)),
        "view_factors_": factors,
        "coef_by_view_": _by_view(fitted.coef, factors, shapes, target_shape),
        "patterns_by_view_": _by_view(fitted.patterns, inverse, shapes, target_shape),
        "intercept_": float(fitted.intercept[0]) if spec.is_single else fitted.intercept,
        "n_iter_": fitted.n_iter,
        "objective_": fitted.objective,
        "dual_gap_": fitted.gap,
        "convergence_": fitted.convergence,
    }
    if moments is not None:
        attributes["moments_"] = moments
    if fitted.confound_coef is not None:
        attributes["confound_coef_"] = xp.reshape(fitted.confound_coef, (*target_shape, -1))
    return attributes


def _by_view(
    joined: Array, factors: dict[str, float], shapes: Sequence[tuple[int, ...]], target_shape: tuple[int, ...]
) -> dict[str, Array]:
    """Cut weights or patterns (K, ...) of all views side by side into those of each view, and multiply these by its factor."""
    xp = array_namespace(joined)
    flat = xp.reshape(joined, (joined.shape[0], -1))
    by_view = {}
    start = 0
    for (name, factor), shape in zip(factors.items(), shapes, strict=True):
        end = start + math.prod(shape)
        by_view[name] = xp.reshape(factor * flat[:, start:end], (*target_shape, *shape))
        start = end
    return by_view


def about_choice(choice: Choice, task: Task, settings: Settings) -> dict[str, Any]:
    """List the attributes that say what was chosen (strengths, views, loss) and by which held-out scores."""
    path = choice.path
    point = choice.point
    names = choice.blend.names
    like = task.targets.codes  # arrays among the attributes get its library, device and precision
    score, error = corrected_score(choice, task)
    results, row = cv_results(choice)
    alignment = task.alignment_of(choice.blend)
    attributes = {
        "alpha_": choice.alpha,
        "ridge_": choice.ridge,
        "loss_": settings.loss.name,
        "view_shares_": choice.shares or dict.fromkeys(names, 1.0 / len(names)),
        "alphas_": move_to(path.alphas, like, like.dtype),
        "ridges_": move_to(path.ridges, like, like.dtype),
        "score_path_": move_to(path.scores, like, like.dtype),
        "score_path_se_": move_to(path.errors, like, like.dtype),
        "raw_score_": float(path.means[point]),
        "best_score_": score,
        "best_score_se_": error,
        "cv_results_": results,
        "best_index_": row,
        "best_params_": results["params"][row],
        "views_tried_": views_tried(choice, task.why_not_aligned),
        "alignment_": None if alignment is None else clone(alignment),
        "n_folds_": len(task.folds.first_repeat()),
    }
    if choice.class_map is not None:
        attributes["class_map_"] = move_to(choice.class_map, like, like.dtype)
    if choice.calibration is not None:
        attributes["calibration_slope_"] = choice.calibration.slope
        attributes["calibration_offsets_"] = move_to(choice.calibration.offsets, like, like.dtype)
    if choice.residuals is not None:
        attributes["held_out_residuals_"] = choice.residuals
    return attributes
