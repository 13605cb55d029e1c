"""NIfTI images: samples are volumes along the fourth axis, whole, the box around a mask, or the voxels of a mask in a row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray

from tracelearn.arrays.array_api import available_memory
from tracelearn.errors import refuse
from tracelearn.samples.source import Column, check_is_file

__all__ = ["column", "names"]

_NIFTI_2 = 540  # bytes of a header


def _open(path: Path) -> Any:
    """Open an image by what its header says, unmapped: a map of a file that is cut off ends the process."""
    check_is_file(path)
    with nibabel.openers.ImageOpener(str(path)) as file:
        size = file.read(4)
    orders = (int.from_bytes(size, order) for order in ("little", "big"))
    kind = nibabel.Nifti2Image if _NIFTI_2 in orders else nibabel.Nifti1Image
    # The file stays open during a pass: one that is compressed would be read from its beginning for every block.
    return kind.from_filename(path, mmap=False, keep_file_open=True)


def names(path: Path) -> None:
    """An image is one array."""


def column(path: Path, name: None, mask: str | Path | None = None, flat: bool = False) -> Column:
    """Find the shape of a volume, and what of it is used."""
    image = _open(path)
    shape = image.shape
    refuse(
        len(shape) != 4 or min(shape) < 1,
        f"Expected four axes in '{path}', the fourth of which counts samples, got shape {shape}: stack volumes with "
        "nibabel.concat_images.",
    )
    used = None if mask is None else _mask(Path(mask), image)
    refuse(
        flat and used is None,
        "Expected a mask with flat=True, got none: name the image with open_source(path, mask=...).",
    )
    box = (slice(None),) * 3 if used is None else _box(used)
    inside = None if used is None else used[box]
    sizes = shape[:3] if inside is None else (int(inside.sum()),) if flat else inside.shape
    dtype = image.dataobj[:1, :1, :1, :1].dtype  # that of the stored numbers, or of what they are scaled to
    return Column(shape[3], sizes, dtype, 1, partial(_read, path, box, inside, flat, dtype))


def _mask(path: Path, samples: Any) -> NDArray[Any]:
    image = _open(path)
    refuse(
        image.shape != samples.shape[:3] or not np.allclose(image.affine, samples.affine, rtol=0, atol=1e-3),
        f"Expected the mask '{path}' on the grid of the samples, {samples.shape[:3]} with the same affine, got "
        f"{image.shape}: resample it.",
    )
    if 16 * prod(image.shape) > available_memory():
        raise MemoryError(f"{prod(image.shape)} voxels")
    values = np.asanyarray(image.dataobj)
    used: NDArray[Any] = np.isfinite(values) & (values != 0)
    refuse(not used.any(), f"Expected voxels in the mask '{path}', got none: choose another.")
    return used


def _box(used: NDArray[Any]) -> tuple[slice, ...]:
    places = [np.flatnonzero(used.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    return tuple(slice(int(place[0]), int(place[-1]) + 1) for place in places)


def _read(
    path: Path, box: tuple[slice, ...], inside: Any, flat: bool, dtype: np.dtype[Any], start: int, rows: int
) -> Iterator[NDArray[Any]]:
    image = _open(path)
    while start < image.shape[3]:
        volumes = image.dataobj[(*box, slice(start, start + rows))].astype(dtype, copy=False)
        if flat:
            yield volumes[inside].T
        else:
            found = np.moveaxis(volumes, 3, 0)
            yield found if inside is None else np.where(inside, found, dtype.type(0))
        start += rows
