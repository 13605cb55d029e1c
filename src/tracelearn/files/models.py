"""Models and moments in files: no code in them, whole or refused, never half written.

A file is a line that names the format, a line of JSON, and a payload in the format of skops, which holds arrays and plain
values and names the types they belong to. Invariant: nothing is built from a file before its length, its checksum and
every type in it were found good; types are ours, or plain data, and are listed here one by one.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tracelearn.arrays.array_api import at_host
from tracelearn.moments import Moments
from tracelearn.optional import require

__all__ = ["DamagedFileError", "Header", "load", "pack", "read_header", "save", "unpack", "write_atomically"]

FORMAT = 1
_MAGIC = b"tracelearn file\n"
_HEADER_BYTES = 1024  # ours are some 200; nobody makes us read a longer line
# A tree of 1,000 classes has some 20,000 members and a schema of 70 MB; anything else is far below.
_MOST_MEMBERS, _SCHEMA_BYTES = 100_000, 128 << 20
_MEMBER = re.compile(r"schema\.json|[0-9]+\.npy")

# The names are part of the format: a class that moves needs its old name here, and a way to it.
_ESTIMATORS = (
    "tracelearn.estimators.classifier.TraceNormClassifier",
    "tracelearn.estimators.regressor.TraceNormRegressor",
    "tracelearn.estimators.hierarchy.HierarchicalTraceNormClassifier",
    "tracelearn.selection.classifier.TraceNormClassifierCV",
    "tracelearn.selection.regressor.TraceNormRegressorCV",
    "tracelearn.features.mode_pca.ModePCA",
    "tracelearn.features.scaler.TensorStandardScaler",
)
_PIPELINE = "sklearn.pipeline.Pipeline"
_MOMENTS = "tracelearn.moments.Moments"
_TRUSTED = (
    *_ESTIMATORS,
    _MOMENTS,
    "tracelearn.penalties.LatentTraceNorm",
    "tracelearn.penalties.OverlappedTraceNorm",
    "tracelearn.penalties.ScaledLatentTraceNorm",
    "tracelearn.penalties.Split",
    "tracelearn.solvers.solution.Solution",
    "numpy.dtype",  # read from the header of an empty array
)
_ROOTS = {"model": (*_ESTIMATORS, _PIPELINE), "moments": (_MOMENTS,), "checkpoint": ("builtins.dict",)}

# skops reads more than our models are made of: functions, methods, sparse matrices in archives of their own.
_LOADERS = frozenset(
    f"{kind}Node" for kind in ("Dict", "DType", "Json", "List", "NdArray", "Object", "RandomState", "Tuple", "Type")
)
# Keys are written as text and read back by their type, which for others, bool among them, gives another key.
_KEYS = frozenset(("str", "str_", "int", "float", "int8", "int16", "int32", "int64", "float32", "float64"))


class DamagedFileError(ValueError):
    """A file is not, or no longer, what was written."""


@dataclass(frozen=True)
class Header:
    """What a file says of itself, in its second line.

    ``sha256`` is of the other fields and the payload, so that no bit of a file can change unnoticed.
    """

    format: int
    kind: str
    tracelearn: str
    length: int
    sha256: str

    @classmethod
    def of(cls, kind: str, payload: bytes) -> Header:
        """Describe a payload."""
        blank = cls(FORMAT, kind, metadata.version("tracelearn"), len(payload), "")
        return cls(**{**asdict(blank), "sha256": blank.digest(payload)})

    def digest(self, payload: bytes) -> str:
        """Find the checksum of a payload under this header."""
        blank = Header(**{**asdict(self), "sha256": ""})
        checksum = hashlib.sha256(blank.line())
        checksum.update(payload)
        return checksum.hexdigest()

    def line(self) -> bytes:
        """Write the header as one line, in the only way that is read."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


# --- writing ----------------------------------------------------------------------------------------------------------


def save(thing: Any, path: str | os.PathLike[str]) -> None:
    """Write a model or moments to a file, whole or not at all.

    The file holds parameters, everything learned and the last solution, so that what ``load`` returns predicts, merges and
    goes on learning as the original does, to the last bit. It holds no code, and reading it runs none. A model fitted on a GPU
    is written with arrays of NumPy, and that is what it has when it is read.

    Parameters
    ----------
    thing : an estimator or transformer of tracelearn, a scikit-learn Pipeline of them, or Moments
    path : where to write; a file that is there is replaced

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from tracelearn import TraceNormRegressor, load, save
    >>> from tracelearn.datasets import make_low_rank_regression
    >>> X, y, W = make_low_rank_regression(200, (4, 3), rank=1, random_state=0)
    >>> model = TraceNormRegressor(alpha=0.1).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, pathlib.Path(folder) / "model.tracelearn")
    ...     again = load(pathlib.Path(folder) / "model.tracelearn")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    write_atomically(path, pack(_kind(thing), at_host(thing)))


def _kind(thing: Any) -> str:
    if isinstance(thing, Moments):
        return "moments"
    name = _type_name(type(thing))
    if name not in _ROOTS["model"]:
        raise ValueError(
            f"Expected an estimator of tracelearn, a Pipeline of them or Moments, got {name}: save other things by their own "
            "means."
        )
    return "model"


def pack(kind: str, thing: Any) -> bytes:
    """Write a thing as the bytes of a file, and refuse what could not be read back."""
    skops = require("skops.io", "files")
    try:
        payload: bytes = skops.dumps(thing)
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"Expected parameters that are numbers, text, arrays and the like, got some that cannot be written ({error}): "
            "replace them."
        ) from error
    _check_payload(payload, kind)
    return _MAGIC + Header.of(kind, payload).line() + payload


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that at every moment, power cuts included, it is the old one or the new one."""
    target = Path(os.path.realpath(path))  # a link stays, and what it leads to is replaced
    if target.exists() and not target.is_file():
        raise OSError(f"Expected a file to write to, got {path}, which is a folder or a device: choose another place.")
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
            _sync_folder(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        told = OSError(
            f"Expected to write {path}, got {error.strerror or error}: free some space or choose another place."
        )
        told.errno = error.errno
        raise told from error


def _sync_folder(folder: Path) -> None:
    """Make the new name last: until then a power cut could bring the old file back."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- reading ----------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model or moments that ``save`` wrote; a file that is damaged, too new or not ours is refused.

    Reading runs no code of the file, so a file from a stranger can at worst hold a bad model.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from tracelearn import Moments, load, save
    >>> X = np.arange(12.0).reshape(4, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Moments.of(X, X[:, 0]), pathlib.Path(folder) / "seen.tracelearn")
    ...     seen = load(pathlib.Path(folder) / "seen.tracelearn")
    >>> seen.x_mean
    array([4.5, 5.5, 6.5])
    """
    kind, thing = unpack(path)
    if kind == "checkpoint":
        raise ValueError(
            f"Expected a model or moments, got a checkpoint, {path}: pass its folder to stream with resume=True."
        )
    return thing


def unpack(path: str | os.PathLike[str]) -> tuple[str, Any]:
    """Read a file of any kind; return its kind and what it holds."""
    header, payload = _read(path)
    skops = require("skops.io", "files")
    where = f", {path}"
    _check_payload(payload, header.kind, where)
    try:
        thing = skops.loads(payload, trusted=list(_TRUSTED))
        if header.kind == "model":
            thing.get_params()  # fails where one is missing
    except Exception as error:  # whatever a hostile payload makes of skops and NumPy
        raise _unreadable(error, where) from error
    return header.kind, thing


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a file says of itself; its content is not looked at."""
    with open(path, "rb") as file:
        return _read_header(file.read(len(_MAGIC)), file.readline(_HEADER_BYTES), path)


def _read(path: str | os.PathLike[str]) -> tuple[Header, bytes]:
    """Read the bytes of a file, no more than there are, and check them against its header."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        magic, line = file.read(len(_MAGIC)), file.readline(_HEADER_BYTES)
        header = _read_header(magic, line, path)
        present = size - len(_MAGIC) - len(line)
        if present != header.length:
            raise DamagedFileError(
                f"Expected {header.length} bytes after the header of {path}, got {present}: the file was cut off or added to, "
                "so copy it again or use an older one."
            )
        payload = file.read(present)
    if header.digest(payload) != header.sha256:
        raise DamagedFileError(
            f"Expected the content of {path} to have its checksum, got another: the file was changed, so copy it again or use "
            "an older one."
        )
    return header, payload


def _read_header(magic: bytes, line: bytes, path: Any) -> Header:
    foreign = DamagedFileError(
        f"Expected a file that tracelearn wrote, got {path}, which is none or was damaged: pass one written by save."
    )
    if magic != _MAGIC:
        raise foreign
    try:
        fields = json.loads(line)
        version = fields["format"]
        if not isinstance(version, int) or isinstance(version, bool):
            raise foreign
        if version < 1:
            raise foreign
        if version > FORMAT:
            raise ValueError(
                f"Expected a file of format {FORMAT} or before, got format {version} in {path}: install a newer tracelearn."
            )
        header = Header(**fields)
    except (KeyError, TypeError, RecursionError, UnicodeDecodeError, json.JSONDecodeError):
        raise foreign from None
    # One way to write a header, so that no bit of it is free to change; and a length that is a number.
    if str(header.kind) not in _ROOTS or type(header.length) is not int or header.line() != line:
        raise foreign
    return header


# --- what a payload may hold --------------------------------------------------------------------------------------------


def _check_payload(payload: bytes, kind: str, where: str = "") -> None:
    """Refuse a payload that holds anything but plain data and our own types, or claims more bytes than it has."""
    try:
        if payload.count(b"PK\x01\x02") > _MOST_MEMBERS:  # before zipfile makes an object of each
            raise ValueError("too many members")
        with zipfile.ZipFile(io.BytesIO(payload)) as archive:
            _check_members(archive.infolist(), len(payload))
            _check_arrays(archive)
            schema = json.loads(archive.read("schema.json"))
        nodes = list(_nodes(schema))
        skops = require("skops.io", "files")
        unknown = sorted(
            {_node_type(node) for node in nodes if node["__loader__"] not in _LOADERS}
            or set(skops.get_untrusted_types(data=payload)).difference(_TRUSTED)
        )
        root = _node_type(schema)
        keys = {key["__class__"] for node in nodes if node["__loader__"] == "DictNode" for key in _keys(node)}
    except ImportError:
        raise
    except Exception as error:  # whatever a hostile payload makes of zipfile, json and skops
        raise _unreadable(error, where) from error
    if unknown or root not in _ROOTS[kind]:
        told = unknown[0] if unknown else root
        raise ValueError(
            f"Expected only plain data and types of tracelearn, got {told}{where}: such a type could run code, so it is neither "
            "written nor read."
        )
    if not keys <= _KEYS:
        raise ValueError(
            f"Expected dictionaries whose keys are text or numbers, got keys of type {min(keys - _KEYS)}{where}: name them "
            "otherwise, as in class_weight."
        )


def _check_members(members: list[zipfile.ZipInfo], present: int) -> None:
    """Refuse what we never write: other names, links, names twice, and whatever would grow when it is read."""
    names = [member.filename for member in members]
    if len(set(names)) < len(names) or not all(_MEMBER.fullmatch(name) for name in names):
        raise ValueError("members with other names than ours, or with one name twice")
    if any(stat.S_ISLNK(member.external_attr >> 16) for member in members):
        raise ValueError("a link")
    # We store, so nothing is larger than the file itself.
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > present:
        raise ValueError("compressed, or larger than the file")
    if any(member.filename == "schema.json" and member.file_size > _SCHEMA_BYTES for member in members):
        raise ValueError(f"a schema of more than {_SCHEMA_BYTES} bytes")


def _check_arrays(archive: zipfile.ZipFile) -> None:
    """Refuse arrays that claim more than they have, or hold Python objects, by their headers alone."""
    for member in archive.infolist():
        if member.filename == "schema.json":
            continue
        with archive.open(member) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, _, dtype = read(file)
            if dtype.hasobject:
                raise ValueError("an array of Python objects")
            if min(shape, default=0) < 0 or math.prod(shape) * max(dtype.itemsize, 1) > member.file_size:
                raise ValueError(f"an array of shape {shape} in {member.file_size} bytes")


def _nodes(state: Any) -> Iterator[dict[str, Any]]:
    """Walk every node of a skops schema."""
    todo = [state]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            if "__loader__" in part:
                yield part
            todo.extend(part.values())
        elif isinstance(part, list):
            todo.extend(part)


def _keys(node: dict[str, Any]) -> list[dict[str, Any]]:
    keys: list[dict[str, Any]] = node["key_types"]["content"]
    if len(keys) != len(node["content"]):
        raise ValueError("keys that are equal as text")
    return keys


def _node_type(node: dict[str, Any]) -> str:
    return f"{node['__module__']}.{node['__class__']}"


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _unreadable(error: Exception, where: str) -> ValueError:
    return ValueError(
        f"Expected content that tracelearn can write and read, got some that it cannot ({type(error).__name__}: "
        f"{' '.join(str(error).split())[:200]}){where}: use only files written by save."
    )
