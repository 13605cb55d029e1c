"""What names of columns say: which of them form a grid, or lie along an axis, and in which order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from tracelearn.samples.modes import Mode

__all__ = ["ALONG", "DECIMALS", "PARTS", "axis", "grid"]

# Parts of a name such as ch1_t20 or ('Fz', 'alpha'). Where dots alone part names, as in x.1.2, none is that of a decimal number.
PARTS, DECIMALS = re.compile(r"[^\W_]+"), re.compile(r"[^\W_]*\d\.\d+|[^\W_]+")
_NUMBERED = re.compile(r"(\D*?)(\d+(?:\.\d+)?)")
# Names along one axis: letters or none, a number, a unit or none, such as 1200, 1200.5 nm or f12.
ALONG = re.compile(r"([^\W\d](?:\D*[^-\d])?)?(-?\d+(?:\.\d+)?)(?: ?([^\W\d_]+(?:-?\d)?))?")
_LARGEST = 2.0**53  # whole numbers up to this are exact


def grid(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[Mode, ...]]:
    """Put names into the order of a grid, if they form a full one, or of an axis, and name the modes.

    Examples
    --------
    >>> from tracelearn.samples.names import grid
    >>> ordered, modes = grid(["ch1_t20", "ch1_t10", "ch2_t10", "ch2_t20"])
    >>> ordered, [mode.name for mode in modes]
    (('ch1_t10', 'ch1_t20', 'ch2_t10', 'ch2_t20'), ['ch', 't'])
    """
    along, mode = axis(names)
    if mode.values.dtype.kind == "f" and not re.match(r"\D*\.", names[0]):
        return along, (mode,)  # the dot is that of decimals, unlike in x.1.2
    pattern = DECIMALS if re.search(r"[^\w.]|_", names[0]) else PARTS
    places = {tuple(pattern.findall(name)): name for name in names}
    if len(places) < len(names) or len(set(map(len, places))) > 1:
        return along, (mode,)
    axes = [_in_order(labels) for labels in zip(*places, strict=True)]
    modes = [_mode(axis, place) for place, axis in enumerate(axis for axis in axes if len(axis) > 1)]
    if len(modes) < 2 or prod(map(len, axes)) != len(names):
        return along, (mode,)
    return tuple(places[place] for place in product(*axes)), tuple(modes)


def axis(names: Sequence[str]) -> tuple[tuple[str, ...], Mode]:
    """Put names into the order of an axis such as wavelengths, up unless they come down; others stay, and are names."""
    found = [match.groups() for match in map(ALONG.fullmatch, names) if match]
    numbers = np.array([float(number) for _, number, _ in found])
    is_axis = len(found) == len(names) == len(np.unique(numbers)) and len({(a, unit) for a, _, unit in found}) == 1
    if not is_axis or not np.all(np.isfinite(numbers)):
        return tuple(names), Mode("column", np.array(names))
    (letters, _, unit), order = found[0], np.argsort(numbers)
    order = order[::-1] if np.all(np.diff(numbers) < 0) else order
    whole = not any("." in number for _, number, _ in found) and np.max(np.abs(numbers)) < _LARGEST
    values = numbers.astype(int) if whole else numbers
    return tuple(names[i] for i in order), Mode((letters or "").rstrip(" _.:") or "column", values[order], unit)


def _numbered(labels: Sequence[str]) -> list[tuple[str, str]] | None:
    """Take labels apart where all end in a number after the same letters."""
    found = [(match[1], match[2]) for match in map(_NUMBERED.fullmatch, labels) if match]
    return found if len(found) == len(labels) and len({letters for letters, _ in found}) == 1 else None


def _in_order(labels: Sequence[str]) -> list[str]:
    """List different labels, by number where they have one, else as they come."""
    found = list(dict.fromkeys(labels))
    numbers = _numbered(found)
    return found if numbers is None else [found[i] for i in np.argsort([float(number) for _, number in numbers])]


def _mode(labels: Sequence[str], place: int) -> Mode:
    numbers = _numbered(labels)
    if numbers is None:
        return Mode(f"mode {place}", np.array(labels))
    kind = float if any("." in number for _, number in numbers) else int
    return Mode(numbers[0][0] or f"mode {place}", np.array([kind(number) for _, number in numbers]))
