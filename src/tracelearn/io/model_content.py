"""Models as plain data: a line of JSON, which is a tree of values, and the bytes of arrays.

The line is ``{"arrays": [[dtype, shape, order], ...], "content": ...}``, and the bytes of the arrays follow one after the other.
In ``content``, numbers, text, None, truth values and lists are those of JSON. Anything else is an object with one key:
``{"$tuple": [...]}``, ``{"$dict": [[key, value], ...]}``, ``{"$dtype": text}``, ``{"$array": index}``,
``{"$masked": [items, mask]}`` and ``{"$object": [type, {name: value}]}``.

Invariants: sizes are compared with that of the file before anything is allocated; every array is read once; types are looked up
by name in a table and never imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import getattr_static
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from tracelearn.arrays.array_api import dtype_name, is_non_numpy, to_numpy
from tracelearn.errors import expect

__all__ = ["UnknownTypeError", "full_name", "known_types", "read_content", "trusted_types", "write_content"]

# Files may hold what is public in these modules: estimators and dataclasses.
_MODULES = (
    "estimators",
    "estimators.hierarchy",
    "estimators.lagged",
    "features",
    "fitting",
    "losses",
    "moments",
    "paper",
    "penalties",
    "problems.problem",
    "samples.modes",
    "samples.reading",
    "search",
    "search.intervals",
)
_PLAIN_KINDS = "biufcSUmM"  # kinds of arrays without Python objects
_DTYPE = re.compile(rf"[<>|][{_PLAIN_KINDS}][0-9]{{1,6}}(\[[a-zA-Z]+\])?")
# A tree of 1,000 classes has a document of 1.2 MB with 9,000 arrays and 30,000 lists and objects, each of which takes memory
# that the file does not.
_MOST_DOCUMENT_BYTES = 4 << 20
_MOST_CONTAINERS = 200_000
_MOST_ARRAYS = 30_000
_MOST_KEYS = 3_000  # keys can be chosen so that a dictionary of n of them takes n² steps


class UnknownTypeError(ValueError):
    """Something is of a type that may be neither written nor read."""


@cache
def known_types() -> dict[str, type]:
    """Collect what a file may hold: estimators and dataclasses of this package, by their names, and scikit-learn's Pipeline."""
    types: dict[str, type] = {"Pipeline": Pipeline}
    for module_name in _MODULES:
        module = import_module(f"tracelearn.{module_name}")
        for name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and (issubclass(kind, BaseEstimator) or is_dataclass(kind)):
                types[name] = kind
    return types


def trusted_types() -> list[str]:
    """Name the types that models of this package are made of, for readers that ask which types to trust.

    skops and MLflow refuse a file that holds a type they do not know. None of these runs code of the file when it is read.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from tracelearn import trusted_types
    >>> "tracelearn.estimators.regressor.TraceNormRegressor" in trusted_types()
    True

    ``skops.io.load(path, trusted=trusted_types())``, and in MLflow
    ``mlflow.sklearn.log_model(model, name="model", skops_trusted_types=trusted_types())``.
    """
    # Every array has a dtype, whose type skops does not trust by itself.
    return sorted({full_name(kind) for kind in known_types().values() if kind is not Pipeline} | {"numpy.dtype"})


def full_name(kind: Any) -> str:
    """Name a type or a function by its module and its place in it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_defined(kind: type, name: str) -> bool:
    """Tell whether a class has a method or a property of the name."""
    return hasattr(type(getattr_static(kind, name, None)), "__get__")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_content(thing: Any, left_out: tuple[str, ...] = ()) -> bytes:
    """Write an object as bytes, without attributes of some names; equal objects give equal bytes."""
    writer = _Writer(left_out)
    content = writer.plain(thing)
    table = [[array.dtype.str, array.shape, _order(array)] for array in writer.arrays]
    document = json.dumps({"arrays": table, "content": content}, separators=(",", ":"))
    return b"".join([document.encode(), b"\n", *(array.tobytes(_order(array)) for array in writer.arrays)])


def _order(array: NDArray[Any]) -> Any:
    """Return the memory order of an array, "F" or "C", which is kept since products round differently in the other."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


class _Writer:
    """Turns things into values of JSON, and collects their arrays."""

    def __init__(self, left_out: tuple[str, ...]) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._left_out = left_out
        # By identity: the place of an array among all, and the array, to keep it alive.
        self._written: dict[int, tuple[int, Any]] = {}

    def plain(self, thing: Any) -> Any:  # noqa: PLR0911 - a line for each kind of value
        """Turn a thing into values of JSON."""
        thing = thing.item() if isinstance(thing, np.generic) else thing
        kind = type(thing)
        if thing is None or kind in (bool, int, float, str):
            return thing
        if kind is list:
            return [self.plain(item) for item in thing]
        if kind is tuple:
            return {"$tuple": [self.plain(item) for item in thing]}
        if kind is dict:
            return {"$dict": [[self.plain(key), self.plain(item)] for key, item in thing.items()]}
        if kind is np.ma.MaskedArray and thing.dtype.kind == "O":  # a column of ``cv_results_``
            mask = np.broadcast_to(thing.mask, thing.shape)
            return {"$masked": [self.plain(thing.data.tolist()), mask.tolist()]}
        if kind is np.ndarray and thing.dtype.kind == "O" and all(type(item) is str for item in thing.flat):
            # Names of columns, which scikit-learn keeps as objects.
            return {"$array": self._add_array(thing, thing.astype(str))}
        if is_non_numpy(thing) or (kind is np.ndarray and thing.dtype.kind in _PLAIN_KINDS):
            return {"$array": self._add_array(thing, thing)}
        if isinstance(thing, np.dtype) or kind.__module__.partition(".")[0] in ("torch", "jax", "cupy"):
            return {"$dtype": np.dtype(dtype_name(thing)).str}
        parts = {name: self.plain(part) for name, part in _state_of(thing).items() if name not in self._left_out}
        return {"$object": [kind.__name__ if known_types().get(kind.__name__) is kind else full_name(kind), parts]}

    def _add_array(self, original: Any, values: Any) -> int:
        """Add the values of an array to those to write, unless the same object was added before; return their index."""
        if id(original) not in self._written:
            self._written[id(original)] = (len(self.arrays), original)
            self.arrays.append(to_numpy(values))
        return self._written[id(original)][0]


def _state_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an estimator or the fields of a dataclass, by name; what a property computes is left out."""
    if isinstance(value, BaseEstimator):
        state = {
            name: attribute for name, attribute in value.__getstate__().items() if not _is_defined(type(value), name)
        }
        state.pop("_skl_callbacks", None)  # callbacks are no part of a model
        return state
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise UnknownTypeError(full_name(value if hasattr(value, "__qualname__") else type(value)))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(payload: bytes, trusted: Iterable[type] = ()) -> Any:
    """Build what ``write_content`` wrote; ``trusted`` are types to build besides ours."""
    length = payload.find(b"\n")
    expect(length >= 0, "no end of the document")
    expect(length <= _MOST_DOCUMENT_BYTES, f"a document of more than {_MOST_DOCUMENT_BYTES} bytes")
    text = payload[:length]
    expect(text.count(b"[") + text.count(b"{") <= _MOST_CONTAINERS, "a document of too many lists")
    document = json.loads(text)
    is_ours = isinstance(document, dict) and list(document) == ["arrays", "content"]
    expect(is_ours, "a document of other parts than arrays and content")
    arrays = _read_arrays(document["arrays"], memoryview(payload)[length + 1 :])
    type_of_name = {full_name(kind): kind for kind in trusted} | known_types()
    return _Reader(arrays, type_of_name).build(document["content"])


def _read_arrays(table: list[tuple[str, list[int], Any]], data: memoryview) -> list[NDArray[Any]]:
    """Copy arrays out of bytes, which they must fill, so that they can be written to and none is larger than the file."""
    expect(len(table) <= _MOST_ARRAYS, f"more than {_MOST_ARRAYS} arrays")
    arrays = []
    start = 0
    for dtype_text, shape, order in table:
        dtype = _dtype(dtype_text)
        expect(all(type(size) is int and size >= 0 for size in shape), "an array of no shape")
        expect(order in ("C", "F"), "an array of no order")
        end = start + prod(shape) * max(dtype.itemsize, 1)
        expect(end <= len(data), f"an array of shape {shape} in {len(data) - start} bytes")
        arrays.append(np.ndarray(shape, dtype, data, start, order=order).copy(order="K"))
        start = end
    expect(start == len(data), "bytes that belong to no array")
    return arrays


def _dtype(text: Any) -> np.dtype[Any]:
    """Read a dtype; refuse Python objects and records."""
    expect(isinstance(text, str) and _DTYPE.fullmatch(text), "a dtype of Python objects or records, or none")
    dtype: np.dtype[Any] = np.dtype(text)
    return dtype


class _Reader:
    """Builds things from values of JSON and arrays."""

    def __init__(self, arrays: list[NDArray[Any]], known: dict[str, type]) -> None:
        self._arrays = arrays
        self._known = known

    def build(self, node: Any) -> Any:  # noqa: PLR0911 - a line for each kind of value
        """Build the thing that a value of JSON stands for."""
        if isinstance(node, list):
            return [self.build(item) for item in node]
        if not isinstance(node, dict):
            return node
        ((mark, value),) = node.items()
        match mark:
            case "$tuple":
                return tuple(self.build(item) for item in value)
            case "$dict":
                return self._dict(value)
            case "$dtype":
                return _dtype(value)
            case "$array":
                expect(type(value) is int and value >= 0, "an array that is not there")
                return self._arrays[value]
            case "$masked":
                items, mask = value
                # One by one: lists among the items are values.
                column = np.fromiter((self.build(item) for item in items), object, len(items))
                return np.ma.MaskedArray(column, mask)  # type: ignore[no-untyped-call]
            case "$object":
                name, parts = value
                return self._object(name, {part: self.build(content) for part, content in parts.items()})
        raise ValueError("a value of another kind")

    def _dict(self, pairs: list[Any]) -> dict[Any, Any]:
        has_text = all(isinstance(key, str) for key, _ in pairs)
        expect(has_text or len(pairs) <= _MOST_KEYS, f"more than {_MOST_KEYS} keys that are no text")
        return {self.build(key): self.build(value) for key, value in pairs}

    def _object(self, name: str, parts: dict[str, Any]) -> Any:
        """Build an object from its parts: an estimator without its constructor, a dataclass with its own."""
        if name not in self._known:
            raise UnknownTypeError(name)
        kind: Any = self._known[name]
        if issubclass(kind, BaseEstimator):
            expect(not any(_is_defined(kind, part) for part in parts), f"{name} with a method among its parts")
            thing = kind.__new__(kind)
            thing.__setstate__(parts)
            thing.get_params(deep=False)  # fails where one is missing
            expect(kind is not Pipeline or thing.memory is None, "a Pipeline with a cache, which holds pickles")
        else:
            expect(parts.keys() == {field.name for field in fields(kind)}, f"{name} with other parts than it has")
            thing = kind(**parts)
        return thing
