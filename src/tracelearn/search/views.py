"""Views: transformations of samples that a search tries, fitted to samples in memory, alone or joined in one problem.

A view is a pair of a name and a transformer; None, or "passthrough", is the sample itself. Those that are tried by default are
listed in ``tracelearn.features.catalogue``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import make_union
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from tracelearn.arrays.array_api import Array, array_namespace, is_sparse, move_to, to_numpy
from tracelearn.features import Similarities, TensorTransformer, default_views, find_time_axis
from tracelearn.penalties import Blocks, as_penalty
from tracelearn.search.folds import Folds
from tracelearn.search.splits import blocks_of_columns

__all__ = [
    "Blend",
    "BlendedSamples",
    "Candidate",
    "FittedView",
    "SamplesInMemory",
    "ShownByViews",
    "blend_views",
    "candidates_of",
    "count_multiplications",
    "fit_view",
    "joined_shape_and_penalty",
    "named_transformers",
    "takes_gaps",
    "transformed",
    "views_that_suit",
    "with_alignment",
]


# Flexible views are tried if samples times targets are at most so many: such views have hundreds of entries, and ridge regression
# on these would take most of the time of a search.
_MOST_SCORES = 4_000_000


@dataclass(frozen=True, eq=False)
class Candidate:
    """A view to try: its name and its transformer, None for the samples as they are."""

    name: str
    transformer: Any

    @property
    def needs_targets(self) -> bool:
        """Whether the transformer learns from targets, so that every fold needs one of its own."""
        return self.transformer is not None and bool(get_tags(self.transformer).target_tags.required)

    @property
    def takes_long(self) -> bool:
        """Whether this view takes about as long to compute as all others together, as convolutions do."""
        return getattr(self.transformer, "takes_long", False)

    def takes_any_sign(self, shape: tuple[int, ...], n_samples: int) -> bool:
        """Tell whether the view suits samples with entries that are not positive, as samples that are aligned by group are."""
        view = self.transformer
        return (
            not isinstance(view, TensorTransformer)
            or view.suits(shape, n_samples)
            or not view.suits(shape, n_samples, True)
        )

    @property
    def is_flexible(self) -> bool:
        """Whether a linear model of what is shown follows nearly any function of the samples: similarities and thresholds."""
        return getattr(self.transformer, "is_flexible", False)


# --- which views are tried -----------------------------------------------------------------------------------------------


def views_that_suit(
    shape: tuple[int, ...],
    n_samples: int,
    *,
    positive: bool = False,
    time_axis: Any = "auto",
    smooth_mode: int | None = None,
    modes: Any = None,
    are_unequal: bool = False,
    are_numbers: bool = False,
    n_targets: int = 1,
) -> tuple[list[tuple[str, Any]], str]:
    """List the default views that suit samples of a shape, as (name, transformer) pairs, and say why.

    Parameters
    ----------
    positive : whether all entries are
    time_axis, modes : see ``find_time_axis``
    smooth_mode, are_unequal, are_numbers : see ``default_views``
    n_targets : how many targets or classes there are

    Examples
    --------
    >>> from tracelearn.search.views import views_that_suit
    >>> [name for name, _ in views_that_suit((6, 11), 100)[0]]
    ['raw', 'whitened', 'whitened_fully', 'similarities', 'similarities_standardized']
    """
    axis, reason = find_time_axis(shape, time_axis, modes) if len(shape) > 1 else (None, "samples have one mode")
    tries_flexible = n_samples * n_targets <= _MOST_SCORES
    pairs = [
        (name, transformer)
        for name, transformer in default_views(axis, smooth_mode, are_unequal=are_unequal, are_numbers=are_numbers)
        if transformer is None
        or (transformer.suits(shape, n_samples, positive) and (tries_flexible or not transformer.is_flexible))
    ]
    return pairs, reason if tries_flexible else f"{reason}; no similarities for {n_targets} targets"


def count_multiplications(n_samples: int, n_entries: int, n_distinct: int, n_folds: int = 5) -> float:
    """Estimate what a view costs: the matrix of products of all samples, and its eigenvectors in every fold.

    ``n_distinct`` are the entries of a sample that do not follow from others, as those of a symmetric matrix do.
    """
    rank = min(n_samples, n_distinct)
    return n_samples * n_entries * rank + 10 * n_folds * rank**3


def candidates_of(pairs: Sequence[tuple[str, Any]], n_samples: int) -> tuple[Candidate, ...]:
    """Make candidates of (name, transformer) pairs; ``n_landmarks`` of transformers is limited to the number of samples."""
    candidates = []
    for name, transformer in pairs:
        if isinstance(transformer, Similarities) and transformer.n_landmarks > n_samples:
            transformer = clone(transformer).set_params(n_landmarks=n_samples)  # noqa: PLW2901
        candidates.append(Candidate(name, transformer))
    return tuple(candidates)


def named_transformers(views: Any, parameter: str) -> list[tuple[str, Any]]:
    """Read transformers that a user gives: return (name, transformer) pairs, names being those of pairs or of ``make_union``.

    None and "passthrough" are the samples as they are, "raw". ``parameter`` is what errors call the transformers by.
    """
    listed = list(views) if isinstance(views, Sequence) and not isinstance(views, str) else [views]
    are_pairs = all(isinstance(view, tuple) and len(view) == 2 for view in listed)
    names: list[Any] = [view[0] if are_pairs else None for view in listed]
    transformers = [_transformer_of(view[1] if are_pairs else view) for view in listed]
    are_usable = all(view is None or (hasattr(view, "fit") and hasattr(view, "transform")) for view in transformers)
    if not listed or not are_usable or not all(name is None or isinstance(name, str) for name in names):
        raise ValueError(
            f"Expected {parameter} to be 'auto', a transformer, or a list of transformers or of (name, transformer) "
            f"pairs, at least one, got {views!r}: None is the sample itself."
        )
    if None in names:
        named = iter(make_union(*[view for view in transformers if view is not None]).transformer_list)
        names = ["raw" if view is None else next(named)[0] for view in transformers]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Expected {parameter} of different names, got {names}: name them, as (name, transformer) pairs."
        )
    return list(zip(names, transformers, strict=True))


def _transformer_of(view: Any) -> Any:
    """Read a view without its name: "passthrough" is another word for None, the sample itself."""
    return None if isinstance(view, str) and view == "passthrough" else view


# --- samples as views show them ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SamplesInMemory:
    """Checked samples as rows (n, p), what they weigh, and their targets as they came, for views that learn from them."""

    rows: Array
    shape: tuple[int, ...]
    weight: Array
    y: Any
    as_given: Array | None = None  # tensors with gaps and padding, where samples had to be completed

    @property
    def tensors(self) -> Array:
        """The samples as tensors (n, I1, ..., IN), complete."""
        return array_namespace(self.rows).reshape(self.rows, (-1, *self.shape))

    def tensors_for(self, transformer: Any) -> Array:
        """The samples as a transformer sees them: as they were given if it takes gaps, else complete."""
        return self.as_given if self.as_given is not None and takes_gaps(transformer) else self.tensors

    def take(self, index: Array, weight: Array | None = None) -> SamplesInMemory:
        """Keep the samples of an index, perhaps with other weights."""
        xp = array_namespace(self.weight)
        place = move_to(index, self.weight)
        rows = self.rows[index] if is_sparse(self.rows) else xp.take(self.rows, place, axis=0)
        new_weight = xp.take(self.weight, place, axis=0) if weight is None else weight
        as_given = None if self.as_given is None else xp.take(self.as_given, place, axis=0)
        return SamplesInMemory(rows, self.shape, new_weight, to_numpy(self.y)[index], as_given)


@dataclass(frozen=True, eq=False)
class FittedView:
    """Samples as one view shows them."""

    name: str
    transformer: Any  # fitted, or None
    shape: tuple[int, ...]  # of a transformed sample
    rows: Array  # (n, p)
    rows_of_fold: tuple[Array, ...] | None = None  # as each fold sees them, where the transformer learns from targets
    keeps_modes: bool = False  # whether modes of transformed samples are those of the samples

    @property
    def n_numbers(self) -> int:
        """How many numbers are held: the samples as they are shown, and what the transformer has learned."""
        learned = [] if self.transformer is None else vars(self.transformer).values()
        sizes = [int(value.size) for value in learned if isinstance(value, np.ndarray)]
        return int(math.prod(self.rows.shape)) + sum(sizes)

    def take(self, index: Array) -> FittedView:
        """Keep the samples of an index; for views that do not learn from targets, and so are the same for all folds."""
        xp = array_namespace(self.rows)
        return replace(self, rows=xp.take(self.rows, move_to(index, self.rows), axis=0))


def fit_view(candidate: Candidate, samples: SamplesInMemory, folds: Folds | None = None) -> FittedView:
    """Fit a view to samples, and for transformers that learn from targets also to the training samples of every fold."""
    if candidate.transformer is None:
        return FittedView(candidate.name, None, samples.shape, samples.rows, keeps_modes=True)
    fitted = clone(candidate.transformer)
    Z = _fit_transform(fitted, samples)
    n, *view_shape = Z.shape
    shape = tuple(view_shape)
    xp = array_namespace(Z)
    rows_of_fold = None
    if candidate.needs_targets and folds is not None:
        shown_by_folds = []
        for train, _ in folds.splits:
            fitted_in_fold = clone(candidate.transformer)
            _fit_transform(fitted_in_fold, samples.take(train))
            tensors = samples.tensors_for(fitted_in_fold)
            shown_by_folds.append(xp.reshape(transformed(fitted_in_fold, tensors), (n, -1)))
        rows_of_fold = tuple(shown_by_folds)
    return FittedView(
        candidate.name,
        fitted,
        shape,
        xp.reshape(Z, (n, -1)),
        rows_of_fold,
        keeps_modes=shape == samples.shape and len(shape) > 1 and not candidate.is_flexible,
    )


def _fit_transform(transformer: Any, samples: SamplesInMemory) -> Array:
    """Fit a transformer of this package to tensors, any other to rows; return what it makes of the samples."""
    if isinstance(transformer, TensorTransformer):
        transformer.set_output(transform="default")
        return transformer.fit_tensors(samples.tensors_for(transformer), samples.weight)
    rows = to_numpy(samples.rows)
    options = {}
    if has_fit_parameter(transformer, "sample_weight"):
        options["sample_weight"] = to_numpy(samples.weight)
    transformer.fit(rows, to_numpy(samples.y), **options)
    return move_to(np.asarray(transformer.transform(rows), dtype=float), samples.weight)


def takes_gaps(transformer: Any) -> bool:
    """Tell whether a transformer takes samples with gaps and of any length, so that these need not be completed for it."""
    return isinstance(transformer, TensorTransformer) and transformer.takes_gaps


def transformed(transformer: Any, tensors: Array) -> Array:
    """Show tensors (n, I1, ..., IN) as a fitted transformer does: those of this package take tensors, others rows."""
    if transformer is None:
        return tensors
    if takes_gaps(transformer):
        return transformer.transform_checked(tensors)
    if isinstance(transformer, TensorTransformer):
        return transformer.transform(tensors)
    rows = to_numpy(tensors).reshape(tensors.shape[0], -1)
    return move_to(np.asarray(transformer.transform(rows), dtype=float), tensors)


# --- several views in one problem ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blend:
    """Views in one problem, by their names, with a factor for each: the larger the factor, the less its weights are penalised."""

    names: tuple[str, ...]
    strengths: tuple[float, ...] = ()
    alignment: str = ""  # what the samples of each group were aligned by before, if by anything

    def __str__(self) -> str:
        return with_alignment(" + ".join(self.names), self.alignment)


def with_alignment(views: str, alignment: str) -> str:
    """Return the name of views, followed by that of the alignment before them, if there is one: for tables and messages."""
    return f"{views} ({alignment} by group)" if alignment else views


@dataclass(frozen=True, eq=False)
class BlendedSamples:
    """Samples as the views of a blend show them, side by side, each multiplied by its factor."""

    transformers: tuple[Any, ...]  # of the views, fitted, or None
    shapes: tuple[tuple[int, ...], ...]  # of a sample as each view shows it
    rows: Array  # (n, p)
    shape: tuple[int, ...]  # of a sample as all show it
    penalty: Any  # a name, or an object with a norm for each block of weights
    factors: tuple[float, ...]
    rows_of_fold: tuple[Array, ...] | None = None


def blend_views(blend: Blend, views: Mapping[str, FittedView], weight: Array, penalty: Any) -> BlendedSamples:
    """Show samples by all views of a blend, each divided by the root of its total variance and multiplied by its strength."""
    chosen = [views[name] for name in blend.names]
    transformers = tuple(view.transformer for view in chosen)
    shapes = tuple(view.shape for view in chosen)
    shape, penalty = joined_shape_and_penalty(transformers, shapes, penalty)
    if len(chosen) == 1:
        (view,) = chosen
        return BlendedSamples(transformers, shapes, view.rows, shape, penalty, (1.0,), view.rows_of_fold)
    strengths = blend.strengths or (1.0,) * len(chosen)
    factors = tuple(
        strength / _total_deviation(view.rows, weight) for strength, view in zip(strengths, chosen, strict=True)
    )
    xp = array_namespace(chosen[0].rows)
    rows = xp.concat([factor * view.rows for factor, view in zip(factors, chosen, strict=True)], axis=1)
    rows_of_fold = None
    n_folds = max((len(view.rows_of_fold) for view in chosen if view.rows_of_fold is not None), default=0)
    if n_folds:
        blended_by_folds = []
        for fold in range(n_folds):
            blocks = [view.rows if view.rows_of_fold is None else view.rows_of_fold[fold] for view in chosen]
            scaled = [factor * block for factor, block in zip(factors, blocks, strict=True)]
            blended_by_folds.append(xp.concat(scaled, axis=1))
        rows_of_fold = tuple(blended_by_folds)
    return BlendedSamples(transformers, shapes, rows, shape, penalty, factors, rows_of_fold)


def _total_deviation(rows: Array, weight: Array) -> float:
    """Find the root of the total variance of rows (n, p); one where they do not vary."""
    xp = array_namespace(rows)
    share = xp.astype(weight / xp.sum(weight), rows.dtype)
    variance = 0.0
    for columns in blocks_of_columns(rows):
        deviation = rows[:, columns] - rows[0, columns]  # about the first sample first, for what all have in common
        deviation = deviation - share @ deviation
        variance += float(xp.sum(share @ deviation**2))
    return math.sqrt(variance) or 1.0


def joined_shape_and_penalty(
    transformers: Sequence[Any], shapes: Sequence[tuple[int, ...]], penalty: Any
) -> tuple[tuple[int, ...], Any]:
    """Find the shape of samples as several views show them side by side, and the penalty of the weights of that shape.

    Each view has a norm of its own, and so has each window of a view with several windows; samples are flat then.
    """
    blocks: list[tuple[int, ...]] = []
    for transformer, shape in zip(transformers, shapes, strict=True):
        windows = getattr(transformer, "windows", 1)
        blocks += [shape[1:]] * windows if windows > 1 else [shape]
    if len(blocks) == 1:
        return blocks[0], penalty
    size = sum(math.prod(block) for block in blocks)
    return (size,), Blocks(tuple(blocks), tuple(as_penalty(penalty, block) for block in blocks))


@dataclass(frozen=True, eq=False)
class ShownByViews:
    """Shows rows (m, p) of samples as fitted views do, side by side: a function that can be sent to a worker."""

    transformers: tuple[Any, ...]
    factors: tuple[float, ...]
    shape: tuple[int, ...]  # of a sample
    resampler: Any = None  # what completes samples with gaps, or of another length; None where they are refused before

    def by_view(self, rows: Array, shape: tuple[int, ...] | None = None) -> list[Array]:
        """Show rows as each view does, one flat array for each view, without its factor; ``shape`` is that of longer samples."""
        if is_sparse(rows):
            return [rows for _ in self.transformers]
        xp = array_namespace(rows)
        n = rows.shape[0]
        tensors = xp.reshape(rows, (n, *(self.shape if shape is None else shape)))
        complete = tensors if self.resampler is None else self.resampler.transform_tensors(tensors)
        return [
            xp.reshape(transformed(view, tensors if takes_gaps(view) else complete), (n, -1))
            for view in self.transformers
        ]

    def __call__(self, rows: Array, shape: tuple[int, ...] | None = None) -> Array:
        """Show rows as all views do, each times its factor."""
        blocks = self.by_view(rows, shape)
        if len(blocks) == 1:
            return blocks[0]
        xp = array_namespace(blocks[0])
        return xp.concat([factor * block for factor, block in zip(self.factors, blocks, strict=True)], axis=1)
