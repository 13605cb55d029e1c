"""How right a search is about the time it still takes: ``python -m benchmarks.time_left [--only NAME ...]``.

For each set the seconds that were said to be left when a third and two thirds of the time were over, divided by the seconds
that came. Between a half and two is the aim.
"""

from __future__ import annotations

import argparse
import logging
import re
import time
import warnings
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks import search
from benchmarks.panel import data
from tracelearn import TensorClassifier


class Messages(logging.Handler):
    """Keeps when a search said which share of it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.shares: list[tuple[float, float]] = []

    def emit(self, record: logging.LogRecord) -> None:
        share = re.search(r"\((\d+)% done", record.getMessage())
        if share is not None and share[1] != "0":
            self.shares.append((time.monotonic(), int(share[1]) / 100.0))


def said(data_set: data.DataSet) -> list[float]:
    """Return said over true seconds left, at a third and at two thirds of a search."""
    listener = Messages()
    logger = logging.getLogger("tracelearn")
    logger.addHandler(listener)
    began = time.monotonic()
    try:
        TensorClassifier(verbose=1).fit(data_set.X, data_set.y, groups=data_set.groups)
    finally:
        logger.removeHandler(listener)
    end, ratios = time.monotonic(), []
    points = [(now, (now - began) * (1.0 - done) / done) for now, done in listener.shares]
    for share in (1 / 3, 2 / 3):
        at = began + share * (end - began)
        # What was said last counts down by itself.
        then, left = max((point for point in points if point[0] <= at), default=points[0])
        ratios.append(max(left - (at - then), 0.0) / (end - at))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_left", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="sets whose names contain one of these")
    options: Any = parser.parse_args()
    print("| set | said / true at a third | at two thirds |\n|---|---|---|")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data_set in search.sets(None):
            if not options.only or any(part in data_set.name for part in options.only):
                third, most = said(data_set)
                print(f"| {data_set.name} | {third:.2f} | {most:.2f} |", flush=True)


if __name__ == "__main__":
    main()
