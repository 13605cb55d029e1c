"""The paper's claims, one by one, judged by the numbers of this run.

Speeds are compared at the lowest error that both curves reached: a time to a fixed error would be missing for whoever
did not get there, and the last points of two curves have no time in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tracelearn.paper.reproduce.settings import ALGORITHMS, OURS

__all__ = ["PAPER_ACCURACY", "judge", "power", "seconds_to"]

PAPER_ACCURACY = 0.959
_NEAR = 0.01  # accuracies that differ by a percentage point or less count as equal
_LEVEL = 1.1  # an error within a tenth of the lowest counts as arrived
_LEARNED = 0.9  # speeds are compared where the error is below this share of that of the mean rank, where ours starts

Results = dict[str, Any]
Pair = tuple[str, str]


def seconds_to(curve: dict[str, Any], level: float) -> float | None:
    """Find the learning time at which the error first came down to ``level``, between points in log time."""
    seconds, mse = curve["seconds"], curve["mse"]
    for k, error in enumerate(mse):
        if error <= level:
            if k == 0:
                return float(seconds[0])
            share = (mse[k - 1] - level) / (mse[k - 1] - error)
            return float(math.exp(math.log(seconds[k - 1]) * (1 - share) + math.log(seconds[k]) * share))
    return None


def _slowdown(results: Results, fast: str, slow: str) -> float | None:
    """How many times as long ``slow`` took as ``fast`` to the lowest error that both reached."""
    curves = results["algorithms"]
    if fast not in curves or slow not in curves:
        return None
    level = max(curves[fast]["best_mse"], curves[slow]["best_mse"])
    if OURS in curves and level > _LEARNED * curves[OURS]["mse"][0]:
        return None
    first, second = seconds_to(curves[fast], level), seconds_to(curves[slow], level)
    return None if first is None or second is None else second / first


def _ratios(results: Results, pairs: Iterable[Pair]) -> dict[Pair, float]:
    found = {pair: _slowdown(results, *pair) for pair in pairs}
    return {pair: ratio for pair, ratio in found.items() if ratio is not None}


def _name(*, inner: str, feed: str) -> str:
    return next(a.name for a in ALGORITHMS.values() if a.inner == inner and a.feed == feed)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if 0.95 <= ratio < 9.95 else f"{ratio:.2g}" if ratio < 0.95 else f"{ratio:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def power(value: float) -> str:
    """Write 4e-07 as people do."""
    digits, exponent = f"{value:.0e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return raised if digits == "1" else f"{digits}·{raised}"


def _verdict(holds: list[bool]) -> str:
    if not holds:
        return "open"
    return "agree" if all(holds) else "partly" if any(holds) else "not"


def _claim(claim: str, measured: str, verdict: str) -> dict[str, str]:
    return {"claim": claim, "measured": measured or "Not measured in this run.", "verdict": verdict}


def _paper_curves(results: Results) -> dict[str, Any]:
    return {name: results["algorithms"][name] for name in ALGORITHMS if name in results["algorithms"]}


def _lowest(results: Results) -> float:
    return float(min(curve["best_mse"] for curve in results["algorithms"].values()))


def _all_converge(results: Results) -> dict[str, str]:
    curves = _paper_curves(results)
    claim = "All six algorithms converge."
    if not curves:
        return _claim(claim, "", "open")
    lowest = _lowest(results)
    missing = [name for name, curve in curves.items() if curve["best_mse"] > _LEVEL * lowest]
    text = (
        f"{len(curves) - len(missing)} of {len(curves)} came within a tenth of the lowest error of this run "
        f"({lowest:.3f}) in at most {results['budget']:g} s of learning"
    )
    text += f"; {_listed(missing)} did not. " if missing else ". "
    stopped = sum(curve["converged"] for curve in curves.values())
    text += (
        f"By the paper's own stopping rule (ε = {power(results['constants']['eps1'])}) {stopped or 'none'} had stopped."
    )
    worse = [name for name, curve in curves.items() if curve["final_mse"] > _LEVEL * curve["best_mse"]]
    if worse:
        text += f" After its best point the error grew again for {_listed(worse)}."
    return _claim(claim, text, _verdict([name not in missing for name in curves]))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _compare(claim: str, results: Results, pairs: list[Pair]) -> dict[str, str]:
    """Judge a claim that the first of each pair is faster; a pair that cannot be compared confirms nothing."""
    ratios = _ratios(results, pairs)
    if not ratios:
        return _claim(claim, "Too little was learned in the time given to compare.", "open")
    text = _compared(ratios)
    missing = [f"{slow} with {fast}" for fast, slow in pairs if (fast, slow) not in ratios]
    if missing:
        text += f" Too little was learned to compare {_listed(missing)}."
    return _claim(claim, text, _verdict([ratios.get(pair, 0.0) > 1 for pair in pairs]))


def _compared(ratios: dict[Pair, float]) -> str:
    parts = [f"{slow} took {_times(ratio)} times as long as {fast}" for (fast, slow), ratio in ratios.items()]
    return "; ".join(parts) + ", to the lowest error that both reached."


def _adm_faster(results: Results) -> dict[str, str]:
    feeds = ("batch", "online", "minibatch")
    pairs = [(_name(inner="adm", feed=feed), _name(inner="dr", feed=feed)) for feed in feeds]
    return _compare("ADM converges faster than Douglas-Rachford.", results, pairs)


def _batch_faster(results: Results) -> dict[str, str]:
    pairs = [
        (_name(inner=inner, feed="batch"), _name(inner=inner, feed=feed))
        for inner in ("adm", "dr")
        for feed in ("online", "minibatch")
    ]
    return _compare("Batch learning converges faster than online learning.", results, pairs)


def _seconds_per_update(row: dict[str, float], kind: str) -> float:
    return row["batch_size"] / row[f"{kind}_samples_per_second"]


def _larger_slower(results: Results) -> dict[str, str]:
    claim = "Larger mini-batches make online learning slower, because of the Kronecker products."
    rows = results.get("minibatch", {}).get("rows", [])
    inners = ("adm", "dr")
    ratios = _ratios(results, [(_name(inner=i, feed="online"), _name(inner=i, feed="minibatch")) for i in inners])
    holds, text = [ratio > 1 for ratio in ratios.values()], ""
    if len(rows) > 1:
        first, row = rows[0], min(rows, key=lambda row: abs(row["batch_size"] - 100))
        kron, blas = (_seconds_per_update(row, k) / _seconds_per_update(first, k) for k in ("kronecker", "blas"))
        holds.append(kron > 1.5)
        text = (
            f"With Kronecker products an update with {row['batch_size']} samples takes {_times(kron)} times as long as "
            f"one with a single sample; with a rank-k update of BLAS {_times(blas)} times as long. "
        )
    if ratios:
        text += f"With BLAS and batches of {results['batch_size']}: {_compared(ratios)}"
    return _claim(claim, text, _verdict(holds))


def _predicted_speedup(results: Results) -> dict[str, str]:
    claim = "Could that cost be avoided, mini-batches of μ samples would be μ times faster (predicted)."
    rows = [row for row in results.get("minibatch", {}).get("rows", []) if row["batch_size"] > 1]
    parts = [f"{_times(row['blas_speedup'])} times for μ = {row['batch_size']}" for row in rows]
    if not rows:
        return _claim(claim, "", "open")
    text = f"Samples learned per second, with BLAS: {', '.join(parts)}."
    text += f" With Kronecker products: {_times(rows[-1]['kronecker_speedup'])} times for μ = {rows[-1]['batch_size']}."
    # The largest batches fall behind: their arithmetic is work, and no longer overhead.
    return _claim(claim, text, _verdict([row["blas_speedup"] > row["batch_size"] / 2 for row in rows]))


def _equal_in_the_end(results: Results) -> dict[str, str]:
    curves = _paper_curves(results)
    claim = "In the end all reach almost equal performance."
    arrived = [curve for curve in curves.values() if curve["best_mse"] <= _LEVEL * _lowest(results)]
    if len(arrived) < 2:
        return _claim(claim, f"Only {len(arrived)} of {len(curves)} arrived in the time given.", "open")
    final = [curve["final_accuracy"] for curve in arrived]
    best = [curve["best_accuracy"] for curve in arrived]
    text = (
        f"The {len(arrived)} of {len(curves)} that arrived: {_percent(min(best))} to {_percent(max(best))} at the best "
        f"point of each curve, {_percent(min(final))} to {_percent(max(final))} when the time was up."
    )
    equal = [max(best) - min(best) <= _NEAR, max(final) - min(final) <= _NEAR, len(arrived) == len(ALGORITHMS)]
    return _claim(claim, text, _verdict(equal if any(equal[:2]) else [False]))


def _accuracy(results: Results) -> dict[str, str]:
    curves = _paper_curves(results)
    ours = results["algorithms"].get(OURS)
    claim = f"The accuracy at η = {results['eta']:g} is {_percent(PAPER_ACCURACY)}."
    reached = [name for name, curve in curves.items() if curve["best_accuracy"] >= PAPER_ACCURACY - _NEAR]
    kept = [name for name in reached if curves[name]["final_accuracy"] >= PAPER_ACCURACY - _NEAR]
    text = (
        f"{len(reached)} of {len(curves)} came to {_percent(PAPER_ACCURACY - _NEAR)} or more on the way, "
        f"{len(kept)} of them to stay there until the time was up. "
    )
    if ours is not None:
        text += f"{OURS}, certified to a relative gap of {power(ours['gap'])}: {_percent(ours['final_accuracy'])}."
    holds = [name in kept for name in curves]
    if ours is not None:
        holds.append(abs(ours["final_accuracy"] - PAPER_ACCURACY) <= _NEAR)
    return _claim(claim, text, _verdict(holds))


def judge(results: Results) -> list[dict[str, str]]:
    """Put each claim beside what was measured; a verdict is ``agree``, ``partly``, ``not`` or ``open``."""
    judges = (
        _all_converge,
        _adm_faster,
        _batch_faster,
        _larger_slower,
        _predicted_speedup,
        _equal_in_the_end,
        _accuracy,
    )
    return [judge(results) for judge in judges]
