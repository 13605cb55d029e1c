"""The last fit: the chosen views, fitted to all samples, and these as the views show them."""

from __future__ import annotations

from dataclasses import replace
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

__all__ = ["coded_for_softmax", "moments_to_keep", "show_all_samples", "spec_of_views"]


def show_all_samples(
    choice: Choice, task: Task, data: SearchData, X: Any, sample_weight: Any
) -> tuple[ShownByViews, Samples]:
    """Fit the chosen views to all samples; return the views as one function, and the samples that it makes.

    Samples that are not in memory are read block by block, once for each view.
    """
    names = choice.blend.names
    candidates = {candidate.name: candidate for candidate in task.candidates}
    shape = data.spec.sample_shape
    if data.is_all:
        samples = choice.samples
        views = {name: choice.views.get(name) or fit_view(candidates[name], samples) for name in names}
        blended = blend_views(choice.blend, views, samples.weight, task.rules.penalty)
        transformers = tuple(views[name].transformer for name in names)
        shown_by_views = ShownByViews(transformers, blended.factors, shape, data.resampler)
        block = Block(blended.rows, data.codes, samples.weight, 0, data.confounds)
        return shown_by_views, Samples.of(block, blended.shape)
    fitted_by_blocks = []
    for name in names:
        transformer = candidates[name].transformer
        if transformer is not None:
            transformer = _fit_by_blocks(transformer, X, sample_weight)
        fitted_by_blocks.append(transformer)
    # Scales of views are those of the samples that chose.
    drawn = {name: choice.tried.split_blend.views[name] for name in names}
    factors = blend_views(choice.blend, drawn, choice.split.targets.weight, task.rules.penalty).factors
    shown_by_views = ShownByViews(tuple(fitted_by_blocks), factors, shape)
    return shown_by_views, data.samples.mapped_rows(shown_by_views, choice.split.shape)


def _fit_by_blocks(transformer: Any, X: Any, sample_weight: Any) -> Any:
    """Fit a transformer of this package to samples that are read block by block."""
    return clone(transformer).fit(X, sample_weight=sample_weight)


def coded_for_softmax(samples: Samples) -> Samples:
    """Turn codes of several classes, -1 and 1, into zeros and ones, as the softmax loss has them."""
    blocks = [replace(block, Y=0.5 * (block.Y + 1.0)) for block in samples.blocks]
    return replace(samples, blocks=blocks)


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
