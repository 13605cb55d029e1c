"""Learning that fails is undone: what was learned before stays as it was, to the last bit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["out_of_memory", "undone_on_failure"]

Method = TypeVar("Method", bound=Callable[..., Any])


def undone_on_failure(learn: Method) -> Method:
    """Give an estimator its attributes back if a method that learns raises, Ctrl-C included.

    What learning replaces it replaces whole: no array or model that an attribute holds is ever written to.
    """

    @functools.wraps(learn)
    def attempt(self: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return learn(self, *args, **options)
        except MemoryError as error:
            self.__dict__ = before
            raise out_of_memory(error) from error
        except BaseException:
            self.__dict__ = before
            raise

    return cast(Method, attempt)


def out_of_memory(error: MemoryError) -> MemoryError:
    """Say what to do instead; a library tells at best what it could not have."""
    told = " ".join(str(error).split())
    if told.startswith("Expected "):
        return error
    return MemoryError(
        f"Expected enough memory for this problem, got none left{f' ({told})' if told else ''}: compress the samples with "
        "ModePCA, read them in blocks from Zarr, HDF5, Parquet or .npz files, or allow more memory."
    )
