"""Copy what was measured into docs/, between the marks there.

``python -m benchmarks.readme`` copies the tables of results.json, outofcore.json and panel.json to docs/benchmarks.md;
``python -m benchmarks.readme out/paper`` the final table and the two figures of the paper's experiment to docs/paper.md.
"""

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.image import imread

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
PAPER = HERE.parent / "docs" / "paper.md"
PICTURE = HERE.parent / "docs" / "images" / "reproduction.png"


def put(block: str, content: str, target: Path = PAGE) -> None:
    begin, end = f"<!-- {block}:begin -->", f"<!-- {block}:end -->"
    text = target.read_text()
    if begin not in text or end not in text:
        raise SystemExit(f"{target.name} has no place for the table: add the lines {begin} and {end}.")
    before, rest = text.split(begin, 1)
    target.write_text(f"{before}{begin}\n{content}{end}{rest.split(end, 1)[1]}")


def copy(folder: Path = HERE) -> None:
    """Copy one line for each ratio: its range, the aims, and how many cases missed theirs."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in json.loads((folder / "results.json").read_text())["rows"]:
        grouped.setdefault((row["question"], row["measure"]), []).append(row)
    lines = ["| question | ratio | measured | aim | missed |", "|---|---|---|---|---|"]
    for (question, measure), rows in grouped.items():
        least, most = (pick(rows, key=lambda row: float(row["ratio"])) for pick in (min, max))
        ends = dict.fromkeys(f"{'≥ ' if row['bound'] else ''}{row['ratio']:.3g}" for row in (least, most))
        aims = "; ".join(dict.fromkeys(row["aim"] for row in rows if row["aim"]))
        n_missed = sum(row["met"] is False for row in rows)
        missed = f"{n_missed} of {len(rows)}" if n_missed else ""
        lines.append(f"| {question} | {measure} | {' to '.join(ends)} | {aims} | {missed} |")
    summary = (folder / "results.md").read_text().strip().rsplit("\n", 1)[-1]
    put("results", "\n".join(lines) + f"\n\n{summary} Every case: `benchmarks/results.md`.\n")


def copy_big(folder: Path = HERE) -> None:
    """Copy what the script for data on disk measured."""
    disk = json.loads((folder / "outofcore.json").read_text())
    rate = disk["samples_per_second"]
    lines = [
        "| what | measured |",
        "|---|---|",
        f"| {disk['gigabytes']:g} GB of 10×10×10 in Zarr, process limited to {disk['limit_gib']:g} GiB | "
        f"{rate['fit']:,} samples/s, {disk['fit_over_gram']:.0%} of the bare gram in memory ({rate['gram']:,}); "
        f"peak memory {disk['peak_rss_mib']} MiB |",
    ]
    put("big", "\n".join(lines) + "\n")


def copy_panel() -> None:
    """Copy the accuracies on real data: ours, ridge regression, and the best of all others."""
    from benchmarks.panel.page import OURS, losses, read

    panel = json.loads((HERE / "panel" / "panel.json").read_text())
    results = read(panel)
    lines = ["| set | tracelearn | ridge | best of the others |", "|---|---|---|---|"]
    for name in panel["sets"]:
        means = {r.entry: sum(r.scores) / len(r.scores) for r in results if r.data == name}
        others = {entry: mean for entry, mean in means.items() if entry not in (OURS, "ridge")}
        best = max(others, key=lambda entry: others[entry])
        lines.append(f"| {name} | {means[OURS]:.3f} | {means['ridge']:.3f} | {others[best]:.3f}, {best} |")
    worse = losses(results)
    text = "\n\nOurs is worse by more than a standard error of the paired difference: "
    text += ("; ".join(worse) if worse else "nowhere") + ". Every competitor, differences and times: "
    put("panel", "\n".join(lines) + text + "`benchmarks/panel/panel.md`.\n")


def copy_reproduction(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    lines = [
        "| algorithm | learning time | tensors seen | error at the end | accuracy at the end | best accuracy |",
        "|---|---|---|---|---|---|",
    ]
    for name, curve in results["algorithms"].items():
        lines.append(
            f"| {name} | {curve['seconds'][-1]:.0f} s | {curve['n_seen'][-1]:,.0f} | {curve['final_mse']:.3f} "
            f"| {curve['final_accuracy']:.1%} | {max(curve['accuracy']):.1%} |"
        )
    machine = results["machine"]
    lines.append(
        f"\n{results['n_train']:,} training and {results['n_test']:,} test tensors of CP rank 1 to {results['ranks'][-1]}, "
        f"{results['budget']:g} s of learning for each of the paper's algorithms with the paper's own step, {machine['cores']} "
        f"cores. The paper reports 95.9 % within one rank.\n"
    )
    put("paper", "\n".join(lines), PAPER)
    side_by_side([folder / "figure_a.png", folder / "figure_b.png"], PICTURE)


def side_by_side(files: list[Path], target: Path) -> None:
    pictures = [imread(file) for file in files]
    width, height = sum(p.shape[1] for p in pictures), max(p.shape[0] for p in pictures)
    figure = Figure(figsize=(width / 200, height / 200), dpi=100)
    for k, picture in enumerate(pictures):
        axes = figure.add_axes((k / len(pictures), 0, 1 / len(pictures), 1))
        axes.imshow(picture)
        axes.axis("off")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=100, facecolor="white")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        copy_reproduction(Path(sys.argv[1]))
    else:
        copy()
        copy_big()
        copy_panel()
