"""The choice: which views, ridge regression or the trace norm, which loss, similarities or not, samples aligned by group or not.

``choose`` asks one question after the other, and functions follow in the order in which they are called. Held-out samples answer
every question, and what was tried is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.search.alignment import align_samples
from tracelearn.search.calibration import Calibration, calibrate
from tracelearn.search.events import Event, Report
from tracelearn.search.folds import Folds, corrected_error
from tracelearn.search.intervals import HeldOutResiduals, held_out_residuals
from tracelearn.search.paths import Path, logistic_path, read_alphas, ridge_path, trace_path
from tracelearn.search.screening import Screening, Trial, screen
from tracelearn.search.softmax import (
    fit_class_map,
    log_losses,
    losses_of_groups,
    mapped_scores,
    stacked_scores,
)
from tracelearn.search.splits import SplitSamples, Targets
from tracelearn.search.task import Task
from tracelearn.search.views import (
    Blend,
    BlendedSamples,
    Candidate,
    FittedView,
    blend_views,
    count_multiplications,
    fit_view,
)

__all__ = ["Choice", "Tried", "choose"]

# With more weights than this, in all folds and classes together, alphas take long: a coarse path of every third comes first.
_MANY_WEIGHTS = 125_000

# The whole path follows only if the coarse one explains more than the paths before, by this share of the variance that these
# explain or leave unexplained, whichever is smaller. Inaccuracies of the coarse path are smaller than that.
_GAIN = 0.02

# A model with more parameters is taken if it lowers the held-out loss by so many standard errors of the differences over folds.
_EVIDENCE = 2.0

# A map between classes has the square of their number as entries: for more classes than this none is tried.
_MOST_MAPPED = 100

# If decomposing all samples in every fold takes more multiplications than this, the search draws a part of the samples.
_MOST_MULTIPLICATIONS = 5e11


@dataclass(frozen=True, eq=False)
class SplitBlend:
    """Samples as the views of a blend show them, and these split into folds. They may be larger than the samples themselves."""

    blend: Blend
    shown: BlendedSamples
    split: SplitSamples

    @classmethod
    def of(cls, task: Task, blend: Blend, fitted: Mapping[str, FittedView]) -> SplitBlend:
        """Fit the views of a blend that are not fitted to all samples yet, and split what they show."""
        candidates = {candidate.name: candidate for candidate in task.candidates}
        views = {}
        for name in blend.names:
            views[name] = fitted.get(name) or fit_view(candidates[name], task.samples, task.folds)
        shown = blend_views(blend, views, task.samples.weight, task.rules.penalty)
        return cls(blend, shown, task.split(shown))


@dataclass(frozen=True, eq=False)
class Tried:
    """A path that was walked, on which blend of views, and the seconds that it took.

    All that were tried are kept to the end of a fit, so none holds the samples that it was walked on.
    """

    blend: Blend
    path: Path
    seconds: float
    is_coarse: bool = False  # whether every third alpha alone was looked at, since these promised too little


@dataclass(frozen=True, eq=False)
class Choice:
    """What was chosen, by which evidence, and all that was tried."""

    tried: Tried  # the path of what was chosen
    shown: BlendedSamples  # the samples that chose, as the chosen views show them
    targets: Targets  # of these samples
    folds: Folds  # of these samples, those of the path
    point: int  # its point
    alpha: float  # for all samples, in the units of the blend
    ridge: float
    class_map: Array | None  # (K + 1, K) between the scores of all classes, offsets in the last row
    calibration: Calibration | None  # of classes
    shares: dict[str, float]  # of the views that were screened
    screened: tuple[Trial, ...]
    all_tried: tuple[Tried, ...]
    n_searched: int  # how many samples chose
    is_drawn: bool  # whether not all samples chose
    residuals: HeldOutResiduals | None  # of numbers, for intervals

    @property
    def blend(self) -> Blend:
        """The views that were chosen."""
        return self.tried.blend

    @property
    def path(self) -> Path:
        """The path of what was chosen."""
        return self.tried.path

    @property
    def is_logistic(self) -> bool:
        """Whether logistic regression was chosen."""
        return self.path.kind == "logistic"


@dataclass(frozen=True, eq=False)
class _Look:
    """First results for samples, as they are or aligned by group: the screened views, and ridge regression on the best blend."""

    task: Task
    screening: Screening
    split_blend: SplitBlend
    ridge: Tried | None  # where the loss has a closed form

    @property
    def value(self) -> float:
        """The selection criterion of the best ridge regression; minus infinity where none was tried."""
        return -math.inf if self.ridge is None else self.ridge.path.value


@dataclass(frozen=True, eq=False)
class _Answer:
    """The best path after some questions about the samples of a look, and all that was tried to find it."""

    task: Task  # this one, the screening and the ridge regression are those of the look
    screening: Screening
    ridge: Tried | None
    split_blend: SplitBlend  # what the best path was walked on; that of the look may be another one
    tried: Tried
    losses: Array  # (F,), the held-out loss of each fold: log-loss for classes, else minus the score
    class_map: Array | None = None
    shares: dict[str, float] = field(default_factory=dict)
    screened: tuple[Trial, ...] = ()
    all_tried: tuple[Tried, ...] = ()


def choose(task: Task, report: Report) -> Choice:
    """Choose views, strengths and loss for samples as they are; then find out whether aligning each group first is better."""
    count = _affordable_samples(task)
    index = None
    searched_task = task
    if count < task.n_samples:
        searched_task, index = task.drawn(count)
        report(
            Event("views", 0.0, f"{count} of {task.n_samples} samples, drawn at random, choose: all would take long")
        )
    answer = _ask(_look_at(searched_task, report), report)
    is_over = report(Event("losses", 1.0, f"chosen: {answer.tried.blend}"))
    if task.alignments and not is_over:
        looks = _look_at_alignments(task, index, answer, report)
        answer = _aligned_if_better(answer, looks, report)
    return _choice_of(task, answer, is_drawn=index is not None)


def _affordable_samples(task: Task) -> int:
    """Find how many samples the search can use, so that decomposing them in every fold takes seconds at most."""
    n = task.n_samples
    p = math.prod(task.samples.shape)
    if is_sparse(task.samples.rows) or not task.targets.loss.has_moments:
        return n
    count = n
    while count_multiplications(count, p, p, len(task.folds) // task.folds.n_repeats) > _MOST_MULTIPLICATIONS:
        count -= max(1, count // 50)
    return count


# --- samples as they are, or aligned in one way --------------------------------------------------------------------------


def _look_at(task: Task, report: Report) -> _Look:
    """Screen the views, and try ridge regression on those to go on with."""
    screening = screen(task, report)
    split_blend = SplitBlend.of(task.first_repeat(), screening.blend, screening.views)
    return _Look(task, screening, split_blend, _try_ridge(split_blend) if split_blend.split.has_moments else None)


def _ask(look: _Look, report: Report) -> _Answer:
    """Choose between ridge regression and the trace norm, then the loss, then whether flexible views are added.

    ``look`` has the results so far; what comes back has the best path, and all paths that were tried for it.
    """
    task = look.task.first_repeat()
    screening = look.screening
    split_blend = look.split_blend
    tried = [] if look.ridge is None else [look.ridge]
    in_doubt = bool(task.alignment)
    if not tried or not report(Event("ridge", 1.0, f"ridge regression on {split_blend.blend}")):
        tried.append(_try_trace_norm(task, split_blend, look.value, report, in_doubt=in_doubt))
    best = max((trial for trial in tried if not trial.is_coarse), key=lambda trial: trial.path.value)
    # Screening by ridge regression misses signals that only a low rank finds among many entries. So the best view in which
    # samples keep their modes has a path of its own.
    first_order = Blend((screening.first_order,), alignment=task.alignment)
    is_new = bool(screening.first_order) and first_order.names != screening.blend.names
    if is_new and not report(Event("path", 0.9, f"trace norm on {split_blend.blend}")):
        value_to_beat = max(trial.path.value for trial in tried)
        split_alone = SplitBlend.of(task, first_order, screening.views)
        alone = _try_trace_norm(task, split_alone, value_to_beat, report, in_doubt=True)
        tried.append(alone)
        if not alone.is_coarse and alone.path.value > best.path.value:
            best, split_blend = alone, split_alone
        del split_alone  # it may be as large as the samples, and the other one larger
    answer = _with_best_loss(look, best, split_blend)
    all_tried = [*tried, *answer.all_tried]
    shares = screening.shares
    if screening.similar is not None and not report(Event("losses", 0.5, f"losses on {best.blend}")):
        split_similar = SplitBlend.of(task, screening.similar, screening.views)
        with_similarities = _try_ridge(split_similar)
        all_tried.append(with_similarities)
        # Smooth functions explain more variance of the codes of classes than their log-loss confirms, so similarities that do not
        # even explain more variance cannot win.
        if with_similarities.path.value > best.path.value:
            rival = _with_best_loss(look, with_similarities, split_similar)
            all_tried += rival.all_tried
            if _is_evident(answer.losses - rival.losses):
                answer = rival
                shares = screening.similar_shares
    return replace(answer, shares=shares, screened=screening.trials, all_tried=tuple(all_tried))


def _try_ridge(split_blend: SplitBlend) -> Tried:
    """Try ridge regression on a blend."""
    began = time.perf_counter()
    path = ridge_path(split_blend.split)
    return Tried(split_blend.blend, path, time.perf_counter() - began)


def _try_trace_norm(
    task: Task, split_blend: SplitBlend, value_to_beat: float, report: Report, *, in_doubt: bool
) -> Tried:
    """Walk the path of the trace norm on a blend.

    Where an alpha takes long, or the path is ``in_doubt``, a coarse path of every third alpha comes first. It is all that is
    returned unless its best value exceeds ``value_to_beat``, that of the paths before, by a small gain.
    """
    began = time.perf_counter()
    rules = task.rules
    split = split_blend.split.without_cache()  # what paths need of many entries may be as large as the samples
    penalty = split_blend.shown.penalty
    alphas, are_given = read_alphas(rules.alphas, rules.eps)
    options: dict[str, Any] = {"are_given": are_given, "max_iter": rules.max_iter, "n_jobs": rules.n_threads}

    def progress(done: float) -> bool:
        return report(Event("path", 0.9 * done, f"trace norm on {split_blend.blend}"))

    n_weights = math.prod(split.shape) * split.n_targets * len(split.folds)
    if (in_doubt or n_weights > _MANY_WEIGHTS) and not are_given and math.isfinite(value_to_beat):
        every_third = alphas[::-3][::-1]
        coarse = trace_path(split, penalty, every_third, report=progress, **options)
        gain = _GAIN * max(0.0, min(value_to_beat, 1.0 - value_to_beat))
        if np.max(coarse.selecting) < value_to_beat + gain:
            return Tried(split_blend.blend, coarse, time.perf_counter() - began, is_coarse=True)
    path = trace_path(split, penalty, alphas, report=progress, **options)
    return Tried(split_blend.blend, path, time.perf_counter() - began)


def _with_best_loss(look: _Look, tried: Tried, split_blend: SplitBlend) -> _Answer:
    """Take logistic regression, or a map between the scores of all classes, where held-out folds confirm it.

    For classes log-losses are compared, not explained variances: a smooth function comes closer to the codes of classes than a
    linear one, though it tells the classes apart no better.
    """
    path = tried.path
    split = split_blend.split
    targets = look.task.targets
    answer = partial(_Answer, look.task, look.screening, look.ridge, split_blend)
    if not targets.are_classes or targets.scorer is not None or not split.has_moments:
        return answer(tried, -path.scores[path.best])
    held = stacked_scores(path.held_out, split.targets, split.folds)
    unchanged = answer(tried, log_losses(held))
    if not look.task.rules.asks_losses:
        return unchanged
    rivals = []
    logistic_trials = []
    if 2 < split.n_targets <= _MOST_MAPPED:
        map_of_classes, losses = fit_class_map(held)
        rivals.append(answer(tried, losses, map_of_classes))
    began = time.perf_counter()
    logistic = logistic_path(split)
    if logistic is not None:
        logistic_trials = [Tried(tried.blend, logistic, time.perf_counter() - began)]
        held_of_logistic = stacked_scores(logistic.held_out, split.targets, split.folds)
        rivals.append(answer(logistic_trials[0], log_losses(held_of_logistic)))
    best = unchanged
    for rival in rivals:
        if _is_evident(unchanged.losses - rival.losses) and rival.losses.mean() < best.losses.mean():
            best = rival
    return replace(best, all_tried=tuple(logistic_trials))


def _is_evident(gain: Array) -> bool:
    """Tell whether the mean of paired differences over folds is more than ``_EVIDENCE`` standard errors above zero."""
    gain = gain[~np.isnan(gain)]
    if len(gain) < 2:
        return False
    error = float(np.std(gain, ddof=1)) / math.sqrt(len(gain))
    return bool(gain.mean() > _EVIDENCE * error)


# --- samples aligned by group --------------------------------------------------------------------------------------------


def _aligned_if_better(answer: _Answer, looks: list[_Look], report: Report) -> _Answer:
    """Take aligned samples instead of those as they are, where they let the model predict held-out groups better.

    ``looks`` are first looks at samples in each alignment; the last one is at the best alignment, and the only candidate.

    Ridge regression is asked first: only where aligned samples let it predict held-out groups better by more than chance, the
    other questions are asked of them as well, and the answers compared in the same way.
    """
    if not looks:
        return answer
    *others, best = looks
    winner = answer
    tried_on_best: tuple[Tried | None, ...] = (best.ridge,)
    is_over = report(Event("groups", 0.6, "are samples aligned by group?"))
    if not is_over and _predicts_groups_better(best.task, best.ridge, answer.ridge):
        rival = _ask(best, _part_of_groups(report, 0.6))
        tried_on_best = rival.all_tried
        if _predicts_groups_better(best.task, rival.tried, answer.tried):
            winner = rival
    report(Event("groups", 1.0, f"chosen: {winner.tried.blend}"))
    tried_on_aligned = [look.ridge for look in others] + [*tried_on_best]
    return replace(
        winner,
        screened=(*answer.screened, *[trial for look in looks for trial in look.screening.trials]),
        all_tried=(*answer.all_tried, *[tried for tried in tried_on_aligned if tried is not None]),
    )


def _look_at_alignments(task: Task, index: Array | None, answer: _Answer, report: Report) -> list[_Look]:
    """Take a first look at samples in each alignment, through the best quick views of each kind; return the best one last.

    If slow views were chosen for samples as they are, the best alignment is looked at once more with these added.

    All samples of the task are aligned, also where only those of an index choose: a group is aligned by all of its samples.
    """
    searched_task = answer.task
    quick = _best_of_each_quick_kind(answer)
    if not quick:
        return []
    looks = []
    for place, alignment in enumerate(task.alignments):
        samples = align_samples(task.samples, alignment.transformer, task.groups)
        if index is not None:
            samples = samples.take(index, searched_task.samples.weight)
        aligned_task = replace(searched_task, samples=samples, candidates=quick, alignment=alignment.name)
        part = _part_of_groups(report, 0.4 * place / len(task.alignments))
        looks.append(_look_at(aligned_task, part))
        if part(Event("groups", 0.0, f"ridge regression on {looks[-1].split_blend.blend}")):
            break
    looks.sort(key=lambda look: look.value)
    best = looks[-1]
    chosen = answer.tried.blend.names
    slow = [view for view in _views_of_any_sign(task) if view.takes_long and view.name in chosen and view not in quick]
    if slow:
        looks.append(_look_at(replace(best.task, candidates=(*quick, *slow)), _part_of_groups(report, 0.4)))
    return looks


def _best_of_each_quick_kind(answer: _Answer) -> tuple[Candidate, ...]:
    """Choose the views of aligned samples: among those that are quick, the chosen ones and the best of each transformer class."""
    screening = answer.screening
    names = {*answer.tried.blend.names, *screening.blend.names, screening.first_order}
    best_values: dict[type, tuple[float, str]] = {}
    for trial in screening.trials:
        kind = type(trial.candidate.transformer)
        best_values[kind] = max(best_values.get(kind, (-math.inf, "")), (trial.path.value, trial.candidate.name))
    names |= {name for _, name in best_values.values()}
    views = _views_of_any_sign(answer.task)
    return tuple(view for view in views if view.name in names and not view.takes_long) or views[:1]


def _views_of_any_sign(task: Task) -> tuple[Candidate, ...]:
    """Leave out views that need positive entries, as logarithms do: aligned samples have entries of both signs."""
    shape, n_samples = task.samples.shape, task.n_samples
    return tuple(candidate for candidate in task.candidates if candidate.takes_any_sign(shape, n_samples))


def _part_of_groups(report: Report, done: float) -> Report:
    """Report what happens to aligned samples as a part of the last question, of which so much is done before."""
    return lambda event: report(Event("groups", done, event.message))


def _predicts_groups_better(task: Task, rival: Tried | None, tried: Tried | None) -> bool:
    """Tell whether the path of a rival predicts held-out groups better than another, by more than chance; None never does."""
    if rival is None or tried is None:
        return False
    return _is_evident(_losses_of_groups(tried, task) - _losses_of_groups(rival, task))


def _losses_of_groups(tried: Tried, task: Task) -> Array:
    """Find the mean held-out loss of each group by the best model of a path: of classes the log-loss, else the squared error.

    With a score of the user's, that of each fold takes its place.
    """
    path = tried.path
    if task.targets.scorer is not None:
        return np.asarray(-path.scores[path.best])
    _, groups = np.unique(np.asarray(task.groups), return_inverse=True)
    if task.targets.are_classes:
        return losses_of_groups(stacked_scores(path.held_out, task.targets, task.folds.first_repeat()), groups)
    gains = path.outcomes[path.best]
    weight = np.where(np.isnan(gains), 0.0, to_numpy(task.targets.weight))
    with np.errstate(invalid="ignore"):  # of groups that no fold holds out
        return np.asarray(-np.bincount(groups, np.nan_to_num(gains) * weight) / np.bincount(groups, weight))


# --- the point of the path -----------------------------------------------------------------------------------------------


def _choice_of(task: Task, answer: _Answer, *, is_drawn: bool) -> Choice:
    """Choose a point of the path of an answer, scale its strengths for all samples, and calibrate its scores."""
    tried = answer.tried
    path = tried.path
    split = answer.split_blend.split
    targets = task.targets
    n_searched = answer.task.n_samples
    point = path.best
    # The best of several views predicts numbers a little by chance. If the folds do not confirm it, the simpler model is taken.
    is_in_doubt = bool(answer.screening.shares) and not targets.are_classes and targets.scorer is None
    if task.rules.one_standard_error or (is_in_doubt and _may_be_luck(path, split)):
        point = path.simplest_within_error()
    # Optimal strengths fall with the number of samples, at least as its inverse root: for when drawn samples chose for all.
    ratio = math.sqrt(n_searched / task.n_samples)
    calibration = None
    if targets.are_classes:
        held = stacked_scores(path.held_out, split.targets, split.folds)
        scores = mapped_scores(to_numpy(held.scores), answer.class_map)
        calibration = calibrate(scores, to_numpy(held.members), to_numpy(held.shares).sum(axis=0))
    return Choice(
        tried=tried,
        shown=answer.split_blend.shown,
        targets=split.targets,
        folds=split.folds,
        point=point,
        alpha=ratio * float(path.alphas[point]),
        ridge=ratio * float(path.ridges[point]),
        class_map=answer.class_map,
        calibration=calibration,
        shares=answer.shares,
        screened=answer.screened,
        all_tried=answer.all_tried,
        n_searched=n_searched,
        is_drawn=is_drawn,
        residuals=None if targets.are_classes or n_searched < task.n_samples else held_out_residuals(path, split),
    )


def _may_be_luck(path: Path, split: SplitSamples) -> bool:
    """Tell whether the variance of numbers that the best point of a path explains is below half of its standard error.

    What a fold explains is measured in the variance of all targets: that of the few which it holds out may be near zero.
    """
    explained = np.array([np.mean(path.outcomes[path.best, test]) for _, test in split.folds.splits])
    error = float(corrected_error(explained, split.folds.ratio))
    return bool(split.fold_weights @ explained < 0.5 * error)
