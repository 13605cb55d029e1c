"""The paper's claims, one by one, judged by the numbers of this run.

Speeds are compared at the lowest error that both curves reached: a time to a fixed error would be missing for whoever
did not get there, and the last points of two curves have no time in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from experiments.paper.settings import OURS
from tracelearn.paper.estimators import ALGORITHMS

__all__ = ["PAPER_ACCURACY", "judge", "percent", "power", "seconds_to"]

PAPER_ACCURACY = 0.959
_NEAR = 0.01  # accuracies that differ by a percentage point or less count as equal
_LEVEL = 1.1  # an error within a tenth of the lowest counts as arrived
_LEARNED = 0.9  # speeds are compared where the error is below this share of that of the mean rank, where ours starts

Results = dict[str, Any]
Pairs = list[tuple[str, str]]
Measured = tuple[str, list[bool]]  # in words, and whether the claim holds, part by part

_ADM_DR = [(name, name.replace("ADM", "DR")) for name in ("APG_ADM", "OL_APG_ADM", "OL_APG_ADM_miniBatch")]
_BATCH_ONLINE = [(f"APG_{i}", f"OL_APG_{i}{mini}") for i in ("ADM", "DR") for mini in ("", "_miniBatch")]
_SINGLE_MINIBATCH = [(name, f"{name}_miniBatch") for name in ("OL_APG_ADM", "OL_APG_DR")]


def percent(share: float) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def power(value: float) -> str:
    """Write a number with a power of ten, as people do: 4.2 × 10⁻⁷."""
    if value == 0.0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return raised if digits == "1.0" else f"{digits.removesuffix('.0')} × {raised}"


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if 0.95 <= ratio < 9.95 else f"{ratio:.2g}" if ratio < 0.95 else f"{ratio:,.0f}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def seconds_to(curve: dict[str, Any], level: float) -> float | None:
    """Find the learning time at which the error first came down to ``level``, between points in log time."""
    seconds, mse = curve["seconds"], curve["mse"]
    k = next((k for k, error in enumerate(mse) if error <= level), None)
    if not k:
        return None if k is None else float(seconds[0])
    share = (mse[k - 1] - level) / (mse[k - 1] - mse[k])
    return float(math.exp(math.log(seconds[k - 1]) * (1 - share) + math.log(seconds[k]) * share))


def _ratios(results: Results, pairs: Pairs) -> dict[tuple[str, str], float]:
    """How many times as long the second of each pair took as the first, where both have learned something."""
    curves = results["algorithms"]
    ratios = {}
    beginning = curves[OURS]["mse"][0] if OURS in curves else math.inf
    for fast, slow in pairs:
        level = max((curves[name]["best_mse"] if name in curves else math.inf) for name in (fast, slow))
        if level < math.inf and level <= _LEARNED * beginning:
            first, second = (seconds_to(curves[name], level) or math.nan for name in (fast, slow))
            ratios[fast, slow] = second / first
    return ratios


def _compared(ratios: dict[tuple[str, str], float]) -> str:
    comparisons = [f"{slow} took {_times(ratio)} times as long as {fast}" for (fast, slow), ratio in ratios.items()]
    return "; ".join(comparisons) + ", to the lowest error that both reached."


def _paper_curves(results: Results) -> dict[str, Any]:
    return {name: results["algorithms"][name] for name in ALGORITHMS if name in results["algorithms"]}


def _arrived(results: Results) -> dict[str, Any]:
    """Choose the curves of the paper's algorithms that came near the lowest error of all."""
    lowest = min((curve["best_mse"] for curve in results["algorithms"].values()), default=0.0)
    return {name: curve for name, curve in _paper_curves(results).items() if curve["best_mse"] <= _LEVEL * lowest}


def _all_converge(results: Results) -> Measured:
    curves, arrived = _paper_curves(results), _arrived(results)
    if not curves:
        return "", []
    lowest = min(curve["best_mse"] for curve in results["algorithms"].values())
    missing = [name for name in curves if name not in arrived]
    worse = [name for name, curve in curves.items() if curve["final_mse"] > _LEVEL * curve["best_mse"]]
    stopped = sum(curve["converged"] for curve in curves.values())
    text = (
        f"{len(arrived) or 'None'} of {len(curves)} came within a tenth of the lowest error of this run ({lowest:.3f}) in at "
        f"most {results['budget']:g} s of learning{f'; {_listed(missing)} did not' if missing else ''}. By the paper's own "
        f"stopping rule (ε = {power(results['constants']['eps1'])}) {stopped or 'none'} had stopped."
    )
    text += f" After its best point the error grew again for {_listed(worse)}." if worse else ""
    return text, [name in arrived for name in curves] if arrived else []  # of none it is open whether they would


def _faster(pairs: Pairs, results: Results) -> Measured:
    """Judge whether the first of each pair is faster; a pair that cannot be compared confirms nothing."""
    ratios = _ratios(results, pairs)
    if not ratios:
        return "Too little was learned in the time given to compare.", []
    missing = [f"{slow} with {fast}" for fast, slow in pairs if (fast, slow) not in ratios]
    more = f" Too little was learned to compare {_listed(missing)}." if missing else ""
    return _compared(ratios) + more, [ratios.get(pair, 0.0) > 1 for pair in pairs]


def _larger_slower(results: Results) -> Measured:
    rows, ratios = results.get("minibatch", {}).get("rows", []), _ratios(results, _SINGLE_MINIBATCH)
    holds, text = [ratio > 1 for ratio in ratios.values()], ""
    if len(rows) > 1:
        row = min(rows, key=lambda row: abs(row["batch_size"] - 100))
        # An update of so many samples at such a speed, against one of a single sample.
        kron, blas = (row["batch_size"] / row[f"{kind}_speedup"] for kind in ("kronecker", "blas"))
        holds.append(kron > 1.5)
        text = (
            f"With Kronecker products an update with {row['batch_size']} samples takes {_times(kron)} times as long as "
            f"one with a single sample; with a rank-k update of BLAS {_times(blas)} times as long. "
        )
    return text + (f"With BLAS and batches of {results['batch_size']}: {_compared(ratios)}" if ratios else ""), holds


def _predicted_speedup(results: Results) -> Measured:
    rows = [row for row in results.get("minibatch", {}).get("rows", []) if row["batch_size"] > 1]
    if not rows:
        return "", []
    parts = [f"{_times(row['blas_speedup'])} times for μ = {row['batch_size']}" for row in rows]
    text = f"Samples learned per second, with BLAS: {', '.join(parts)}."
    text += f" With Kronecker products: {_times(rows[-1]['kronecker_speedup'])} times for μ = {rows[-1]['batch_size']}."
    # The largest batches fall behind: their arithmetic is work, and no longer overhead.
    return text, [row["blas_speedup"] > row["batch_size"] / 2 for row in rows]


def _equal_in_the_end(results: Results) -> Measured:
    total, arrived = len(_paper_curves(results)), _arrived(results).values()
    if len(arrived) < 2:
        return f"{len(arrived) or 'None'} of {total} arrived in the time given.", []
    final, best = ([curve[f"{which}_accuracy"] for curve in arrived] for which in ("final", "best"))
    text = (
        f"The {len(arrived)} of {total} that arrived: {percent(min(best))} to {percent(max(best))} at the best "
        f"point of each curve, {percent(min(final))} to {percent(max(final))} when the time was up."
    )
    equal = [max(best) - min(best) <= _NEAR, max(final) - min(final) <= _NEAR]
    return text, [*equal, len(arrived) == len(ALGORITHMS)] if any(equal) else [False]


def _accuracy(results: Results) -> Measured:
    curves, ours = _paper_curves(results), results["algorithms"].get(OURS)
    reached = [name for name, curve in curves.items() if curve["best_accuracy"] >= PAPER_ACCURACY - _NEAR]
    stayed = [name for name in reached if curves[name]["final_accuracy"] >= PAPER_ACCURACY - _NEAR]
    holds = [name in stayed for name in curves]
    text = f"{len(reached) or 'None'} of {len(curves)} came to {percent(PAPER_ACCURACY - _NEAR)} or more on the way"
    text += f", {len(stayed)} of them to stay there until the time was up. " if reached else ". "
    if ours is not None:
        text += f"{OURS}, certified to a relative gap of {power(ours['gap'])}: {percent(ours['final_accuracy'])}."
        holds.append(abs(ours["final_accuracy"] - PAPER_ACCURACY) <= _NEAR)
    return text, holds


_CLAIMS: dict[str, Callable[[Results], Measured]] = {
    "All six algorithms converge.": _all_converge,
    "ADM converges faster than Douglas-Rachford.": partial(_faster, _ADM_DR),
    "Batch learning converges faster than online learning.": partial(_faster, _BATCH_ONLINE),
    "Larger mini-batches make online learning slower, because of the Kronecker products.": _larger_slower,
    "Could that cost be avoided, mini-batches of μ samples would be μ times faster (predicted).": _predicted_speedup,
    "In the end all reach almost equal performance.": _equal_in_the_end,
    f"The accuracy at η = {{eta:g}} is {percent(PAPER_ACCURACY)}.": _accuracy,
}


def judge(results: Results) -> list[dict[str, str]]:
    """Compare each claim with what was measured; a verdict is ``agree``, ``partly``, ``not`` or ``open``."""
    verdicts = []
    for claim, measure in _CLAIMS.items():
        text, holds = measure(results)
        verdict = "open" if not holds else "agree" if all(holds) else "partly" if any(holds) else "not"
        text = text or "Not measured in this run."
        verdicts.append({"claim": claim.format(**results), "measured": text, "verdict": verdict})
    return verdicts
