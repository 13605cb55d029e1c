"""What a page says of how well a model does, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np

from tracelearn.report.drawings import selector
from tracelearn.report.model import ModelFacts
from tracelearn.report.pages import table
from tracelearn.report.scores import Confusion, Folds, Residuals

__all__ = ["Evaluation", "headline", "section"]

_MOST_CLASSES = 25  # in a table of confusions


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions beside the truth, and words for the samples; folds where each was predicted without its own fold."""

    result: Confusion | Residuals
    samples: str
    folds: Folds | None = None


def _signed(value: float) -> str:
    return f"{value:.3f}".replace("-", "−")


def _rounded(mean: float, error: float) -> tuple[str, str]:
    """Write a mean with as many digits as two digits of its standard error say something about."""
    digits = 4 if error <= 0.0 else min(max(1 - math.floor(math.log10(error)), 0), 8)
    return f"{mean:.{digits}f}".replace("-", "−"), f"{error:.{digits}f}"


def _range(interval: tuple[float, float]) -> str:
    return f"{_signed(interval[0])} to {_signed(interval[1])}"


def headline(facts: ModelFacts, evaluation: Evaluation | None) -> tuple[str, str, str]:
    """Choose the score that says most: its name, its value, and how sure it is."""
    if evaluation is not None:
        return _measured(evaluation)
    chosen = facts.chosen
    if chosen is None:
        return "score", "unknown", "no data were given"
    if chosen.explains is not None:
        assert chosen.baseline is not None
        sure = f"± {chosen.standard_error[chosen.at] / chosen.baseline:.3f}; mean alone 0"
        return f"R² on {chosen.n_folds} held-out folds", _signed(chosen.explains), sure
    value, error = _rounded(chosen.mean[chosen.at], chosen.standard_error[chosen.at])
    told = f"± {error}"
    told += "" if chosen.baseline is None else f"; zero weights {chosen.baseline:.3g}"
    return escape(chosen.quantity), value, told


def _measured(evaluation: Evaluation) -> tuple[str, str, str]:
    result, folds = evaluation.result, evaluation.folds
    if isinstance(result, Confusion):
        name, value, other = "accuracy", result.accuracy, f"majority alone {result.majority:.3f}"
    else:
        name, value, other = "R²", result.r2, "mean alone 0"
    if folds is not None:
        sure = f"± {folds.standard_error:.3f}; {other}"
        return f"{name} on {folds.count} held-out folds", _signed(folds.mean), sure
    sure = "" if result.interval is None else f"95% interval {_range(result.interval)}; "
    return f"{name} on {result.total:,} samples", _signed(value), sure + other


def section(facts: ModelFacts, evaluation: Evaluation | None) -> str:
    """Say what is known of the score, and what is not."""
    parts = ["<h2>How well it does, and how sure that is</h2>"]
    if evaluation is not None:
        parts.append(_evaluated(facts, evaluation))
    if facts.chosen is not None:
        parts.append(_cross_validated(facts, alone=evaluation is None))
    elif evaluation is None:
        parts.append(
            '<p class="note">Nothing is known of the score: the model has no cross-validation, and no data were given. '
            "Samples that it has not seen would tell: <code>--data FILE</code>.</p>"
        )
    return "".join(parts)


def _evaluated(facts: ModelFacts, evaluation: Evaluation) -> str:
    result, samples = evaluation.result, escape(evaluation.samples)
    if isinstance(result, Confusion):
        told = (
            f"Of {samples}, the model calls <b>{result.accuracy:.1%}</b> what they are; with 95% confidence "
            f"{result.interval[0]:.1%} to {result.interval[1]:.1%} (Wilson), if the samples are independent of each other. "
            f"Always saying the most frequent class gets {result.majority:.1%}."
        )
        drawn = _confusion(result)
    else:
        sure = "" if result.interval is None else f", with 95% confidence {_range(result.interval)}"
        told = (
            f"On {samples}, the model explains <b>R² = {_signed(result.r2)}</b> of the variance{sure}, if the samples "
            f"are independent of each other; always predicting their mean explains 0. The root mean square "
            f"of the residuals is {', '.join(f'{value:.3g}' for value in result.rmse)}."
        )
        drawn = _residuals(facts, result)
    return f"<p>{told}</p>{_caution(evaluation.folds)}{drawn}"


def _caution(folds: Folds | None) -> str:
    if folds is None:
        return (
            '<p class="note">Whether the model learned from these very samples is not known to this page; if it did, the '
            "score is too good. Epochs of one subject or session resemble each other, and make the interval too narrow.</p>"
        )
    told = (
        f"Each sample was predicted by a model that was fitted without its fold. The mean over {folds.count} folds is "
        f"{_signed(folds.mean)} ± {folds.standard_error:.3f} (standard error)."
    )
    if folds.is_optimistic:
        told += " Alpha and what goes with it were chosen on the same folds, so this is slightly optimistic."
    return f'<p class="note">{told}</p>'


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
    rows = []
    for i, j in zip(*np.unravel_index(order, wrong.shape), strict=True):
        if wrong[i, j]:
            labels = escape(result.labels[i]), escape(result.labels[j])
            rows.append([*labels, f"{wrong[i, j]:,}", f"{result.shares[i, j]:.0%}"])
    return (
        f"<p>The {len(rows)} most frequent confusions; the whole table of {len(result.labels)} classes would be too large for a "
        "page.</p>" + table(["true", "predicted", "samples", "of the true class"], rows, "numbers")
    )


def _residuals(facts: ModelFacts, result: Residuals) -> str:
    shown = len(result.points()[0])
    part = "" if shown == result.total else f" {shown:,} of {result.total:,} samples, at equal distances."
    choice = selector(facts, "residual-target")
    controls = f'<div class="controls">{choice}</div>' if choice else ""
    return (
        f'{controls}<div class="grid"><figure><div class="chart" id="residuals" role="img" '
        'aria-label="Residuals against predictions"></div>'
        f"<figcaption>Residual (true minus predicted) against prediction.{part} A trend or a funnel here would say that a "
        'linear model is not enough.</figcaption></figure><figure><div class="chart" id="histogram" role="img" '
        'aria-label="Histogram of residuals"></div><figcaption>How often residuals of each size occur, over all samples.'
        "</figcaption></figure></div>"
    )


def _cross_validated(facts: ModelFacts, *, alone: bool) -> str:
    chosen = facts.chosen
    assert chosen is not None
    mean, error = _rounded(chosen.mean[chosen.at], chosen.standard_error[chosen.at])
    told = (
        f"Cross-validation with {chosen.n_folds} folds found a {escape(chosen.quantity)} of <b>{mean} ± {error}</b> "
        f"(standard error over folds), at the alpha that it chose"
    )
    if chosen.baseline is not None:
        told += f"; a model that ignores the samples has {chosen.baseline:.4g}"
    if chosen.explains is not None:
        told += f", so the share of variance that is explained, R², is <b>{_signed(chosen.explains)}</b>"
    told += ". Since alpha was chosen on the same folds, this is slightly optimistic."
    note = (
        '<p class="note">No data were given, so the score is that of cross-validation only. Samples that the model has not '
        "seen would tell more: <code>--data FILE</code>.</p>"
        if alone
        else ""
    )
    return f"<p>{told}</p>{note}"
