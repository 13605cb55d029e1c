"""Which formats there are, and data files of any of them.

The reader of a format of arrays is a module of this package with two functions: ``names(path)`` lists the arrays of a file, or
is None for one array without a name; ``open_array(path, name)`` is a context manager that gives an array which is read when it is
sliced. Options that only some formats have are its other parameters. The reader of a format of tables has
``open_table(place, columns)``, a `Table`. What is refused in files is refused here, for all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tracelearn.errors import InputError
from tracelearn.io.columns import Column, column_of_array
from tracelearn.io.places import IMAGE_SUFFIXES, Place, place_of, visible_files
from tracelearn.io.safety import check_dtype, check_folder, one_sentence
from tracelearn.optional import require

__all__ = ["FORMATS", "DataFile", "Format", "open_file", "table_in_memory"]


@dataclass(frozen=True)
class Format:
    """A format: the module that reads it, which is also the name of its extra, its suffixes, and options of its own."""

    reader: str
    suffixes: tuple[str, ...]
    options: tuple[str, ...] = ()
    is_table: bool = False
    has_addresses: bool = False


FORMATS = (
    Format("npy", (".npy",), ("sample_axis",)),
    Format("npz", (".npz",), ("sample_axis",)),
    Format("zarr", (".zarr",), ("sample_axis",), has_addresses=True),
    Format("hdf5", (".h5", ".hdf5", ".he5"), ("sample_axis",)),
    Format("parquet", (".parquet", ".pq"), is_table=True, has_addresses=True),
    Format("csv", (".csv", ".tsv"), is_table=True, has_addresses=True),
    Format("arrow", (".arrow", ".feather"), is_table=True, has_addresses=True),
    Format("mat", (".mat",), ("sample_axis",)),
    Format("mne", (".fif",)),
    Format("nifti", (".nii", ".nii.gz"), ("mask",)),
    Format("images", ()),
)
_ADVICE = {".txt": "if it is a table, call it .csv or .tsv"} | dict.fromkeys(
    (".xlsx", ".xls", ".ods"), "save the sheet as CSV"
)


@dataclass(frozen=True, eq=False)
class DataFile:
    """A file, a folder or a table in memory, and the names in it: None for one array without a name.

    Tables have a schema, and ``open_table(columns)``, which opens some of their columns.
    """

    place: Place | str  # or what errors call a table in memory
    format: Format
    names: tuple[str, ...] | None
    schema: Any = None
    open_table: Callable[..., Any] | None = None

    def column(self, name: Any, sample_axis: int = 0, **options: Any) -> Column:
        """Open an array of the file, one or several columns of a table, or for ``name=None`` the only array."""
        title = f"'{name}' of '{self.place}'" if isinstance(name, str) else f"'{self.place}'"
        with one_sentence(self.place):
            if self.open_table is not None:
                tables = require("tracelearn.io.tables", self.format.reader)
                names = (name,) if isinstance(name, str) else name
                column: Column = tables.column_of_table(self.open_table(names), name)
            else:
                open_array = partial(_reader_of(self.format).open_array, self.place, name, **options)
                column = column_of_array(open_array, title, sample_axis)
        check_dtype(title, column.dtype)
        return replace(column, read=partial(_read_in_one_sentence, column.read, self.place))


def table_in_memory(rows: Any) -> DataFile:
    """Read a table, or the rows of a query, whatever hands them out as an Arrow stream."""
    tables = require("tracelearn.io.tables", "arrow")
    table = require("pyarrow", "arrow").table(rows)
    open_table = partial(tables.table_of_rows, table)
    arrow = next(format_ for format_ in FORMATS if format_.reader == "arrow")
    return DataFile("the table in memory", arrow, tuple(table.schema.names), table.schema, open_table)


def open_file(path: Any) -> DataFile:
    """Recognise the format by the suffix of a path, or by what is in a folder, and list the names in it."""
    place = place_of(path)
    with one_sentence(place):
        if not place.exists():
            raise FileNotFoundError(
                f"Expected the path of a file or folder, got '{place}', which does not exist: check it."
            )
        if isinstance(place, Path) and not place.is_file():
            check_folder(place)
        format_of_file = _format_of(place)
    if format_of_file is None:
        suffixes = ", ".join(suffix for format_ in FORMATS for suffix in format_.suffixes)
        raise InputError(
            f"Expected a path that ends in {suffixes}, or a folder of Parquet files or images, got '{place}': "
            f"{_ADVICE.get(place.suffix.lower(), 'convert it to one of these')}."
        )
    if not isinstance(place, Path) and not format_of_file.has_addresses:
        raise InputError(
            f"Expected an address of Zarr, Parquet, CSV or Arrow, got '{place}': copy it to this machine first."
        )
    reader = _reader_of(format_of_file)
    with one_sentence(place):
        if format_of_file.is_table:
            open_table = partial(reader.open_table, place)
            schema = open_table().schema
            return DataFile(place, format_of_file, tuple(schema.names), schema, open_table)
        names = reader.names(place)
        return DataFile(place, format_of_file, None if names is None else tuple(names))


def _reader_of(format_: Format) -> Any:
    """Import the module of a format, or say which extra is missing."""
    return require(f"tracelearn.io.{format_.reader}", format_.reader)


def _format_of(place: Place) -> Format | None:
    """Find the format of a file by its suffix, of a folder by what is in it."""
    by_reader = {format_.reader: format_ for format_ in FORMATS}
    by_suffix = {suffix: format_ for format_ in FORMATS for suffix in format_.suffixes}
    if place.is_file():
        suffix = next((suffix for suffix in by_suffix if place.name.lower().endswith(suffix)), None)
        return None if suffix is None else by_suffix[suffix]
    if place.suffix == ".zarr":
        return by_reader["zarr"]
    if not isinstance(place, Path):
        return None
    if any((place / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return by_reader["zarr"]
    tables = by_reader["parquet"].suffixes
    if place.suffix.lower() in tables or visible_files(place, tables):
        return by_reader["parquet"]
    return by_reader["images"] if visible_files(place, IMAGE_SUFFIXES) else None


def _read_in_one_sentence(read: Any, place: Place | str, start: int, rows: int) -> Iterator[NDArray[Any]]:
    with one_sentence(place):
        yield from read(start, rows)
