"""Predictions: scores of samples as views show them, and what becomes of scores; all of it can be sent to a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, array_namespace, as_dtype, is_sparse, move_to, widest
from tracelearn.losses import Loss
from tracelearn.samples.checks import check_finite
from tracelearn.samples.reading import Spec
from tracelearn.samples.rows import read_rows
from tracelearn.samples.targets import labels_of
from tracelearn.search.calibration import Calibration
from tracelearn.search.softmax import mapped_scores
from tracelearn.search.views import ShownByViews

__all__ = ["ScoresByViews", "flat_if_two_classes", "labels", "log_probabilities", "numbers", "probabilities"]


@dataclass(frozen=True, eq=False)
class ScoresByViews:
    """What becomes of a block of samples: ``after(sum of X_v coef_v' + intercept)``. All that a worker must be sent."""

    name: str  # of the estimator, for errors
    spec: Spec
    views: ShownByViews
    coefs: tuple[Array, ...]  # (K, p_v) of each view
    intercept: Any  # (K,), or a number
    confound_coef: Array | None  # (K, q)
    class_map: Array | None  # (K + 1, K)
    after: Callable[[Array], Array]  # of scores (n, K)
    time: int | None = None  # the mode along which samples may be of any length; None where there is none

    def __call__(self, X: Any, confounds: Array | None = None) -> Array:
        """Score samples in memory."""
        samples = read_rows(
            X,
            name=self.name,
            known_shape=self.spec.sample_shape,
            known_names=self.spec.feature_names,
            any_library=True,
            takes_gaps=self.views.resampler is not None,
            time=self.time,
        )
        rows = samples.rows
        wide = self.coefs[0].dtype if is_sparse(rows) else widest(rows)["dtype"]
        with np.errstate(over="ignore", invalid="ignore"):  # judged below
            scores: Any = self.intercept
            for block, coef in zip(self.views.by_view(rows, samples.sample_shape), self.coefs, strict=True):
                block = block if is_sparse(block) else as_dtype(block, wide)  # noqa: PLW2901
                scores = block @ as_dtype(coef, wide).T + scores
            if confounds is not None:
                scores = scores + move_to(confounds, scores, wide) @ as_dtype(self.confound_coef, wide).T
            scores = mapped_scores(scores, self.class_map)
        xp = array_namespace(scores)
        if rows.dtype == xp.float32:
            scores = as_dtype(scores, rows.dtype)
        check_finite(scores, "scores", overflows=True)
        return self.after(scores)


# --- functions of scores (n, K) ------------------------------------------------------------------------------------------


def numbers(loss: Loss, is_single: bool, scores: Array) -> Array:
    """Turn scores into numbers by the inverse link; a single target has no axis."""
    predictions = loss.inverse_link(scores)
    return predictions[:, 0] if is_single else predictions


def labels(classes: Array, scores: Array) -> Array:
    """Turn scores into labels: that of the largest score."""
    return labels_of(flat_if_two_classes(scores), classes)


def log_probabilities(calibration: Calibration, scores: Array) -> Array:
    """Turn scores into logarithms of probabilities."""
    return calibration.log_probabilities(flat_if_two_classes(scores))


def probabilities(calibration: Calibration, scores: Array) -> Array:
    """Turn scores into probabilities."""
    logs = log_probabilities(calibration, scores)
    return array_namespace(logs).exp(logs)


def flat_if_two_classes(scores: Array) -> Array:
    """Flatten the scores (n, 1) of two classes; those of several classes keep their columns."""
    return scores[:, 0] if scores.shape[1] == 1 else scores
