"""One search: samples in several views, folds, what was looked at so far, and how it is judged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import nnls

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, to_numpy
from tracelearn.estimators.base import TraceNormModel
from tracelearn.estimators.scores import r_squared
from tracelearn.features import (
    Convolutions,
    Logarithm,
    ModeWhitener,
    SecondOrder,
    TensorStandardScaler,
    Views,
    find_time_axis,
)
from tracelearn.losses import Loss
from tracelearn.penalties import Blocks, as_penalty, is_overlapped
from tracelearn.samples.samples import Samples
from tracelearn.selection.calibration import (
    class_map,
    confirmed,
    found_classes,
    held_out,
    log_losses,
    scored,
    with_scores,
)
from tracelearn.selection.folds import Design, Folds
from tracelearn.selection.progress import Progress
from tracelearn.selection.search import Candidate, Table, read_alphas, walk, walk_logistic, walk_ridges

__all__ = ["VIEWS", "Session", "choose", "parts_of", "possible_views", "shares_of"]

# Views of a sample whose share in the best combination of all is below this are left out, and so are all but the best few.
LEAST_SHARE, MOST_VIEWS = 0.1, 4

# Small sets are split several times: so many samples are held out in all, each at most so often.
HELD_OUT, MOST_REPEATS = 400, 4

# Views that keep the modes of a sample.
FIRST_ORDER = ("raw", "log", "whitened")

# Where ridge regression on such a view leaves so many times more unexplained than on the best, it gets no path of its own: on no
# set did a low rank explain more than two fifths of what ridge regression had left.
_HOPELESS = 1.75

# So many samples, drawn at random, tell which views are worth showing.
SCREENED = 400

# Where the level of a signal drifts, means over time would hide its covariance: they vary by at most this share of it.
_MEAN = 0.05

VIEWS: dict[str, Any] = {
    "raw": lambda axis: None,
    "log": lambda axis: Logarithm(),
    "whitened": lambda axis: ModeWhitener(power=-0.25),
    "second_order": lambda axis: SecondOrder(axis, standardize=True, mean=_MEAN),
    "second_order_difference": lambda axis: SecondOrder(axis, standardize=True, mean=_MEAN, difference=True),
    "second_order_two_windows": lambda axis: SecondOrder(
        axis, standardize=True, mean=_MEAN, difference=True, windows=2
    ),
    "second_order_three_windows": lambda axis: SecondOrder(
        axis, standardize=True, mean=_MEAN, difference=True, windows=3
    ),
    "second_order_lags": lambda axis: SecondOrder(axis, standardize=True, mean=_MEAN, lags=3),
    "second_order_slow_lags": lambda axis: SecondOrder(axis, standardize=True, mean=_MEAN, lags=3, lag_step=3),
    "convolutions": Convolutions,
}

# Views are added to the best one as long as one search takes no more multiplications than this.
_MOST_WORK = 3e11

# A mode is whitened by the eigenvectors of its covariance: not where sums and eigenvectors take more multiplications than this.
_MOST_WHITENED = 1e11

# With more weights than this, in all folds and classes, every alpha of a path takes long. Every third is looked at first, and
# the path is left there unless it explains so much more than ridge regression, as a share of what that explains, or leaves.
_MANY_WEIGHTS, _GAIN = 125_000, 0.02

# Convolutions have thousands of entries for each channel: they are tried up to so many channels and samples.
_MOST_CONVOLVED, _MOST_SAMPLES = 9, 1000

# The share of all work that is done after each part of a search: as it was on real sets of some seconds.
_SCREENED, _RIDGES, _PATH, _ALONE, _CHOSEN = 0.25, 0.45, 0.57, 0.68, 0.71
# Where logistic regression is tried on more samples than features, it takes about as long as all that comes before it.
_PACE = 0.5


def possible_views(
    shape: tuple[int, ...], time_axis: Any, *, n: int = 0, positive: bool = False
) -> tuple[list[str], str]:
    """List the views that suit n samples: logarithms where all entries are positive; whitened modes unless one is very long;
    where a mode can be time, second order, and convolutions where channels and samples are few.

    Examples
    --------
    >>> from tracelearn.selection.session import possible_views
    >>> possible_views((6, 11), "auto")[0], possible_views((64, 200), "auto")[0]
    (['raw', 'whitened'], ['raw', 'whitened', 'second_order'])
    """
    if len(shape) < 2:
        return ["raw", "log"] if positive else ["raw"], "samples have one mode"
    names = ["raw", "log"] if positive else ["raw"]
    if sum(n * math.prod(shape) * size + 10 * size**3 for size in shape) <= _MOST_WHITENED:
        names.append("whitened")
    axis, reason = (None, "time_axis=None") if time_axis is None else find_time_axis(shape, time_axis)
    if axis is None:
        return names, reason
    times, channels = shape[axis], math.prod(shape) // shape[axis]
    names.append("second_order")
    if channels <= 48:  # copies of channels make matrices larger by their square
        names += ["second_order_difference", "second_order_two_windows"]
    if channels <= 16:
        names += ["second_order_three_windows", "second_order_lags"]
        names += ["second_order_slow_lags"] if times >= 40 else []
    if channels <= _MOST_CONVOLVED and n <= _MOST_SAMPLES:
        names.append("convolutions")
    return names, reason


@dataclass(frozen=True, eq=False)
class _View:
    """Samples as one view, or several in one problem, show them."""

    samples: Samples
    features: Any  # the fitted transformer, or None
    penalty: Any  # Blocks for several views, else None

    @property
    def has_modes(self) -> bool:
        """Whether the modes of a sample are still what they were, so that mode weights mean something."""
        return self.features is None or isinstance(self.features, ModeWhitener | Logarithm)


@dataclass(eq=False)
class Session:
    """One search: samples, folds, and what was looked at so far."""

    options: Any  # the estimator whose parameters say what is searched
    model: TraceNormModel
    samples: Samples
    folds: Folds
    labels: Array
    weight: Array | None
    loss: Loss
    progress: Progress
    n_folds: int
    first_order: str = ""  # the best view that keeps the modes of a sample, where several were screened
    view_shares: dict[str, float] | None = None  # of the views that were screened
    class_map: Array | None = None  # between the scores of all classes, where folds confirm it
    tables: list[Table] = field(default_factory=list)
    _of: tuple[Session, Array] | None = None  # the session of all samples, and which (n,) of them these are
    _views: dict[str, _View] = field(default_factory=dict)
    _designs: dict[tuple[str, bool], Design] = field(default_factory=dict)

    def view(self, name: str, strengths: tuple[float, ...] = ()) -> _View:
        """See the samples as a view does, or as several do, "a+b"; what a view learns it learns without targets."""
        key = name if not strengths else f"{name} {':'.join(f'{s:g}' for s in strengths)}"
        if key not in self._views and self._of is not None:
            whole, chosen = self._of
            seen = whole.view(name, strengths)
            self._views[key] = replace(seen, samples=seen.samples.take(chosen))
        if key not in self._views:
            self._views[key] = self._seen(name, strengths)
        return self._views[key]

    def _seen(self, name: str, strengths: tuple[float, ...]) -> _View:
        axis = (
            find_time_axis(self.samples.shape, self.options.time_axis)[0]
            if self.options.time_axis is not None
            else None
        )
        parts = name.split("+")
        unknown = [part for part in parts if part not in VIEWS]
        if unknown:
            raise ValueError(
                f"Expected views among {', '.join(VIEWS)}, got {unknown[0]!r}: join those of one problem by +, as raw+whitened."
            )
        transformers = [VIEWS[part](-1 if axis is None else axis) for part in parts]
        if transformers == [None]:
            return _View(self.samples.rescaled(self.options._scales(self.samples)), None, None)
        (block,) = self.samples.checked().blocks
        T = array_namespace(block.X).reshape(block.X, (-1, *self.samples.shape))
        features = transformers[0]
        if len(parts) == 1:
            found = features.fit_transform(T, sample_weight=block.weight)
        else:
            features = Views(list(zip(parts, transformers, strict=True)), view_weights=strengths or None)
            fitted = [self._fitted(name, one, T, block.weight) for name, one in zip(parts, transformers, strict=True)]
            found = features._join([one for one, _ in fitted], [part for _, part in fitted], block.weight)
        shape = tuple(found.shape[1:])
        rows = array_namespace(found).reshape(found, (found.shape[0], -1))
        shapes = _blocks(features if len(parts) > 1 else None, transformers, shape)
        penalty = None
        if len(shapes) > 1:
            shape = (rows.shape[1],)
            penalty = Blocks(shapes, tuple(as_penalty(self.options.penalty, own) for own in shapes))
        return _View(self.samples.mapped_rows(lambda X: rows, shape), features, penalty)

    def _fitted(self, name: str, transformer: Any, T: Array, weight: Array) -> tuple[Any, Array]:
        """Fit the transformer of one view, and transform the samples, unless that was done."""
        if transformer is None:
            return TensorStandardScaler(with_mean=False, with_std=False).fit(T, sample_weight=weight), T
        if name in self._views:
            known = self._views[name]
            return known.features, known.samples.rows
        return transformer, transformer.fit_transform(T, sample_weight=weight)

    def design(self, name: str, strengths: tuple[float, ...], *, joint: bool, screening: bool = False) -> Design:
        """Split a view into folds, once; views are screened with all repeats of the folds."""
        key = (f"{name} {strengths} {screening}", joint)
        if key not in self._designs:
            folds = self.folds if screening else self.folds.first(self.n_folds)
            samples = self.view(name, strengths).samples
            numbers = not self.model._learns_classes
            self._designs[key] = Design(samples, folds, self.loss, joint, self.options.fit_intercept, numbers)
        return self._designs[key]

    def subset(self, count: int) -> Session:
        """Keep some samples, drawn at random, and the folds of these; all of them where they are no more.

        Where all are few enough that most views will be asked for again, they see all samples, once.
        """
        n = self.folds.n
        if n <= count:
            return self
        chosen = np.zeros(n, dtype=bool)
        chosen[np.random.default_rng(0).permutation(n)[:count]] = True
        weight = None if self.weight is None else self.weight[chosen]
        return Session(
            self.options,
            self.model,
            self.samples.take(chosen),
            self.folds.among(chosen),
            self.labels[chosen],
            weight,
            self.loss,
            self.progress,
            self.n_folds,
            _of=(self, chosen) if n <= 2 * count else None,
        )

    def walk_ridges(self, label: str, *, screening: bool = False) -> Table:
        """Try ridge regression alone on a view."""
        name, strengths = parts_of(label)
        design = self.design(name, strengths, joint=False, screening=screening)
        table = walk_ridges(design, label, self.judge(design), by_score=self.options.scoring is not None)
        if not screening:
            self._keep([table], "ridge regression")
        return table

    def walk_logistic(self, label: str) -> Table | None:
        """Try logistic regression on a view, where that is soon done."""
        design = self.design(*parts_of(label), joint=False)
        table = walk_logistic(design, label, self.judge(design))
        if table is not None:
            self._keep([table], "logistic regression")
        return table

    def _keep(self, tables: list[Table], what: str) -> None:
        self.tables += tables
        best = max(tables, key=lambda table: table.value)
        self.model._report(
            f"{what} on {best.candidate.view}: {best.means[best.best]:.4g} held out, {best.value:.4g} selects"
        )

    def walk(
        self, label: str, candidates: Sequence[Candidate], begin: float, end: float, above: float = -math.inf
    ) -> list[Table]:
        """Walk the paths of candidates of one view, from one share of all work to another.

        Where an alpha takes long, every third is looked at first, and no table is returned if none of these is better than what
        was found ``above``, by more than rough solutions differ.
        """
        name, strengths = parts_of(label)
        view = self.view(name, strengths)
        alphas, given = read_alphas(self.options.alphas, self.options.eps)
        weights = view.samples.n_features * self.samples.n_targets * self.n_folds
        takes_long = weights > _MANY_WEIGHTS and not given
        rough = [alphas[::-3][::-1]] if takes_long and math.isfinite(above) else []
        for grid in [*rough, alphas]:
            tables: list[Table] = []
            for joint in dict.fromkeys(candidate.target_mode for candidate in candidates):
                own = [candidate for candidate in candidates if candidate.target_mode == joint]
                design = self.design(name, strengths, joint=joint)
                shape = (design.n_targets, *view.samples.shape) if joint else view.samples.shape
                tables += walk(
                    design,
                    own,
                    grid,
                    self.judge(design),
                    by_score=self.options.scoring is not None,
                    shape=shape,
                    penalty=self._penalty(view, shape),
                    absolute=given,
                    max_iter=self.options.max_iter,
                    n_jobs=self.options.n_jobs,
                    progress=self.progress.part(begin, end if grid is alphas else begin, f"trace norm on {label}"),
                    is_over=self.progress.is_over,
                )
            found = max(float(np.max(table.selecting)) for table in tables)
            if grid is not alphas and found < above + _GAIN * max(0.0, min(above, 1.0 - above)):
                self._keep(tables, "some alphas of the trace norm")
                return []
        self._keep(tables, "trace norm")
        return tables

    def _penalty(self, view: _View, shape: tuple[int, ...]) -> Any:
        """Return the penalty of a candidate as a function; None where the search knows it itself."""
        if view.penalty is not None:
            return lambda candidate: view.penalty
        if is_overlapped(self.options.penalty):
            return None
        return lambda candidate: as_penalty(self.options.penalty, shape, candidate.mode_weights)

    # --- judging -----------------------------------------------------------------------------------------------------

    def judge(self, design: Design) -> Any:
        """Score what is held out as it is shown: by the user's scorer, by classes found, or for numbers by R²."""

        def judged(f: int, scores: Array) -> Array:
            held, models = design.held[f], range(scores.shape[1])
            if self.options.scoring is not None:
                weight = None if self.weight is None else self.weight[held.index]
                known = [with_scores(self.model, self.loss, to_numpy(scores[:, m, :])) for m in models]
                return np.array([scored(self.options.scoring, one, self.labels[held.index], weight) for one in known])
            if not self.model._learns_classes:
                return np.array(
                    [r_squared(held.Y, self.loss.inverse_link(scores[:, m, :]), held.share) for m in models]
                )
            right = found_classes(scores) == found_classes(held.Y)[:, None]
            return to_numpy(held.share @ array_namespace(scores).astype(right, held.share.dtype))

        return judged


# --- what a search asks, one question after the other ------------------------------------------------------------------


def choose(session: Session) -> Table:
    """Find out which views to show, then whether the trace norm or ridge regression alone is better on them."""
    label, progress = _choose_views(session), session.progress
    name, strengths = parts_of(label)
    tables = []
    design = session.design(name, strengths, joint=False)
    if isinstance(session.options.ridges, str) and design.form.name in (
        "moments",
        "basis",
    ):  # ridge regression in closed form
        tables.append(session.walk_ridges(label))
        few = design.is_small and design.span is None
        progress.pace = _PACE if few and _asks_more(session, tables[0]) else 1.0
        progress.reach(_RIDGES, f"ridge regression on {label}")
    candidates = [Candidate(label)] if strengths else _candidates(session, name)
    if not tables or not progress.is_over():
        tables += session.walk(label, candidates, _RIDGES, _PATH, max((t.value for t in tables), default=-math.inf))
    # Ridge regression does not see what only a low rank can find in samples of many entries: they get a path of their own.
    alone = session.first_order
    best = max(tables, key=lambda table: table.value)
    if alone not in ("", label) and not progress.is_over():
        tables += session.walk(alone, _candidates(session, alone), _PATH, _ALONE, best.value)
        best = max(tables, key=lambda table: table.value)
    best = _by_log_loss(session, best) if _asks_more(session, best) else best
    progress.pace = 1.0
    progress.reach(_CHOSEN, f"chosen: {best.candidate.view}")
    return best


def _asks_more(session: Session, best: Table) -> bool:
    """Tell whether more than squares may be learned: nothing was asked for by name, and there is memory and time."""
    options = session.options
    named = isinstance(options.views, str) and options.views != "auto"
    asked = options.views is None or named or options.scoring is not None or not isinstance(options.ridges, str)
    here = session.samples.in_memory and not is_sparse(session.samples.like) and not session.samples.n_confounds
    asked |= options.keep_moments or options.one_standard_error or best.candidate.target_mode
    return options._asks_loss and not asked and here and not session.progress.is_over()


def _by_log_loss(session: Session, best: Table) -> Table:
    """Take logistic regression, or a map between the scores of all classes, where held-out folds confirm it."""
    design = session.design(*parts_of(best.candidate.view), joint=False)
    parts = held_out(best.held[best.best], design)
    before = log_losses(parts)
    shown, found = None, {}
    if session.samples.n_targets > 2:
        shown, found["map"] = class_map(parts)
    other = session.walk_logistic(best.candidate.view)
    if other is not None:
        found["logistic"] = log_losses(held_out(other.held[other.best], design))
    right = {name: float(after.mean()) for name, after in found.items() if confirmed(before, after)}
    chosen = min(right, key=lambda name: right[name], default="")
    losses = ", ".join(f"{name} {after.mean():.4g}" for name, after in found.items())
    session.model._report(
        f"held-out log-loss: one factor {before.mean():.4g}, {losses}; {chosen or 'one factor'} it is"
    )
    if chosen == "map":
        session.class_map = shown
    return other if chosen == "logistic" and other is not None else best


def _choose_views(session: Session) -> str:
    """Choose the views, and how strong each is: by how much ridge regression on each adds to that on the others.

    Held-out scores of all views are combined with weights that are not negative. A view that gets a small share is left
    out, and so is one that would make the problem too large; the others are multiplied by their shares, so that weights on
    a good view cost less.
    """
    views, samples = session.options.views, session.samples
    if views is None or not samples.in_memory or is_sparse(samples.like):
        return "raw"
    names, reason = possible_views(
        samples.shape, session.options.time_axis, n=session.folds.n, positive=_positive(samples.rows)
    )
    if not isinstance(views, str) or views != "auto":
        names, reason = [str(views)] if isinstance(views, str) else [str(name) for name in views], "as given"
    if not names:
        raise ValueError("Expected views to be 'auto', None, a name or several, got none: leave views out.")
    session.progress.reach(0.0, f"views: {', '.join(names)} ({reason})")
    if len(names) == 1 or not session.loss.has_moments:
        return names[0]
    scores: list[Array] = []
    values: dict[str, float] = {}  # what selects
    some = session.subset(SCREENED)
    for name in names:
        if values and session.progress.is_over():
            break
        table = some.walk_ridges(name, screening=True)
        values[name] = table.value
        scores.append(np.concatenate([to_numpy(part) for part in table.held[table.best]]))
        session.progress.reach(_SCREENED * len(values) / len(names), f"{name}: {table.value:.4g} selects")
    parts = some.design(names[0], (), joint=False, screening=True).held
    share = shares_of(scores, np.concatenate([to_numpy(held.Y) for held in parts]))
    session.first_order = _first_order(values, explains=session.options.scoring is None)
    found = list(values)
    sizes = [some.view(name).samples.n_features for name in found]
    order = [int(np.argmax(share))]
    for i in np.argsort(-share)[1:MOST_VIEWS]:
        entries = sum(sizes[j] for j in order) + sizes[i]
        if share[i] > LEAST_SHARE and _work(session.folds, entries) <= _MOST_WORK:
            order.append(int(i))
    session.view_shares = {found[i]: float(share[i]) for i in np.argsort(-share)}
    session.model._report("shares of views: " + ", ".join(f"{found[i]} {share[i]:.2f}" for i in order))
    if len(order) == 1:
        return str(found[order[0]])
    ratio = ":".join(f"{share[i] / share[order[0]]:.3g}" for i in order)
    return f"{'+'.join(found[i] for i in order)} {ratio}"


def _first_order(values: dict[str, float], *, explains: bool) -> str:
    """Name the best view that keeps the modes of a sample, given what selects each; none where it is far behind another."""
    best = max((name for name in values if name in FIRST_ORDER), key=lambda name: values[name], default="")
    # A score of the user's is no share of the variance that is explained.
    far = explains and best != "" and 1.0 - values[best] > _HOPELESS * (1.0 - max(values.values()))
    return "" if far else best


def _work(folds: Folds, entries: int) -> float:
    """Count the multiplications of sums of squares, and of eigenvectors in every fold, for so many entries of a sample."""
    rank = min(folds.n, entries)
    return float(folds.n * entries * rank + 10 * len(folds) * rank**3)


def _candidates(session: Session, name: str) -> list[Candidate]:
    """List what to try of one view; "auto" mode weights are equal ones and each mode alone."""
    options, view, K = session.options, session.view(name), session.samples.n_targets
    joints = [False, True] if isinstance(options.target_mode, str) else [bool(options.target_mode)]
    joints = [joint and K > 1 for joint in joints]
    ridges = [0.0] if isinstance(options.ridges, str) else [float(ridge) for ridge in np.atleast_1d(options.ridges)]
    if not ridges or not all(math.isfinite(ridge) and ridge >= 0 for ridge in ridges):
        raise ValueError(f"Expected ridges that are finite and not negative, at least one, got {options.ridges}.")
    order = len(view.samples.shape)
    found = []
    for joint in dict.fromkeys(joints):
        weights = _mode_weights(options, order + joint, auto=view.has_modes)
        found += [Candidate(name, own, ridge, joint) for own, ridge in product(weights, ridges)]
    return found


def _mode_weights(options: Any, order: int, *, auto: bool) -> list[tuple[float, ...] | None]:
    given = options.mode_weights
    if given is None or not auto or (isinstance(given, str) and (order <= 2 or not is_overlapped(options.penalty))):
        return [None]  # at order 2 all weights give one norm, and latent norms choose their mode themselves
    if isinstance(given, str):
        return [None, *(tuple(float(n == mode) for n in range(order)) for mode in range(order))]
    lists = list(given)
    if not lists:
        raise ValueError("Expected mode_weights to be 'auto', None, or one weight for each mode, got none.")
    lists = [lists] if np.ndim(lists[0]) == 0 and lists[0] is not None else lists
    return [None if weights is None else tuple(float(weight) for weight in weights) for weights in lists]


def _positive(rows: Array | None) -> bool:
    """Tell whether all entries are positive, so that they have logarithms."""
    return rows is not None and bool(array_namespace(rows).all(rows > 0))


def parts_of(label: str) -> tuple[str, tuple[float, ...]]:
    """Read the label of a view, such as "raw+lagged 1:2"."""
    name, _, ratio = label.partition(" ")
    return name, tuple(float(s) for s in ratio.split(":")) if ratio else ()


def _blocks(union: Any, transformers: list[Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Find the shapes of the blocks that have a norm of their own: views, and the windows of a view."""
    found: list[tuple[int, ...]] = []
    shapes = [shape] if union is None else union.view_shapes_
    for own, transformer in zip(shapes, transformers, strict=True):
        windows = getattr(transformer, "windows", 1)
        found += [own] if windows == 1 else [own[1:]] * windows
    return tuple(found)


def shares_of(scores: list[Array], Y: Array) -> Array:
    """Combine held-out scores of several views with weights that are not negative; return their shares."""
    centred = np.stack([(part - part.mean(axis=0)).ravel() for part in scores], axis=1)
    size = centred.std(axis=0)
    found, _ = nnls(centred / np.where(size > 0, size, 1.0), (Y - Y.mean(axis=0)).ravel())
    return np.asarray(found / found.sum() if found.sum() > 0 else np.arange(len(scores)) == 0, dtype=float)
