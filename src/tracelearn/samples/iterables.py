"""Sources that are iterables of blocks: generators, data loaders, lists of blocks; and datasets of single samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tracelearn.errors import refuse
from tracelearn.samples.source import Batch, NumberedBatch, Source

__all__ = ["dataset", "stream"]

_LARGEST_BLOCK = 16 * 2**20  # bytes


def stream(blocks: Iterable[Any]) -> Source:
    """Make a source of an iterable of (X, y) or (X, y, weight), whatever the sizes of its blocks.

    A block is read when it is asked for, in the thread that asks. An iterator may wait for data, which Ctrl-C must be able
    to end; it may belong to the thread that made it, as the cursor of a database does; and a block is worked on before the
    next one is waited for.
    """
    repeatable = not hasattr(blocks, "__next__")
    passes: list[int] = []  # where each pass began: only one pass is possible over an iterator

    def read(start: int) -> Iterator[NumberedBatch]:
        # Not a generator itself: a second pass is refused when it is asked for.
        refuse(
            not repeatable and passes,
            "Expected one pass over an iterator of blocks, got a second one: pass a list of blocks, or an object whose "
            "__iter__ starts again.",
        )
        passes.append(start)
        return _read(blocks, start)

    return Source(None, None, None, repeatable, read, lambda: ((y, weight) for _, _, y, weight in read(0)))


def _read(blocks: Iterable[Any], start: int) -> Iterator[NumberedBatch]:
    """Yield checked blocks, from the sample ``start`` on."""
    shape: tuple[int, ...] | None = None
    first = 0
    for count, block in enumerate(blocks):
        X, y, weight = _checked_block(block, count)
        shape = X.shape[1:] if shape is None else shape
        refuse(
            X.shape[1:] != shape,
            f"Expected samples of shape {shape} in all blocks, got shape {X.shape[1:]} in block {count}: reshape them.",
        )
        skip = max(0, start - first)
        if skip < len(X):
            yield first + skip, X[skip:], None if y is None else y[skip:], None if weight is None else weight[skip:]
        first += len(X)
    refuse(
        shape is None, "Expected an iterable of blocks (X, y), got no block: check that it has not been read before."
    )


def _checked_block(block: Any, count: int) -> tuple[Any, Any, Any]:
    """Return (X, y, weight) of a block as arrays, None where the block has none."""
    refuse(
        not isinstance(block, tuple | list) or len(block) not in (2, 3),
        f"Expected blocks (X, y) or (X, y, weight), got {type(block).__name__} as block {count}: yield tuples of arrays.",
    )
    X = block[0].toarray() if hasattr(block[0], "toarray") else np.asarray(block[0])
    refuse(
        X.ndim < 2,
        f"Expected X of shape (m, I1, ..., IN) in block {count}, got shape {X.shape}: yield several samples at a time.",
    )
    y = None if block[1] is None else np.asarray(block[1])
    weight = None if len(block) == 2 or block[2] is None else np.asarray(block[2])
    for name, values in (("targets", y), ("weights", weight)):
        shape = X.shape[:1] if values is None else values.shape
        refuse(
            shape[:1] != X.shape[:1],
            f"Expected one row of {name} for each sample, got {len(X)} samples and {name} of shape {shape} in block {count}.",
        )
    return X, y, weight


# --- single samples ---------------------------------------------------------------------------------------------------


def dataset(samples: Any) -> Source:
    """Make a source of a dataset of PyTorch, whose items are (x, y) or (x, y, weight) of one sample each."""
    return stream(_Grouped(samples))


@dataclass(frozen=True, eq=False)
class _Grouped:
    """Single samples, gathered in blocks of up to ``_LARGEST_BLOCK`` bytes; every pass begins anew."""

    samples: Any

    def __iter__(self) -> Iterator[Batch]:
        # By number where there is one: the protocol that iterates such objects ends only with an IndexError.
        counted = not hasattr(self.samples, "__iter__")
        items = iter((self.samples[i] for i in range(len(self.samples))) if counted else self.samples)
        for first in items:
            refuse(
                not isinstance(first, tuple | list) or len(first) not in (2, 3),
                f"Expected samples (x, y) or (x, y, weight) from a dataset, got {type(first).__name__}: return tuples.",
            )
            group = [first]
            size = max(1, _LARGEST_BLOCK // max(1, np.asarray(first[0]).nbytes))
            group.extend(islice(items, size - 1))
            X, y, *weight = (np.stack([np.asarray(value) for value in part]) for part in zip(*group, strict=True))
            yield X, y, weight[0] if weight else None
