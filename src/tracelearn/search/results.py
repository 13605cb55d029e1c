"""What a search tried, as tables: in scikit-learn's form, and in words, one row for each view and path."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tracelearn.search.choice import Choice, Tried
from tracelearn.search.paths import Path
from tracelearn.search.screening import LEAST_SHARE, Trial
from tracelearn.search.views import with_alignment

__all__ = ["cv_results", "views_tried"]

# Why aligned samples were not taken.
_REFUSED = "held-out groups are predicted no better by more than chance"

_PARAMETERS = ("views", "path", "alpha", "ridge")


def cv_results(choice: Choice) -> tuple[dict[str, Any], int]:
    """Write all paths in scikit-learn's form, a row for each strength; find the row that was chosen.

    Scores are raw: the best of them is best by luck as well.
    """
    parameters: list[dict[str, Any]] = []
    chosen = -1
    for tried in choice.all_tried:
        if tried is choice.tried:
            chosen = len(parameters) + choice.point
        for alpha, ridge in zip(tried.path.alphas.tolist(), tried.path.ridges.tolist(), strict=True):
            parameters.append({"views": str(tried.blend), "path": tried.path.kind, "alpha": alpha, "ridge": ridge})
    scores = np.concatenate([tried.path.scores for tried in choice.all_tried])
    means = np.concatenate([tried.path.means for tried in choice.all_tried])
    results: dict[str, Any] = {}
    masked: Any = np.ma
    for name in _PARAMETERS:
        column = masked.MaskedArray(np.empty(len(parameters), dtype=object))
        for row, values in enumerate(parameters):
            column[row] = values[name]
        results[f"param_{name}"] = column
    results["params"] = parameters
    for fold in range(scores.shape[1]):
        results[f"split{fold}_test_score"] = scores[:, fold]
    results["mean_test_score"] = means
    results["std_test_score"] = np.nanstd(scores, axis=1)
    results["rank_test_score"] = 1 + np.sum(means[None, :] > means[:, None], axis=1).astype(np.int32)
    return results, chosen


class _Row(NamedTuple):
    """A row of ``views_tried``: a view that was screened, or a path that was walked."""

    views: str
    kind: str
    path: Path
    seconds: float
    is_taken: bool
    reason: str


def views_tried(choice: Choice, why_not_aligned: str) -> dict[str, list[Any]]:
    """List every view that was screened and every path that was walked; ``pandas.DataFrame`` makes a table of it.

    The columns are ``views``, ``path``, ``score`` and ``score_se`` on held-out samples, ``explained`` (the
    criterion: the variance explained after calibration, or minus the log-loss of logistic regression), ``seconds``, ``taken``
    and ``reason``.
    """
    rows = []
    for trial in choice.screened:
        is_taken = trial.candidate.name in choice.blend.names and trial.alignment == choice.blend.alignment
        reason = _reason_of_view(choice, trial, is_taken=is_taken)
        name = with_alignment(trial.candidate.name, trial.alignment)
        rows.append(_Row(name, "screening", trial.path, trial.seconds, is_taken, reason))
    for tried in choice.all_tried:
        is_taken = tried is choice.tried
        reason = _reason_of_path(choice, tried)
        rows.append(_Row(str(tried.blend), tried.path.kind, tried.path, tried.seconds, is_taken, reason))
    table: dict[str, list[Any]] = {
        "views": [row.views for row in rows],
        "path": [row.kind for row in rows],
        "score": [float(row.path.means[row.path.best]) for row in rows],
        "score_se": [float(row.path.errors[row.path.best]) for row in rows],
        "explained": [row.path.value for row in rows],
        "seconds": [row.seconds for row in rows],
        "taken": [row.is_taken for row in rows],
        "reason": [row.reason for row in rows],
    }
    if why_not_aligned:
        not_tried = ("aligned by group", "none", math.nan, math.nan, math.nan, 0.0, False, why_not_aligned)
        for column, value in zip(table.values(), not_tried, strict=True):
            column.append(value)
    return table


def _reason_of_view(choice: Choice, trial: Trial, *, is_taken: bool) -> str:
    """Say why a view was taken or not."""
    if trial.alignment != choice.blend.alignment:
        return "samples aligned by group are better" if not trial.alignment else _REFUSED
    share = choice.shares.get(trial.candidate.name)
    if is_taken:
        return "" if share is None else f"share {share:.2f} in the best combination"
    if share is None:
        return "similarities predict held-out samples no better"
    if share == 0.0:
        return "adds nothing to the others"
    if share <= LEAST_SHARE:
        return f"share {share:.2f} in the best combination is small"
    return "another path was better"


def _reason_of_path(choice: Choice, tried: Tried) -> str:
    """Say why a path was taken or not."""
    if tried is choice.tried:
        return "best on held-out samples"
    if tried.is_coarse:
        return "some alphas promised too little"
    if tried.blend.alignment and not choice.blend.alignment:
        return _REFUSED
    if tried.path.kind == "logistic":
        return "held-out log-loss falls by no more than chance"
    if tried.path.value > choice.path.value and choice.path.kind != "logistic":
        return "held-out log-loss falls by no more than chance"
    return "explains less on held-out samples"
