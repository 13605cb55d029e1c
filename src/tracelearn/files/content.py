"""Models as plain data: a stored zip archive of a JSON document, which is a tree of values, and of arrays.

Numbers, text, None, truth values and lists are those of JSON. Anything else is marked: ``{"$tuple": [...]}``,
``{"$dict": [[key, value], ...]}``, ``{"$dtype": text}``, ``{"$array": member}``, ``{"$object": type, "state": {...}}`` and
``{"$masked": [...], "state": mask}``.
It is a tree; only arrays may occur twice, by the names of their members.

Invariants: sizes are compared with that of the file before anything is read or allocated; each member and each mapping is read
once; types are looked up by name in a table and never imported, and no constructor is called.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import getattr_static, signature
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from tracelearn.arrays.array_api import dtype_name, is_non_numpy, to_numpy
from tracelearn.errors import expect
from tracelearn.files.checks import check_parts
from tracelearn.io.npy import read_npy_header

__all__ = ["UnknownTypeError", "full_name", "known_types", "read_content", "trusted_types", "write_content"]

Arrays = dict[str, NDArray[Any]]

_VALUES = (
    "losses",
    "penalties",
    "moments",
    "problems",
    "solvers",
    "samples.modes",
    "paper.algorithms",
)  # where the frozen dataclasses that models hold are
_PLAIN = "biufcSUmM"  # kinds of arrays without Python objects
_DTYPE = re.compile(rf"[<>|][{_PLAIN}][0-9]{{1,6}}(\[[a-zA-Z]+\])?")
_MEMBER = re.compile(r"(schema|content)\.json|[0-9]{1,20}\.npy")
# A tree of 1,000 classes has some 20,000 members; in format 1 its document has 70 MB.
_MOST_MEMBERS, _DOCUMENT_BYTES = 100_000, 128 << 20
_MOST_KEYS = 10_000  # numbers can be chosen so that a dictionary of n of them takes n² steps


class UnknownTypeError(ValueError):
    """Something is of a type that may be neither written nor read."""


@cache
def known_types() -> dict[str, type]:
    """Collect what a file may hold: estimators and values of this package, by their names, and scikit-learn's Pipeline."""
    for name in (
        "estimators.hierarchy",
        "estimators.lagged",
        "features",
        "search",
        "paper",
    ):  # of which nobody may have asked for any yet
        import_module(f"tracelearn.{name}")
    homes = {name: module for name, module in sys.modules.items() if name.startswith("tracelearn.")}
    kinds = [kind for name, module in homes.items() for kind in vars(module).values() if _is_ours(kind, name)]
    return {kind.__name__: kind for kind in (Pipeline, *kinds)}


def _is_ours(kind: Any, module: str) -> bool:
    if not isinstance(kind, type) or kind.__module__ != module or kind.__name__.startswith("_"):
        return False
    in_place = module.removeprefix("tracelearn.").startswith(_VALUES)
    is_value = in_place and is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return is_value or issubclass(kind, BaseEstimator)


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
    # Arrays remember what kind of numbers they hold, and skops does not know that type.
    return sorted({full_name(kind) for kind in known_types().values() if kind is not Pipeline} | {"numpy.dtype"})


def full_name(kind: Any) -> str:
    """Name a type, or a function, so that no other has the name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_defined(kind: type, name: str) -> bool:
    """Whether a class has a method or a property of the name."""
    return hasattr(type(getattr_static(kind, name, None)), "__get__")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_content(thing: Any, left_out: tuple[str, ...] = ()) -> bytes:
    """Write a thing, without attributes of some names; equal things give equal bytes."""
    members: dict[int, tuple[str, Any]] = {}  # by identity, which is theirs as long as they are held here
    document = json.dumps(_plain(thing, members, left_out), separators=(",", ":"))
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(zipfile.ZipInfo("content.json"), document)
        for name, values in members.values():
            array = io.BytesIO()
            np.save(array, to_numpy(values), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(name), array.getbuffer())
    return held.getvalue()


def _plain(thing: Any, members: dict[int, tuple[str, Any]], left_out: tuple[str, ...]) -> Any:  # noqa: PLR0911
    def plain(part: Any) -> Any:
        return _plain(part, members, left_out)

    thing = thing.item() if isinstance(thing, np.generic) else thing
    kind = type(thing)
    if kind is np.ndarray and thing.dtype.kind == "O" and all(type(item) is str for item in thing.flat):
        thing = thing.astype(str)  # names of columns, which scikit-learn keeps as objects
    if thing is None or kind in (bool, int, float, str):
        return thing
    if kind in (list, tuple):
        items = [plain(item) for item in thing]
        return items if kind is list else {"$tuple": items}
    if kind is dict:
        return {"$dict": [[plain(key), plain(item)] for key, item in thing.items()]}
    if kind is np.ma.MaskedArray and thing.dtype.kind == "O":  # a column of ``cv_results_``
        return {
            "$masked": [plain(item) for item in thing.data.tolist()],
            "state": (np.zeros(thing.shape, bool) | thing.mask).tolist(),
        }
    if is_non_numpy(thing) or (kind is np.ndarray and thing.dtype.kind in _PLAIN):
        return {"$array": members.setdefault(id(thing), (f"{len(members)}.npy", thing))[0]}
    if isinstance(thing, np.dtype) or kind.__module__.partition(".")[0] in ("torch", "jax", "cupy"):
        return {"$dtype": np.dtype(dtype_name(thing)).str}
    state = {name: plain(item) for name, item in _state(thing).items() if name not in left_out}
    return {"$object": kind.__name__ if known_types().get(kind.__name__) is kind else full_name(kind), "state": state}


def _state(thing: Any) -> dict[str, Any]:
    """Find what an object is made of; what a property computes is left out."""
    if isinstance(thing, BaseEstimator):
        state = {name: item for name, item in thing.__getstate__().items() if not _is_defined(type(thing), name)}
        state.pop("_skl_callbacks", None)  # who watches a fit is no part of what it learned
        return state
    if is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: getattr(thing, field.name) for field in fields(thing)}
    raise UnknownTypeError(full_name(thing if hasattr(thing, "__qualname__") else type(thing)))


# --- reading ----------------------------------------------------------------------------------------------------------


def read_content(payload: bytes, version: int, trusted: Iterable[type] = ()) -> Any:
    """Build what ``write_content`` wrote, in any version of the format; ``trusted`` are types to build besides ours."""
    known = {full_name(kind): kind for kind in trusted} | known_types()
    document, arrays = _read_archive(payload, "schema.json" if version == 1 else "content.json")
    read = _read_1 if version == 1 else _read
    return json.loads(document, object_hook=lambda node: read(node, arrays, known))


def _read_archive(payload: bytes, document: str) -> tuple[bytes, Arrays]:
    expect(payload.count(b"PK\x01\x02") <= _MOST_MEMBERS, "too many members")  # before zipfile makes an object of each
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        members = archive.infolist()
        sizes = {member.filename: member.file_size for member in members}
        expect(
            len(sizes) == len(members) and all(map(_MEMBER.fullmatch, sizes)), "members of other names, or one twice"
        )
        # We store, so that nothing is larger than the file itself.
        stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        expect(stored and sum(sizes.values()) <= len(payload), "members that are compressed, or larger than the file")
        expect(sizes[document] <= _DOCUMENT_BYTES, f"a document of more than {_DOCUMENT_BYTES} bytes")
        return archive.read(document), {name: _array(archive.read(name)) for name in sizes if name != document}


def _array(data: bytes) -> NDArray[Any]:
    stream = io.BytesIO(data)
    shape, is_fortran, dtype = read_npy_header(stream)
    expect(dtype.kind in _PLAIN, f"an array of Python objects or records, {dtype}")
    is_there = min(shape, default=0) >= 0 and prod(shape) * max(dtype.itemsize, 1) <= len(data) - stream.tell()
    expect(is_there, f"an array of shape {shape} in {len(data)} bytes")
    # Copied, so that it can be written to.
    return np.ndarray(shape, dtype, data, stream.tell(), order="F" if is_fortran else "C").copy(order="K")


def _read(node: dict[str, Any], arrays: Arrays, known: dict[str, type]) -> Any:
    """Read one mapping of a document, whose parts have been read."""
    mark = next((key for key in node if key.startswith("$")), None)
    return node if mark is None else _MARKS[mark](node[mark], node.get("state"), arrays, known)


_MARKS: dict[str, Callable[[Any, Any, Arrays, dict[str, type]], Any]] = {
    "$tuple": lambda items, *_: tuple(items),
    "$dict": lambda pairs, *_: _mapping(pairs),
    "$dtype": lambda text, *_: np.dtype(_DTYPE.fullmatch(text).group()),  # type: ignore[union-attr]
    # One by one: lists among the items are values.
    "$masked": lambda items, mask, *_: np.ma.MaskedArray(np.fromiter(items, object, len(items)), mask),  # type: ignore[no-untyped-call]
    "$array": lambda name, _, arrays, known: arrays[name],
    "$object": lambda name, state, arrays, known: _made(name, state, known),
}


def _mapping(pairs: list[Any]) -> dict[Any, Any]:
    is_text = all(isinstance(key, str) for key, _ in pairs)
    expect(is_text or len(pairs) <= _MOST_KEYS, f"more than {_MOST_KEYS} keys that are no text")
    return dict(pairs)


def _made(name: str, state: dict[str, Any], known: dict[str, type]) -> Any:
    """Build an object from its parts, without its constructor."""
    if name not in known:
        raise UnknownTypeError(name)
    kind: Any = known[name]
    made: Any = kind.__new__(kind)
    if isinstance(made, BaseEstimator):
        # What a property computes is no part of a file; in older files it may have been.
        state = {key: item for key, item in state.items() if not isinstance(getattr_static(kind, key, None), property)}
        expect(not any(_is_defined(kind, attribute) for attribute in state), f"{name} with a method among its parts")
        made.__setstate__(state)
        made.get_params(deep=False)  # fails where one is missing
    else:
        expect(sorted(state) == sorted(field.name for field in fields(kind)), f"{name} with other parts than it has")
        for attribute, item in state.items():
            object.__setattr__(made, attribute, item)
    check_parts(made)
    return made


# --- format 1, a graph of nodes that skops wrote ----------------------------------------------------------------------

_KEYS = {"str": str, "str_": str, "int": int, "float": float, "int64": int, "int32": int, "float64": float}
# What a solver kept to start from: a model that goes on learning starts anew, and ends at the same weights.
_GONE_1 = ("LatentTraceNorm", "OverlappedTraceNorm", "ScaledLatentTraceNorm", "Solution", "Split")
_LEFT_OUT_1 = ("_solution", "_solved", "cv_results_", "mse_path_")  # the last two described a search in another form
_RENAMED_1 = {"class_mode": "target_mode", "class_mode_": "target_mode_"}


def _name_1(node: dict[str, Any]) -> str:
    """Find today's name of a type: our modules have moved, their classes are called as before."""
    name = f"{node['__module__']}.{node['__class__']}"
    return str(node["__class__"]) if name.startswith("tracelearn.") or name == full_name(Pipeline) else name


def _defaults(kind: Any) -> dict[str, Any]:
    """Find the parameters of an estimator, of which some may be younger than a file."""
    parameters = signature(kind).parameters.values() if issubclass(kind or object, BaseEstimator) else ()
    return {one.name: one.default for one in parameters}


def _read_1(node: dict[str, Any], arrays: Arrays, known: dict[str, type]) -> Any:
    """Read one mapping of a document of format 1, whose parts have been read."""
    loader = node.get("__loader__")
    expect(
        loader is None or loader in _NODES,
        f"a node of a kind that is not read, of {node.get('__module__')}.{node.get('__class__')}",
    )
    return node if loader is None else _NODES[loader](node, node.get("content"), arrays, known)


# Of the kinds of nodes that skops knows only those that our models are made of.
_NODES: dict[str, Callable[[Any, Any, Arrays, dict[str, type]], Any]] = {
    "JsonNode": lambda node, text, *_: json.loads(text),
    "ListNode": lambda node, items, *_: items,
    "TupleNode": lambda node, items, *_: tuple(items),
    "TypeNode": lambda node, *_: _KEYS[node["__class__"]],
    "DictNode": lambda node, items, *_: _mapping(
        [(kind(key), item) for kind, (key, item) in zip(node["key_types"], items.items(), strict=True)]
    ),
    "NdArrayNode": lambda node, _, arrays, known: (
        arrays[node["file"]] if node["__class__"] == "ndarray" else arrays[node["file"]].item()
    ),
    "DTypeNode": lambda node, array, *_: array.dtype,  # of an empty array
    "ObjectNode": lambda node, state, arrays, known: _made_1(_name_1(node), state or {}, known),
}


def _made_1(name: str, state: dict[str, Any], known: dict[str, type]) -> Any:
    if name in _GONE_1:
        return None
    kept = {_RENAMED_1.get(key, key): item for key, item in state.items() if key not in _LEFT_OUT_1}
    younger: dict[str, Any] = {}
    if "best_estimator_" in state:  # searches had no views of the samples, and copies of what the model has
        younger = {"features_": None, "view_": "raw"}
        kept = {
            key: item for key, item in kept.items() if not isinstance(getattr(known.get(name), key, None), property)
        }
    if kept.get("scaling") == "auto":  # was one more thing to choose
        kept["scaling"] = kept["scaling_"]
    return _made(name, _defaults(known.get(name)) | younger | kept, known)
