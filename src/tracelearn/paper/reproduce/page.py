"""The report: one HTML file with everything in it, to read on any screen, by day and by night, without a network."""

from __future__ import annotations

from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from tracelearn.io.writing import write_atomically
from tracelearn.paper.estimators import ALGORITHMS
from tracelearn.paper.reproduce import figures
from tracelearn.paper.reproduce.claims import PAPER_ACCURACY, percent
from tracelearn.paper.reproduce.settings import OURS
from tracelearn.report.pages import document, fill, power, read_text, table

__all__ = ["REPORT", "render", "write"]

REPORT = "report.html"
_CAPTIONS = {
    "figure_a": "(a) Mean squared rank error on the test tensors, over learning time.",
    "figure_b": "(b) Share of test tensors whose rank is predicted to within η, over learning time.",
    "figure_minibatch": "Tensors learned per second over the size of the mini-batch.",
}

Results = dict[str, Any]


def _duration(seconds: float) -> str:
    text = f"{seconds:.1f}" if seconds < 9.95 else f"{seconds:,.0f}"
    return f"{1000 * seconds:.0f}\N{NO-BREAK SPACE}ms" if seconds < 0.0995 else f"{text}\N{NO-BREAK SPACE}s"


_fill = partial(fill, percent=percent, power=power, duration=_duration)


def _figure(kind: str, results: Results) -> str:
    if kind not in figures.available(results):
        return ""
    wide, narrow = (figures.svg(kind, results, narrow=narrow) for narrow in (False, True))
    return (
        f'<figure aria-label="{_CAPTIONS[kind]}"><div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
        f"<figcaption>{_CAPTIONS[kind]}</figcaption></figure>"
    )


def _table(columns: dict[str, str], rows: list[dict[str, Any]], kind: str = "numbers stack") -> str:
    """Lay out rows: a column has a heading and a format of what the row has; what has none is a dash."""
    cells = [
        [_fill(text, row) if k == 0 or len(row) > 1 else "–" for k, text in enumerate(columns.values())] for row in rows
    ]
    return table(list(columns), cells, kind)


_CLAIMS = {
    "The paper says": "{claim}",
    "This run measured": "{measured}",
    "Verdict": '<span class="verdict {verdict}">{words}</span>',
}
_ENDS = {
    "Algorithm": "<b>{name}</b>",
    "Learning time": "{final_seconds:duration}",
    "Tensors seen": "{seen:,}",
    "Error": "{final_mse:.3f}",
    "Accuracy": "{final_accuracy:percent}",
    "Best on the way": "{best_mse:.3f} · {best_accuracy:percent}",
    "Converged": "{state}",
}
_SIZES = {
    "μ": "{batch_size:,}",
    "Statistics, Kronecker": "{kronecker_us:,.0f} µs",
    "Statistics, rank-k": "{blas_us:,.0f} µs",
    "Samples/s, Kronecker": "{kronecker_samples_per_second:,.0f}",
    "Samples/s, rank-k": "{blas_samples_per_second:,.0f}",
    "Speed-up, Kronecker": "{kronecker_speedup:,.1f} ×",
    "Speed-up, rank-k": "{blas_speedup:,.1f} ×",
}


def _claim(claim: dict[str, str]) -> dict[str, str]:
    words = {"not": "not confirmed"}.get(claim["verdict"], claim["verdict"])
    return {**{key: escape(text) for key, text in claim.items()}, "words": words}


def _end(name: str, curve: dict[str, Any] | None) -> dict[str, Any]:
    if curve is None:
        return {"name": name}
    state = "diverged" if curve.get("diverged") else "yes" if curve["converged"] else "no"
    return {**curve, "name": name, "final_seconds": curve["seconds"][-1], "seen": curve["n_seen"][-1], "state": state}


def _size(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **{f"{kind}_us": 1e6 * row[f"{kind}_seconds_per_sample"] for kind in ("kronecker", "blas")}}


def _above(excess: float) -> str:
    return f"{1 + excess:.1f} times" if excess >= 1 else f"{100 * excess:.2g}\N{NO-BREAK SPACE}% above"


def _values(results: Results) -> Results:
    """Gather what the template asks for in addition to the results."""
    curves, bounds = results["algorithms"], results.get("lipschitz", {})
    excess = [
        f"{name} ended with an objective {_above(curve['excess_objective'])} the optimum"
        for name, curve in curves.items()
        if "excess_objective" in curve
    ]
    return {
        **results,
        **{kind: _figure(kind, results) for kind in _CAPTIONS},
        "OURS": OURS,
        "PAPER_ACCURACY": PAPER_ACCURACY,
        "ours": _end(OURS, curves[OURS]) if OURS in curves else None,
        "interrupted": "" if results["complete"] else ", ".join(curves) or "nothing",
        "is_quick": results["scale"] == "quick",
        "claim_table": _table(_CLAIMS, [_claim(claim) for claim in results["claims"]], "claims stack"),
        "final_table": _table(_ENDS, [_end(name, curves.get(name)) for name in (*ALGORITHMS, OURS)]),
        "minibatch_table": _table(_SIZES, [_size(row) for row in results.get("minibatch", {}).get("rows", [])]),
        "excess": escape("; ".join(excess)) + ("." if excess else ""),
        "slower": bounds["paper"] / bounds["tight"] if bounds else None,
        "slower_centred": bounds["paper"] / bounds["tight_centred"] if bounds else None,
        "sides": "×".join(map(str, results["shape"])),
        "architecture": escape(results["machine"]["architecture"]),
        "used": escape(", ".join(f"{name} {number}" for name, number in results["versions"].items())),
    }


def render(results: Results) -> str:
    """Make the page from the results alone."""
    html, css = (read_text("tracelearn.paper.reproduce", f"page.{kind}") for kind in ("html", "css"))
    return document("How many rank-one terms? A reproduction", _fill(html, _values(results)), css)


def write(results: Results, out: Path) -> Path:
    """Write the page whole or not at all; return its path."""
    path = out / REPORT
    write_atomically(path, render(results).encode())
    return path
