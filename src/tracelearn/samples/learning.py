"""What all methods that learn share: checked parameters, threads that suit the samples, and errors of memory in our words."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tracelearn.arrays.linalg import few_threads
from tracelearn.samples.scikit_learn import checks_parameters

__all__ = ["NotEnoughMemoryError", "learning", "out_of_memory", "small_on_one_thread"]

Method = TypeVar("Method", bound=Callable[..., Any])


def learning(learn: Method) -> Method:
    """Mark a method that learns: its parameters are checked, small samples are worked on by one thread, and errors are ours.

    Such a method writes attributes only at its end, so that a model whose fit fails is as it was.
    """

    @functools.wraps(learn)
    def attempt(self: Any, *args: Any, **options: Any) -> Any:
        try:
            with few_threads(args[0] if args else options.get("X")):
                return learn(self, *args, **options)
        except MemoryError as error:
            raise out_of_memory(error) from error

    return cast(Method, checks_parameters(attempt))


def small_on_one_thread(function: Method) -> Method:
    """Let a function of a model and of samples, its first two arguments, use one thread where the samples are small."""

    @functools.wraps(function)
    def limited(*args: Any, **options: Any) -> Any:
        with few_threads(args[1] if len(args) > 1 else options.get("X")):
            return function(*args, **options)

    return cast(Method, limited)


class NotEnoughMemoryError(MemoryError):
    """A problem does not fit in memory; the message is a sentence that says what to do."""


def out_of_memory(error: MemoryError) -> MemoryError:
    """Turn an error of a library, which says at most what it could not allocate, into one that says what to do."""
    if isinstance(error, NotEnoughMemoryError):
        return error
    reason = " ".join(str(error).split())
    return NotEnoughMemoryError(
        f"Expected enough memory for this problem, got none left{f' ({reason})' if reason else ''}: compress the samples with "
        "ModePCA, read them in blocks from Zarr, HDF5, Parquet or .npz files, or allow more memory."
    )
