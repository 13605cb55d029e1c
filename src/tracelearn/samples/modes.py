"""The modes of a sample as a reader knows them: names, coordinates, units, positions of sensors; and samples that bring them.

Samples with names are xarray's ``DataArray`` and ``Dataset``, data frames of pandas whose columns have several levels, and
epochs of MNE. They are recognised by what they have, so that none of these libraries is imported, and become plain arrays
here, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import Array
from tracelearn.errors import InputError, refuse
from tracelearn.optional import require

__all__ = [
    "Mode",
    "are_modes_of",
    "check_file_modes",
    "column_of_epochs",
    "events_of",
    "is_named",
    "like_input",
    "modes_of_mne",
    "read_named",
    "resized_modes",
    "targets_of_named",
    "to_dataset",
]

Modes = tuple["Mode", ...]

# Types of MNE's channels that are not of the brain; among them triggers, which would give the class away.
_AUXILIARY = frozenset(
    "bio chpi dipole ecg emg eog exci eyegaze gof gsr ias misc pupil ref_meg resp stim syst temperature".split()
)


@dataclass(frozen=True, eq=False)
class Mode:
    """One mode: its name, the coordinates of its entries, numbers or names, their unit, and where sensors are.

    ``positions`` (I, 2) are those of sensors on a head seen from above, nose up: the vertex is at 0, ears are about 1 away.
    """

    name: str
    values: Array
    unit: str | None = None
    positions: Array | None = None

    @property
    def has_names(self) -> bool:
        """Whether entries are known by name, so that no line may join them."""
        return self.values.dtype.kind not in "iuf"

    @property
    def is_counted(self) -> bool:
        """Whether coordinates are whole numbers."""
        return self.values.dtype.kind in "iu"

    @property
    def label(self) -> str:
        """What to write below an axis."""
        return self.name if self.unit is None else f"{self.name} ({self.unit})"

    @property
    def is_even(self) -> bool:
        """Whether coordinates are numbers at equal distances, so that an axis may count in them."""
        if self.has_names or len(self.values) < 2:
            return False
        steps = np.diff(self.values)
        return bool(steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-3, atol=0.0))

    @property
    def is_wide(self) -> bool:
        """Whether entries have so many names that a plot needs room for them."""
        return self.has_names and self.positions is None and len(self.values) > 24

    def entry(self, index: int) -> str:
        """Name one entry."""
        value = self.values[index]
        text = f"{self.name} {value}" if self.has_names else f"{self.name} = {value:.3g}"
        return text if self.unit is None else f"{text} {self.unit}"

    def edges(self) -> tuple[float, float]:
        """Return the outer edges of the first and the last entry in an image, in even coordinates, else in indices."""
        if not self.is_even:
            return -0.5, len(self.values) - 0.5
        half = 0.5 * float(self.values[1] - self.values[0])
        return float(self.values[0]) - half, float(self.values[-1]) + half

    def every(self, step: int) -> Mode:
        """Keep every ``step``-th entry."""
        positions = None if self.positions is None else self.positions[::step]
        return Mode(self.name, self.values[::step], self.unit, positions)

    def windows(self, starts: Array, size: int) -> Mode:
        """Make the mode of windows of ``size`` entries: each has the middle of its coordinates, or the first of its names."""
        values = self.values[starts]
        if not self.has_names and size > 1:
            values = 0.5 * (values + self.values[starts + size - 1])
        return Mode(self.name, values, self.unit, None if self.positions is None else self.positions[starts])


def are_modes_of(modes: Any, shape: tuple[int, ...]) -> bool:
    """Tell whether modes read from a file fit samples of a shape."""
    return isinstance(modes, tuple) and len(modes) == len(shape) and all(map(_fits, modes, shape))


def resized_modes(modes: Modes, shape: tuple[int, ...]) -> Modes:
    """Give modes whose size has changed, as that of time does by resampling, the coordinates 0, 1, 2, ..."""
    return tuple(
        mode if len(mode.values) == size else Mode(mode.name, np.arange(size))
        for mode, size in zip(modes, shape, strict=True)
    )


def _fits(mode: Any, size: int) -> bool:
    """Tell whether this is a mode of ``size`` entries."""
    return (
        isinstance(mode, Mode)
        and isinstance(mode.name, str)
        and isinstance(mode.unit, str | None)
        and np.shape(mode.values) == (size,)
        and (
            mode.positions is None
            or (np.shape(mode.positions) == (size, 2) and bool(np.all(np.isfinite(mode.positions))))
        )
    )


# --- reading ----------------------------------------------------------------------------------------------------------


def is_named(X: Any) -> bool:
    """Tell whether samples bring names of modes: of xarray, MNE, or pandas with several levels of columns."""
    first = X[0] if isinstance(X, list) and X else X
    is_mne = hasattr(first, "get_data") and hasattr(first, "ch_names")
    is_xarray = hasattr(X, "dims") and hasattr(X, "coords")
    return is_mne or is_xarray or getattr(getattr(X, "columns", 0), "nlevels", 1) > 1


def read_named(X: Any, modes_of_fit: Modes | None = None) -> tuple[Any, Modes | None]:
    """Split samples with names into an array (n, I1, ..., IN) and modes; other samples are returned as they are, with None.

    Parameters
    ----------
    X : DataArray or Dataset of xarray, DataFrame whose columns have several levels, epochs of MNE or a list of them
    modes_of_fit : modes of the samples of ``fit``, default=None
        Dimensions of a DataArray are then put into this order, by their names. Names and coordinates must be the same.
    """
    if not is_named(X):
        return X, None
    epochs = _list_of_epochs(X)
    if epochs is not None:
        values, modes = _of_mne(epochs)
    elif hasattr(X, "columns"):
        values, modes = _of_pandas(X)
    else:
        values, modes = _of_xarray(_data_array(X), modes_of_fit)
    _check_same(modes, modes_of_fit)
    return values, modes


def targets_of_named(X: Any, y: Any) -> Any:
    """Find the targets of samples with names; of MNE's epochs None takes the events, and a name a column of the metadata.

    Targets of other samples are returned as they are.
    """
    if not is_named(X):
        return y
    epochs = _list_of_epochs(X)
    if epochs is not None and y is None:
        return np.concatenate([events_of(few_epochs) for few_epochs in epochs])
    if epochs is not None and isinstance(y, str):
        return column_of_epochs(epochs, y)
    if epochs is None and not hasattr(X, "columns"):
        _check_order(_data_array(X), y)
    return getattr(y, "data", y) if hasattr(y, "dims") else y


def _list_of_epochs(X: Any) -> list[Any] | None:
    """Return epochs of MNE as a list; None for samples of another kind."""
    if isinstance(X, list):
        return X
    return [X] if hasattr(X, "get_data") else None


def _data_array(X: Any) -> Any:
    """Return the only variable of a Dataset, or a DataArray as it is."""
    names = [] if hasattr(X, "data") else [str(name) for name in X.data_vars]
    if hasattr(X, "data"):
        return X
    if len(names) != 1:
        got = f"{len(names)}, {', '.join(names)}" if names else "none"
        raise InputError(
            f"Expected a DataArray, or a Dataset with one variable, got a Dataset with {got}: choose the samples, such as "
            f"X[{names[0] if names else 'name'!r}]."
        )
    return X[names[0]]


def _of_xarray(X: Any, modes_of_fit: Modes | None) -> tuple[Any, Modes]:
    """Read a DataArray: samples are its first dimension, or after a fit the one that is not among ``modes_of_fit``."""
    X = _arranged(X, modes_of_fit)
    refuse(
        len(X.dims) < 2,
        f"Expected a DataArray with a dimension of samples and one for each mode, got dimensions {X.dims}: for a single "
        "sample use X.expand_dims('sample').",
    )
    modes = []
    for name, size in zip(X.dims[1:], X.shape[1:], strict=True):
        has_coordinates = name in X.coords and X.coords[name].ndim == 1
        unit = X.coords[name].attrs.get("units") if has_coordinates else None
        modes.append(_mode(name, X.coords[name].values if has_coordinates else np.arange(size), unit))
    return X.data, tuple(modes)


def _check_order(X: Any, y: Any) -> None:
    """Refuse targets with other coordinates of the samples, which may come in another order."""
    name = y.dims[0] if getattr(y, "dims", ()) else None
    if name is None or name not in X.coords or name not in y.coords:
        return
    refuse(
        not np.array_equal(X.coords[name].values, y.coords[name].values),
        f"Expected targets in the order of the samples, got other coordinates of {name}: use y.sel({name}=X.{name}).",
    )


def _arranged(X: Any, modes_of_fit: Modes | None) -> Any:
    """Put dimensions into the order of ``modes_of_fit``, with that of samples first."""
    names = [] if modes_of_fit is None else [mode.name for mode in modes_of_fit]
    if not names or len(X.dims) != len(names) + 1 or not set(names) < set(X.dims):
        return X
    (samples,) = set(X.dims) - set(names)
    return X.transpose(samples, *names)


def _of_pandas(X: Any) -> tuple[Any, Modes]:
    """Read a data frame: each level of its columns is a mode, whose entries keep their order."""
    columns = X.columns
    entries = [columns.unique(level) for level in range(columns.nlevels)]
    sizes = [len(labels) for labels in entries]
    refuse(
        len(columns) != math.prod(sizes) or not columns.is_unique,
        f"Expected a column for each combination of the {' × '.join(map(str, sizes))} entries of the levels, once, got "
        f"{len(columns)} columns: fill in or drop what is incomplete, or pass flat samples without levels.",
    )
    order = columns.get_indexer(type(columns).from_product(entries))
    names = [f"mode {n}" if name is None else name for n, name in enumerate(columns.names)]
    modes = tuple(_mode(name, np.array(labels)) for name, labels in zip(names, entries, strict=True))
    return X.to_numpy()[:, order].reshape(-1, *sizes), modes


def _of_mne(parts: list[Any]) -> tuple[Any, Modes]:
    """Read epochs of MNE in time, in frequency or in both, without channels that are bad or not of the brain.

    They come as a list, since splitters of scikit-learn make a list of single epochs. Epochs that end before others are padded
    with NaN.
    """
    modes_of_parts = [modes_of_mne(part) for part in parts]
    modes = max(modes_of_parts, key=lambda modes_of_part: len(modes_of_part[-1].values))
    for modes_of_part in modes_of_parts:
        n_times = len(modes_of_part[-1].values)
        cut = Mode(modes[-1].name, modes[-1].values[:n_times], modes[-1].unit)
        whose = "the first epochs" if modes is modes_of_parts[0] else "the longest epochs"
        _check_same(modes_of_part, (*modes[:-1], cut) if cut.name == "time" else modes, whose)
    arrays = [part.get_data(picks=modes[0].values.tolist()) for part in parts]
    if all(hasattr(part, "nave") and array.ndim == len(modes) for part, array in zip(parts, arrays, strict=True)):
        arrays = [array[None] for array in arrays]  # averages, Evoked or AverageTFR: each is one sample
    n_times = len(modes[-1].values)
    arrays = [
        array
        if array.shape[-1] == n_times
        else np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, n_times - array.shape[-1])], constant_values=np.nan)
        for array in arrays
    ]
    values = np.concatenate(arrays)
    if values.ndim != len(modes) + 1:
        todo = "cut a recording into epochs" if values.ndim == len(modes) else "average over tapers or segments"
        raise InputError(
            f"Expected epochs of {' × '.join(mode.name for mode in modes)}, got {type(parts[0]).__name__} with an array of shape "
            f"{values.shape}: {todo} first."
        )
    return values, modes


def modes_of_mne(X: Any) -> Modes:
    """Name channels, frequencies and times of epochs, without channels that are bad or not of the brain."""
    kinds = X.get_channel_types()
    bad = set(X.info["bads"])
    of_brain = [
        n for n, kind in zip(X.ch_names, kinds, strict=True) if kind not in _AUXILIARY and n not in bad
    ] or list(X.ch_names)
    modes = [_mode("channel", np.array(of_brain), positions=_positions(X, of_brain))]
    modes += [_mode("frequency", X.freqs, "Hz")] if hasattr(X, "freqs") else []
    modes += [_mode("time", X.times, "s")] if hasattr(X, "times") else []
    return tuple(modes)


def events_of(X: Any) -> Any:
    """Name the event of each epoch."""
    refuse(
        getattr(X, "events", None) is None,
        f"Expected epochs with events where y is None, got {type(X).__name__} without: pass y.",
    )
    names = {code: name for name, code in (X.event_id or {}).items()}
    return np.array([str(names.get(code, code)) for code in np.asarray(X.events)[:, 2].tolist()])


def column_of_epochs(X: Any, name: str) -> Any:
    """Read a column of the metadata of epochs, or of a list of them."""
    columns = []
    for epochs in X if isinstance(X, list) else [X]:
        metadata: Any = getattr(epochs, "metadata", None)
        names = [] if metadata is None else list(metadata.columns)
        if name not in names:
            raise InputError(
                f"Expected a column of the metadata, which are {', '.join(map(repr, names)) or 'none'}, got {name!r}: choose "
                "one, or pass an array."
            )
        columns.append(metadata[name].to_numpy())
    values = np.concatenate(columns)
    return values.astype(str) if values.dtype.kind == "O" else values


def _positions(X: Any, channels: list[str]) -> Array | None:
    """Project sensors on a plane; None unless positions of all are known.

    The distance from the vertex is the angle at the centre of a sphere through all sensors.
    """
    location_of = {channel["ch_name"]: channel["loc"][:3] for channel in X.info["chs"]}
    points = np.array([location_of[name] for name in channels], dtype=float)
    has_positions = np.all(np.isfinite(points)) and np.all(np.any(points != 0.0, axis=1))
    if not has_positions or len(np.unique(points.round(4), axis=0)) < max(len(points), 3):
        return None
    centre = np.zeros(3)
    if len(points) > 4:
        system = np.column_stack([2.0 * points, np.ones(len(points))])
        centre = np.linalg.lstsq(system, np.sum(points**2, axis=1), rcond=None)[0][:3]
    x, y, z = (points - centre).T
    angle = np.arctan2(np.hypot(x, y), z)
    radius = np.maximum(np.hypot(x, y), 1e-12)
    return np.column_stack([x, y]) * (angle / (0.5 * np.pi) / radius)[:, None]


def _mode(name: Any, values: Any, unit: Any = None, positions: Array | None = None) -> Mode:
    """Make a mode of coordinates of any kind: what is no number becomes text."""
    values = np.asarray(values)
    values = values if values.dtype.kind in "iuf" else np.array([str(value) for value in values.tolist()])
    return Mode(str(name), values, None if not unit else str(unit), positions)


# --- checking ---------------------------------------------------------------------------------------------------------


def _check_same(modes: Modes, expected: Modes | None, whose: str = "fit") -> None:
    """Refuse modes of other names, or in another order, than those expected, or with other entries."""
    if expected is None:
        return
    expected_names = [mode.name for mode in expected]
    names = [mode.name for mode in modes]
    refuse(
        names != expected_names,
        f"Expected samples with the modes {', '.join(expected_names)} as in {whose}, got {', '.join(names)}: rename or transpose "
        "them, or pass a plain array.",
    )
    _check_entries(modes, expected, whose)


def check_file_modes(modes: Modes | None, modes_of_fit: Modes | None) -> None:
    """Refuse modes of a file in another order than those of the model, or with other entries.

    Their names alone may be others: those of a model may have been given by the user.
    """
    if not modes or not modes_of_fit or len(modes) != len(modes_of_fit):
        return  # nothing to compare; a wrong number of modes is found by the shape
    if {mode.name for mode in modes} == {mode.name for mode in modes_of_fit}:
        _check_same(modes, modes_of_fit)
    _check_entries(modes, modes_of_fit, "fit")


def _check_entries(modes: Modes, expected: Modes, whose: str) -> None:
    """Refuse modes with other coordinates or names of entries than those expected."""
    for ours, theirs in zip(expected, modes, strict=True):
        difference = _difference(ours.values, theirs.values)
        refuse(
            difference,
            f"Expected the coordinates of {ours.name} to be those of {whose}, got {difference}: select and order the "
            f"entries as in {whose}, or pass a plain array.",
        )


def _difference(expected: Array, values: Array) -> str:
    """Say how coordinates differ, or "": coordinates 0, 1, 2, ... are indices that were never named, and agree with all."""
    for coordinates in (expected, values):
        if coordinates.dtype.kind in "iu" and np.array_equal(coordinates, np.arange(len(coordinates))):
            return ""
    if expected.shape != values.shape:
        sizes = f"{len(values)} of them instead of {len(expected)}"
        for longer, shorter, word in ((values, expected, "with the new"), (expected, values, "without")):
            unmatched = [value for value in longer.tolist() if value not in set(shorter.tolist())]
            if unmatched and len(longer) > len(shorter):
                return f"{sizes}, {word} {unmatched[0]}"
        return sizes
    if "U" in (expected.dtype.kind, values.dtype.kind):
        differs = expected.astype(str) != values.astype(str)
    else:
        differs = ~np.isclose(expected, values, rtol=1e-5, atol=1e-6 * float(np.max(np.abs(expected), initial=0.0)))
    index = int(np.argmax(differs))
    return f"{values[index]} instead of {expected[index]} at index {index}" if differs[index] else ""


# --- giving back ------------------------------------------------------------------------------------------------------


def like_input(values: Any, X: Any, modes_of_fit: Modes | None) -> Any:
    """Make a DataArray of transformed values if X was one and its modes have not changed; else return the array."""
    if not hasattr(X, "dims"):
        return values
    X = _data_array(X)
    return _arranged(X, modes_of_fit).copy(data=values) if values.ndim == X.ndim else values


def to_dataset(
    arrays: dict[str, Array], shape: tuple[int, ...], modes: Modes | None, targets: tuple[str, Sequence[Any]]
) -> Any:
    """Make a Dataset of xarray of arrays of the shape of a sample, or of several, one for each target."""
    xarray = require("xarray", "xarray")
    modes = modes or tuple(Mode(f"mode {n}", np.arange(size)) for n, size in enumerate(shape))
    coords = {mode.name: (mode.name, mode.values, {"units": mode.unit} if mode.unit else {}) for mode in modes}
    dims = tuple(coords)
    several = any(values.ndim > len(shape) for values in arrays.values())
    if several:
        coords[targets[0]] = (targets[0], np.array(targets[1]), {})
    variables = {name: ((targets[0], *dims) if several else dims, values) for name, values in arrays.items()}
    return xarray.Dataset(variables, coords)
