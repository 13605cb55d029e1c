"""Learning from samples that come in blocks: from disk, from an iterable, on a cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import compute_class_weight, compute_sample_weight

from tracelearn.arrays.array_api import Array
from tracelearn.arrays.memory import available_memory
from tracelearn.moments import Fold, Moments
from tracelearn.problems.smooth import DataLoss, Squares
from tracelearn.samples.checks import sample_shape
from tracelearn.samples.execution import Block, Blocks, BlockSamples, as_blocks
from tracelearn.solvers.choose import Form, choose_form

if TYPE_CHECKING:
    from tracelearn.estimators.base import Batch, TraceNormModel

__all__ = [
    "BlockReader",
    "LabelCount",
    "all_targets",
    "choose_block_form",
    "fit_blocks",
    "gathered_or_blocks",
    "smooth_of",
    "summarised",
    "tell",
]


def gathered_or_blocks(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any] | Blocks:
    """Return what is to be read whole as ``(X, y, sample_weight)``, and what is not as blocks.

    A loss without moments reads every sample in every iteration, so samples on disk that fit in memory are read into it.
    """
    blocks = as_blocks(X, y, sample_weight)
    if blocks is None:
        return X, y, sample_weight
    if not blocks.is_local or not blocks.repeatable or blocks.sample_shape is None or blocks.n_samples is None:
        return blocks
    form = choose_form(blocks.n_samples, math.prod(blocks.sample_shape), has_moments=model.loss == "squared")
    fits = 4.0 * blocks.n_bytes <= available_memory()
    return blocks if form.name == "moments" or not fits else blocks.gathered()


@dataclass(frozen=True, eq=False)
class LabelCount:
    """How often each label occurs, and with what weight; counts of parts add up."""

    counts: dict[Any, int]
    weights: dict[Any, float]

    @classmethod
    def of(cls, y: Any, weight: Any) -> LabelCount:
        """Count the labels of a block."""
        labels, where = np.unique(np.asarray(y).ravel(), return_inverse=True)
        weights = np.bincount(where, weights=None if weight is None else np.asarray(weight, dtype=float))
        counts = np.bincount(where)
        return cls(
            dict(zip(labels.tolist(), counts.tolist(), strict=True)), dict(zip(labels.tolist(), weights, strict=True))
        )

    def __add__(self, other: LabelCount) -> LabelCount:
        return LabelCount(_merged(self.counts, other.counts), _merged(self.weights, other.weights))

    @property
    def classes(self) -> Array:
        """All labels, sorted."""
        return np.unique(np.array(list(self.counts)))


def _merged(first: dict[Any, Any], second: dict[Any, Any]) -> dict[Any, Any]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in first | second}


@dataclass(frozen=True, eq=False)
class BlockReader:
    """Reads blocks as a model would: a model of the same parameters that knows the shape and the classes beforehand."""

    model: Any
    shape: tuple[int, ...]
    n_targets: int
    total: float  # the sum of all weights, where it was asked for

    @classmethod
    def of(cls, model: TraceNormModel, blocks: Blocks, *, weigh: bool) -> BlockReader:
        """Find out what must be known before the first block; ``weigh`` asks for the sum of all weights."""
        reader: Any = type(model)(**model.get_params())
        dims, dtype = blocks.sample_shape, blocks.dtype
        if dims is None:
            first = blocks.engine.first(blocks.batches)[1]
            dims, dtype = np.shape(first)[1:], getattr(first, "dtype", None)
        reader.sample_shape_ = sample_shape(np.broadcast_to(0.0, (1, *dims)), model.tensor_shape)
        reader.n_features_in_ = math.prod(reader.sample_shape_)
        reader._dtype = np.dtype(np.float32 if dtype == np.float32 else np.float64)
        total = math.nan
        if hasattr(model, "class_weight"):
            found = blocks.engine.total(lambda t: LabelCount.of(*t), blocks.targets)
            reader.classes_ = found.classes
            reader.class_weight = _class_weights(model.class_weight, found)
            total = sum(weight * (reader.class_weight or {}).get(label, 1.0) for label, weight in found.weights.items())
            n_targets = 1 if len(reader.classes_) == 2 else len(reader.classes_)
        else:
            y = np.asarray(blocks.engine.first(blocks.targets)[0])
            reader._single = y.ndim == 1
            n_targets = 1 if reader._single else y.shape[1]
            if weigh:
                total = blocks.engine.total(
                    lambda t: float(len(t[0]) if t[1] is None else np.sum(t[1])), blocks.targets
                )
        return cls(reader, reader.sample_shape_, n_targets, total)

    def read(self, block: tuple[int, Any, Any, Any]) -> Batch:
        """Check the shapes and targets of one block; its numbers are looked at where they are used."""
        first, X, y, weight = block
        options = {"classes": self.model.classes_, "grow": True} if hasattr(self.model, "classes_") else {}
        with _naming(first):
            batch: Batch = self.model._read(X, y, weight, reset=False, **options)
        return batch

    def add(self, block: tuple[int, Any, Any, Any], fold: Fold) -> None:
        """Add one block to moments in the making."""
        batch = self.read(block)
        with _naming(block[0]):
            batch.add_to(fold)

    def weights_of(self, y: Array, weight: Array | None) -> Array:
        """Weigh all samples (n,) by their own weight and that of their class."""
        weights = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
        if getattr(self.model, "class_weight", None) is not None:
            weights = weights * compute_sample_weight(self.model.class_weight, y)
        return weights

    def moments(self, block: tuple[int, Any, Any, Any]) -> Moments:
        """Summarise one block."""
        fold = Fold.empty(self.model.n_features_in_, self.n_targets)
        self.add(block, fold)
        return fold.freeze()

    def block(self, block: tuple[int, Any, Any, Any]) -> Block:
        """Check one block, in double precision, with its weights as shares of the whole."""
        batch = self.read(block)
        with _naming(block[0]):
            batch.check_numbers()
        weight = np.ones(len(batch.X)) if batch.weight is None else batch.weight
        return Block(batch.X.astype(np.float64, copy=False), batch.Y, weight / self.total)


@contextmanager
def _naming(first: int) -> Iterator[None]:
    """Say in an error which block it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error} (in the block that begins at sample {first})") from error


def _class_weights(class_weight: Any, found: LabelCount) -> dict[Any, float] | None:
    """Resolve class weights: shares of classes are known only from all blocks together."""
    if class_weight != "balanced":
        return class_weight  # type: ignore[no-any-return]
    classes = found.classes
    y = np.repeat(np.arange(len(classes)), [found.counts[label] for label in classes.tolist()])
    return dict(
        zip(classes.tolist(), compute_class_weight("balanced", classes=np.arange(len(classes)), y=y), strict=True)
    )


def fit_blocks(model: TraceNormModel, blocks: Blocks) -> None:
    """Fit a model; the answer is that of all samples at once."""
    if not blocks.repeatable and model.loss != "squared":
        raise ValueError(
            f"Expected samples that can be read more than once for loss={model.loss!r}, got an iterator: pass a list, an "
            "object whose __iter__ begins anew, or a file."
        )
    form = choose_block_form(model, blocks) if blocks.repeatable else Form("moments", "the samples come only once")
    model._say(f"{form.name}, block by block: {form.reason}")
    if form.name == "moments":
        found = summarised(model, blocks)
        _check_classes(found)
        tell(found, model)
        model._fit_moments(found.moments_, found.sample_shape_, model.warm_start)
        return
    if model.scaling is not None:
        check_block_scaling(form)
    reader = BlockReader.of(model, blocks, weigh=True)
    _check_classes(reader.model)
    tell(reader.model, model)
    model.__dict__.pop("moments_", None)
    samples = BlockSamples(blocks.engine, blocks.engine.view(reader.block, blocks.batches), reader.n_targets)
    smooth = smooth_of(model, samples, form, joint=model._joint(reader.n_targets))
    W = model._solve(smooth, reader.shape, reader.n_targets, model.warm_start)
    model._keep_patterns(samples, W, reader.shape)


def check_block_scaling(form: Form) -> None:
    """Refuse to scale samples that are read again and again: only moments can be scaled afterwards."""
    if form.name != "moments":
        raise ValueError(
            "Expected scaling=None where samples are read again and again in blocks, got 'modes': use the squared loss, or "
            "scale the samples before."
        )


def summarised(model: TraceNormModel, blocks: Blocks) -> Any:
    """Summarise all blocks, each read once: a model of the same parameters that knows its moments and no weights."""
    if blocks.repeatable:
        reader = BlockReader.of(model, blocks, weigh=False)
        reader.model.moments_ = _folded(reader, blocks)
        return reader.model
    found: Any = type(model)(**{**model.get_params(), "forgetting": 1.0})
    for _, X, y, weight in blocks.batches:  # shape and classes are found on the way
        found._learn(X, y, weight, grow=True)
    return found


def _check_classes(model: Any) -> None:
    known = getattr(model, "classes_", np.arange(2))
    if len(known) < 2:
        raise ValueError(
            f"Expected at least two classes in y, got one class, {known.tolist()[0]!r}: there is nothing to tell apart."
        )


def tell(found: Any, model: TraceNormModel) -> None:
    """Set what was found out as attributes of a model that is being fitted."""
    for name in ("sample_shape_", "n_features_in_", "_dtype", "classes_", "_single"):
        if hasattr(found, name):
            setattr(model, name, getattr(found, name))


def choose_block_form(model: TraceNormModel, blocks: Blocks) -> Form:
    """Choose how to learn from blocks."""
    dims = blocks.sample_shape
    dims = np.shape(blocks.engine.first(blocks.batches)[1])[1:] if dims is None else dims
    n = 1 << 62 if blocks.n_samples is None else blocks.n_samples
    form = choose_form(n, math.prod(dims), has_moments=model.loss == "squared")
    # A kernel needs all samples in memory; if they were to fit there we would not be here.
    return (
        Form("matrix-free", "the samples do not fit in memory, so every gradient is one pass")
        if form.name == "kernel"
        else form
    )


def _folded(reader: BlockReader, blocks: Blocks) -> Moments:
    """Summarise all blocks, each read once."""
    if not blocks.is_local:
        found: Moments = blocks.engine.total(reader.moments, blocks.batches)
        return found
    fold = Fold.empty(reader.model.n_features_in_, reader.n_targets)
    for block in blocks.batches:
        reader.add(block, fold)
    return fold.freeze()


def smooth_of(model: TraceNormModel, samples: BlockSamples, form: Form, *, joint: bool) -> Squares | DataLoss:
    """Build the smooth half of samples that stay where they are."""
    options: dict[str, Any] = {"ridge": model.ridge, "joint": joint}
    if model.loss == "squared":
        return Squares.of_many(samples, centre=model.fit_intercept, **options)
    free = form.name == "matrix-free"
    loss = model._loss(samples.n_targets)
    return DataLoss.of(loss, samples, fit_intercept=model.fit_intercept, matrix_free=free, **options)


def all_targets(blocks: Blocks) -> tuple[Array, Array | None]:
    """Read all targets and weights: scikit-learn's splitters look at them."""
    y, weight = zip(*blocks.engine.gather(blocks.targets), strict=True)
    return np.concatenate(y), None if weight[0] is None else np.concatenate(weight)
