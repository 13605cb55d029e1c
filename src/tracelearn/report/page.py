"""The page of one model: sentences and tables as HTML, numbers for the drawings as JSON with a small script."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from typing import Any

import numpy as np

from tracelearn.plotting.canvas import COLOURS
from tracelearn.report.drawings import image_modes, numbers, selector
from tracelearn.report.model import ModelFacts, changed_parameters
from tracelearn.report.pages import document, fill, power, read_text, table
from tracelearn.report.scores import Confusion, Folds, Residuals, in_words
from tracelearn.search.paths import rising_end

__all__ = ["Evaluation", "render"]

_SHOWN_CLASSES = 12  # in a sentence
_MOST_CLASSES = 25  # in a table of confusions
_LIBRARIES = ("tracelearn", "numpy", "scipy", "scikit-learn")
_ORDINALS = {2: "nd", 3: "rd"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions and the truth, and words for the samples; folds where each was predicted without its own fold."""

    result: Confusion | Residuals
    samples: str
    folds: Folds | None = None


# --- words ------------------------------------------------------------------------------------------------------------

# What a view computes from a sample, by its label; all others are of second order.
_COMPUTED = {
    "raw": "the entries",
    "whitened": "the whitened entries",
    "whitened fully": "the fully whitened entries",
    "whitened channels": "the entries with whitened channels",
    "log": "the logarithms of the entries",
    "convolutions": "the shares of time in which channels follow short waveforms",
    "few convolutions": "the shares of time in which channels follow short waveforms",
    "convolutions of mean": "the shares of time in which the mean of all channels follows short waveforms",
    "few convolutions of mean": "the shares of time in which the mean of all channels follows short waveforms",
    "similarities": "the similarity to training samples",
    "similarities, standardized": "the similarity to training samples, with entries of one variance",
    "similarities, second order": "the similarity of covariances to those of training samples",
}


def _times(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


def _listed(names: Sequence[str], most: int = _SHOWN_CLASSES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return escape(", ".join(names[:most]) + more)


def _words(named: Any) -> str:
    """Write a loss or a penalty, which may be a name or an object."""
    return escape(in_words(named))


def _signed(value: float) -> str:
    """Write a score with three digits."""
    return f"{value:.3f}".replace("-", "−")


def _rounded(mean: float, error: float) -> tuple[str, str]:
    """Write a mean with as many digits as two digits of its standard error say something about."""
    digits = 4 if not 0.0 < error < math.inf else min(max(1 - math.floor(math.log10(error)), 0), 8)
    return f"{mean:.{digits}f}".replace("-", "−"), f"{error:.{digits}f}"


def _title(facts: ModelFacts) -> str:
    if facts.classes is not None:
        return f"A linear classifier for {len(facts.classes)} classes"
    return f"A linear model of {'a number' if len(facts.targets) == 1 else f'{len(facts.targets)} numbers'}"


def _lead(facts: ModelFacts) -> str:
    """Say in one sentence what the model does, and in another how simple it is."""
    shape, count, classes = facts.last.sample_shape_, len(facts.targets), facts.classes
    size = f"{_times(shape)} = {int(np.prod(shape)):,}" if len(shape) > 1 else f"{shape[0]:,}"
    named = escape(" × ".join(mode.name for mode in facts.modes))
    weighted = f"a weighted sum of the {size} entries of a sample ({named}), plus a constant"
    views = [one.label for one in facts.views if one.found]
    if not all(view == "raw" or view.startswith("whitened") for view in views) or facts.is_apart:
        found = " and ".join(escape(_COMPUTED.get(view, f"the covariances of channels ({view})")) for view in views)
        weighted = f"a weighted sum of {found}, of a sample of {_times(shape)} ({named}), plus a constant"
    if classes is None:
        does = f"predicts {'a number' if count == 1 else f'{count} numbers, each'} as {weighted}"
    elif facts.target_kind == "step":
        does = (
            f"goes down a tree of {count} decisions between groups of the {len(classes)} classes {_listed(classes)}; "
        )
        does += f"each decision is {weighted}"
    elif count == 1:
        first, second = map(escape, classes)
        does = f"separates {second} from {first} by {weighted}: above zero it predicts {second}, below zero {first}"
    else:
        does = f"gives each of {len(classes)} classes ({_listed(classes)}) a score, {weighted}, and predicts the class with the "
        does += "highest"
    if facts.is_zero:
        return f"The model {does}. All its weights are zero: it ignores the samples, and always predicts the same."
    parts = [f"{one.carrying} of {len(one.mode.values):,} in {escape(one.mode.name)}" for one in facts.components]
    counts = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    verb = "carries" if len(parts) == 1 and facts.components[0].carrying == 1 else "carry"
    return f"The model {does}. Its weights are sums of components: {counts} {verb} 99 %."


def _strength(model: Any) -> float:
    """Find the alpha of a model, the largest over targets; older files say only what was asked for."""
    return float(np.max(model.alpha_ if hasattr(model, "alpha_") else model.alpha, initial=0.0))


def _tiles(facts: ModelFacts, evaluation: Evaluation | None) -> list[dict[str, str]]:
    counts = " · ".join(str(one.carrying) for one in facts.components)
    ranks = " · ".join(one.span.replace(" to ", "–") for one in facts.components)
    sizes = _times([len(one.mode.values) for one in facts.components])
    alpha = facts.chosen.alpha if facts.chosen else _strength(facts.last)
    by = ("chosen by cross-validation" if alpha else "ridge alone scored better") if facts.chosen else "as given"
    by = "by default, from the samples" if not facts.chosen and getattr(facts.last, "alpha", None) == "auto" else by
    tiles = (
        _headline(facts, evaluation),
        ("components that carry 99 %, in each mode", counts or "0", f"of {sizes or '0'}; ranks {ranks or '0'}"),
        ("duality gap", power(facts.last.dual_gap_), "proven distance from the optimum"),
        ("alpha, strength of the penalty", f"{alpha:.3g}", by),
    )
    return [dict(zip(("name", "value", "note"), tile, strict=True)) for tile in tiles]


# --- how well it does, and how sure that is -------------------------------------------------------------------------


def _range(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f"{_signed(interval[0])} to {_signed(interval[1])}"


def _headline(facts: ModelFacts, evaluation: Evaluation | None) -> tuple[str, str, str]:
    """Choose the score that says most: its name, its value, and how sure it is."""
    if evaluation is not None:
        return _measured(evaluation)
    chosen = facts.chosen
    if chosen is None:
        return "score", "unknown", "no data were given"
    value, error = _rounded(chosen.score, chosen.error)
    return f"{escape(chosen.quantity)}, {chosen.n_folds} folds", value, f"± {error}"


def _measured(evaluation: Evaluation) -> tuple[str, str, str]:
    result, folds = evaluation.result, evaluation.folds
    name, value, guess, baseline = result.headline
    if folds is not None:
        sure = f"± {folds.standard_error:.3f}; {guess} alone {_signed(folds.baseline)}"
        return f"{name} on {folds.count} held-out folds", _signed(folds.mean), sure
    interval = f"95% interval {_range(result.interval)}; " if result.interval else ""
    return f"{name} on {result.total:,} samples", _signed(value), f"{interval}{guess} alone {_signed(baseline)}"


def _score(facts: ModelFacts, evaluation: Evaluation | None) -> dict[str, Any]:
    """Gather what the page says of the score, and what is not known of it."""
    chosen = facts.chosen
    values: dict[str, Any] = {}
    if chosen is not None and (evaluation is None or evaluation.folds is None):  # on folds it is the same score
        mean, error = _rounded(chosen.score, chosen.error)
        values = {"quantity": escape(chosen.quantity), "cv_mean": mean, "cv_error": error}
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
        "<figcaption>Counts, and the share of each row: how the samples of one class were classified. Framed cells are correct."
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


# --- what it is, and what it has learned ------------------------------------------------------------------------------


def _what(facts: ModelFacts) -> str:
    last = facts.last
    # What was chosen ends with an underscore; what was given has the name of its parameter.
    loss, ridge, weights, scaling = (
        getattr(last, f"{name}_", getattr(last, name, None)) for name in ("loss", "ridge", "mode_weights", "scaling")
    )
    modes = (
        "equal mode weights" if weights is None else f"mode weights {', '.join(f'{w:g}' for w in np.ravel(weights))}"
    )
    modes += "" if scaling is None else ", samples divided by a scale for each mode"
    named = f"{_words(last.penalty)} trace norm" if isinstance(last.penalty, str) else _words(last.penalty)
    changed = [f"<code>{escape(name)}={escape(repr(value))}</code>" for name, value in changed_parameters(last).items()]
    return _facts(
        {
            "estimator": f"<code>{type(last).__name__}</code>",
            "before it": _listed(facts.before),
            "sample": f"{_times(last.sample_shape_)} ({escape(' × '.join(mode.label for mode in facts.modes))})",
            "classes": "" if facts.classes is None else f"{len(facts.classes)}: {_listed(facts.classes, 40)}",
            "learned from": "" if facts.n_samples is None else f"samples of total weight {facts.n_samples:,g}",
            "loss": _words("squared_error" if loss is None else loss),
            "penalty": f"{named}, alpha = {_strength(last):.4g}, ridge = {ridge:.4g}, {modes}",
            "parameters": f"{', '.join(changed)}; others as by default" if changed else "all as by default",
        }
    )


def _facts(rows: dict[str, str]) -> str:
    return table(["", ""], [[f"<b>{name}</b>", value] for name, value in rows.items() if value], "facts")


def _components(facts: ModelFacts) -> dict[str, Any]:
    most = max((len(one.factors) for one in facts.components), default=0)
    cards = [
        {
            "n": n,
            "name": escape(one.mode.name),
            "wide": " wide" if one.mode.is_wide else "",
            "carrying": one.carrying,
            "carry": "carries" if one.carrying == 1 else "carry",
            "size": len(one.mode.values),
        }
        for n, one in enumerate(facts.components)
    ]
    return {
        "n_drawn": most,
        "has_none": most == 0,
        "n_hidden": max((one.count for one in facts.components), default=0) - most,
        "cards": cards if most else [],
        "drawn": [{"k": k + 1, "shares": _shares(facts, k)} for k in range(most)],
        "share_target": selector(facts, "share-target", together=True),
        "has_targets": len(facts.targets) > 1,
        "n_targets": len(facts.targets),
        "target_kind": facts.target_kind,
    }


def _shares(facts: ModelFacts, k: int) -> str:
    """Write a cell for each mode: how much of the weights its component number k carries, where it has one."""
    shares = [f"{one.shares[0, k]:.1%}" if k < len(one.factors) else "–" for one in facts.components]
    return "".join(f'<td data-share="{n},{k}">{share}</td>' for n, share in enumerate(shares))


def _weights(facts: ModelFacts) -> dict[str, Any]:
    weights, shown, has_weights = facts.weights, image_modes(facts.weights), bool(np.any(facts.weights.coef))
    sliders = [
        {"n": n, "name": escape(mode.name), "last_entry": len(mode.values) - 1}
        for n, mode in enumerate(weights.modes)
        if n not in shown and len(mode.values) > 1
    ]
    thinned = [
        f"every {step}{_ORDINALS.get(step, 'th')} entry of {escape(mode.name)}"
        for mode, step in zip(weights.modes, weights.steps, strict=True)
        if step > 1
    ]
    scale = "One colour scale for all slices, symmetric about zero. " if len(weights.modes) > 1 else ""
    drawing = "image" if scale else "line"
    return {
        "has_weights": has_weights,
        "has_patterns": has_weights and weights.patterns is not None,
        "is_apart": facts.is_apart,
        "holds_samples": any(one.found and one.label.startswith("similarities") for one in facts.views),
        "linear_view": facts.linear_view if has_weights else "",
        "weight_target": selector(facts, "weight-target"),
        "sliders": sliders if has_weights else [],
        "thinned": "" if facts.is_zero else " and ".join(thinned),
        "slice_caption": f"{scale}Move over the {drawing}, or use the arrow keys, to read a value.",
    }


def _views(facts: ModelFacts) -> str:
    """Make a table of the views that were tried, with bars of their shares."""
    bars = [
        "" if one.share is None else f'<meter value="{one.share:.3f}">{one.share:.2f}</meter>&nbsp;{one.share:.2f}'
        for one in facts.views
    ]
    rows = [
        [escape(one.label), bar, escape(one.found or "left out")] for one, bar in zip(facts.views, bars, strict=True)
    ]
    return table(["view", "share", "what was found"], rows, "views") if rows else ""


def _path(facts: ModelFacts) -> dict[str, Any]:
    chosen = facts.chosen
    if chosen is None:
        return {}
    has_path = chosen.alphas[0] != chosen.alphas[-1]  # ridge regression alone has alphas of 0
    return {
        "chosen": chosen,
        "has_path": has_path,
        "without_path": not has_path,
        "n_alphas": len(chosen.alphas),
        "ranks": ", ".join(one.span for one in facts.components),
        "has_candidates": chosen.n_candidates > 1,
        "edge": rising_end(chosen.mean, chosen.chosen) if has_path else "",
    }


def _proof(facts: ModelFacts) -> dict[str, Any]:
    reached = facts.last.dual_gap_ <= facts.last.tol
    return {
        "last": facts.last,
        "has_objective": hasattr(facts.last, "objective_"),
        "reached": "within" if reached else "more than",
        "stopped": "" if reached else ": the fit stopped early",
        "has_curve": len(facts.convergence) > 1,
        "which": " of the decision that was hardest to find" if facts.target_kind == "step" else "",
    }


def _again(
    facts: ModelFacts,
    file: str | None = None,
    sha256: str | None = None,
    written_by: str | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    steps = [step for _, step in facts.model.steps] if hasattr(facts.model, "steps") else [facts.model]
    names = sorted({type(one).__name__ for one in steps} | ({"load"} if file else set()))
    shape = ", ".join(map(str, facts.last.sample_shape_))
    lines = [
        "from sklearn.pipeline import Pipeline\n" if hasattr(facts.model, "steps") else "",
        f"from tracelearn import {', '.join(names)}\n\n",
        f"model = load({file!r})  # this very model\n" if file else "",
        f"again = {facts.model.__repr__(N_CHAR_MAX=10**6)}\nagain.fit(X, y)  # X of shape (n, {shape})",
    ]
    libraries = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    rows = {
        "versions": escape(", ".join([*libraries, f"Python {platform.python_version()}"])),
        "model file": f"written by tracelearn {escape(written_by)}" if written_by else "",
        "SHA-256 of the file": f'<code class="hash">{sha256}</code>' if sha256 else "",
    }
    return {
        "file": escape(file or ""),
        "command": "" if command is None else f"<pre><code>{escape(command)}</code></pre>",
        "code": escape("".join(lines)),
        "versions": _facts(rows),
    }


# --- the whole --------------------------------------------------------------------------------------------------------


def render(facts: ModelFacts, evaluation: Evaluation | None = None, **origin: str) -> str:
    """Make the page of a model; ``origin`` is its file, the file's sha256 and who wrote it, and the command that was run."""
    values = {
        "title": _title(facts),
        "lead": _lead(facts),
        "tiles": _tiles(facts, evaluation),
        "what": _what(facts),
        "before": _listed(facts.before),
        **_score(facts, evaluation),
        "views": _views(facts),
        **_components(facts),
        **_weights(facts),
        **_path(facts),
        **_proof(facts),
        **_again(facts, **origin),
    }
    # Darker by day and lighter by night than they are printed, so that thin lines stay visible on either ground.
    colours = "".join(
        f"--c{k}: light-dark(color-mix(in oklab, {colour}, black 14%), color-mix(in oklab, {colour}, white 30%));"
        for k, colour in enumerate(COLOURS, start=1)
    )
    html, css, js = (read_text("tracelearn.report", f"page.{kind}") for kind in ("html", "css", "js"))
    data = numbers(facts, None if evaluation is None else evaluation.result)
    return document(
        _title(facts), fill(html, values, power=power, signed=_signed), f":root {{{colours}}}{css}", js, data
    )
