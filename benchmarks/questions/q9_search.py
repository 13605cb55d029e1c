"""The default search against LogisticRegressionCV on the same samples, flattened and standardised; one thread."""

import os
import warnings
from pathlib import Path

from threadpoolctl import threadpool_limits

from benchmarks import search
from benchmarks.harness import Row, at_most

TITLE = "search in seconds"


def ask(quick: bool) -> list[Row]:
    """Time every set; the folder in the variable DATA adds sets of your own."""
    folder = os.environ.get("DATA")
    rows: list[Row] = []
    slowest = ("", 0.0)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for data_set in search.sets(Path(folder) if folder else None)[: 2 if quick else None]:
            floor, single, every = search.measured(data_set)
            slowest = max(slowest, (data_set.name, every), key=lambda pair: pair[1])
            for views, took, limit in (("one view", single, 5.0), ("all views", every, 12.0)):
                case, ratio = f"{data_set.name}, {data_set.sentence()}, {views}", took / floor
                note = "processor seconds on one thread"
                rows.append(
                    Row(
                        TITLE,
                        case,
                        "search / LogisticRegressionCV",
                        ratio,
                        **at_most(limit, ratio),
                        ours=took,
                        other=floor,
                        note=note,
                    )
                )
    name, took = slowest
    rows.append(Row(TITLE, f"slowest set, {name}, all views", "seconds", took, **at_most(10.0, took), ours=took))
    return rows
