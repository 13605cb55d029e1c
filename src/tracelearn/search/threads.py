"""Threads of a search: one of linear algebra inside, and folds and candidates side by side instead."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

_controller = cache(ThreadpoolController)  # looked for once, when it is first needed


@contextmanager
def one_blas_thread() -> Iterator[int]:
    """Use one thread of linear algebra; yield how many it was allowed, which may work side by side instead.

    A thread of BLAS that waits for another does so in a busy loop: where cores are taken, small products take a hundred times as
    long as on one thread. The limit is one for the whole process, so only the main thread sets it; any other works alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield 1
        return
    with ExitStack() as stack:
        libraries = [library for library in _controller().info() if library["user_api"] == "blas"]
        allowed = max((int(library["num_threads"]) for library in libraries), default=1)
        stack.enter_context(_controller().limit(limits=1, user_api="blas"))
        torch = sys.modules.get("torch")
        if torch is not None:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
        yield allowed
