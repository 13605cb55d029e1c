"""What a fitted model knows of itself, as plain arrays and words for a page."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import to_numpy
from tracelearn.arrays.tensors import Array, mode_factors
from tracelearn.estimators.weights import target_names
from tracelearn.plotting.canvas import COLOURS
from tracelearn.plotting.modes import CVCurve, as_modes, carrying, cv_curve, leading_factors, modes_of_weights
from tracelearn.plotting.views import ViewPart, parts_of_model, view_in_words, what_was_found
from tracelearn.samples.modes import Mode

__all__ = [
    "Components",
    "ModelFacts",
    "View",
    "Weights",
    "changed_parameters",
    "gather",
    "plain",
]

MOST_COMPONENTS = len(COLOURS)  # as many as have a colour of their own
MOST_NUMBERS = 400_000  # of weights and patterns together: some 2 MB of page


@dataclass(frozen=True, eq=False)
class Components:
    """One mode of the weights: singular values, leading factors, and what share of the weights each of them carries.

    ``shares`` has a first row for all targets together, then one for each target.
    """

    mode: Mode
    values: Array
    factors: Array
    shares: Array
    ranks: list[int]
    count: int  # of singular values above zero

    @property
    def carrying(self) -> int:
        """The fewest components that carry 99 % of the squared weights."""
        return carrying(self.values.astype(np.float64) ** 2)

    @property
    def span(self) -> str:
        """The ranks in words, from the lowest to the highest."""
        low, high = min(self.ranks), max(self.ranks)
        return str(low) if low == high else f"{low} to {high}"


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights and patterns of each target, of shape (K, I1, ..., IN), every ``steps[n]``-th entry of mode n."""

    coef: Array
    patterns: Array | None
    modes: list[Mode]
    steps: tuple[int, ...]

    @classmethod
    def thinned(cls, coef: Array, patterns: Array | None, modes: list[Mode], most: int) -> Weights:
        """Leave out entries of the longest modes until few enough numbers are left."""
        steps, copies = [1] * len(modes), 1 if patterns is None else 2

        def lengths() -> list[int]:
            return [-(-size // step) for size, step in zip(coef.shape[1:], steps, strict=True)]

        while copies * len(coef) * int(np.prod(lengths())) > most and max(lengths()) > 1:
            steps[int(np.argmax(lengths()))] += 1
        cut = (slice(None), *(slice(None, None, step) for step in steps))
        kept = [mode.every(step) for mode, step in zip(modes, steps, strict=True)]
        return cls(coef[cut], None if patterns is None else patterns[cut], kept, tuple(steps))


@dataclass(frozen=True, eq=False)
class View:
    """One view that was tried: its share in held-out scores, if known, and what was found in it, if the model has it."""

    label: str
    share: float | None
    found: str


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """All that a page tells of a model by itself."""

    model: Any  # as it was given
    last: Any  # what predicts: the model, or the last step of a pipeline
    before: list[str]  # names of the steps before
    modes: list[Mode]
    target_kind: str
    targets: list[str]  # those that have weights
    classes: list[str] | None
    components: list[Components]
    weights: Weights
    convergence: Array  # iterations and gaps, of a tree of classes those of the decision that was hardest to find
    chosen: CVCurve | None
    n_samples: float | None
    views: list[View]  # where there is more to say than that samples are seen as they are
    is_apart: bool  # whether weights are those of views, not of the entries of a sample
    linear_view: str  # the view whose weights are then shown

    @property
    def is_zero(self) -> bool:
        """Whether the samples are ignored."""
        return not np.any(self.last.coef_)

    @property
    def ranks(self) -> Array:
        """The ranks in each mode, a row for each target or step of a tree of classes; of views the lowest and the highest."""
        if self.is_apart:
            return np.array([[one.ranks[at] for one in self.components] for at in (0, -1)])
        return _ranks(self.last)

    def for_table(self) -> dict[str, Any]:
        """Gather what a command prints of the weights."""
        views = [{"view": one.label, "share": one.share, "found": one.found} for one in self.views]
        found = {"views": views, "weights_of": "views" if self.is_apart else "samples"}
        counts = [one.carrying for one in self.components]
        return {**found, "mode_names": self.names_of_weights, "components": counts, "mode_ranks": plain(self.ranks)}

    @property
    def names_of_weights(self) -> list[str]:
        """The modes of the weights in the order of ``mode_ranks_``: where classes are a mode, it is the first."""
        return [one.mode.name for one in self.components]


def plain(value: Any) -> Any:
    """Make of a value what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def changed_parameters(model: Any) -> dict[str, Any]:
    """Find the parameters that differ from their defaults."""
    defaults = {name: one.default for name, one in inspect.signature(type(model).__init__).parameters.items()}
    given = model.get_params(deep=False)
    return {name: plain(value) for name, value in given.items() if plain(value) != plain(defaults.get(name))}


def gather(
    model: Any, *, mode_names: Any = None, coordinates: Any = None, units: Any = None, most: int = MOST_NUMBERS
) -> ModelFacts:
    """Read all facts from a fitted model, alone or at the end of a pipeline."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    last = getattr(steps[-1], "model_", steps[-1])  # of lagged recordings: weights over lags and features
    if not (hasattr(last, "coef_") and hasattr(last, "dual_gap_")):
        raise ValueError(
            f"Expected a fitted regressor or classifier of tracelearn, got {type(last).__name__}: fit one, or name its file."
        )
    shape = tuple(last.sample_shape_)
    # A transformer that keeps the modes may have seen names that it did not pass on.
    known = [step.modes_ for step in steps if hasattr(step, "modes_") and tuple(step.sample_shape_) == shape]
    modes = as_modes(shape, mode_names, coordinates, units, known[-1] if known else None)
    linear: list[ViewPart] = []
    is_apart = hasattr(last, "views_") and not last.is_linear_
    parts = parts_of_model(last, modes) if hasattr(last, "views_") else []
    if is_apart:
        # Of a view without weights there is nothing to draw.
        used = {part.view for part in parts if np.any(part.coef)}
        drawn = [part for part in parts if part.view in used] or parts
        components = [one for part in drawn for one in _of_view(part)]
        # Weights over the modes of samples can be drawn as such.
        linear = [part for part in drawn if part.maps is None and part.coef.shape[1:] == shape]
        coef, patterns = (linear[0].coef, linear[0].patterns) if linear else (np.zeros((0, *shape)), None)
    else:
        coef = to_numpy(last.coef_).reshape(-1, *shape)
        patterns, components = _patterns(last, coef.shape), _components(last, coef, modes)
    kind, targets = _targets(last, len(parts[0].coef) if is_apart else len(coef))
    moments = getattr(last, "moments_", None)
    return ModelFacts(
        model=model,
        last=last,
        before=[type(step).__name__ for step in steps[:-1]],
        modes=modes,
        target_kind=kind,
        targets=targets,
        classes=[str(label) for label in to_numpy(last.classes_).tolist()] if hasattr(last, "classes_") else None,
        components=components,
        weights=Weights.thinned(coef, patterns, modes, most),
        convergence=_convergence(last),
        chosen=cv_curve(last) if hasattr(last, "cv_results_") else None,
        n_samples=None if moments is None else float(moments.weight),
        views=_views(last, parts),
        is_apart=is_apart,
        linear_view=linear[0].label if linear else "",
    )


def _views(last: Any, parts: list[ViewPart]) -> list[View]:
    """List the views of the model, and all that were tried."""
    shares = getattr(last, "view_shares_", {})
    if not hasattr(last, "views_") or (len(shares) < 2 and last.is_linear_):
        return []
    found = what_was_found(last, parts)
    names = dict.fromkeys([*shares, *found])
    return [View(view_in_words(name), shares.get(name), found.get(name, "")) for name in names]


def _of_view(part: ViewPart) -> list[Components]:
    """Find the components of a view: of its modes, or of second order its sources, which are drawn as their patterns."""
    found = []
    for n, (mode, (U, s)) in enumerate(zip(part.modes, part.factors(), strict=True)):
        leading, together, above = leading_factors(U, s, MOST_COMPONENTS)
        drawn = leading.T
        if part.maps is not None:
            patterns = part.sources(MOST_COMPONENTS)[1]
            drawn = patterns / np.linalg.norm(patterns, axis=1, keepdims=True)
        ranks = {leading_factors(*mode_factors(one, n), 1)[2] for one in part.coef}
        named = replace(mode, name=part.label if part.maps else f"{part.label}: {mode.name}")
        shares = np.vstack([together, _own_shares(part.coef, leading, n)])
        found.append(Components(named, s, drawn, shares, sorted(ranks), above))
    return found


def _targets(last: Any, count: int) -> tuple[str, list[str]]:
    """Say what has weights of its own: classes, targets, or the steps of a tree of classes."""
    if hasattr(last, "nodes_"):
        sides = [(", ".join(map(str, left)), ", ".join(map(str, right))) for left, right in last.nodes_]
        return "step", [f"{left} | {right}" for left, right in sides]
    kind, names = target_names(last, count)
    return kind, [str(name) for name in names]


def _patterns(last: Any, shape: tuple[int, ...]) -> Array | None:
    """Gather the patterns of each target; the steps of a tree have their own."""
    found = [
        to_numpy(one.patterns_).ravel() for one in getattr(last, "estimators_", [last]) if hasattr(one, "patterns_")
    ]
    return np.concatenate(found).reshape(shape) if found else None


def _factors(last: Any, coef: Array) -> list[tuple[Array, Array]]:
    """Return factors and singular values of each mode; the steps of a tree are unfolded side by side."""
    if hasattr(last, "mode_factors_"):
        return [(to_numpy(U), to_numpy(s)) for U, s in last.mode_factors_]
    return [mode_factors(coef, mode) for mode in range(1, coef.ndim)]


def _ranks(last: Any) -> Array:
    if hasattr(last, "estimators_"):
        return np.array([to_numpy(one.mode_ranks_) for one in last.estimators_], dtype=int)
    return to_numpy(last.mode_ranks_)


def _components(last: Any, coef: Array, modes: list[Mode]) -> list[Components]:
    if len(coef) == 0:  # a tree of one class
        return []
    factors = _factors(last, coef)
    modes = modes_of_weights(last, modes) if hasattr(last, "mode_factors_") else modes
    ranks, extra = _ranks(last).reshape(-1, len(modes)), len(modes) - (coef.ndim - 1)
    found = []
    for n, (mode, (U, s)) in enumerate(zip(modes, factors, strict=True)):
        leading, together, above = leading_factors(U, s, MOST_COMPONENTS)
        if n < extra or len(coef) == 1:  # where targets are a mode, a target has no share in it
            shares = np.tile(together, (len(coef) + 1, 1))
        else:
            shares = np.vstack([together, _own_shares(coef, leading, n - extra)])
        found.append(Components(mode, s, leading.T, shares, sorted(set(ranks[:, n].tolist())), above))
    return found


def _own_shares(coef: Array, factors: Array, mode: int) -> Array:
    """Find for every target the share of its squared norm that lies along each factor of a mode."""
    rows = np.moveaxis(coef.astype(np.float64), mode + 1, 1).reshape(len(coef), coef.shape[mode + 1], -1)
    along = np.sum((factors.T @ rows) ** 2, axis=2)
    return np.asarray(along / np.maximum(np.sum(rows**2, axis=(1, 2)), 1e-300)[:, None])


def _convergence(last: Any) -> Array:
    curves = [to_numpy(one.convergence_) for one in getattr(last, "estimators_", [last])]
    return max(curves, key=lambda curve: float(curve[-1, 1]), default=np.zeros((0, 2)))
