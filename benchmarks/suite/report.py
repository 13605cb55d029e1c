"""Tables and figures of the suite, from its results alone."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from benchmarks import machine
from benchmarks.harness import seconds
from tracelearn.plotting.canvas import COLOURS, DASHES, INK, hide_top_and_right

FLOOR = "floor"
HARDEST = "1e-06"


def markdown(results: dict) -> str:
    """Write every problem and every solver: seconds to each objective error and to each certified gap."""
    parts = [overview(results)]
    for case in results["cases"].values():
        parts.append(f"\n### {case['title']}\n\n{size(case)}\n\n{table(case, results['limit'])}")
    return "".join(parts) + "\n" + closing(results)


def size(case: dict) -> str:
    return f"{case['size']}, α = {case['alpha']:.3g}. The best known answer has a proven gap of {case['gap']:.0e}."


def overview(results: dict) -> str:
    """Write one line for each solver: seconds to the smallest objective error on every problem."""
    cases = list(results["cases"].values())
    lines = [
        f"Time to a relative objective error of {float(HARDEST):g}, the fastest in bold. Where it was not reached, the "
        f"error after {results['limit']:g} s is in brackets, or where a solver ended before that. Ridge solves another "
        "problem: it is the floor.\n",
        "| solver | " + " | ".join(case["title"] for case in cases) + " |",
        "|---" * (1 + len(cases)) + "|",
    ]
    for solver in cases[0]["outcomes"]:
        cells = [_cell(case, solver, results["limit"]) for case in cases]
        lines.append(f"| {solver} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(case: dict, solver: str, limit: float) -> str:
    outcome = case["outcomes"][solver]
    if outcome["cannot"]:
        return "cannot"
    if outcome["family"] == FLOOR:
        return f"({seconds(outcome['seconds'])})"
    if outcome["best_error"] is None:
        return "failed" if outcome["seconds"] is None else f"> {limit:g} s"
    at = outcome["error"][HARDEST]
    if at is None:
        how = f"> {limit:g} s" if outcome["seconds"] >= 0.9 * limit else "ended"
        return f"{how} ({outcome['best_error']:.0e})"
    times = [other["error"].get(HARDEST) for other in case["outcomes"].values()]
    fastest = min(time for time in times if time is not None)
    return f"**{seconds(at)}**" if at == fastest else seconds(at)


def table(case: dict, limit: float) -> str:
    """Write one problem, the soonest at the smallest objective error first."""
    targets = next(list(outcome["error"]) for outcome in case["outcomes"].values() if outcome["error"])
    heads = [f"error {float(t):g}" for t in targets] + [f"gap {float(t):g}" for t in targets]
    lines = ["| solver | " + " | ".join(heads) + " | runs | note |", "|---" * (3 + len(heads)) + "|"]
    for solver, outcome in sorted(case["outcomes"].items(), key=lambda item: _rank(item[1])):
        cells = [
            "–" if (at := outcome[kind].get(target)) is None else seconds(at)
            for kind in ("error", "gap")
            for target in targets
        ]
        lines.append(f"| {solver} | " + " | ".join(cells) + f" | {outcome['repeats']} | {_note(outcome, limit)} |")
    return "\n".join(lines) + "\n"


def _rank(outcome: dict) -> tuple:
    """Sort by the hardest target that was met, then by its time; those without an answer come last."""
    for place, target in enumerate(reversed(list(outcome["error"]))):
        if outcome["error"][target] is not None:
            return place, outcome["error"][target]
    return 99 + outcome["cannot"], outcome["best_error"] or 0.0


def _note(outcome: dict, limit: float) -> str:
    if outcome["sentence"]:
        return outcome["sentence"]
    if outcome["family"] == FLOOR:
        return f"the floor, another problem: done in {seconds(outcome['seconds'])}"
    if outcome["best_error"] is None:
        return f"no answer in {limit:g} s" + (f", one after {seconds(at)}" if (at := outcome["seconds"]) else "")
    missed = [kind for kind in ("error", "gap") if outcome[kind][HARDEST] is None]
    if not missed:
        return ""
    how = (
        f"in {limit:g} s" if outcome["seconds"] >= 0.9 * limit else f"when it ended after {seconds(outcome['seconds'])}"
    )
    reached = ", ".join(f"{kind} {outcome['best_' + kind]:.0e}" for kind in missed)
    return f"{' and '.join(missed)} {float(HARDEST):g} not reached {how}: {reached}"


def closing(results: dict) -> str:
    """Say how it was measured, and on what."""
    text = (
        f"Medians, all solvers in turns, {results['limit']:g} s at most for one run, and no repetition once the runs of a "
        "solver on a problem have taken that together. "
        "Error: objective above the best known, relative to it. Gap: proven distance from the optimum, on the same scale. "
        f"{machine.sentence(results['machine'])}\n"
    )
    load = results["machine"]["load_at_start"]
    if load is not None and load > 0.3 * results["machine"]["cores"]:
        text += f"\n**The machine was busy (load {load:.1f} before the first run): these times say little.**\n"
    if results["quick"]:
        text += "\nA quick run, to try it out: small problems and few repetitions.\n"
    return text


def figure(results: dict, column: int, label: str, target: Path) -> None:
    """Draw one panel for each problem: what a column of the points says against time, both logarithmic."""
    cases = list(results["cases"].values())
    columns = 3 if len(cases) > 4 else len(cases)
    height = -(-len(cases) // columns)
    canvas = Figure(figsize=(4.3 * columns, 3.3 * height + 1.3), layout="constrained")
    grid = canvas.subplots(height, columns, squeeze=False).ravel()
    looks = _looks(cases[0]["outcomes"])
    for axes, case in zip(grid, cases, strict=False):
        _panel(axes, case, column, looks, results["limit"])
    for k, axes in enumerate(grid):
        if k >= len(cases):
            axes.remove()
        elif k % columns == 0:
            axes.set_ylabel(label)
        if len(cases) - columns <= k < len(cases):
            axes.set_xlabel("seconds")
    handles = [Line2D([], [], label=solver, **look) for solver, look in looks.items()]
    canvas.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    canvas.savefig(target, dpi=100, facecolor="white")


def _looks(outcomes: dict) -> dict[str, dict]:
    """Give every family a colour and every member of it a dash; one without a path is drawn by points."""
    families = [
        family for family in dict.fromkeys(outcome["family"] for outcome in outcomes.values()) if family != FLOOR
    ]
    looks = {}
    for solver, outcome in outcomes.items():
        members = [name for name, other in outcomes.items() if other["family"] == outcome["family"]]
        place = members.index(solver)
        if outcome["family"] == FLOOR:
            looks[solver] = {"color": INK, "linewidth": 1.0, "linestyle": "dotted"}
            continue
        look = {
            "color": COLOURS[families.index(outcome["family"]) % len(COLOURS)],
            "linestyle": DASHES[place % len(DASHES)],
        }
        look["linewidth"] = 2.4 if families.index(outcome["family"]) == 0 and place == 0 else 1.4
        if place >= len(DASHES):  # more members than dashes
            look |= {"marker": "x", "markersize": 3.5, "markevery": 0.1}
        if outcome["family"] == "cvxpy":
            look |= {"marker": "os"[place % 2], "markersize": 4}
        looks[solver] = look
    return looks


def _panel(axes: object, case: dict, column: int, looks: dict[str, dict], limit: float) -> None:
    for solver, outcome in reversed(case["outcomes"].items()):  # ours is drawn last, on top
        points = outcome["points"]
        if not points:
            continue
        if outcome["family"] == FLOOR:
            axes.axvline(outcome["seconds"], **looks[solver])
            continue
        points = sorted(points)
        best, drawn = float("inf"), []
        for point in points:  # what was reached by then, as the table counts it
            best = min(best, point[column])
            drawn.append((max(point[0], 1e-4), max(best, 1e-9)))
        axes.plot(*zip(*drawn, strict=True), **looks[solver])
    top = max((point[column] for outcome in case["outcomes"].values() for point in outcome["points"]), default=1.0)
    axes.set(xscale="log", yscale="log", ylim=(3e-8, min(max(3.0, 2.0 * top), 300.0)), xlim=(None, 1.5 * limit))
    axes.xaxis.set_minor_formatter(NullFormatter())  # within one decade they would run into each other
    axes.set_title(f"{case['title']}\n{case['size']}", fontsize=9, loc="left")
    axes.grid(visible=True, which="major", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)
    hide_top_and_right(axes)
