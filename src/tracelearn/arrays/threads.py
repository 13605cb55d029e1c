"""Threads of linear algebra: one for small problems.

A thread of BLAS or PyTorch that waits for another one does so in a busy loop. Where cores are taken, small products then take a
hundred times as long as on one thread; where they are free, a second thread gains nothing on them.
"""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["few_threads"]

_SMALL = 2_000_000  # numbers in samples whose products one thread does as fast


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def few_threads(X: Any) -> Iterator[None]:
    """Use one thread where samples are small arrays in memory; leave all others as they are."""
    is_query = hasattr(X, "__arrow_c_stream__") and not hasattr(X, "__array__")  # it would count its rows first
    shape = None if is_query else getattr(X, "shape", None)
    small = isinstance(shape, tuple) and not hasattr(X, "dask") and math.prod(shape) <= _SMALL
    # The limit is one for the whole process: in several threads each would restore what another had set.
    if not small or threading.current_thread() is not threading.main_thread():
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(_controller().limit(limits=1, user_api="blas"))
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield
