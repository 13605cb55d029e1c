"""What a page says of how well a model does, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from tracelearn.report.drawings import selector
from tracelearn.report.model import ModelFacts
from tracelearn.report.pages import table
from tracelearn.report.scores import Confusion, Folds, Residuals

__all__ = ["Evaluation", "headline", "score_values", "signed"]

_MOST_CLASSES = 25  # in a table of confusions


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions beside the truth, and words for the samples; folds where each was predicted without its own fold."""

    result: Confusion | Residuals
    samples: str
    folds: Folds | None = None


def signed(value: float) -> str:
    """Write a score with three digits."""
    return f"{value:.3f}".replace("-", "−")


def _rounded(mean: float, error: float) -> tuple[str, str]:
    """Write a mean with as many digits as two digits of its standard error say something about."""
    digits = 4 if error <= 0.0 else min(max(1 - math.floor(math.log10(error)), 0), 8)
    return f"{mean:.{digits}f}".replace("-", "−"), f"{error:.{digits}f}"


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{signed(interval[0])} to {signed(interval[1])}"


def headline(facts: ModelFacts, evaluation: Evaluation | None) -> tuple[str, str, str]:
    """Choose the score that says most: its name, its value, and how sure it is."""
    if evaluation is not None:
        return _measured(evaluation)
    chosen = facts.chosen
    if chosen is None:
        return "score", "unknown", "no data were given"
    value, error = _rounded(chosen.mean[chosen.at], chosen.standard_error[chosen.at])
    other = "" if chosen.baseline is None else f"; zero weights {chosen.baseline:.3g}"
    return f"{escape(chosen.quantity)}, {chosen.n_folds} folds", value, f"± {error}{other}"


def _measured(evaluation: Evaluation) -> tuple[str, str, str]:
    result, folds = evaluation.result, evaluation.folds
    if isinstance(result, Confusion):
        name, value, other = "accuracy", result.accuracy, f"majority alone {result.majority:.3f}"
    else:
        name, value, other = "R²", result.r2, "mean alone 0"
    if folds is not None:
        sure = f"± {folds.standard_error:.3f}; {other}"
        return f"{name} on {folds.count} held-out folds", signed(folds.mean), sure
    interval = f"95% interval {_range(result.interval)}; " if result.interval else ""
    return f"{name} on {result.total:,} samples", signed(value), interval + other


def score_values(facts: ModelFacts, evaluation: Evaluation | None) -> dict[str, Any]:
    """Gather what the page says of the score, and what is not known of it."""
    chosen = facts.chosen
    values: dict[str, Any] = {}
    if chosen is not None:
        mean, error = _rounded(chosen.mean[chosen.at], chosen.standard_error[chosen.at])
        values = {"quantity": escape(chosen.quantity), "cv_mean": mean, "cv_error": error}
        values["has_baseline"] = chosen.baseline is not None
    if evaluation is None:
        return {**values, "only_cv": chosen is not None, "is_unknown": chosen is None}
    result, folds = evaluation.result, evaluation.folds
    values |= {"result": result, "samples": escape(evaluation.samples), "folds": folds, "without_folds": folds is None}
    values["is_optimistic"] = folds is not None and folds.is_optimistic
    if isinstance(result, Confusion):
        return {**values, "confusion": _confusion(result)}
    shown = len(result.points()[0])
    return {
        **values,
        "residuals": True,
        "r2_range": _range(result.interval),
        "rmse": ", ".join(f"{value:.3g}" for value in result.rmse),
        "residual_target": selector(facts, "residual-target"),
        "n_shown": shown if shown < result.total else None,
    }


def _confusion(result: Confusion) -> str:
    if len(result.labels) > _MOST_CLASSES:
        return _frequent_confusions(result)
    head = "".join(f'<th scope="col">{escape(label)}</th>' for label in result.labels)
    rows = ""
    for i, label in enumerate(result.labels):
        cells = "".join(
            f'<td class="s{round(10 * share)}{" right" if i == j else ""}"><b>{count:,}</b><span>{share:.0%}</span></td>'
            for j, (count, share) in enumerate(zip(result.counts[i], result.shares[i], strict=True))
        )
        rows += f'<tr><th scope="row">{escape(label)}</th>{cells}</tr>'
    return (
        '<figure><div class="scroll" tabindex="0" role="group" aria-label="Confusion matrix"><table class="confusion">'
        f'<thead><tr><td></td><th colspan="{len(result.labels)}" scope="colgroup">predicted</th></tr>'
        f'<tr><th scope="col">true</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        "<figcaption>Counts, and the share of each row: how the samples of one class were called. Framed cells are right."
        "</figcaption></figure>"
    )


def _frequent_confusions(result: Confusion) -> str:
    wrong = result.counts * (1 - np.eye(len(result.labels), dtype=int))
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CLASSES]
    labels = [escape(label) for label in result.labels]
    rows = [
        [labels[i], labels[j], f"{wrong[i, j]:,}", f"{result.shares[i, j]:.0%}"]
        for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True)
        if wrong[i, j]
    ]
    return (
        f"<p>The {len(rows)} most frequent confusions; the whole table of {len(result.labels)} classes would be too large for a "
        "page.</p>" + table(["true", "predicted", "samples", "of the true class"], rows, "numbers")
    )
