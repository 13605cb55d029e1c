"""Reading what ``fit`` is given: checked samples with coded targets, and what is known of them whatever is learned.

Everything here is a pure function of its arguments: what was read comes back as a ``Spec``, which says how later samples must
be, and nothing is written on an estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array, available_memory, is_sparse, move_to
from tracelearn.errors import InputError
from tracelearn.losses import Loss
from tracelearn.moments import Moments
from tracelearn.samples.checks import float_dtype
from tracelearn.samples.execution import Local
from tracelearn.samples.per_sample import check_total_weight
from tracelearn.samples.rows import read_rows, sample_shape, warn_of_grid
from tracelearn.samples.samples import Block, Samples, errors_name_block
from tracelearn.samples.source import NumberedBatch, Source, missing_targets
from tracelearn.samples.targets import TargetReader, recode

__all__ = ["MANY_ENTRIES", "Reader", "Spec", "loaded_for", "read", "recoded", "summarise"]

# Samples on disk with at most this many entries are summarised block by block; larger ones are read if they fit.
MANY_ENTRIES = 8192
_BYTES = 32  # of memory that a fit takes for each number of the samples


@dataclass(frozen=True, eq=False)
class Spec:
    """What is known of samples and targets: how later samples must be, and what weights are shaped like.

    ``is_flat`` says that samples of more than one mode came as rows, ``is_single`` that y had one axis, so that weights of a
    regressor have no axis of targets; ``dtype`` is that of the samples.
    """

    sample_shape: tuple[int, ...]
    dtype: Any
    n_targets: int
    is_flat: bool = False
    is_single: bool = False
    classes: Any = None  # sorted labels, or None for numbers
    modes: Any = None
    feature_names: Array | None = None
    n_confounds: int = 0

    @property
    def n_features(self) -> int:
        """The number p of entries of a sample."""
        return math.prod(self.sample_shape)


@dataclass(frozen=True, eq=False)
class Reader:
    """How a block of samples is read: by the parameters of an estimator, and by what is known from earlier samples.

    It holds no samples and no weights, so that workers of a cluster can be sent it.

    Parameters
    ----------
    name : of the estimator, as errors call it
    targets : how ``y`` is read
    spec : of earlier samples, which later ones must match; None where the first are read
    """

    name: str
    targets: TargetReader
    tensor_shape: Any = None
    spec: Spec | None = None

    def after(self, spec: Spec | None) -> Reader:
        """Return a reader of later samples, which must have the shape and the kind of targets of ``spec``."""
        if spec is None:
            return self
        return replace(self, spec=spec, targets=self.targets.after(spec.classes, spec.is_single))

    def read_block(
        self, X: Any, y: Any, weight: Any, *, first: int = 0, confounds: Array | None = None, is_part: bool = False
    ) -> tuple[Spec, Block]:
        """Check samples in memory, the first of which is number ``first``, given the confounds of all samples."""
        before = self.spec
        samples = read_rows(
            X,
            name=self.name,
            tensor_shape=self.tensor_shape,
            known_shape=None if before is None else before.sample_shape,
            known_names=None if before is None else before.feature_names,
            any_library=True,
            finite=False,
        )
        rows = samples.rows
        targets = self.targets.read(y, weight, rows, is_part=is_part)
        block = Block(rows, targets.Y, targets.weight, first)
        if confounds is not None:
            block = _with_confounds(block, confounds)
        spec = Spec(
            sample_shape=samples.sample_shape,
            dtype=float_dtype(rows),
            n_targets=int(targets.Y.shape[1]),
            is_flat=samples.is_flat,
            is_single=targets.is_single,
            classes=targets.classes,
            feature_names=samples.feature_names,
            n_confounds=0 if confounds is None else int(confounds.shape[1]),
        )
        if before is not None:  # the first samples decide all but the classes
            spec = replace(before, classes=spec.classes, n_targets=spec.n_targets)
        return spec, block


def read(source: Source, reader: Reader) -> tuple[Spec, Samples]:
    """Check samples: those in memory at once, others whenever a block of them is read."""
    if source.in_memory:
        X, y, weight = source.arrays
        if reader.spec is None and reader.tensor_shape is None and hasattr(X, "columns"):  # a data frame
            warn_of_grid(X.columns)
        spec, block = reader.read_block(X, y, weight, confounds=source.confounds)
        if reader.spec is None:
            spec = replace(spec, modes=source.modes)
        return spec, Samples.of(block, spec.sample_shape)
    if reader.spec is None:
        reader, weight = _surveyed(source, reader)
    else:
        weight = math.nan  # not needed: the moments sum up the weights
    surveyed: Any = reader.spec
    # Workers are sent the function below with all that it names: the confounds alone instead of the whole source.
    confounds = source.confounds

    def checked(batch: NumberedBatch) -> Block:
        """Check one block, whenever it is read."""
        first, X, y, sample_weight = batch
        with errors_name_block(first):
            _, block = reader.read_block(X, y, sample_weight, first=first, confounds=confounds, is_part=True)
        return block

    samples = Samples(
        source.execution.view(checked, source.blocks),
        surveyed.sample_shape,
        surveyed.n_targets,
        weight,
        source.n_samples,
        source.execution,
        n_confounds=surveyed.n_confounds,
    )
    return surveyed, samples


def _surveyed(source: Source, reader: Reader) -> tuple[Reader, float]:
    """Read all targets once, for what must be known before the first block is read; return also the sum of all weights."""
    survey = reader.targets.survey(source)
    check_total_weight(survey.weight)
    stored_shape = source.sample_shape  # of one sample, before ``tensor_shape``
    dtype = source.dtype
    if stored_shape is None:
        first_samples = source.first_samples()
        stored_shape = np.shape(first_samples)[1:]
        dtype = getattr(first_samples, "dtype", None)
    shape = sample_shape(np.broadcast_to(0.0, (1, *stored_shape)), reader.tensor_shape)
    spec = Spec(
        sample_shape=shape,
        dtype=np.dtype(np.float32 if dtype == np.float32 else np.float64),
        n_targets=survey.n_targets,
        is_flat=len(shape) > 1 and len(stored_shape) == 1,
        is_single=survey.is_single,
        classes=survey.classes,
        modes=source.modes,
        n_confounds=0 if source.confounds is None else int(source.confounds.shape[1]),
    )
    return replace(reader, targets=survey.reader, spec=spec), survey.weight


def summarise(source: Source, reader: Reader) -> tuple[Spec, Moments]:
    """Sum up the moments of samples that can be read only once; their shape and classes are found while reading."""
    spec: Spec | None = None
    moments: Moments | None = None
    for first, X, y, weight in source.blocks:
        with errors_name_block(first):
            block_spec, block = reader.after(spec).read_block(X, y, weight, is_part=True)
            if moments is not None:
                moments = recoded(moments, spec, block_spec)
            moments = Samples.of(block, block_spec.sample_shape).moments(moments)
            spec = block_spec
    if spec is None or moments is None:
        raise InputError("Expected at least one block of samples, got none: there is nothing to learn from.")
    check_total_weight(moments.weight)
    return spec, moments


def recoded(moments: Moments, before: Spec | None, after: Spec) -> Moments:
    """Code moments of samples of known classes for those that are known now."""
    if before is None or before.classes is None:
        return moments
    return recode(moments, before.classes, after.classes)


def loaded_for(loss: Loss, source: Source) -> Source:
    """Read samples on disk into memory where every iteration would read them again, and they fit."""
    n = source.n_samples
    p = math.prod(source.sample_shape or ())
    is_summed_up = loss.has_moments and (n is None or (2 * n >= p and p <= MANY_ENTRIES))
    is_on_disk = source.repeatable and not source.in_memory and isinstance(source.execution, Local) and n is not None
    fits = n is not None and _BYTES * n * p <= available_memory()
    if not (is_on_disk and fits) or is_summed_up:
        return source
    loaded = source.loaded()
    y, _ = loaded.all_targets()
    if y is None:
        raise missing_targets()
    return loaded


def _with_confounds(block: Block, confounds: Array) -> Block:
    """Add the confounds of a block, given those of all samples."""
    if is_sparse(block.X):
        raise InputError(
            "Expected dense samples with confounds, got a sparse matrix: what is left of it is not sparse."
        )
    rows = confounds[block.first : block.first + block.X.shape[0], :]
    return replace(block, confounds=move_to(rows, block.X, block.Y.dtype))
