"""The page of one model: sentences and tables as HTML, numbers for the drawings as JSON beside a small script."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import metadata
from typing import Any

import numpy as np

from tracelearn.plotting.canvas import COLOURS
from tracelearn.report import quality
from tracelearn.report.drawings import image_modes, numbers, selector
from tracelearn.report.model import ModelFacts, Weights, changed_parameters, spans
from tracelearn.report.pages import document, read_text, table
from tracelearn.report.quality import Evaluation

__all__ = ["Evaluation", "Origin", "render"]

_SHOWN_CLASSES = 12  # in a sentence
_KINDS = (
    '<div class="buttons" role="group" aria-label="What is shown">'
    '<button type="button" data-kind="coef" aria-pressed="true">weights</button>'
    '<button type="button" data-kind="patterns" aria-pressed="false">patterns</button></div>'
)
_LIBRARIES = ("tracelearn", "numpy", "scipy", "scikit-learn")


@dataclass(frozen=True)
class Origin:
    """Where the model and the page come from, as far as that is known."""

    file: str | None = None
    sha256: str | None = None
    written_by: str | None = None
    commands: tuple[str, ...] = ()


# --- words ------------------------------------------------------------------------------------------------------------


def _power(value: float) -> str:
    """Write a small number with a power of ten."""
    if value == 0.0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return raised if digits == "1.0" else f"{digits.removesuffix('.0')} × {raised}"


def _times(sizes: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in sizes)


def _listed(names: Sequence[str], most: int = _SHOWN_CLASSES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return escape(", ".join(names[:most]) + more)


def _sum_of(facts: ModelFacts) -> str:
    shape = facts.last.sample_shape_
    named = escape(" × ".join(mode.name for mode in facts.modes))
    size = f"the {_times(shape)} = {int(np.prod(shape)):,}" if len(shape) > 1 else f"the {shape[0]:,}"
    return f"a weighted sum of {size} entries of a sample ({named}), plus a constant"


def _title(facts: ModelFacts) -> str:
    if facts.classes is None:
        return (
            "A linear model of a number"
            if len(facts.targets) == 1
            else f"A linear model of {len(facts.targets)} numbers"
        )
    return f"A linear classifier for {len(facts.classes)} classes"


def _lead(facts: ModelFacts) -> str:
    """Say in one sentence what the model does."""
    weighted, classes = _sum_of(facts), facts.classes
    if classes is None:
        what = "a number" if len(facts.targets) == 1 else f"{len(facts.targets)} numbers, each"
        told = f"The model predicts {what} as {weighted}"
    elif facts.target_kind == "step":
        told = (
            f"The model goes down a tree of {len(facts.targets)} decisions between groups of the {len(classes)} classes "
            f"{_listed(classes)}; each decision is {weighted}"
        )
    elif len(facts.targets) == 1:
        first, second = escape(classes[0]), escape(classes[1])
        told = f"The model tells {second} from {first} by {weighted}: above zero it says {second}, below zero {first}"
    else:
        told = (
            f"The model gives each of {len(classes)} classes ({_listed(classes)}) a score, {weighted}, and predicts the "
            "class with the highest"
        )
    return f"{told}. {_low_rank(facts)}"


def _low_rank(facts: ModelFacts) -> str:
    if facts.is_zero:
        return "All its weights are zero: it ignores the samples, and always predicts the same."
    parts = [f"{_span(one.ranks)} of {len(one.mode.values):,} in {escape(one.mode.name)}" for one in facts.components]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"The rank of its weights, the number of patterns they are built from, is {listed}."


def _span(ranks: list[int]) -> str:
    return spans([[rank] for rank in ranks])


# --- sections ---------------------------------------------------------------------------------------------------------


def _tiles(facts: ModelFacts, evaluation: Evaluation | None) -> str:
    name, value, more = quality.headline(facts, evaluation)
    tiles = [(name, value, more)]
    ranks = [_span(one.ranks).replace(" to ", "–") for one in facts.components]
    sizes = _times([len(one.mode.values) for one in facts.components])
    tiles.append(("rank of the weights in each mode", " · ".join(ranks) or "0", f"of {sizes or '0'}"))
    certificate = facts.certificate
    tiles.append(("duality gap", _power(certificate.gap), "proven distance from the optimum"))
    alpha = facts.chosen.alpha if facts.chosen else float(facts.last.alpha)
    by = f"chosen among {len(facts.chosen.alphas)} by cross-validation" if facts.chosen else "as given"
    tiles.append(("alpha, strength of the penalty", f"{alpha:.3g}", by))
    cells = "".join(f"<div><dt>{a}</dt><dd><b>{b}</b><span>{c}</span></dd></div>" for a, b, c in tiles)
    return f'<dl class="tiles">{cells}</dl>'


def _what(facts: ModelFacts) -> str:
    last = facts.last
    rows = [
        ("estimator", f"<code>{type(last).__name__}</code>"),
        ("before it", _listed(facts.before)),
        ("sample", f"{_times(last.sample_shape_)} ({escape(' × '.join(mode.label for mode in facts.modes))})"),
        ("classes", "" if facts.classes is None else f"{len(facts.classes)}: {_listed(facts.classes, 40)}"),
        ("learned from", "" if facts.n_samples is None else f"samples of total weight {facts.n_samples:,g}"),
        ("loss", escape(str(getattr(last, "loss_" if facts.chosen else "loss", "squared")).replace("_", " "))),
        ("penalty", f"{escape(last.penalty.replace('_', ' '))} trace norm, {_strengths(facts)}"),
        ("parameters", _parameters(last)),
    ]
    cells = [[f"<b>{name}</b>", value] for name, value in rows if value]
    note = ""
    if facts.before:
        note = (
            '<p class="note">The weights below are those of the samples as they leave the steps before the model: '
            f"{_listed(facts.before)}.</p>"
        )
    return "<h2>What it is</h2>" + table(["", ""], cells, "facts") + note


def _strengths(facts: ModelFacts) -> str:
    last = facts.last
    alpha, ridge, weights, scaling = (
        getattr(last, f"{name}_" if facts.chosen else name, None)
        for name in ("alpha", "ridge", "mode_weights", "scaling")
    )
    told = "equal mode weights" if weights is None else f"mode weights {', '.join(f'{w:g}' for w in np.ravel(weights))}"
    told += "" if scaling is None else ", samples divided by a scale for each mode"
    return f"alpha = {alpha:.4g}, ridge = {ridge:.4g}, {told}"


def _parameters(model: Any) -> str:
    changed = changed_parameters(model)
    told = ", ".join(f"<code>{escape(name)}={escape(repr(value))}</code>" for name, value in changed.items())
    return f"{told}; others as by default" if told else "all as by default"


def _components(facts: ModelFacts) -> str:
    most = max((len(one.factors) for one in facts.components), default=0)
    if most == 0:
        return "<h2>Mode by mode</h2><p>All weights are zero: there are no components to show.</p>"
    buttons = '<button type="button" data-pick="0" aria-pressed="true">all</button>' + "".join(
        f'<button type="button" data-pick="{k}" data-component="{k}" aria-pressed="false">{k}</button>'
        for k in range(1, most + 1)
    )
    cards = "".join(
        f'<figure class="mode"><h3>{escape(one.mode.name)}<span>rank {_span(one.ranks)} of {len(one.mode.values):,}</span></h3>'
        f'<div class="chart factors" data-mode="{n}" role="img" aria-label="Factors of {escape(one.mode.name)}"></div>'
        f'<div class="chart values" data-mode="{n}" role="img" aria-label="Singular values of {escape(one.mode.name)}"></div>'
        "</figure>"
        for n, one in enumerate(facts.components)
    )
    return (
        "<h2>Mode by mode</h2><p>Unfolded along a mode, the weights are a matrix; its left singular vectors, the factors, are "
        "drawn over the entries of the mode, and its singular values say how much each matters. Choose a component to see it "
        "everywhere. Components are numbered by size in each mode by itself: the second of one mode need not belong to the "
        "second of another. The sign of a factor says nothing; its largest entry is positive.</p>"
        f'<div class="controls"><div class="buttons" role="group" aria-label="Component">{buttons}</div>'
        f'{selector(facts, "share-target", together=True)}</div><div class="grid modes">{cards}</div>{_shares(facts, most)}'
    )


def _shares(facts: ModelFacts, most: int) -> str:
    head = "".join(f'<th scope="col">{escape(one.mode.name)}</th>' for one in facts.components)
    rows = ""
    for k in range(most):
        cells = "".join(
            f'<td data-share="{n},{k}">{f"{one.shares[0, k]:.1%}" if k < len(one.factors) else "–"}</td>'
            for n, one in enumerate(facts.components)
        )
        rows += (
            f'<tr data-component="{k + 1}"><th scope="row"><button type="button" data-pick="{k + 1}" aria-pressed="false">'
            f"component {k + 1}</button></th>{cells}</tr>"
        )
    hidden = max(one.count for one in facts.components) - most
    more = f" The {hidden} smallest components are not drawn." if hidden > 0 else ""
    joint = (
        f" Factors are those of all {len(facts.targets)} {facts.target_kind} weights side by side; the list above shows the "
        "shares of one."
        if len(facts.targets) > 1
        else ""
    )
    return (
        f'<figure><div class="scroll"><table class="numbers shares"><thead><tr><th scope="col">share of the weights</th>{head}'
        f"</tr></thead><tbody>{rows}</tbody></table></div><figcaption>Shares of the squared norm of the weights that lie along "
        f"each factor.{joint}{more}</figcaption></figure>"
    )


def _weights(facts: ModelFacts) -> str:
    weights = facts.weights
    if facts.is_zero or not len(weights.coef):
        return ""
    rows, columns = image_modes(weights)
    kinds = "" if weights.patterns is None else _KINDS
    sliders = "".join(
        f'<label class="slide">{escape(mode.name)} <input type="range" min="0" max="{len(mode.values) - 1}" value="0" '
        f'data-mode="{n}"><output></output></label>'
        for n, mode in enumerate(weights.modes)
        if n not in (rows, columns) and len(mode.values) > 1
    )
    thin = [
        f"every {step}{'nd' if step == 2 else 'rd' if step == 3 else 'th'} entry of {escape(mode.name)}"
        for mode, step in zip(weights.modes, weights.steps, strict=True)
        if step > 1
    ]
    cut = f" To keep the page small, it shows only {' and '.join(thin)}; the model has all." if thin else ""
    return (
        "<h2>Weights and patterns</h2><p>Weights say how the model reads a sample. They also cancel noise, so a large weight "
        "need not mean that the signal is there. Patterns (Haufe et al., 2014: the covariance of the samples times the weights) "
        f"say how a sample changes with what the model reads: look at them to ask where the signal is.{cut}</p>"
        f'<div class="controls">{kinds}{selector(facts, "weight-target")}{sliders}</div>'
        '<figure><div class="chart" id="slice" tabindex="0" role="group" aria-label="Slice of the weights; arrow keys move over '
        'its entries"></div><output id="reading" aria-live="polite"></output><figcaption>'
        f"{_slice_caption(weights)}</figcaption></figure>"
    )


def _slice_caption(weights: Weights) -> str:
    if len(weights.modes) == 1:
        return "Move over the line, or use the arrow keys, to read a value."
    return (
        "One colour scale for all slices, symmetric about zero. Move over the image, or use the arrow keys, to read "
        "a value."
    )


def _path(facts: ModelFacts) -> str:
    chosen = facts.chosen
    if chosen is None:
        return ""
    more = ""
    if chosen.n_candidates > 1:
        more = (
            f" Beside alpha, {chosen.n_candidates} combinations of mode weights, ridge, class mode and loss were tried; this is "
            "the curve of the one that was chosen."
        )
    edge = ""
    if chosen.at in (0, len(chosen.alphas) - 1) and len(chosen.alphas) > 1:
        end = "largest" if chosen.at == 0 else "smallest"
        edge = f'<p class="note">The {end} alpha that was tried won: a wider range may hold a better one.</p>'
    return (
        "<h2>The choice of alpha</h2><p>A larger alpha makes the weights simpler. Cross-validation tried "
        f"{len(chosen.alphas)} of them on {chosen.n_folds} folds and took {chosen.alpha:.4g}, where the ranks are "
        f"{', '.join(_span(one.ranks) for one in facts.components)}.{more}</p>{edge}"
        '<figure><div class="chart" id="path" role="img" aria-label="Held-out score against alpha"></div><figcaption>Mean over '
        "folds with a band of one standard error. The dashed line is the chosen alpha.</figcaption></figure>"
    )


def _proof(facts: ModelFacts) -> str:
    proof = facts.certificate
    reached = (
        f"That is within the tolerance of {_power(proof.tol)} that was asked for."
        if proof.gap <= proof.tol
        else f"That is more than the tolerance of {_power(proof.tol)} that was asked for: the fit stopped early."
    )
    value = "" if proof.objective is None else f" (here {proof.objective:.6g})"
    drawn = ""
    if len(proof.convergence) > 1:
        which = " of the decision that was hardest to find" if facts.target_kind == "step" else ""
        drawn = (
            '<figure><div class="chart" id="convergence" role="img" aria-label="Duality gap against iterations"></div>'
            f"<figcaption>The gap{which} at every check on the way. The dashed line is the tolerance.</figcaption></figure>"
        )
    return (
        f"<h2>The certificate</h2><p>The relative duality gap is <b>{_power(proof.gap)}</b> after {proof.n_iter:,} iterations. "
        f"It means: no other weights make the training objective{value} smaller by more than this share of its value at zero "
        f"weights. This is proven, not estimated; it says that the problem is solved, not that the model predicts well. "
        f"{reached}</p>{drawn}"
    )


def _again(facts: ModelFacts, origin: Origin) -> str:
    used = [facts.model] if not hasattr(facts.model, "steps") else [step for _, step in facts.model.steps]
    names = sorted({type(one).__name__ for one in used} | ({"load"} if origin.file else set()))
    code = "" if used == [facts.model] else "from sklearn.pipeline import Pipeline\n"
    code += f"from tracelearn import {', '.join(names)}\n\n"
    if origin.file:
        code += f"model = load({origin.file!r})  # this very model\n"
    shape = ", ".join(map(str, facts.last.sample_shape_))
    code += f"again = {facts.model.__repr__(N_CHAR_MAX=10**6)}\nagain.fit(X, y)  # X of shape (n, {shape})"
    rows = [["<b>versions</b>", escape(_versions())]]
    if origin.written_by:
        rows.append(["<b>model file</b>", f"written by tracelearn {escape(origin.written_by)}"])
    if origin.sha256:
        rows.append(["<b>SHA-256 of the file</b>", f'<code class="hash">{origin.sha256}</code>'])
    commands = "".join(f"<pre><code>{escape(command)}</code></pre>" for command in origin.commands)
    limits = (
        "Fitting involves no chance: the same samples give the same model, to the tolerance. They are not in the file"
    )
    limits += "; nor are folds or groups, where such were given to fit." if facts.chosen else "."
    code = f"<pre><code>{escape(code)}</code></pre>"
    return f"<h2>Do it again</h2>{commands}{code}<p>{limits}</p>" + table(["", ""], rows, "facts")


def _versions() -> str:
    libraries = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    return ", ".join([*libraries, f"Python {platform.python_version()}"])


# --- the whole --------------------------------------------------------------------------------------------------------


def _style() -> str:
    # Darker by day and lighter by night than they are printed, so that thin lines stay visible on either ground.
    colours = "".join(
        f"--c{k}: light-dark(color-mix(in oklab, {colour}, black 14%), color-mix(in oklab, {colour}, white 30%));"
        for k, colour in enumerate(COLOURS, start=1)
    )
    return f":root {{{colours}}}" + read_text("tracelearn.report", "page.css")


def render(facts: ModelFacts, evaluation: Evaluation | None = None, origin: Origin | None = None) -> str:
    """Make the page of a model."""
    origin = Origin() if origin is None else origin
    sections = {
        "what": _what(facts),
        "score": quality.section(facts, evaluation),
        "components": _components(facts),
        "weights": _weights(facts),
        "path": _path(facts),
        "certificate": _proof(facts),
        "again": _again(facts, origin),
    }
    body = "".join(f'<section id="on-{name}">{html}</section>' for name, html in sections.items() if html)
    links = "".join(f'<a href="#on-{name}">{name}</a>' for name, html in sections.items() if html and name != "what")
    links = links.replace(">again<", ">do it again<")
    kicker = "tracelearn inspect" + (f" · {escape(origin.file)}" if origin.file else "")
    top = (
        f'<header><p class="kicker">{kicker}</p><button type="button" id="theme" hidden>dark</button></header>'
        f'<h1>{_title(facts)}</h1><p class="lead">{_lead(facts)}</p>{_tiles(facts, evaluation)}<nav aria-label="Sections">'
        f"{links}</nav><noscript><p class='note'>The drawings of this page need JavaScript; its text does not.</p></noscript>"
    )
    data = numbers(facts, None if evaluation is None else evaluation.result)
    return document(_title(facts), top + body, _style(), read_text("tracelearn.report", "page.js"), data)
