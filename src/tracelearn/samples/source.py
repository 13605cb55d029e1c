"""What samples in blocks are to everything that learns from them, wherever they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.samples.modes import Mode

__all__ = ["Batch", "Source", "as_source"]

Batch = tuple[NDArray[Any], Any, Any | None]


def _no_columns(name: str) -> NDArray[Any]:
    raise InputError(
        f"Expected a file or a table, in which {name!r} can be looked up, got samples without names: pass an array instead."
    )


@dataclass(frozen=True, eq=False)
class Source:
    """Samples with their targets and weights, read in blocks.

    Attributes
    ----------
    sample_shape : tuple of int or None
        Shape of one sample; None where only reading tells.
    n_samples : int or None
    dtype : numpy.dtype or None
        Type of the samples.
    repeatable : bool
        Whether every pass gives the same blocks; otherwise there is one pass.
    blocks : function from a number of samples to an iterator
        Reads blocks from that sample on.
    targets : function to an iterator
        Reads (y, weight) of the blocks, without their samples where the format allows it.
    modes : tuple of Mode or None
        Names, coordinates and units of the modes of a sample, where the file has them.
    column : function from a name to an array
        Reads one value for each sample into memory, such as the groups of a cross-validation: a column of a table, an array
        of a file, or a column of the metadata of epochs.
    """

    sample_shape: tuple[int, ...] | None
    n_samples: int | None
    dtype: np.dtype[Any] | None
    repeatable: bool
    blocks: Callable[[int], Iterator[Batch]]
    targets: Callable[[], Iterator[tuple[Any, Any | None]]]
    modes: tuple[Mode, ...] | None = None
    column: Callable[[str], NDArray[Any]] = _no_columns

    def batches(self, start: int = 0) -> Iterator[Batch]:
        """Read blocks (X, y, weight) from sample ``start`` on.

        X has the shape ``(m, *sample_shape)``; y is None if there is no target, weight is None if all weigh the same.
        """
        if start < 0:
            raise InputError(f"Expected start to be a number of samples of at least 0, got {start}.")
        return self.blocks(start)


def as_source(
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    ignore: tuple[str, ...] = (),
    modes: tuple[Mode, ...] | None = None,
) -> Source | None:
    """Recognise samples that are to be read block by block, by `tracelearn.io.as_source`; None means that X is read whole."""
    from tracelearn.io.opening import as_source as recognise  # noqa: PLC0415 - the core takes paths and knows no format

    return recognise(X, y, sample_weight, ignore, modes)
