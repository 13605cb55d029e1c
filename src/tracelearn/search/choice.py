"""The choice: which views, ridge regression or the trace norm, which loss, similarities or not, samples aligned by group or not.

One question comes after the other. Every question is answered by held-out samples, and what was tried is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, is_sparse, to_numpy
from tracelearn.search.alignment import align_samples
from tracelearn.search.calibration import Calibration, calibrate
from tracelearn.search.events import Event, Report
from tracelearn.search.folds import corrected_error
from tracelearn.search.paths import Path, logistic_is_quick, logistic_path, read_alphas, ridge_path, trace_path
from tracelearn.search.screening import Screening, screen
from tracelearn.search.softmax import (
    fit_class_map,
    log_losses,
    losses_of_groups,
    mapped_scores,
    stacked_scores,
)
from tracelearn.search.splits import SplitSamples
from tracelearn.search.task import Task
from tracelearn.search.views import (
    Blend,
    Candidate,
    FittedView,
    SamplesInMemory,
    blend_views,
    count_multiplications,
    fit_view,
)

__all__ = ["Choice", "Tried", "choose"]

# With more weights than this, in all folds and classes, every alpha of a path takes long: every third is looked at first.
_MANY_WEIGHTS = 125_000

# The whole path follows only where one of these explains so much more than the paths before: a share of the variance that they
# explain, or of what they leave unexplained if that is smaller. Rough solutions differ by less.
_GAIN = 0.02

# Standard errors by which the held-out log-loss must fall, over the folds, before more is learned than one factor.
_EVIDENCE = 2.0

# No map between classes is tried for more classes than this: its entries are as many as their square.
_MOST_MAPPED = 100

# Where decomposing the samples in every fold takes more multiplications than this, the search uses some of them.
_MOST_MULTIPLICATIONS = 5e11


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

    split_blend: SplitBlend
    path: Path
    seconds: float
    is_coarse: bool = False  # whether every third alpha alone was looked at, since these promised too little

    @property
    def blend(self) -> Blend:
        """The views of the path."""
        return self.split_blend.blend


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
    n_searched: int  # how many samples chose
    samples: SamplesInMemory  # all that are in memory, aligned by group if that was chosen
    alignment: Candidate | None = None  # what the samples of each group are aligned by
    why_not_aligned: str = ""  # if nothing was tried though there are groups
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
        return self.tried.split_blend.split


def choose(task: Task, report: Report) -> Choice:
    """Find out what to learn from samples as they are, then whether it is better to align those of each group before."""
    count = _affordable_samples(task)
    index = None
    searched_task = task
    if count < task.n_samples:
        searched_task, index = task.drawn(count)
        report(
            Event("views", 0.0, f"{count} of {task.n_samples} samples, drawn at random, choose: all would take long")
        )
    search = _ask(_first_look(searched_task, report), report)
    is_over = report(Event("losses", 1.0, f"chosen: {search.answer.tried.blend}"))
    samples = task.samples
    alignment = None
    if task.alignments and not is_over:
        search, alignment, samples = _aligned_if_better(task, searched_task, index, search, report)
    choice = _choice_of(task, searched_task, search)
    views = search.answer.tried.split_blend.views if index is None else {}
    return replace(choice, samples=samples, alignment=alignment, views=views)


@dataclass(frozen=True, eq=False)
class _FirstLook:
    """Views that were screened, and ridge regression on those to go on with."""

    task: Task
    screening: Screening
    split_blend: SplitBlend
    tried: list[Tried]  # ridge regression, where the loss has a closed form

    @property
    def value(self) -> float:
        """What ridge regression explains of held-out samples."""
        return max((trial.path.value for trial in self.tried), default=-math.inf)


@dataclass(frozen=True, eq=False)
class _Search:
    """The answer to all questions about samples as they are, or aligned in one way, and all that was tried."""

    first_look: _FirstLook
    answer: _Answer
    shares: dict[str, float]
    all_tried: tuple[Tried, ...]
    screening: Screening


def _first_look(task: Task, report: Report) -> _FirstLook:
    """Screen the views, and try ridge regression on those to go on with."""
    screening = screen(task, report)
    split_blend = SplitBlend.of(task.first_repeat(), screening.blend, screening.views)
    return _FirstLook(task, screening, split_blend, _try_ridge(split_blend))


def _ask(first_look: _FirstLook, report: Report) -> _Search:
    """Find out whether the trace norm or ridge regression alone is better on the views, which loss, similarities or not."""
    task = first_look.task
    screening = first_look.screening
    split_blend = first_look.split_blend
    first_repeat = task.first_repeat()
    tried = list(first_look.tried)
    in_doubt = bool(task.alignment)
    if not tried or not report(Event("ridge", 1.0, f"ridge regression on {split_blend.blend}")):
        tried += _try_trace_norm(first_repeat, split_blend, first_look.value, report, in_doubt=in_doubt)
    # Ridge regression does not see what only a low rank can find in samples of many entries: they get a path of their own.
    first_order = Blend((screening.first_order,), alignment=task.alignment)
    is_new = bool(screening.first_order) and first_order.names != screening.blend.names
    if is_new and not report(Event("path", 0.9, f"trace norm on {split_blend.blend}")):
        value_to_beat = max(trial.path.value for trial in tried)
        split_alone = SplitBlend.of(first_repeat, first_order, screening.views)
        tried += _try_trace_norm(first_repeat, split_alone, value_to_beat, report, in_doubt=True)
    best = max((trial for trial in tried if not trial.is_coarse), key=lambda trial: trial.path.value)
    answer = _with_best_loss(first_repeat, best)
    all_tried = [*tried, *answer.logistic_trials]
    shares = screening.shares
    if screening.similar is not None and not report(Event("losses", 0.5, f"losses on {best.blend}")):
        (with_similarities,) = _try_ridge(SplitBlend.of(first_repeat, screening.similar, screening.views))
        all_tried.append(with_similarities)
        # Similarities fit smooth functions, which explain more than they tell classes apart: what explains less cannot win.
        if with_similarities.path.value > best.path.value:
            rival = _with_best_loss(first_repeat, with_similarities)
            all_tried += rival.logistic_trials
            if _is_evident(answer.losses - rival.losses):
                answer = rival
                shares = screening.similar_shares
    return _Search(first_look, answer, shares, tuple(all_tried), screening)


@dataclass(frozen=True, eq=False)
class _AlignedLook:
    """A first look at samples that are aligned by group."""

    alignment: Candidate
    samples: SamplesInMemory  # all, aligned
    look: _FirstLook  # at those that choose


def _aligned_if_better(
    task: Task, searched_task: Task, index: Array | None, search: _Search, report: Report
) -> tuple[_Search, Candidate | None, SamplesInMemory]:
    """Align the samples of each group, and take that where held-out groups confirm it; return also all samples as they are then.

    Ridge regression is asked first: only where aligned samples let it predict held-out groups better by more than chance, the
    other questions are asked of them as well, and the answers compared in the same way.
    """
    looks = _look_at_alignments(task, searched_task, index, search, report)
    if not looks:
        return search, None, task.samples
    *others, best = looks
    winner = search
    tried = tuple(best.look.tried)
    is_over = report(Event("groups", 0.6, "are samples aligned by group?"))
    if not is_over and _predicts_groups_better(best.look.tried[0], search.first_look.tried[0], searched_task):
        rival = _ask(best.look, _part_of_groups(report, 0.6))
        tried = rival.all_tried
        is_better = _predicts_groups_better(rival.answer.tried, search.answer.tried, searched_task)
        winner = rival if is_better else search
    report(Event("groups", 1.0, f"chosen: {winner.answer.tried.blend}"))
    trials = list(search.screening.trials)
    all_tried = list(search.all_tried)
    for aligned in looks:
        trials += aligned.look.screening.trials
    for aligned in others:
        all_tried += aligned.look.tried
    screening = replace(winner.screening, trials=tuple(trials))
    everything = replace(winner, all_tried=(*all_tried, *tried), screening=screening)
    return (everything, None, task.samples) if winner is search else (everything, best.alignment, best.samples)


def _look_at_alignments(
    task: Task, searched_task: Task, index: Array | None, search: _Search, report: Report
) -> list[_AlignedLook]:
    """Look at samples in each alignment by the best quick views of each kind; last at the best one, by chosen slow ones too."""
    quick = _best_of_each_quick_kind(searched_task, search)
    if not quick:
        return []
    looks = []
    for place, alignment in enumerate(task.alignments):
        samples = align_samples(task.samples, alignment.transformer, task.groups)
        searched = samples if index is None else samples.take(index, searched_task.samples.weight)
        aligned_task = replace(searched_task, samples=searched, candidates=quick, alignment=alignment.name)
        part = _part_of_groups(report, 0.4 * place / len(task.alignments))
        looks.append(_AlignedLook(alignment, samples, _first_look(aligned_task, part)))
        if part(Event("groups", 0.0, f"ridge regression on {looks[-1].look.split_blend.blend}")):
            break
    looks.sort(key=lambda aligned: aligned.look.value)
    best = looks[-1]
    chosen = search.answer.tried.blend.names
    slow = [view for view in _views_of_any_sign(task) if view.takes_long and view.name in chosen and view not in quick]
    if slow:
        task_of_all = replace(best.look.task, candidates=(*quick, *slow))
        looks.append(replace(best, look=_first_look(task_of_all, _part_of_groups(report, 0.4))))
    return looks


def _best_of_each_quick_kind(task: Task, search: _Search) -> tuple[Candidate, ...]:
    """Choose views to show aligned samples by: of those that do not take long the chosen ones, and the best of each class."""
    names = {*search.answer.tried.blend.names, *search.screening.blend.names, search.screening.first_order}
    best_values: dict[type, tuple[float, str]] = {}
    for trial in search.screening.trials:
        kind = type(trial.view.transformer)
        best_values[kind] = max(best_values.get(kind, (-math.inf, "")), (trial.path.value, trial.view.name))
    names |= {name for _, name in best_values.values()}
    quick = tuple(view for view in _views_of_any_sign(task) if view.name in names and not view.takes_long)
    return quick or _views_of_any_sign(task)[:1]


def _views_of_any_sign(task: Task) -> tuple[Candidate, ...]:
    """Leave out views that need positive entries, as logarithms do: aligned samples have entries of both signs."""
    shape, n_samples = task.samples.shape, task.n_samples
    return tuple(candidate for candidate in task.candidates if candidate.takes_any_sign(shape, n_samples))


def _part_of_groups(report: Report, done: float) -> Report:
    """Report what happens to aligned samples as a part of the last question, of which so much is done before."""
    return lambda event: report(Event("groups", done, event.message))


def _predicts_groups_better(rival: Tried, tried: Tried, task: Task) -> bool:
    """Tell whether the path of a rival predicts held-out groups better than another, by more than chance."""
    return _is_evident(_losses_of_groups(tried, task) - _losses_of_groups(rival, task))


def _losses_of_groups(tried: Tried, task: Task) -> Array:
    """Find the mean held-out loss of each group by the best model of a path: of classes the log-loss, else the squared error.

    With a score of the user's, that of each fold takes its place.
    """
    path = tried.path
    split = tried.split_blend.split
    if task.targets.scorer is not None:
        return np.asarray(-path.scores[path.best])
    _, groups = np.unique(np.asarray(task.groups), return_inverse=True)
    if task.targets.are_classes:
        return losses_of_groups(stacked_scores(path.held_out, split), groups)
    gains = path.outcomes[path.best]
    weight = np.where(np.isnan(gains), 0.0, to_numpy(split.targets.weight))
    with np.errstate(invalid="ignore"):  # of groups that no fold holds out
        return np.asarray(-np.bincount(groups, np.nan_to_num(gains) * weight) / np.bincount(groups, weight))


def _affordable_samples(task: Task) -> int:
    """Count the samples that can be decomposed in every fold in some seconds."""
    n = task.n_samples
    p = math.prod(task.samples.shape)
    if is_sparse(task.samples.rows) or not task.targets.loss.has_moments:
        return n
    count = n
    while count_multiplications(count, p, p, len(task.folds) // task.folds.n_repeats) > _MOST_MULTIPLICATIONS:
        count -= max(1, count // 50)
    return count


# --- the questions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Answer:
    """A path, perhaps with a map between classes; ``losses`` (F,) are its held-out losses: for classes log-losses."""

    tried: Tried
    losses: Array
    class_map: Array | None = None
    logistic_trials: tuple[Tried, ...] = ()  # logistic regression, if it was tried, chosen or not


def _try_ridge(split_blend: SplitBlend) -> list[Tried]:
    """Try ridge regression, where the loss has a closed form."""
    if not split_blend.split.has_moments:
        return []
    began = time.perf_counter()
    path = ridge_path(split_blend.split)
    return [Tried(split_blend, path, time.perf_counter() - began)]


def _try_trace_norm(
    task: Task, split_blend: SplitBlend, value_to_beat: float, report: Report, *, in_doubt: bool = False
) -> list[Tried]:
    """Walk the path of the trace norm on a blend.

    Where an alpha takes long, or a path is ``in_doubt``, every third alpha is looked at first, and the path ends there if none of
    these beats a value, that of the paths before, by a small gain.
    """
    began = time.perf_counter()
    rules = task.rules
    split = split_blend.split
    alphas, are_given = read_alphas(rules.alphas, rules.eps)
    options: dict[str, Any] = {"are_given": are_given, "max_iter": rules.max_iter, "n_jobs": rules.n_threads}

    def progress(done: float) -> bool:
        return report(Event("path", 0.9 * done, f"trace norm on {split_blend.blend}"))

    n_weights = math.prod(split.shape) * split.n_targets * len(split.folds)
    if (in_doubt or n_weights > _MANY_WEIGHTS) and not are_given and math.isfinite(value_to_beat):
        every_third = alphas[::-3][::-1]
        coarse = trace_path(split, split_blend.penalty, every_third, report=progress, **options)
        gain = _GAIN * max(0.0, min(value_to_beat, 1.0 - value_to_beat))
        if np.max(coarse.selecting) < value_to_beat + gain:
            return [Tried(split_blend, coarse, time.perf_counter() - began, is_coarse=True)]
    path = trace_path(split, split_blend.penalty, alphas, report=progress, **options)
    return [Tried(split_blend, path, time.perf_counter() - began)]


def _with_best_loss(task: Task, tried: Tried) -> _Answer:
    """Take logistic regression, or a map between the scores of all classes, where held-out folds confirm it.

    For classes log-losses are compared, not explained variances: a smooth function comes closer to the codes of classes than a
    linear one, though it tells the classes apart no better.
    """
    path = tried.path
    split = tried.split_blend.split
    if not task.targets.are_classes or task.targets.scorer is not None or not split.has_moments:
        return _Answer(tried, -path.scores[path.best])
    held = stacked_scores(path.held_out, split)
    unchanged = _Answer(tried, log_losses(held))
    if not task.rules.asks_losses:
        return unchanged
    answers = []
    logistic_trials = []
    if 2 < split.n_targets <= _MOST_MAPPED:
        map_of_classes, losses = fit_class_map(held)
        answers.append(_Answer(tried, losses, map_of_classes))
    if logistic_is_quick(split):
        began = time.perf_counter()
        logistic = logistic_path(split)
        if logistic is not None:
            logistic_trials = [Tried(tried.split_blend, logistic, time.perf_counter() - began)]
            answers.append(_Answer(logistic_trials[0], log_losses(stacked_scores(logistic.held_out, split))))
    best = unchanged
    for answer in answers:
        if _is_evident(unchanged.losses - answer.losses) and answer.losses.mean() < best.losses.mean():
            best = answer
    return replace(best, logistic_trials=tuple(logistic_trials))


def _is_evident(gain: Array) -> bool:
    """Tell whether paired differences over folds are above zero by more than chance."""
    gain = gain[~np.isnan(gain)]
    if len(gain) < 2:
        return False
    error = float(np.std(gain, ddof=1)) / math.sqrt(len(gain))
    return bool(gain.mean() > _EVIDENCE * error)


def _may_be_luck(path: Path, split: SplitSamples) -> bool:
    """Tell whether the variance of numbers that the best point of a path explains is below half of its standard error.

    What a fold explains is measured in the variance of all targets: that of the few which it holds out may be near zero.
    """
    explained = np.array([np.mean(path.outcomes[path.best, test]) for _, test in split.folds.splits])
    error = float(corrected_error(explained, split.folds.ratio))
    return bool(split.fold_weights @ explained < 0.5 * error)


def _choice_of(task: Task, searched_task: Task, search: _Search) -> Choice:
    """Choose a point of the path of an answer, scale its strengths for all samples, and calibrate its scores."""
    answer = search.answer
    path = answer.tried.path
    targets = task.targets
    point = path.best
    # One of several views predicts numbers a little by chance: a score that folds do not confirm gets the simpler model.
    is_in_doubt = bool(search.screening.shares) and not targets.are_classes and targets.scorer is None
    if task.rules.one_standard_error or (is_in_doubt and _may_be_luck(path, answer.tried.split_blend.split)):
        point = path.simplest_within_error()
    # Where drawn samples chose for all: optimal strengths fall at least as the root of the number of samples.
    ratio = math.sqrt(searched_task.n_samples / task.n_samples)
    calibration = None
    if targets.are_classes:
        held = stacked_scores(path.held_out, answer.tried.split_blend.split)
        scores = mapped_scores(to_numpy(held.scores), answer.class_map)
        calibration = calibrate(scores, to_numpy(held.members), to_numpy(held.shares).sum(axis=0))
    return Choice(
        tried=answer.tried,
        point=point,
        alpha=ratio * float(path.alphas[point]),
        ridge=ratio * float(path.ridges[point]),
        is_logistic=path.kind == "logistic",
        class_map=answer.class_map,
        calibration=calibration,
        shares=search.shares,
        screening=search.screening,
        all_tried=search.all_tried,
        n_searched=searched_task.n_samples,
        samples=task.samples,
        why_not_aligned=task.why_not_aligned,
    )
