"""What both experiments share: their options, and how results and figures are written."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import describe

FOLDER = Path(__file__).parent / "results"
BLUE, ORANGE, GREY = "#1f5fa8", "#c8611a", "0.55"


def options(description: str) -> argparse.Namespace:
    """Read the command line; a quick run is written elsewhere, so that the results of a full one stay."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smaller problem and fewer repetitions, in seconds")
    parser.add_argument("--out", type=Path, help="folder for results and figure; out/experiments with --quick")
    arguments = parser.parse_args()
    arguments.out = arguments.out or (Path("out/experiments") if arguments.quick else FOLDER)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return arguments


def write(folder: Path, name: str, results: dict[str, Any], summary: str, began: float) -> None:
    """Write results with the machine and the time they took, and the table that pages quote."""
    machine = describe()
    whole = {**results, "seconds": round(time.perf_counter() - began, 1), "machine": machine}
    (folder / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    words = f"The whole run took {whole['seconds']:.0f} s on {machine['cores']} cores of {machine['processor']}"
    words += f", BLAS threads: {machine['threads']}, load when it ended: {machine['load_at_start']:.1f}."
    (folder / f"{name}.md").write_text(f"{summary}\n\n{words}\n", encoding="utf-8")
    print(f"\n{summary}\n\n{words}\nWritten: {name}.json, {name}.md and {name}.png in {folder}")


def axes(**options: Any) -> tuple[Any, Any]:
    """Make a figure without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained", **options)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Write a table in Markdown, its columns aligned for the terminal."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines
    )
