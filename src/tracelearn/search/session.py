"""One search: samples in several views, folds, what was looked at so far and what is asked next, and how far it is."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, product
from numbers import Integral
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from scipy.optimize import nnls

from tracelearn.arrays.array_api import Array, array_namespace, to_numpy
from tracelearn.errors import warn
from tracelearn.estimators.base import TraceNormModel
from tracelearn.features import Similarities, Views, default_views, find_time_axis
from tracelearn.features.base import TAKES_LONG
from tracelearn.penalties import Blocks, as_penalty, is_overlapped
from tracelearn.samples.samples import Samples
from tracelearn.search.blocks import with_held_out_classes
from tracelearn.search.folds import Design, Folds, Held
from tracelearn.search.search import (
    Candidate,
    Judge,
    Table,
    class_map,
    class_scores,
    log_losses,
    read_alphas,
    read_strengths,
    walk_alphas,
    walk_logistic,
    walk_ridges,
)

__all__ = [
    "VIEWS",
    "Progress",
    "Session",
    "Shown",
    "View",
    "choose",
    "parts_of",
    "possible_views",
    "see",
    "shares_of",
]

# --- views: which there are, which suit samples, and samples as they show them -------------------------------------------

VIEWS = tuple(name for name, _ in default_views(-1))

# Views that compare samples with some of the training samples; a search adds them where folds confirm that they are needed.
SIMILAR = frozenset(["similarities", "similarities_standardized", "similarities_second_order"])

# Views of second order are tried, and views added to the best one, as long as one search takes no more multiplications than this.
_MOST_WORK = 3e11

# A search that takes more multiplications than this for the samples as they are looks at some of them.
_MOST_SEARCHED = 5e11


def possible_views(
    shape: tuple[int, ...], time_axis: Any, *, n: int = 0, positive: bool = False, modes: Any = None
) -> tuple[list[str], str]:
    """List the views that suit n samples, and why.

    Logarithms where all entries are positive; whitened modes unless one is very long; where a mode can be time, whitened
    channels of several, second order unless samples and entries are many, and convolutions, of the mean of all channels where
    these are many: not as many of them where samples are many. Similarities up to 20,000 samples.

    Examples
    --------
    >>> from tracelearn.search.session import possible_views
    >>> possible_views((6, 11), "auto")[0]
    ['raw', 'whitened', 'whitened_fully', 'similarities', 'similarities_standardized']
    >>> possible_views((64, 200), "auto")[0][2:]
    ['whitened_fully', 'whitened_channels', 'second_order', 'convolutions_of_mean', 'similarities', 'similarities_standardized']
    """
    axis, reason = find_time_axis(shape, time_axis, modes) if len(shape) > 1 else (None, "samples have one mode")
    names, left_out = list[str](), list[str]()
    for name, view in default_views(axis):
        reason_against = "" if view is None else view.why_not(shape, n, positive)
        if not reason_against:
            names.append(name)
        elif reason_against == TAKES_LONG:
            left_out.append(name)
    return names, reason + (f"; without {', '.join(left_out)}, which would take long" if left_out else "")


def _work(n: int, entries: int, distinct: int, folds: int = 5) -> float:
    """Count the multiplications of sums of squares, and of eigenvectors in every fold."""
    rank = min(n, distinct)
    return n * entries * rank + 10 * folds * rank**3


@dataclass(frozen=True, eq=False)
class View:
    """Samples as one view, or several in one problem, show them."""

    samples: Samples
    blocks: list[tuple[int, ...]]  # the shapes of the blocks of weights that have a norm of their own
    features: Any = None  # the fitted transformer, or None
    penalty: Any = None  # of several blocks, else None


def parts_of(label: str) -> tuple[str, tuple[float, ...]]:
    """Read the label of views in one problem, such as "raw+whitened 1:0.5": their names, and how strong each is."""
    name, _, ratio = label.partition(" ")
    return name, tuple(float(s) for s in ratio.split(":")) if ratio else ()


def see(name: str, samples: Samples, options: Any, modes: Any = None) -> View:
    """See samples as one view does; what it learns it learns without targets.

    Parameters
    ----------
    options : the estimator whose parameters say what is searched
    modes : of a sample, where they have names
    """
    if name not in VIEWS:
        raise ValueError(
            f"Expected views among {', '.join(VIEWS)}, got {name!r}: join those of one problem by +, as raw+whitened."
        )
    axis, _ = find_time_axis(samples.shape, options.time_axis, modes)
    features = dict(default_views(-1 if axis is None else axis))[name]
    if features is None:
        shown = samples.rescaled(samples.checked().mode_scales()) if options.scaling else samples
        return View(shown, [samples.shape])
    (block,) = samples.checked().blocks
    if isinstance(features, Similarities):  # as many entries as there are samples to compare with
        features.n_landmarks = min(features.n_landmarks, block.X.shape[0])
    found = features.fit_tensors(array_namespace(block.X).reshape(block.X, (-1, *samples.shape)), block.weight)
    shape, windows = tuple(found.shape[1:]), getattr(features, "windows", 1)
    rows = array_namespace(found).reshape(found, (found.shape[0], -1))
    if windows > 1:
        return _in_blocks(samples, rows, features, [shape[1:]] * windows, options)
    return View(samples.with_rows(rows, shape), [shape], features)


def see_together(label: str, views: list[View], samples: Samples, options: Any) -> View:
    """See samples as several views do in one problem, each times its strength."""
    names, strengths = parts_of(label)
    (block,) = samples.checked().blocks
    T = array_namespace(block.X).reshape(block.X, (-1, *samples.shape))
    pairs = [(name, view.features) for name, view in zip(names.split("+"), views, strict=True)]
    parts = [T if view.features is None else view.samples.rows for view in views]
    blocks = [shape for view in views for shape in view.blocks]
    features, rows = Views.from_fitted(pairs, parts, block.weight, view_weights=strengths or None)
    return _in_blocks(samples, rows, features, blocks, options)


def _in_blocks(samples: Samples, rows: Array, features: Any, blocks: list[tuple[int, ...]], options: Any) -> View:
    """Show samples by flat rows (n, p), of which several blocks of weights have a norm each."""
    penalty = Blocks(tuple(blocks), tuple(as_penalty(options.penalty, shape) for shape in blocks))
    return View(samples.with_rows(rows, (rows.shape[1],)), blocks, features, penalty)


@dataclass(frozen=True, eq=False)
class Shown:
    """Samples, split into folds, as views show them, each made once; views are known by their labels, see ``parts_of``."""

    options: Any  # the estimator whose parameters say what is searched
    samples: Samples
    folds: Folds
    repeats: Folds  # these folds, and more of the same samples: views are screened with all of them
    judge: Judge
    # More samples, if views learn from them, and which of them (n,) these are.
    learned_from: tuple[Shown, Array] | None = None
    _views: dict[str, View] = field(default_factory=dict)
    _designs: dict[tuple[str, bool, Folds], Design] = field(default_factory=dict)

    def view(self, label: str) -> View:
        """See the samples as a view does, or as several do in one problem."""
        if label in self._views:
            return self._views[label]
        if self.learned_from is not None:
            more, chosen = self.learned_from
            seen = more.view(label)
            found = replace(seen, samples=seen.samples.take(chosen))
        else:
            modes, parts = getattr(self.judge.model, "modes_", None), list[View]()
            for one in label.partition(" ")[0].split("+"):
                parts.append(self._views.get(one) or see(one, self.samples, self.options, modes))
            found = see_together(label, parts, self.samples, self.options) if len(parts) > 1 else parts[0]
        self._views[label] = found
        return found

    def design(self, label: str, *, joint: bool = False, repeated: bool = False) -> Design:
        """Split a view into folds, or into all repeats of them; targets may be one more mode."""
        folds = self.repeats if repeated else self.folds
        if (label, joint, folds) not in self._designs:
            judge, options = self.judge, self.options
            self._designs[label, joint, folds] = Design(
                self.view(label).samples,
                folds,
                judge.loss,
                joint=joint,
                fit_intercept=options.fit_intercept,
                numbers=not judge.model._learns_classes,
                judge=judge,
                by_score=options.scoring is not None,
            )
        return self._designs[label, joint, folds]

    def drawn(self) -> Shown:
        """Take as many samples, drawn at random, as can be decomposed in every fold in some seconds: those that choose.

        Where alphas, ridges or folds are given, all of them choose.
        """
        n, p, options = self.folds.n, self.samples.n_features, self.options
        here = self.samples.rows is not None and self.judge.loss.has_moments
        given = not isinstance(options.alphas, Integral) or not isinstance(options.cv, Integral)
        if not here or given or not isinstance(options.ridges, str):
            return self
        count = n
        while _work(count, p, p, self.folds.count) > _MOST_SEARCHED:
            count -= max(1, count // 50)
        if count == n:
            return self
        self.judge.model._report(f"{count} of {n} samples, drawn at random, are searched: all of them would take long")
        return self.some(count)

    def some(self, count: int, *, learned: bool = False) -> Shown:
        """Take some samples, drawn at random; views learn from them, or may have learned from all."""
        chosen = np.zeros(self.folds.n, dtype=bool)
        chosen[np.random.default_rng(0).permutation(self.folds.n)[:count]] = True
        folds, repeats = self.folds.among(chosen), self.repeats.among(chosen)
        more = (self, chosen) if learned else None
        return Shown(self.options, self.samples.take(chosen), folds, repeats, self.judge.among(chosen), more)


# --- what a search asks, one question after the other ------------------------------------------------------------------

# Views of a sample whose share in the best combination of all is below this are left out, and so are all but the best few; first
# of all those without which the others together leave at most so much more unexplained, as a share of it.
LEAST_SHARE, MOST_VIEWS, LEAST_GAIN = 0.1, 4, 0.002

# Views with similarities are tried where they leave so much less unexplained, as a share of it.
SIMILAR_GAIN = 0.02

# Views that keep the modes of a sample.
FIRST_ORDER = ("raw", "log", "whitened", "whitened_fully", "whitened_channels")

# Where ridge regression on such a view leaves so many times more unexplained than on the best, it gets no path of its own: on no
# set did a low rank explain more than two fifths of what ridge regression had left.
_HOPELESS = 1.75

# So many samples, drawn at random, tell which views are worth showing.
SCREENED = 400

# With more weights than this, in all folds and classes, every alpha of a path takes long. Every third is looked at first, and
# the path is left there unless it explains so much more than ridge regression, as a share of what that explains, or leaves.
_MANY_WEIGHTS, _GAIN = 125_000, 0.02

# The share of all work that is done after each part of a search: as it was on real sets of some seconds.
_SCREENED, _RIDGES, _PATH = 0.23, 0.43, 0.72
_CONVOLVED = 6  # views that take as long to screen as convolutions do

# Standard errors by which the held-out log-loss must fall, over the folds, before more is learned than one factor.
_EVIDENCE = 2.0

# Where logistic regression is tried on more samples than features, it takes longer than all that comes before it.
_PACE = 0.2


@dataclass(eq=False)
class Session:
    """One search: all samples, those of them that choose, how far it is, and what was found so far."""

    options: Any  # the estimator whose parameters say what is searched
    model: TraceNormModel
    whole: Shown
    shown: Shown  # the same, or some of them where all would take long
    progress: Progress
    first_order: str = ""  # the best view that keeps the modes of a sample, where several were screened
    similar: tuple[str, dict[str, float]] | None = None  # views with similarities, and shares, if they leave less
    view_shares: dict[str, float] | None = None  # of the views that were screened
    class_map: Array | None = None  # between the scores of all classes, where folds confirm it
    tables: list[Table] = field(default_factory=list)

    def keep(self, tables: list[Table], what: str) -> None:
        """Keep what was found, and say what is best of it."""
        self.tables += tables
        best = max(tables, key=attrgetter("value"))
        score = best.means[best.best]  # of classes in blocks known after the search
        held = f"{score:.4g} held out, " if math.isfinite(score) else ""
        self.model._report(f"{what} on {best.candidate.view}: {held}criterion {best.value:.4g}")

    def walk(
        self,
        label: str,
        candidates: Sequence[Candidate],
        within: tuple[float, float],
        above: float = -math.inf,
        *,
        in_doubt: bool = False,
    ) -> list[Table]:
        """Walk the paths of candidates of one view, from one share of all work to another.

        Where an alpha takes long, or a path is ``in_doubt``, every third is looked at first, and no table is returned if none of
        these is better than what was found ``above``, by more than rough solutions differ.
        """
        shown, view, options = self.shown, self.shown.view(label), self.options
        alphas, given = read_alphas(options.alphas, options.eps)
        weights = view.samples.n_features * view.samples.n_targets * shown.folds.count
        looks = (in_doubt or weights > _MANY_WEIGHTS) and not given and math.isfinite(above)
        # Within the same shares of a look, too: most paths end with it.
        progress = partial(self.progress.reach, within[1], f"trace norm on {label}", within[0])
        for grid in [alphas[::-3][::-1], alphas] if looks else [alphas]:
            tables: list[Table] = []
            for joint, own in groupby(candidates, attrgetter("target_mode")):
                tables += walk_alphas(
                    shown.design(label, joint=joint),
                    list(own),
                    grid,
                    given=given,
                    penalty=options.penalty if view.penalty is None else view.penalty,
                    max_iter=options.max_iter,
                    n_jobs=options.n_jobs,
                    progress=progress,
                )
            found = np.max(np.concatenate(list(map(attrgetter("selecting"), tables))))
            if grid is not alphas and found < above + _GAIN * max(0.0, min(above, 1.0 - above)):
                self.keep(tables, "some alphas of the trace norm")
                return []
        self.keep(tables, "trace norm")
        return tables


def choose(session: Session) -> Table:
    """Find out which views to show, then whether the trace norm or ridge regression alone is better on them."""
    label, progress = _choose_views(session), session.progress
    design, tables = session.shown.design(label), []
    if isinstance(session.options.ridges, str) and design.is_square:  # ridges in closed form
        tables.append(walk_ridges(design, label))
        session.keep(tables, "ridge regression")
        few = design.is_small and design.span is None
        progress.pace = _PACE if few and _asks_more(session, tables[0]) else 1.0
        progress.reach(_RIDGES, f"ridge regression on {label}")
    candidates = [Candidate(label)] if ":" in label else _candidates(session, label)
    if not tables or not progress.over:
        above = tables[0].value if tables else -math.inf
        tables += session.walk(label, candidates, (_RIDGES, _PATH), above)
    # Ridge regression does not see what only a low rank can find in samples of many entries: they get a path of their own.
    alone = session.first_order
    best = max(tables, key=attrgetter("value"))
    if alone not in ("", label) and not progress.over:
        tables += session.walk(alone, _candidates(session, alone), (_PATH, _PATH), best.value, in_doubt=True)
        best = max(tables, key=attrgetter("value"))
    value = best.value
    best, session.class_map, losses = _judged(session, best)
    if session.similar is not None and not progress.over:
        label, shares = session.similar
        other = walk_ridges(session.shown.design(label), label)
        session.keep([other], "ridge regression")
        # What explains less, though smooth functions explain more, need not be judged.
        other, between, after = _judged(session, other) if other.value > value else (best, None, losses)
        if _is_evident(losses - after):
            best, session.class_map, session.view_shares = other, between, shares
    if session.model._learns_classes and not design.samples.in_memory:
        chosen = session.tables.index(best)
        session.tables = with_held_out_classes(session.tables)
        best = session.tables[chosen]
    progress.pace = 1.0
    progress.reach(_PATH, f"chosen: {best.candidate.view}")
    return best


def _is_evident(gain: Array) -> bool:
    """Tell whether paired differences over folds are above zero by more than chance."""
    gain = gain[~np.isnan(gain)]
    error = float(np.std(gain, ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return len(gain) > 1 and bool(gain.mean() > max(_EVIDENCE * error, 0.0))


def _asks_more(session: Session, best: Table) -> bool:
    """Tell whether more than squares may be learned: nothing was asked for by name, and there is memory and time."""
    options, samples = session.options, session.shown.samples
    named = isinstance(options.views, str) and options.views != "auto"
    asked = options.views is None or named or options.scoring is not None or not isinstance(options.ridges, str)
    here = samples.rows is not None and not samples.n_confounds
    asked |= options.keep_moments or options.one_standard_error or best.candidate.target_mode
    # The model has another loss than was asked for where that is "auto".
    asks_loss = options.loss is not session.model.loss
    return asks_loss and not asked and here and not session.progress.over


def _judged(session: Session, best: Table) -> tuple[Table, Array | None, Array]:
    """Take logistic regression, or a map between the scores of all classes, where held-out folds confirm it.

    Also returns that map, and the loss of each fold: of classes the log-loss, since a smooth function comes closer to codes of
    classes than a linear one that tells them apart as well.
    """
    design, label, between = best.design, best.candidate.view, None
    if design.numbers or session.options.scoring is not None:
        return best, None, -best.scores[best.best]
    asks_more = _asks_more(session, best)
    if not asks_more and session.similar is None:
        return best, None, np.zeros(0)
    held = class_scores(best.parts[best.best], design.held, design.weights)
    losses = log_losses(held)
    if not asks_more:
        return best, None, losses
    tried, chosen = {"one factor": (best, losses)}, "one factor"
    if design.samples.n_targets > 2:
        between, after = class_map(held)
        tried["map"] = best, after
    other = walk_logistic(design, label)
    if other is not None:
        session.keep([other], "logistic regression")
        found = class_scores(other.parts[other.best], design.held, design.weights)
        tried["logistic"] = other, log_losses(found)
    for name, (_, after) in tried.items():
        if _is_evident(losses - after) and after.mean() < tried[chosen][1].mean():
            chosen = name
    said = ", ".join([f"{name} {after.mean():.4g}" for name, (_, after) in tried.items()])
    session.model._report(f"held-out log-loss: {said}; chosen: {chosen}")
    return tried[chosen][0], between if chosen == "map" else None, tried[chosen][1]


def _choose_views(session: Session) -> str:
    """Name the views to show: those that were asked for, or the best of those that suit the samples."""
    options, shown, samples = session.options, session.shown, session.shown.samples
    rows: Any = samples.rows
    if options.views is None or rows is None:
        return "raw"
    if isinstance(options.views, str) and options.views == "auto":
        positive = bool(array_namespace(rows).all(rows > 0))
        modes, n = getattr(session.model, "modes_", None), shown.folds.n
        names, reason = possible_views(samples.shape, options.time_axis, n=n, positive=positive, modes=modes)
        if not isinstance(options.ridges, str):  # similarities are learned from by ridge regression alone
            names = [name for name in names if name not in SIMILAR]
    else:
        names, reason = [options.views] if isinstance(options.views, str) else list(map(str, options.views)), "as given"
    if not names:
        raise ValueError("Expected views to be 'auto', None, a name or several, got none: leave views out.")
    session.progress.reach(0.0, f"views: {', '.join(names)} ({reason})")
    return names[0] if len(names) == 1 or not shown.judge.loss.has_moments else _screen(session, names)


def _screen(session: Session, names: list[str]) -> str:
    """Choose among views, and how strong each is: by how much ridge regression on each adds to that on the others.

    Held-out scores of all views are combined with weights that are not negative. A view that gets a small share is left
    out, and so is one that would make the problem too large; the others are multiplied by their shares, so that weights on
    a good view cost less.
    """
    shown, progress, n = session.shown, session.progress, session.shown.folds.n
    # Where all samples are few enough that most views will be asked for again, views learn from all of them, once.
    some = shown if n <= SCREENED else shown.some(SCREENED, learned=n <= 2 * SCREENED)
    values, scores = dict[str, float](), []  # what selects, and what is selected
    for name in names:
        if values and progress.over:
            break
        table = walk_ridges(some.design(name, repeated=True), name)
        values[name] = table.value
        scores.append(table.parts[table.best])
        seen = len(values) + (_CONVOLVED - 1) * ("convolutions" in values)
        all_views = len(names) + (_CONVOLVED - 1) * ("convolutions" in names)
        progress.reach(_SCREENED * seen / all_views, f"{name}: criterion {table.value:.4g}")
    held, plain, unlike = some.design(names[0], repeated=True).held, [], []
    # Where ridges are given, similarities are views like all others.
    similar = SIMILAR if isinstance(session.options.ridges, str) else frozenset()
    for own, name in zip(scores, values, strict=True):
        if name not in similar:
            plain.append(name)
            unlike.append(own)
    session.first_order = _first_order(values, explains=session.options.scoring is None)
    shares, left = shares_of(scores, held)
    if 0 < len(plain) < len(values):
        with_similar, least = dict(zip(values, shares, strict=True)), left
        shares, left = shares_of(unlike, held)
        if least < (1.0 - SIMILAR_GAIN) * left:
            session.similar = _together(session, some, with_similar)
    label, session.view_shares = _together(session, some, dict(zip(plain or values, shares, strict=True)))
    return label


def _together(session: Session, some: Shown, found: dict[str, float]) -> tuple[str, dict[str, float]]:
    """Label the views of the largest shares, and sort all of them by these."""
    shown, n = session.shown, session.shown.folds.n
    (best, most), *others = shares = sorted(found.items(), key=itemgetter(1), reverse=True)
    chosen, entries = {best: most}, some.view(best).samples.n_features
    for name, share in others[: MOST_VIEWS - 1]:
        more = entries + some.view(name).samples.n_features
        if share > LEAST_SHARE and _work(n, more, more, shown.repeats.count) <= _MOST_WORK:
            chosen[name], entries = share, more
    session.model._report("shares of views: " + ", ".join(map("{} {:.2f}".format, chosen, chosen.values())))
    label = best
    if len(chosen) > 1:
        label = f"{'+'.join(chosen)} {':'.join(f'{share / most:.3g}' for share in chosen.values())}"
    return label, dict(shares)


def _first_order(values: dict[str, float], *, explains: bool) -> str:
    """Name the best view that keeps the modes of a sample, given what selects each; none where it is far behind another."""
    best = max(filter(FIRST_ORDER.__contains__, values), key=values.__getitem__, default="")
    # A score of the user's is no share of the variance that is explained.
    far = explains and best != "" and 1.0 - values[best] > _HOPELESS * (1.0 - max(values.values()))
    return "" if far else best


def _candidates(session: Session, label: str) -> list[Candidate]:
    """List what to try of one view; "auto" mode weights are equal ones and each mode alone."""
    options, view, found = session.options, session.shown.view(label), []
    joints = [False, True] if isinstance(options.target_mode, str) else [bool(options.target_mode)]
    ridges = [0.0] if isinstance(options.ridges, str) else read_strengths(options.ridges, "ridges").tolist()
    # Several classes are one mode more of one tensor, and not of the blocks of several views.
    for joint in joints if view.samples.n_targets > 1 and view.penalty is None else [False]:
        given = options.mode_weights is not None and label in FIRST_ORDER
        weights = _mode_weights(options, len(view.samples.shape) + joint) if given else [None]
        for own, ridge in product(weights, ridges):
            found.append(Candidate(label, own, ridge, joint))
    return found


def _mode_weights(options: Any, order: int) -> list[tuple[float, ...] | None]:
    given = options.mode_weights
    if isinstance(given, str) and (order <= 2 or not is_overlapped(options.penalty)):
        return [None]  # at order 2 all weights give one norm, and latent norms choose their mode themselves
    if isinstance(given, str):
        return [None, *(tuple(float(n == mode) for n in range(order)) for mode in range(order))]
    lists = list(given)
    if not lists:
        raise ValueError("Expected mode_weights to be 'auto', None, or one weight for each mode, got none.")
    lists = [lists] if np.ndim(lists[0]) == 0 and lists[0] is not None else lists
    return [None if weights is None else tuple(float(weight) for weight in weights) for weights in lists]


def shares_of(scores: Sequence[Sequence[Array]], held: Sequence[Held]) -> tuple[list[float], float]:
    """Combine held-out scores of several views with weights that are not negative; return their shares, and what is left.

    Views are dropped, one after the other, while the rest leaves hardly more unexplained than all of them do.
    """
    tables = []
    for own, *views in zip(held, *scores, strict=True):
        inside = np.arange(own.Y.shape[1]) < np.array(list(map(len, own.index)))[:, None]  # and no padding
        tables.append(np.stack(list(map(to_numpy, (*views, own.Y))))[:, inside])
    table = np.concatenate(tables, axis=1)  # (views + 1, samples, K)
    centred = (table - table.mean(axis=1, keepdims=True)).reshape(len(table), -1).T
    size = np.std(centred, axis=0)
    # A triangle has the sums of squares of all samples.
    triangle: Array = np.linalg.qr(centred / np.where(size > 0, size, 1.0), mode="r")
    columns, target, kept, shares = triangle[:, :-1], triangle[:, -1], np.arange(len(scores)), np.zeros(len(scores))
    found, left = nnls(columns, target)
    while len(kept) > 1:
        least = math.inf
        for view in kept[::-1]:  # of equal ones the first stays, which is simpler
            others = kept[kept != view]
            weights, rest = nnls(columns[:, others], target)
            if rest < least:
                least, fewer = rest, (others, weights)
        if least**2 > (1.0 + LEAST_GAIN) * left**2:
            break
        kept, found = fewer
    shares[kept] = found / found.sum() if found.sum() > 0 else 1.0 / len(kept)
    return shares.tolist(), left**2


# --- how far a search is, and how it is ended early: by time, by Ctrl-C or by a callback -------------------------------------


_STEPS = 20  # that scikit-learn's callbacks are shown


class Progress:
    """One share of the whole search, which only grows, and whether it is to end with the best so far.

    Parameters
    ----------
    deadline : on the monotonic clock
    say : what ``verbose`` reports with
    estimator : whose callbacks are shown each step (scikit-learn 1.9 and later)

    Examples
    --------
    >>> from tracelearn.search.session import Progress
    >>> progress = Progress()
    >>> progress.reach(0.5, "half of it"), progress.reach(0.25, "less, which changes nothing")
    (False, False)
    >>> progress.done
    0.5
    """

    def __init__(
        self, deadline: float = math.inf, say: Callable[..., None] | None = None, estimator: Any = None
    ) -> None:
        self.deadline, self.say, self.done, self.over = deadline, say, 0.0, False
        self.pace = 1.0  # what shares are multiplied by, where more is to come than usual
        self._began, self._estimator, self._steps, self._root = time.monotonic(), estimator, 0, None
        if getattr(estimator, "_skl_callbacks", None):
            self._root = estimator._init_callback_context(max_subtasks=_STEPS)
            self._root.call_on_fit_task_begin(estimator=estimator)

    def reach(self, share: float, message: str, since: float = 0.0, part: float = 1.0) -> bool:
        """Say what was done: so much of all work, or one part more from one share to another. Return whether to end."""
        goal, begun = self.pace * share, self.pace * since
        self.done = max(self.done, min(goal, max(self.done, begun) + part * (goal - begun)))
        if self.say is not None:
            left = (time.monotonic() - self._began) * (1.0 - self.done) / max(self.done, 1e-9)
            words = f"{message}; {self.done:.0%} done" + (f", about {left:.1f} s left" if self.done > 0 else "")
            self.say(words, paths_done=(round(100 * self.done), 100))
        self.over |= time.monotonic() > self.deadline
        while self._root is not None and self._steps < math.floor(_STEPS * self.done + 1e-9):
            self._steps += 1
            step = self._root.subcontext(task_name=message)
            step.call_on_fit_task_begin(estimator=self._estimator)
            self.over |= bool(step.call_on_fit_task_end(estimator=self._estimator))
        if self._root is not None and share >= 1.0:
            self._root.call_on_fit_task_end(estimator=self._estimator)
        return self.over

    @contextmanager
    def ended_by_interrupt(self) -> Iterator[None]:
        """Let the first Ctrl-C end the search with the best so far; a second one is raised as ever."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.getsignal(signal.SIGINT)

        def interrupted(number: int, frame: Any) -> None:
            signal.signal(signal.SIGINT, before)
            self.over = True
            warn(
                "Expected the search to end by itself, got an interrupt: what was found so far is fitted to all samples; "
                "interrupt once more to stop at once."
            )

        if before is not signal.default_int_handler:  # somebody else handles it, and knows what to do
            yield
            return
        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
