"""The choice: which views, ridge regression or the trace norm, which loss, similarities or not; one question after the other.

Every question is answered by held-out samples, and what was tried is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.search.calibration import Calibration, calibrate
from tracelearn.search.events import Event, Report
from tracelearn.search.paths import Path, is_small, logistic_path, read_alphas, ridge_path, trace_path
from tracelearn.search.screening import Screening, screen
from tracelearn.search.softmax import class_map, log_losses, stacked_scores
from tracelearn.search.splits import SplitSamples
from tracelearn.search.task import Task
from tracelearn.search.views import Blend, FittedView, blend_views, fit_view, work

__all__ = ["Choice", "Tried", "choose"]

# With more weights than this, in all folds and classes, every alpha of a path takes long. Every third is looked at first, and
# the path is left there unless it explains so much more than ridge regression, as a share of what that explains, or leaves.
_MANY_WEIGHTS, _GAIN = 125_000, 0.02

# Standard errors by which the held-out log-loss must fall, over the folds, before more is learned than one factor.
_EVIDENCE = 2.0

# A map between classes has the square of their number of entries: not of more classes than this.
_MOST_MAPPED = 100

# A search that takes more multiplications than this for the samples as they are looks at some of them.
_MOST_SEARCHED = 5e11


@dataclass(frozen=True, eq=False)
class SplitBlend:
    """Samples as the views of a blend show them, split into folds, with the penalty for their weights."""

    blend: Blend
    views: dict[str, FittedView]
    split: SplitSamples
    penalty: Any

    @classmethod
    def of(cls, task: Task, blend: Blend, fitted: Mapping[str, FittedView]) -> SplitBlend:
        """Fit the views of a blend that are not fitted to all samples yet, and split what they show."""
        candidates = {candidate.name: candidate for candidate in task.candidates}
        views = {}
        for name in blend.names:
            views[name] = fitted.get(name) or fit_view(candidates[name], task.samples, task.folds)
        blended = blend_views(blend, views, task.samples.weight, task.rules.penalty)
        return cls(blend, views, task.split(blended), blended.penalty)


@dataclass(frozen=True, eq=False)
class Tried:
    """A path that was walked, on which blend of views, and the seconds that it took."""

    shown: SplitBlend
    path: Path
    seconds: float
    only_some: bool = False  # whether only some alphas were looked at, which promised too little

    @property
    def blend(self) -> Blend:
        """The views of the path."""
        return self.shown.blend


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, by which evidence, and all that was tried."""

    tried: Tried  # the path of what was chosen
    point: int  # its point
    alpha: float  # for all samples, in the units of the blend
    ridge: float
    is_logistic: bool
    class_map: Array | None  # (K + 1, K) between the scores of all classes, offsets in the last row
    calibration: Calibration | None  # of classes
    shares: dict[str, float]  # of the views that were screened
    screening: Screening
    all_tried: tuple[Tried, ...]
    searched: int  # how many samples chose
    views: dict[str, FittedView] = field(default_factory=dict)  # those of the blend, where all samples chose

    @property
    def blend(self) -> Blend:
        """The views that were chosen."""
        return self.tried.blend

    @property
    def path(self) -> Path:
        """The path of what was chosen."""
        return self.tried.path

    @property
    def split(self) -> SplitSamples:
        """The samples as the chosen views show them, in folds."""
        return self.tried.shown.split


def choose(task: Task, report: Report) -> Choice:
    """Find out which views to show, then whether the trace norm or ridge regression alone is better on them, and so on."""
    searched = task
    count = _affordable(task)
    if count < task.n_samples:
        searched, _ = task.drawn(count)
        report(
            Event("views", 0.0, f"{count} of {task.n_samples} samples, drawn at random, choose: all would take long")
        )
    screening = screen(searched, report)
    task_once = searched.once()
    shown = SplitBlend.of(task_once, screening.blend, screening.views)
    tried = _try_ridge(shown)
    above = max((one.path.value for one in tried), default=-math.inf)
    if not tried or not report(Event("ridge", 1.0, f"ridge regression on {shown.blend}")):
        tried += _try_trace_norm(task_once, shown, above, report)
    # Ridge regression does not see what only a low rank can find in samples of many entries: they get a path of their own.
    first_order = Blend((screening.first_order,))
    is_new = bool(screening.first_order) and first_order.names != screening.blend.names
    if is_new and not report(Event("path", 0.9, f"trace norm on {shown.blend}")):
        above = max(one.path.value for one in tried)
        alone = SplitBlend.of(task_once, first_order, screening.views)
        tried += _try_trace_norm(task_once, alone, above, report, in_doubt=True)
    best = max((one for one in tried if not one.only_some), key=lambda one: one.path.value)
    answer = _with_best_loss(task_once, best)
    all_tried = [*tried, *answer.more]
    shares = screening.shares
    if screening.similar is not None and not report(Event("losses", 0.5, f"losses on {best.blend}")):
        (other,) = _try_ridge(SplitBlend.of(task_once, screening.similar, screening.views))
        all_tried.append(other)
        # What explains less, though smooth functions explain more, need not be judged.
        if other.path.value > best.path.value:
            rival = _with_best_loss(task_once, other)
            all_tried += rival.more
            if _is_evident(answer.losses - rival.losses):
                answer, shares = rival, screening.similar_shares
    report(Event("losses", 1.0, f"chosen: {answer.tried.blend}"))
    return _finished(task, searched, screening, answer, shares, tuple(all_tried))


def _affordable(task: Task) -> int:
    """Count the samples that can be decomposed in every fold in some seconds."""
    n, p = task.n_samples, math.prod(task.samples.shape)
    if is_sparse(task.samples.rows) or not task.targets.loss.has_moments:
        return n
    count = n
    while work(count, p, p, len(task.folds) // task.folds.n_repeats) > _MOST_SEARCHED:
        count -= max(1, count // 50)
    return count


# --- the questions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answer:
    """A path with what is learned from its held-out scores; ``losses`` (F,) are what each fold loses by it."""

    tried: Tried
    losses: Array
    class_map: Array | None = None
    more: tuple[Tried, ...] = ()


def _try_ridge(shown: SplitBlend) -> list[Tried]:
    """Try ridge regression, where the loss has a closed form."""
    if not shown.split.has_moments:
        return []
    began = time.perf_counter()
    path = ridge_path(shown.split)
    return [Tried(shown, path, time.perf_counter() - began)]


def _try_trace_norm(
    task: Task, shown: SplitBlend, above: float, report: Report, *, in_doubt: bool = False
) -> list[Tried]:
    """Walk the path of the trace norm on a blend.

    Where an alpha takes long, or a path is ``in_doubt``, every third is looked at first, and that is all if none of these is
    better than what was found ``above``, by more than rough solutions differ.
    """
    began, rules, split = time.perf_counter(), task.rules, shown.split
    alphas, given = read_alphas(rules.alphas, rules.eps)
    options: dict[str, Any] = {"given": given, "max_iter": rules.max_iter, "n_jobs": rules.n_threads}

    def progress(done: float) -> bool:
        return report(Event("path", 0.9 * done, f"trace norm on {shown.blend}"))

    n_weights = math.prod(split.shape) * split.n_targets * len(split.folds)
    if (in_doubt or n_weights > _MANY_WEIGHTS) and not given and math.isfinite(above):
        some = trace_path(split, shown.penalty, alphas[::-3][::-1], report=progress, **options)
        if np.max(some.selecting) < above + _GAIN * max(0.0, min(above, 1.0 - above)):
            return [Tried(shown, some, time.perf_counter() - began, only_some=True)]
    path = trace_path(split, shown.penalty, alphas, report=progress, **options)
    return [Tried(shown, path, time.perf_counter() - began)]


def _with_best_loss(task: Task, tried: Tried) -> _Answer:
    """Take logistic regression, or a map between the scores of all classes, where held-out folds confirm it.

    Of classes the log-loss counts, since a smooth function comes closer to codes of classes than a linear one that tells them
    apart as well.
    """
    path, split = tried.path, tried.shown.split
    if not task.targets.are_classes or task.targets.scorer is not None or not split.has_moments:
        return _Answer(tried, -path.scores[path.best])
    held = stacked_scores(path.held_out, split)
    plain = _Answer(tried, log_losses(held))
    if not task.rules.asks_losses:
        return plain
    answers, more = [plain], []
    if 2 < split.n_targets <= _MOST_MAPPED:
        between, losses = class_map(held)
        answers.append(_Answer(tried, losses, between))
    if is_small(split):
        began = time.perf_counter()
        logistic = logistic_path(split)
        if logistic is not None:
            more = [Tried(tried.shown, logistic, time.perf_counter() - began)]
            answers.append(_Answer(more[0], log_losses(stacked_scores(logistic.held_out, split))))
    best = plain
    for answer in answers[1:]:
        if _is_evident(plain.losses - answer.losses) and answer.losses.mean() < best.losses.mean():
            best = answer
    return replace(best, more=tuple(more))


def _is_evident(gain: Array) -> bool:
    """Tell whether paired differences over folds are above zero by more than chance."""
    gain = gain[~np.isnan(gain)]
    error = float(np.std(gain, ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else math.inf
    return len(gain) > 1 and bool(gain.mean() > max(_EVIDENCE * error, 0.0))


def _finished(
    task: Task,
    searched: Task,
    screening: Screening,
    answer: _Answer,
    shares: dict[str, float],
    all_tried: tuple[Tried, ...],
) -> Choice:
    """Say what was chosen, for all samples."""
    path, targets, split = answer.tried.path, task.targets, answer.tried.shown.split
    point = path.best
    # Of several views one predicts numbers a little by chance: what folds do not confirm is shrunk.
    numbers = bool(screening.shares) and not targets.are_classes and targets.scorer is None
    if task.rules.one_standard_error or (numbers and path.means[point] < 0.5 * path.errors[point]):
        point = path.simplest_within_error()
    # Some samples chose for all of them: optimal strengths fall at least as the root of their number.
    ratio = math.sqrt(searched.n_samples / task.n_samples)
    calibration = None
    if targets.are_classes:
        held = stacked_scores(path.held_out, split)
        scores, weight = to_numpy(held.scores), to_numpy(held.shares).sum(axis=0)
        if answer.class_map is not None:
            between = to_numpy(answer.class_map)
            scores = scores @ between[:-1] + between[-1]
        calibration = calibrate(scores, to_numpy(held.members), weight)
    return Choice(
        tried=answer.tried,
        point=point,
        alpha=ratio * float(path.alphas[point]),
        ridge=ratio * float(path.ridges[point]),
        is_logistic=path.kind == "logistic",
        class_map=answer.class_map,
        calibration=calibration,
        shares=shares,
        screening=screening,
        all_tried=all_tried,
        searched=searched.n_samples,
        views=answer.tried.shown.views if searched is task else {},
    )
