"""What a fitted model knows of itself, as plain arrays and words for a page."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, to_numpy
from tracelearn.arrays.tensors import mode_factors
from tracelearn.estimators.weights import target_names as names_of_targets
from tracelearn.features import Convolutions, SecondOrder
from tracelearn.plotting.canvas import COLOURS
from tracelearn.plotting.modes import CVCurve, as_modes, count_carrying, cv_curve, leading_factors, modes_of_weights
from tracelearn.plotting.views import ViewPart, describe_views, parts_of_model, view_in_words
from tracelearn.samples.modes import Mode

__all__ = ["Components", "ModelFacts", "Trial", "View", "Weights", "changed_parameters", "gather", "plain"]

MOST_COMPONENTS = len(COLOURS)  # as many as have a colour of their own
MOST_NUMBERS = 400_000  # of weights and patterns together: some 2 MB of page


@dataclass(frozen=True, eq=False)
class Components:
    """One mode of the weights, or one window of second order: the components that carry 99 % of the squared weights.

    ``shares`` has a first row for all targets together, then one for each target.
    """

    mode: Mode
    title: str
    values: Array  # all singular values
    factors: Array  # (n_drawn, I) of the components that carry, as many as have a colour
    shares: Array  # (1 + K, n_drawn)
    carrying: int  # how many carry 99 %
    positions: Array | None = None  # of the sensors that are the first entries


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights and patterns of each target, of shape (K, I1, ..., IN), every ``steps[n]``-th entry of mode n."""

    coef: Array
    patterns: Array | None
    modes: list[Mode]
    steps: tuple[int, ...]

    @classmethod
    def thinned(cls, coef: Array, patterns: Array | None, modes: list[Mode], most: int) -> Weights:
        """Leave out entries of the longest modes until few enough numbers remain."""
        steps = [1] * len(modes)
        n_tensors = len(coef) * (1 if patterns is None else 2)

        def lengths() -> list[int]:
            return [-(-size // step) for size, step in zip(coef.shape[1:], steps, strict=True)]

        while n_tensors * int(np.prod(lengths())) > most and max(lengths()) > 1:
            steps[int(np.argmax(lengths()))] += 1
        entries = (slice(None), *(slice(None, None, step) for step in steps))
        thin_modes = [mode.every(step) for mode, step in zip(modes, steps, strict=True)]
        thin_patterns = None if patterns is None else patterns[entries]
        return cls(coef[entries], thin_patterns, thin_modes, tuple(steps))


@dataclass(frozen=True, eq=False)
class View:
    """One view that was tried: its share in held-out scores, if known, and what was found in it, if the model has it.

    The norm may leave a view of the model without weights.
    """

    label: str
    share: float | None
    found: str
    has_weights: bool


@dataclass(frozen=True, eq=False)
class Trial:
    """One row of ``views_tried_``: views and how they were fitted, the held-out score, and what became of it."""

    views: str
    path: str
    score: float
    error: float
    seconds: float
    taken: bool
    reason: str


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """All that a page tells of a model by itself."""

    model: Any  # as it was given
    predictor: Any  # what predicts: the model, or the last step of a pipeline
    before: list[str]  # names of the steps before
    modes: list[Mode]
    target_kind: str
    targets: list[str]  # those that have weights
    names_targets: bool  # whether targets that are numbers have names
    classes: list[str] | None
    components: list[Components]
    ranks: Array  # a row for each target or step of a tree of classes; of views one row
    weights: Weights
    chosen: CVCurve | None
    n_samples: float | None  # the weight of the moments
    views: list[View]  # where there is more to say than that samples are seen as they are
    trials: list[Trial]
    weighs_views: bool  # whether weights are those of views, not of the entries of a sample
    linear_view: str  # the view whose weights are then shown
    time_name: str | None  # the mode along which views follow signals
    alignment: str  # what aligns the samples of each group, where something does

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, or of recordings that of lags and features."""
        return tuple(len(mode.values) for mode in self.modes)

    @property
    def is_zero(self) -> bool:
        """Whether the samples are ignored."""
        return not np.any(self.predictor.coef_)

    @property
    def n_confounds(self) -> int:
        """How many numbers of each sample were regressed out of it."""
        coef = getattr(self.predictor, "confound_coef_", None)
        return 0 if coef is None else int(np.shape(coef)[-1])

    @property
    def has_components(self) -> bool:
        """Whether there are modes to take apart: weights of one target over one mode are a single component."""
        return self.weighs_views or len(self.modes) > 1 or len(self.targets) > 1

    @property
    def has_sources(self) -> bool:
        """Whether the model has views of second order."""
        return any(isinstance(view, SecondOrder) for view in getattr(self.predictor, "views_", {}).values())

    @property
    def has_heads(self) -> bool:
        """Whether components are drawn over a head."""
        return any(component.positions is not None for component in self.components)

    @property
    def names_of_weights(self) -> list[str]:
        """The names of the modes of the weights, in the order of ``mode_ranks_``; targets come first where they are a mode."""
        return [component.title for component in self.components]

    @property
    def completed(self) -> str:
        """How many training samples were of unequal length, and how many entries were missing; "" where all were complete."""
        resampler = getattr(self.predictor, "resampler_", None)
        if resampler is None:
            return ""
        changes = []
        if resampler.n_unequal_:
            lengths = f"lengths from {resampler.shortest_:,} to {resampler.longest_:,}"
            changes.append(f"{resampler.n_unequal_:,} samples, of {lengths}, resampled to {resampler.n_times_:,}")
        if resampler.n_filled_:
            changes.append(f"{resampler.n_filled_:,} missing entries filled")
        return "; ".join(changes)

    def for_table(self) -> dict[str, Any]:
        """Gather what a command prints of the weights."""
        return {
            "views": [{"view": view.label, "share": view.share, "found": view.found} for view in self.views],
            "completed": self.completed,
            "n_confounds": self.n_confounds,
            "weights_of": "views" if self.weighs_views else "samples",
            "mode_names": self.names_of_weights,
            "components": [component.carrying for component in self.components],
            "mode_ranks": plain(self.ranks),
        }


def plain(value: Any) -> Any:
    """Convert a value to what JSON can hold: lists, numbers and text."""
    if isinstance(value, dict):
        return {str(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def changed_parameters(model: Any) -> dict[str, Any]:
    """Find the parameters that differ from their defaults."""
    parameters = inspect.signature(type(model).__init__).parameters
    changed = {}
    for name, value in model.get_params(deep=False).items():
        default = parameters[name].default if name in parameters else None
        if plain(value) != plain(default):
            changed[name] = plain(value)
    return changed


def gather(
    model: Any,
    *,
    mode_names: Any = None,
    coordinates: Any = None,
    units: Any = None,
    target_names: Sequence[str] | None = None,
    most: int = MOST_NUMBERS,
) -> ModelFacts:
    """Read all facts from a fitted model, alone or at the end of a pipeline."""
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    predictor = steps[-1]
    if not (hasattr(predictor, "coef_") and hasattr(predictor, "dual_gap_")):
        raise ValueError(
            f"Expected a fitted regressor or classifier of tracelearn, got {type(predictor).__name__}: fit one, or name its file."
        )
    shape = _shape_of_weights(predictor)
    # A transformer that keeps the modes may have seen names that it did not pass on.
    modes_of_steps = [step.modes_ for step in steps if hasattr(step, "modes_") and tuple(step.sample_shape_) == shape]
    if hasattr(predictor, "lags_"):
        modes_of_steps = [[Mode("lag", predictor.lags_), Mode("feature", np.arange(predictor.n_features_in_))]]
    modes = as_modes(shape, mode_names, coordinates, units, modes_of_steps[-1] if modes_of_steps else None)
    parts = parts_of_model(predictor, modes) if hasattr(predictor, "views_") else []
    weighs_views = hasattr(predictor, "views_") and not predictor.is_linear_
    linear: ViewPart | None = None
    if weighs_views:
        # Of a view without weights there is nothing to draw.
        with_weights = {part.view for part in parts if np.any(part.coef)}
        drawn = [part for part in parts if part.view in with_weights] or parts
        components = _components_of_views(drawn, modes)
        # Weights over the modes of samples can be drawn as such.
        linear = next((part for part in drawn if part.maps is None and part.coef.shape[1:] == shape), None)
        coef = np.zeros((0, *shape)) if linear is None else linear.coef
        patterns = None if linear is None else linear.patterns
        n_targets = len(parts[0].coef)
        ranks = np.array([[_rank(component.values) for component in components]])
    else:
        coef = to_numpy(predictor.coef_).reshape(-1, *shape)
        patterns = _patterns(predictor, coef.shape)
        components = _components(predictor, coef, modes)
        n_targets = len(coef)
        ranks = _ranks(predictor)
    kind, targets = _targets(predictor, n_targets, target_names)
    moments = getattr(predictor, "moments_", None)
    return ModelFacts(
        model=model,
        predictor=predictor,
        before=[type(step).__name__ for step in steps[:-1]],
        modes=modes,
        target_kind=kind,
        targets=targets,
        names_targets=target_names is not None,
        classes=[str(label) for label in to_numpy(predictor.classes_).tolist()]
        if hasattr(predictor, "classes_")
        else None,
        components=components,
        ranks=ranks,
        weights=Weights.thinned(coef, patterns, modes, most),
        chosen=cv_curve(predictor) if hasattr(predictor, "score_path_") else None,
        n_samples=None if moments is None else float(moments.weight),
        views=_views(predictor, parts),
        trials=_trials(predictor),
        weighs_views=weighs_views,
        linear_view="" if linear is None else linear.label,
        time_name=_time_name(predictor, modes),
        alignment="" if getattr(predictor, "alignment_", None) is None else repr(predictor.alignment_),
    )


def _shape_of_weights(predictor: Any) -> tuple[int, ...]:
    """Find the shape of a sample; a model of recordings has weights over lags and features."""
    if hasattr(predictor, "lags_"):
        return len(predictor.lags_), int(predictor.n_features_in_)
    return tuple(predictor.sample_shape_)


def _views(predictor: Any, parts: list[ViewPart]) -> list[View]:
    """List the views of the model, and all that were tried."""
    shares = getattr(predictor, "view_shares_", {})
    if not hasattr(predictor, "views_") or (len(shares) < 2 and predictor.is_linear_):
        return []
    sentences = describe_views(predictor, parts)
    names = dict.fromkeys([*shares, *sentences])
    with_weights = {part.view for part in parts if np.any(part.coef)}
    return [
        View(view_in_words(name), shares.get(name), sentences.get(name, ""), name in with_weights) for name in names
    ]


def _trials(predictor: Any) -> list[Trial]:
    """List all that a search has tried, the best first."""
    table = getattr(predictor, "views_tried_", None)
    if table is None:
        return []
    names = [" and ".join(view_in_words(name.strip()) for name in views.split("+")) for views in table["views"]]
    columns = (table[name] for name in ("path", "score", "score_se", "seconds", "taken", "reason"))
    trials = [Trial(*row) for row in zip(names, *columns, strict=True)]
    return sorted(trials, key=lambda trial: -trial.score if np.isfinite(trial.score) else np.inf)


def _time_name(predictor: Any, modes: list[Mode]) -> str | None:
    """Name the mode along which views follow signals, where there is one and it has a name."""
    for view in getattr(predictor, "views_", {}).values():
        axis = getattr(view, "time_axis_", None)
        if isinstance(view, SecondOrder | Convolutions) and axis is not None:
            name = modes[axis].name
            return None if name.startswith("mode ") else name
    return None


def _components_of_views(parts: list[ViewPart], modes: list[Mode]) -> list[Components]:
    """Find the components of views: of their modes, or of second order the sources, which are drawn as their patterns."""
    components = []
    for part in parts:
        if part.maps is None:
            components += _components_of_modes(part)
        else:
            windows_of_view = [window for window in parts if window.view == part.view]
            components += _sources_of_window(part, windows_of_view, modes)
    return components


def _components_of_modes(part: ViewPart) -> list[Components]:
    """Find the components of each mode of a view."""
    components = []
    for n, (mode, (U, s)) in enumerate(zip(part.modes, part.factors(), strict=True)):
        count = count_carrying(s.astype(np.float64) ** 2)
        factors, together, _ = leading_factors(U, s, min(count, MOST_COMPONENTS))
        shares = np.vstack([together, _shares_of_targets(part.coef, factors, n)])
        components.append(Components(mode, f"{part.label}: {mode.name}", s, factors.T, shares, count, mode.positions))
    return components


def _sources_of_window(part: ViewPart, windows_of_view: list[ViewPart], modes: list[Mode]) -> list[Components]:
    """Find the sources of one window of second order that are needed for 99 % of the weights of all windows: one or no entry."""
    ((U, s),) = part.factors()
    values_of_all = np.concatenate([window.factors()[0][1] for window in windows_of_view])
    count = count_carrying(s.astype(np.float64) ** 2, values_of_all.astype(np.float64) ** 2)
    if not count:
        return []
    factors, together, _ = leading_factors(U, s, min(count, MOST_COMPONENTS))
    _, patterns, _ = part.sources(len(together))
    patterns = patterns / np.linalg.norm(patterns, axis=1, keepdims=True)
    shares = np.vstack([together, _shares_of_targets(part.coef, factors, 0)])
    return [Components(part.modes[0], part.label, s, patterns, shares, count, _sensors(part, modes))]


def _sensors(part: ViewPart, modes: list[Mode]) -> Array | None:
    """Find where the sensors are whose signals are the first rows of second order; copies of them come after."""
    with_places = [mode for mode in modes if mode.positions is not None]
    if len(with_places) != 1 or not part.modes[0].name == with_places[0].name:
        return None
    return with_places[0].positions


def _targets(predictor: Any, count: int, names: Sequence[str] | None) -> tuple[str, list[str]]:
    """Say what has weights of its own: classes, targets, or the steps of a tree of classes."""
    if hasattr(predictor, "nodes_"):
        sides = [(", ".join(map(str, left)), ", ".join(map(str, right))) for left, right in predictor.nodes_]
        return "step", [f"{left} | {right}" for left, right in sides]
    kind, labels = names_of_targets(predictor, count)
    if names is not None and kind == "target":
        if len(names) != count:
            raise ValueError(f"Expected {count} target_names, got {len(names)}: give one for each target.")
        labels = list(names)
    return kind, [str(label) for label in labels]


def _patterns(predictor: Any, shape: tuple[int, ...]) -> Array | None:
    """Gather the patterns of each target; the steps of a tree have their own."""
    models = getattr(predictor, "estimators_", [predictor])
    patterns = [to_numpy(model.patterns_).ravel() for model in models if hasattr(model, "patterns_")]
    return np.concatenate(patterns).reshape(shape) if patterns else None


def _factors(predictor: Any, coef: Array) -> list[tuple[Array, Array]]:
    """Return factors and singular values of each mode; the steps of a tree are unfolded side by side."""
    if hasattr(predictor, "mode_factors_"):
        return [(to_numpy(U), to_numpy(s)) for U, s in predictor.mode_factors_]
    return [mode_factors(coef, mode) for mode in range(1, coef.ndim)]


def _ranks(predictor: Any) -> Array:
    if hasattr(predictor, "estimators_"):
        return np.array([to_numpy(step.mode_ranks_) for step in predictor.estimators_], dtype=int)
    return to_numpy(predictor.mode_ranks_)


def _rank(values: Array) -> int:
    """Count singular values above rounding."""
    return leading_factors(np.eye(len(values)), values, 1)[2]


def _components(predictor: Any, coef: Array, modes: list[Mode]) -> list[Components]:
    """Find the components of every mode of the weights."""
    if len(coef) == 0:  # a tree of one class
        return []
    factors_of_modes = _factors(predictor, coef)
    modes = modes_of_weights(predictor, modes) if hasattr(predictor, "mode_factors_") else modes
    n_before = len(modes) - (coef.ndim - 1)  # where targets are a mode, it is the first
    components = []
    for n, (mode, (U, s)) in enumerate(zip(modes, factors_of_modes, strict=True)):
        count = count_carrying(s.astype(np.float64) ** 2)
        factors, together, _ = leading_factors(U, s, min(count, MOST_COMPONENTS))
        if n < n_before or len(coef) == 1:  # a target has no share in the mode of targets
            shares = np.tile(together, (len(coef) + 1, 1))
        else:
            shares = np.vstack([together, _shares_of_targets(coef, factors, n - n_before)])
        components.append(Components(mode, mode.name, s, factors.T, shares, count, mode.positions))
    return components


def _shares_of_targets(coef: Array, factors: Array, mode: int) -> Array:
    """Find for every target the share of its squared norm that lies along each factor of a mode."""
    rows = np.moveaxis(coef.astype(np.float64), mode + 1, 1).reshape(len(coef), coef.shape[mode + 1], -1)
    along = np.sum((factors.T @ rows) ** 2, axis=2)
    return np.asarray(along / np.maximum(np.sum(rows**2, axis=(1, 2)), 1e-300)[:, None])
