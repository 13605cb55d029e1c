"""NIfTI images: samples are volumes along the fourth axis, whole, or the box around a mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from numpy.typing import NDArray

from tracelearn.errors import refuse
from tracelearn.io.safety import check_memory

__all__ = ["names", "open_array"]


def names(path: Path) -> None:
    """Say that an image is one array without a name."""


@contextmanager
def open_array(path: Path, name: None, mask: str | Path | None = None) -> Iterator[_Volumes]:
    """Open the volumes of an image, whole or cut to the box around a mask."""
    # The file stays open during a pass: one that is compressed would be read from its beginning for every block.
    image: Any = nibabel.load(path, keep_file_open=True)
    refuse(
        len(image.shape) != 4 or min(image.shape) < 1,
        f"Expected four axes in '{path}', the fourth of which counts samples, got shape {image.shape}: stack volumes with "
        "nibabel.concat_images.",
    )
    if mask is None:
        yield _Volumes(image, (slice(None),) * 3, None)
    else:
        voxels = _read_mask(Path(mask), image)
        box = _box_around(voxels)
        yield _Volumes(image, box, voxels[box])


@dataclass(frozen=True)
class _Volumes:
    """Volumes of an image, cut to a box; voxels outside the mask are zero."""

    image: Any
    box: tuple[slice, ...]
    mask: NDArray[np.bool_] | None

    @property
    def shape(self) -> tuple[int, ...]:
        sizes = self.image.shape[:3] if self.mask is None else self.mask.shape
        return self.image.shape[3], *sizes

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the stored numbers, or of what they are scaled to."""
        dtype: np.dtype[Any] = self.image.dataobj[:1, :1, :1, :1].dtype
        return dtype

    def __getitem__(self, index: tuple[slice]) -> NDArray[Any]:
        volumes = self.image.dataobj[(*self.box, *index)].astype(self.dtype, copy=False)
        samples: NDArray[Any] = np.moveaxis(volumes, 3, 0)
        return samples if self.mask is None else np.where(self.mask, samples, self.dtype.type(0))


def _read_mask(path: Path, samples: Any) -> NDArray[np.bool_]:
    """Read which voxels a mask selects, after checking that it is on the grid of the samples."""
    image: Any = nibabel.load(path)
    refuse(
        image.shape != samples.shape[:3] or not np.allclose(image.affine, samples.affine, rtol=0, atol=1e-3),
        f"Expected the mask '{path}' on the grid of the samples, {samples.shape[:3]} with the same affine, got "
        f"{image.shape}: resample it.",
    )
    check_memory(f"the mask '{path}'", image.shape, np.dtype(float))
    values = np.asanyarray(image.dataobj)
    voxels: NDArray[np.bool_] = np.isfinite(values) & (values != 0)
    refuse(not voxels.any(), f"Expected voxels in the mask '{path}', got none: choose another.")
    return voxels


def _box_around(voxels: NDArray[np.bool_]) -> tuple[slice, ...]:
    """Find the smallest box that holds all voxels."""
    indices = [np.flatnonzero(voxels.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3)]
    return tuple(slice(int(index[0]), int(index[-1]) + 1) for index in indices)
