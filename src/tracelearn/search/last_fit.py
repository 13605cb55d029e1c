"""The last fit: the chosen views, fitted to all samples, and these as the views show them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from sklearn.base import clone

from tracelearn.arrays.array_api import available_memory
from tracelearn.moments import Moments
from tracelearn.samples.reading import Spec
from tracelearn.samples.samples import Block, Samples
from tracelearn.search.choice import Choice
from tracelearn.search.data import SearchData
from tracelearn.search.task import Task
from tracelearn.search.views import ShownByViews, blend_views, fit_view

__all__ = ["moments_to_keep", "show_all_samples", "spec_of_views"]


def show_all_samples(
    choice: Choice, task: Task, data: SearchData, X: Any, sample_weight: Any
) -> tuple[ShownByViews, Samples]:
    """Fit the chosen views to all samples; return the views as one function, and the samples that it makes, coded for the loss.

    Samples that are not in memory are read block by block, once for each view.
    """
    show = _show_in_memory if data.is_all else partial(_show_blocks, X=X, sample_weight=sample_weight)
    views, samples = show(choice, task, data)
    if choice.is_logistic and data.spec.n_targets > 1:  # the softmax loss has zeros and ones in place of -1 and 1
        samples = samples.mapped_blocks(lambda block: replace(block, Y=0.5 * (block.Y + 1.0)))
    return views, samples


def _show_in_memory(choice: Choice, task: Task, data: SearchData) -> tuple[ShownByViews, Samples]:
    """Show samples in memory by the chosen views: as they were when all of them chose, else anew."""
    shown = choice.shown
    if choice.is_drawn:
        samples = task.aligned_samples(choice.blend)
        candidates = {candidate.name: candidate for candidate in task.candidates}
        views = {name: fit_view(candidates[name], samples) for name in choice.blend.names}
        shown = blend_views(choice.blend, views, task.samples.weight, task.rules.penalty)
    block = Block(shown.rows, data.codes, task.samples.weight, 0, data.confounds)
    by_views = ShownByViews(shown.transformers, shown.factors, data.spec.sample_shape, data.resampler)
    return by_views, Samples.of(block, shown.shape)


def _show_blocks(
    choice: Choice, task: Task, data: SearchData, X: Any, sample_weight: Any
) -> tuple[ShownByViews, Samples]:
    """Fit the chosen views, all of this package, to samples that are read block by block, and show these."""
    transformers = {candidate.name: candidate.transformer for candidate in task.candidates}
    fitted = []
    for name in choice.blend.names:
        view = transformers[name]
        fitted.append(None if view is None else clone(view).fit(X, sample_weight=sample_weight))
    # Scales of views are those of the samples that chose.
    by_views = ShownByViews(tuple(fitted), choice.shown.factors, data.spec.sample_shape)
    return by_views, data.samples.mapped_rows(by_views, choice.shown.shape)


def spec_of_views(spec: Spec, shape: tuple[int, ...]) -> Spec:
    """Say what is known of samples as views show them."""
    return replace(spec, sample_shape=shape, is_flat=False, modes=None, feature_names=None)


def moments_to_keep(samples: Samples) -> Moments:
    """Sum up the moments of samples, for ``partial_fit``; refuse where their matrix does not fit in memory."""
    size = samples.n_features + samples.n_confounds
    if 24 * size**2 > available_memory():  # the matrix, what a sum needs beside it, and its factor
        raise ValueError(
            f"Expected keep_moments=False for views of {size} entries, got True: moments of {8 * size**2 / 2**30:.1f} GiB do not "
            "fit in memory, so name smaller views."
        )
    return samples.moments()
