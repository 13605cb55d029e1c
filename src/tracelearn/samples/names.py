"""What the names of columns say: which of them form a grid, or lie along an axis, and in which order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from tracelearn.samples.modes import Mode

__all__ = ["grid", "in_order_of_axis", "most_of_one_kind"]

# The words of a name such as ch1_t20 or ('Fz', 'alpha'). Where only dots separate, as in x.1.2, none is a decimal point.
_WORDS = re.compile(r"[^\W_]+")
_WORDS_AND_DECIMALS = re.compile(r"[^\W_]*\d\.\d+|[^\W_]+")
_NUMBERED = re.compile(r"(\D*?)(\d+(?:\.\d+)?)")
# Names along one axis: letters or none, a number, a unit or none, such as 1200, 1200.5 nm or f12.
_ALONG_AXIS = re.compile(r"([^\W\d](?:\D*[^-\d])?)?(-?\d+(?:\.\d+)?)(?: ?([^\W\d_]+(?:-?\d)?))?")
_LARGEST_WHOLE = 2.0**53  # whole numbers up to this are exact
_FEWEST_NUMBERS = 10  # names that are numbers are taken as one axis if there are at least so many


def grid(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[Mode, ...]]:
    """Put names into the order of a grid, if they form a full one, or of an axis, and name the modes.

    Examples
    --------
    >>> from tracelearn.samples.names import grid
    >>> ordered, modes = grid(["ch1_t20", "ch1_t10", "ch2_t10", "ch2_t20"])
    >>> ordered, [mode.name for mode in modes]
    (('ch1_t10', 'ch1_t20', 'ch2_t10', 'ch2_t20'), ['ch', 't'])
    """
    along_axis, mode = in_order_of_axis(names)
    if mode.values.dtype.kind == "f" and not re.match(r"\D*\.", names[0]):
        return along_axis, (mode,)  # dots are decimal points, unlike in x.1.2
    pattern = _WORDS_AND_DECIMALS if re.search(r"[^\w.]|_", names[0]) else _WORDS
    name_of_labels = {tuple(pattern.findall(name)): name for name in names}
    if len(name_of_labels) < len(names) or len({len(labels) for labels in name_of_labels}) > 1:
        return along_axis, (mode,)
    axes = [_in_order(labels) for labels in zip(*name_of_labels, strict=True)]
    modes = [_mode(labels, place) for place, labels in enumerate(labels for labels in axes if len(labels) > 1)]
    if len(modes) < 2 or prod(len(labels) for labels in axes) != len(names):
        return along_axis, (mode,)
    return tuple(name_of_labels[labels] for labels in product(*axes)), tuple(modes)


def in_order_of_axis(names: Sequence[str]) -> tuple[tuple[str, ...], Mode]:
    """Sort names that lie along one axis, such as wavelengths, and read its mode.

    They are sorted upwards, unless they come in falling order. Names that lie along no axis keep their order, and the mode
    holds the names themselves.
    """
    matches = [match.groups() for match in map(_ALONG_AXIS.fullmatch, names) if match]
    numbers = np.array([float(number) for _, number, _ in matches])
    is_axis = len(matches) == len(names) == len(np.unique(numbers)) and len({(a, unit) for a, _, unit in matches}) == 1
    if not is_axis or not np.all(np.isfinite(numbers)):
        return tuple(names), Mode("column", np.array(names))
    letters, _, unit = matches[0]
    order = np.argsort(numbers)
    order = order[::-1] if np.all(np.diff(numbers) < 0) else order
    is_whole = not any("." in number for _, number, _ in matches) and np.max(np.abs(numbers)) < _LARGEST_WHOLE
    values = numbers.astype(int) if is_whole else numbers
    return tuple(names[i] for i in order), Mode((letters or "").rstrip(" _.:") or "column", values[order], unit)


def most_of_one_kind(names: Sequence[str], modes: Sequence[Mode]) -> tuple[Sequence[str], str]:
    """Find what most columns of a table are: return the names that are numbers, or that form a grid, and which of the two.

    The others do not belong to the samples, such as an age beside wavelengths. All names are returned where they form an axis
    or a grid together, which ``modes`` says, and where most have nothing in common.
    """
    if len(modes) > 1 or not modes[0].has_names:
        return names, ""
    numbers = [name for name in names if (match := _ALONG_AXIS.fullmatch(name)) and match[1] is None]
    if len(numbers) >= max(_FEWEST_NUMBERS, len(names) / 2) and not in_order_of_axis(numbers)[1].has_names:
        return numbers, "are numbers"
    uses_marks = sum(bool(re.search(r"[^\w.]|_", name)) for name in names) > len(names) / 2
    pattern = _WORDS_AND_DECIMALS if uses_marks else _WORDS
    labels_of = {name: pattern.findall(name) for name in names}
    usual_length, _ = Counter(len(labels) for labels in labels_of.values()).most_common(1)[0]
    alike = {name: labels for name, labels in labels_of.items() if len(labels) == usual_length}
    counts = [Counter(labels) for labels in zip(*alike.values(), strict=True)]
    # In a grid of two modes or more, each label is in several names.
    inside = [
        name
        for name, labels in alike.items()
        if all(count[label] > 1 for count, label in zip(counts, labels, strict=True))
    ]
    modes_inside = grid(inside)[1] if inside else ()
    if len(modes_inside) < 2:
        return names, ""
    shape = " × ".join(str(len(mode.values)) for mode in modes_inside)
    return inside, f"form a grid of {shape}"


def _letters_and_numbers(labels: Sequence[str]) -> list[tuple[str, str]] | None:
    """Split labels into letters and number, if all are the same letters and a number; else None."""
    pairs = [(match[1], match[2]) for match in map(_NUMBERED.fullmatch, labels) if match]
    return pairs if len(pairs) == len(labels) and len({letters for letters, _ in pairs}) == 1 else None


def _in_order(labels: Sequence[str]) -> list[str]:
    """List different labels, by number where they have one, else as they come."""
    different = list(dict.fromkeys(labels))
    pairs = _letters_and_numbers(different)
    return different if pairs is None else [different[i] for i in np.argsort([float(number) for _, number in pairs])]


def _mode(labels: Sequence[str], place: int) -> Mode:
    """Make the mode of one part of the names: numbers with the letters before them as its name, or the labels."""
    pairs = _letters_and_numbers(labels)
    if pairs is None:
        return Mode(f"mode {place}", np.array(labels))
    kind = float if any("." in number for _, number in pairs) else int
    return Mode(pairs[0][0] or f"mode {place}", np.array([kind(number) for _, number in pairs]))
