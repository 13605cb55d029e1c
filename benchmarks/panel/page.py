"""The panel for people: a table of scores, one of differences, and a figure."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.panel import packages
from benchmarks.panel.data import DEVELOPMENT
from benchmarks.panel.entries import ENTRIES
from benchmarks.panel.protocol import DRAWS, OUTER, SMALL, Result, difference, ranks

OURS = "tracelearn"


def read(found: dict[str, Any]) -> list[Result]:
    return [Result(r["data"], r["entry"], tuple(r["scores"]), tuple(r["seconds"]), r["note"]) for r in found["results"]]


def _entries(results: list[Result]) -> list[str]:
    there = {result.entry for result in results}
    return [entry for entry in ENTRIES if entry in there]


def table(results: list[Result]) -> str:
    """Scores: mean over outer folds, the best of each set in bold; below, ours against each competitor."""
    entries, sets = _entries(results), list(dict.fromkeys(result.data for result in results))
    by = {(result.data, result.entry): result for result in results}
    lines = ["| set | " + " | ".join(entries) + " |", "|---" * (len(entries) + 1) + "|"]
    for name in sets:
        means = {e: float(np.mean(by[name, e].scores)) for e in entries if (name, e) in by}
        top = max(means.values())
        cells = []
        for entry in entries:
            if entry not in means:
                cells.append("–")
                continue
            text = f"{means[entry]:.3f}".removeprefix("0") if means[entry] >= 0 else f"{means[entry]:.3f}"
            text = f"**{text}**" if means[entry] == top else text
            cells.append(text + ("" if entry == OURS else f" ({_apart(by, name, entry)})"))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    for label in sorted({_half(name) for name in sets}):
        own = [name for name in sets if _half(name) == label]
        cells = [_mean_of(by, own, entry) for entry in entries]
        lines.append(f"| **mean, {label}** | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _half(name: str) -> str:
    """Say which half a set is of; sets of packages that were found after ADR 8 have halves of their own."""
    half = "development half" if name in (*DEVELOPMENT, *packages.DEVELOPMENT) else "final half"
    return half + (", new sets" if name in packages.NEW else "")


def _mean_of(by: dict[tuple[str, str], Result], sets: list[str], entry: str) -> str:
    """Average an entry over sets, if it ran on all of them; else say on how many, beside ours on the same ones."""
    there = [name for name in sets if (name, entry) in by]
    if not there:
        return "–"
    mean, own = (float(np.mean([np.mean(by[name, e].scores) for name in there])) for e in (entry, OURS))
    text = f"{mean:.3f}".removeprefix("0")
    return text if len(there) == len(sets) else f"{text} on {len(there)} (ours {own:.3f})".replace(" 0.", " .")


def _apart(by: dict[tuple[str, str], Result], name: str, entry: str) -> str:
    mean, error = difference(by[name, OURS], by[name, entry])
    return f"{mean:+.3f} ± {error:.3f}".replace("0.", ".")


def seconds(results: list[Result]) -> str:
    """Seconds of one fit with its inner cross-validation, the median over outer folds."""
    entries, sets = _entries(results), list(dict.fromkeys(result.data for result in results))
    by = {(result.data, result.entry): result for result in results}
    lines = ["| set | " + " | ".join(entries) + " |", "|---" * (len(entries) + 1) + "|"]
    for name in sets:
        cells = [f"{np.median(by[name, e].seconds):.3g}" if (name, e) in by else "–" for e in entries]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def losses(results: list[Result]) -> list[str]:
    """Name every set and competitor where ours is worse by more than a standard error."""
    by = {(result.data, result.entry): result for result in results}
    found = []
    for result in results:
        if result.entry != OURS:
            mean, error = difference(by[result.data, OURS], result)
            if mean < -error:
                found.append(f"{result.data}, {result.entry}: {mean:+.3f} ± {error:.3f}")
    return found


ABOUT = {
    "panel": "The sets of the development half were looked at while these were chosen, those of the final half after the "
    "rule was fixed. What came after that was chosen with sets of both halves in view and is not confirmed by them: windows "
    "of second order, differences of up to 48 channels, what is tried besides squares, small means of second order, and the "
    "number of waveforms of one channel, which was chosen on leaves, arrow heads and gun or point themselves. Pairs of channels "
    "were chosen on sets of packages, full whitening and that of channels on the development halves of both, similarities on "
    "the development half of packages and on sets of both halves here.",
    "packages": "The sets come inside of packages of PyPI, see benchmarks/panel/packages.py. Both halves were fixed before "
    "any result was seen. The development half may be looked at while defaults are chosen, the final half only afterwards. "
    "Sets that are not called new were run for ADR 8: their final half has been opened.",
}


def write(found: dict[str, Any], out: Path, name: str = "panel") -> None:
    """Write NAME.md, NAME.csv and NAME.png."""
    results = read(found)
    write_folds(results, found.get("first", 0), out / f"{name}.csv")
    worse = losses(results)
    text = [
        "# Accuracy on real data",
        "",
        "Nested cross-validation, five outer and five inner folds, the same for everybody; groups are held out whole. "
        f"Sets of up to {SMALL} samples are split {DRAWS} times. "
        "Accuracy (R² where the target is a number). In brackets, ours minus theirs over the same folds, ± its standard "
        "error corrected for the overlap of the training sets. Ours has its defaults on every set. " + ABOUT[name],
        "",
        *(f"- {one}: {sentence}" for one, sentence in found["sets"].items()),
        "",
        table(results),
        "Processor seconds of one fit, the choice of its settings included, on one thread:",
        "",
        seconds(results),
        "Ours is worse by more than a standard error: " + ("; ".join(worse) if worse else "nowhere") + ".",
        "",
        machine.sentence(found["machine"])
        + f" The whole panel took {found['seconds'] / 60:.0f} minutes."
        + (f" {found['note']}" if found.get("note") else ""),
        "",
        f"![Ranks and differences]({name}.png)",
        "",
    ]
    (out / f"{name}.md").write_text("\n".join(text))
    figure(results, out / f"{name}.png")


def write_folds(results: list[Result], first: int, file: Path) -> None:
    """Write one line for each set, entry and outer fold, for others to cite and to compare with on the same folds.

    Repetition r of the outer folds is that of ``protocol.folds`` with seed r.
    """
    with file.open("w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerow(["set", "entry", "repetition", "fold", "score", "seconds"])
        for result in results:
            for place, (score, took) in enumerate(zip(result.scores, result.seconds, strict=True)):
                repetition, fold = divmod(place, OUTER)
                table.writerow([result.data, result.entry, first + repetition, fold, f"{score:.6f}", f"{took:.3f}"])


def figure(results: list[Result], file: Path) -> None:
    """Draw mean ranks with the critical difference, and the paired differences on every set."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    height = max(5.4, 0.3 * len({result.data for result in results}))
    canvas, (left, right) = plt.subplots(1, 2, figsize=(13, height), width_ratios=(1, 1.35), layout="constrained")
    _ranked(left, results)
    _differences(right, results)
    canvas.savefig(file, dpi=130)
    plt.close(canvas)


def _ranked(ax: Any, results: list[Result]) -> None:
    """Mean ranks, with the width within which they are not told apart (Nemenyi, 5 %)."""
    from scipy.stats import studentized_range

    # Where there are classes only those sets are ranked: classifiers cannot be where the target is a number.
    named = {result.data for result in results if result.entry == "logistic"}
    ranked = [result for result in results if result.data in named] or results
    sets = {result.data for result in ranked}
    everywhere = [e for e in _entries(ranked) if sum(r.entry == e for r in ranked) == len(sets)]
    table = ranks(ranked, everywhere)
    means, k = table.mean(axis=0), len(everywhere)
    width = studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * len(table)))
    order = np.argsort(means)
    for at, i in enumerate(order):
        ours = everywhere[i] == OURS
        ax.plot([means[i]], [at], "o", color="#d55e00" if ours else "#0072b2", ms=9 if ours else 7)
        ax.annotate(f"{means[i]:.1f}", (means[i], at), (8, -3), textcoords="offset points", fontsize=9)
    best = means[order[0]]
    ax.axvspan(best, best + width, color="0.9", zorder=0)
    ax.set_title(f"grey: within the critical difference of the best, {width:.1f}", fontsize=9)
    ax.set_yticks(range(k), [everywhere[i] for i in order])
    ax.invert_yaxis()
    ax.set_xlabel(f"mean rank over {len(table)} sets (1 is best)")
    ax.spines[["top", "right"]].set_visible(False)


def _differences(ax: Any, results: list[Result]) -> None:
    """Ours minus theirs on every set, with its standard error, for flat models and for those that show signals differently."""
    by = {(result.data, result.entry): result for result in results}
    sets = list(dict.fromkeys(r.data for r in results))
    shown = {"ridge": "#0072b2", "logistic": "#009e73", "Riemann, logistic": "#cc79a7", "MiniRocket, ridge": "#e69f00"}
    for number, (entry, colour) in enumerate(shown.items()):
        at = [i for i, name in enumerate(sets) if (name, entry) in by]
        pairs = np.array([difference(by[sets[i], OURS], by[sets[i], entry]) for i in at]).reshape(-1, 2)
        ax.errorbar(
            100 * pairs[:, 0],
            np.array(at) + 0.17 * (number - 1.5),
            xerr=100 * pairs[:, 1],
            fmt="o",
            color=colour,
            label=entry,
            capsize=2,
            ms=5,
        )
    ax.axvline(0, color="0.4", lw=1)
    ax.set_yticks(range(len(sets)), sets)
    ax.invert_yaxis()
    ax.set_xlabel("tracelearn minus the other, per cent of accuracy (R²), ± standard error")
    ax.legend(fontsize=8, loc="best")
    ax.spines[["top", "right"]].set_visible(False)
