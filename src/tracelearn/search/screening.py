"""Screening: which views are worth showing, and how strong each is in one problem of several.

Each view is judged by ridge regression, alone and by what it adds to the others: held-out scores of all views are combined with
weights that are not negative.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import nnls

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.search.events import Event, Report
from tracelearn.search.paths import Path, ridge_path
from tracelearn.search.splits import Targets
from tracelearn.search.task import Task
from tracelearn.search.views import (
    Blend,
    Candidate,
    FittedView,
    blend_views,
    count_multiplications,
    fit_view,
)

__all__ = ["Screening", "Trial", "screen", "shares_of"]

# Views are screened on at most about so many samples, drawn at random.
SCREENED = 400

# A view is dropped if the unexplained variance grows by at most this share without it.
LEAST_GAIN = 0.002

# The blend takes views whose share in the best combination exceeds LEAST_SHARE, the largest first, and at most MOST_VIEWS.
LEAST_SHARE = 0.1
MOST_VIEWS = 4

# Views are added to the best one as long as the search takes no more multiplications than this.
_MOST_MULTIPLICATIONS = 3e11

# If samples have more numbers than this, a fitted view is kept in memory only if it is less than half as large. Other views are
# fitted again if they are chosen.
_MOST_NUMBERS_HELD = 1 << 20

# Views are screened in parallel as long as they take about so many bytes together, each _COPIES times those of the samples.
_BYTES_SIDE_BY_SIDE = 1 << 30
_COPIES = 3

# Flexible views, similarities and thresholds, are tried if the unexplained variance falls by more than this share with them.
SIMILAR_GAIN = 0.02

# Where ridge regression on a view that keeps the modes leaves so many times more unexplained than on the best, it gets no path
# of its own: in no benchmark did a low rank explain more than two fifths of what ridge regression had left unexplained.
_HOPELESS = 1.75


@dataclass(frozen=True, eq=False)
class Trial:
    """One view that was screened: its path of ridge regression, and the seconds it took."""

    candidate: Candidate
    path: Path
    seconds: float
    n_entries: int  # of a sample as the view shows it
    keeps_modes: bool  # see ``FittedView``
    alignment: str = ""  # what the samples of each group were aligned by before, if by anything


@dataclass(frozen=True, eq=False)
class Screening:
    """The result of screening: the blends of views to go on with, and the share of each view in the best combination."""

    blend: Blend
    shares: dict[str, float] = field(default_factory=dict)  # the largest first; empty where nothing was screened
    similar: Blend | None = None  # the same with similarities and thresholds, where these leave less unexplained
    similar_shares: dict[str, float] = field(default_factory=dict)
    first_order: str = ""  # the best view that keeps the modes of a sample, where it is not far behind another
    trials: tuple[Trial, ...] = ()
    # Views of the blends that are fitted to all samples, as far as they were kept.
    views: dict[str, FittedView] = field(default_factory=dict)


def screen(task: Task, report: Report) -> Screening:
    """Judge all candidates, and choose which to show in one problem."""
    names = [candidate.name for candidate in task.candidates]
    can_choose = task.targets.loss.has_moments and not is_sparse(task.samples.rows)
    if len(names) == 1 or not can_choose:
        return Screening(Blend(tuple(names[:1]), alignment=task.alignment))
    drawn, index = task.drawn(SCREENED)
    n_numbers = math.prod(drawn.samples.rows.shape)
    n_side_by_side = max(1, min(task.rules.n_threads, _BYTES_SIDE_BY_SIDE // (8 * _COPIES * n_numbers)))
    trials: list[Trial] = []
    views: dict[str, FittedView] = {}
    with Parallel(n_jobs=n_side_by_side, prefer="threads") as parallel:
        for start in range(0, len(names), n_side_by_side):
            batch = task.candidates[start : start + n_side_by_side]
            calls = (delayed(_screen_view)(candidate, task, drawn, index) for candidate in batch)
            for trial, view in parallel(calls):
                trials.append(trial)
                if view is not None:
                    views[view.name] = view
            best = max(trials, key=lambda trial: trial.path.value)
            message = f"{', '.join(candidate.name for candidate in batch)} screened; best so far {best.candidate.name}"
            if report(Event("views", len(trials) / len(names), message)):
                break
    screening = _choose_views(task, drawn, trials)
    names_in_blends = {
        *screening.blend.names,
        *(screening.similar.names if screening.similar else ()),
        screening.first_order,
    }
    views_of_blends = {name: view for name, view in views.items() if name in names_in_blends}
    return replace(screening, trials=tuple(trials), views=views_of_blends)


def _screen_view(candidate: Candidate, task: Task, drawn: Task, index: Array) -> tuple[Trial, FittedView | None]:
    """Fit a view, and try ridge regression on it with the ``drawn`` samples, whose indices in the task are ``index``.

    The view is returned as well where it was fitted to all samples of the task and is small enough to be held.
    """
    began = time.perf_counter()
    # Where all samples are few enough that most views will be asked for again, views learn from all of them, once.
    fitted_to = task if task.n_samples <= 2 * SCREENED else drawn
    view = fit_view(candidate, fitted_to.samples, fitted_to.folds)
    view_of_drawn = view
    if fitted_to is not drawn:
        if view.rows_of_fold is None:
            view_of_drawn = view.take(index)
        else:  # what a fold has learned from all samples is not what it learns from those drawn
            view_of_drawn = fit_view(candidate, drawn.samples, drawn.folds)
    blended = blend_views(Blend((candidate.name,)), {candidate.name: view_of_drawn}, drawn.samples.weight, "overlapped")
    path = ridge_path(drawn.split(blended))
    seconds = time.perf_counter() - began
    trial = Trial(candidate, path, seconds, view.rows.shape[1], view.keeps_modes, alignment=task.alignment)
    n_numbers = math.prod(task.samples.rows.shape)
    is_held = fitted_to is task and (n_numbers <= _MOST_NUMBERS_HELD or 2 * view.n_numbers < n_numbers)
    return trial, view if is_held else None


def _choose_views(task: Task, drawn: Task, trials: Sequence[Trial]) -> Screening:
    """Choose the views of the largest shares, without flexible ones, and with them where that leaves less unexplained."""
    flexible = {candidate.name for candidate in task.candidates if candidate.is_flexible}
    tests = [test for _, test in drawn.folds.splits]
    without_similar = [trial for trial in trials if trial.candidate.name not in flexible] or list(trials)
    sizes = {trial.candidate.name: trial.n_entries for trial in trials}
    list_of_shares, unexplained = shares_of([trial.path.held_out for trial in without_similar], tests, drawn.targets)
    shares = {trial.candidate.name: share for trial, share in zip(without_similar, list_of_shares, strict=True)}
    similar = None
    similar_shares: dict[str, float] = {}
    if len(without_similar) < len(trials):
        shares_of_all, least_unexplained = shares_of([trial.path.held_out for trial in trials], tests, drawn.targets)
        if least_unexplained < (1.0 - SIMILAR_GAIN) * unexplained:
            similar_shares = {trial.candidate.name: share for trial, share in zip(trials, shares_of_all, strict=True)}
            similar, similar_shares = _blend_of_largest(task, sizes, similar_shares)
    blend, sorted_shares = _blend_of_largest(task, sizes, shares)
    first_order = _first_order(trials, explains=task.targets.scorer is None)
    return Screening(blend, sorted_shares, similar, similar_shares, first_order)


def _blend_of_largest(
    task: Task, sizes: Mapping[str, int], shares: Mapping[str, float]
) -> tuple[Blend, dict[str, float]]:
    """Blend the views of the largest shares, with strengths in proportion to these; also return all shares, the largest first."""
    ordered = dict(sorted(shares.items(), key=lambda pair: pair[1], reverse=True))
    (best, largest), *weaker = ordered.items()
    strengths = {best: 1.0}
    n_entries = sizes[best]
    for name, share in weaker[: MOST_VIEWS - 1]:
        n_joined = n_entries + sizes[name]
        if (
            share > LEAST_SHARE
            and count_multiplications(task.n_samples, n_joined, n_joined, len(task.folds)) <= _MOST_MULTIPLICATIONS
        ):
            strengths[name] = float(f"{share / largest:.3g}")  # held-out scores tell no more digits
            n_entries = n_joined
    return Blend(tuple(strengths), tuple(strengths.values()), task.alignment), ordered


def _first_order(trials: Sequence[Trial], *, explains: bool) -> str:
    """Name the best view that keeps the modes of a sample; none where it is far behind another."""
    keep_modes = [trial for trial in trials if trial.keeps_modes]
    if not keep_modes:
        return ""
    best = max(keep_modes, key=lambda trial: trial.path.value)
    best_of_all = max(trial.path.value for trial in trials)
    # Only shares of explained variance can be compared with what a perfect model has, one; a user's score cannot.
    is_far = explains and 1.0 - best.path.value > _HOPELESS * (1.0 - best_of_all)
    return "" if is_far else best.candidate.name


def shares_of(
    held_out: Sequence[Sequence[Array]], tests: Sequence[Array], targets: Targets
) -> tuple[list[float], float]:
    """Combine held-out scores of several views with weights that are not negative; return their shares, and what is unexplained.

    Views are dropped one after the other, while the others leave hardly more unexplained than all of them do.

    Parameters
    ----------
    held_out : for each view the scores (m, K) of what each fold holds out
    tests : for each fold the samples that it holds out
    targets : of the same samples; their weights count
    """
    index = np.concatenate(list(tests))
    weight = to_numpy(targets.weight)[index]
    columns = [np.concatenate([to_numpy(scores) for scores in view]) for view in held_out]
    codes = to_numpy(targets.codes)[index]
    codes = codes - np.average(codes, axis=0, weights=weight)  # first: offsets may be large
    table = np.stack([*columns, codes])  # (views + 1, samples, K)
    centred = table - np.average(table, axis=1, weights=weight)[:, None, :]
    centred = (np.sqrt(weight / np.sum(weight))[:, None] * centred).reshape(len(table), -1).T
    size = np.sqrt(np.sum(centred**2, axis=0))
    # The triangle of a QR decomposition has the same products as all rows, and is small.
    triangle: Array = np.linalg.qr(centred / np.where(size > 0, size, 1.0), mode="r")
    predictors = triangle[:, :-1]
    target = triangle[:, -1]
    views = np.arange(len(held_out))
    weights, residual_of_all = nnls(predictors, target)
    while len(views) > 1:
        smallest_residual = math.inf
        for view in views[::-1]:  # of equal ones the first stays, which is simpler
            without_view = views[views != view]
            weights_without, residual = nnls(predictors[:, without_view], target)
            if residual < smallest_residual:
                smallest_residual = residual
                fewer_views = without_view
                weights_of_fewer = weights_without
        if smallest_residual**2 > (1.0 + LEAST_GAIN) * residual_of_all**2:
            break
        views = fewer_views
        weights = weights_of_fewer
    shares = np.zeros(len(held_out))
    shares[views] = weights / weights.sum() if weights.sum() > 0 else 1.0 / len(views)
    return shares.tolist(), residual_of_all**2
