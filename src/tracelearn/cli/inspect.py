"""``tracelearn inspect``: what is in a file of a model or of moments."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tracelearn import Moments, files
from tracelearn.cli.shared import load_file, show_table, spans
from tracelearn.progress import sparkline

try:
    import rich.console
    import typer
except ImportError:  # main says so in one sentence
    pass

__all__ = ["inspect_command"]

_SHOWN = 20  # classes, and singular values of a mode


def _plain(value: Any) -> Any:
    """Make of a value what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _changed(model: Any) -> dict[str, Any]:
    """Find the parameters that differ from their defaults."""
    defaults = {name: one.default for name, one in inspect.signature(type(model).__init__).parameters.items()}
    given = model.get_params(deep=False)
    return {name: _plain(value) for name, value in given.items() if _plain(value) != _plain(defaults.get(name))}


def _of_moments(moments: Moments) -> dict[str, Any]:
    return {"weight": float(moments.weight), "n_features": len(moments.x_mean), "n_targets": moments.n_targets}


def _of_model(model: Any) -> dict[str, Any]:
    """Gather what a model knows of itself; transformers and models that are not fitted know less."""
    facts: dict[str, Any] = {"parameters": _changed(model)}
    chosen = {name: _plain(getattr(model, f"{name}_", None)) for name in ("alpha", "ridge", "mode_weights")}
    if chosen["alpha"] is not None:
        facts["chosen"] = chosen
    for name in ("sample_shape", "classes", "mode_ranks", "dual_gap", "objective", "n_iter"):
        value = getattr(model, f"{name}_", None)
        if value is not None:
            facts[name] = _plain(value)
    if hasattr(model, "coef_"):
        facts["singular_values"] = [_plain(values) for _, values in model.mode_factors_]
        moments = getattr(model, "moments_", None)
        facts["moments"] = moments is not None
        facts["weight"] = None if moments is None else float(moments.weight)
    return facts


def _describe(path: Path) -> dict[str, Any]:
    """Gather the facts about a file."""
    thing, header = load_file(path), files.read_header(path)
    facts = _of_moments(thing) if isinstance(thing, Moments) else _of_model(thing)
    return {"kind": type(thing).__name__, **facts, "format": header.format, "tracelearn": header.tracelearn}


def _words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value if value is not None else 'equal'}" for name, value in values.items())


def _listed(values: list[Any]) -> str:
    more = f", and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + more


def _bars(values: list[float]) -> str:
    """Draw singular values as bars that begin at zero."""
    shown = values[:_SHOWN]
    return f"{sparkline([*shown, 0.0])[:-1]}  {' '.join(f'{value:.3g}' for value in shown[:5])}" + (
        " ..." if len(values) > 5 else ""
    )


def _said(facts: dict[str, Any]) -> dict[str, str]:
    """Write what was asked for and what was chosen."""
    rows = {}
    if "parameters" in facts:
        rows["parameters"] = _words(facts["parameters"]) or "all as by default"
    if "chosen" in facts:
        rows["chosen"] = _words({**facts["chosen"], "alpha": f"{facts['chosen']['alpha']:.4g}"})
    if "sample_shape" in facts:
        rows["shape"] = " × ".join(map(str, facts["sample_shape"]))
    if "classes" in facts:
        rows["classes"] = _listed(facts["classes"])
    return rows


def _learned(facts: dict[str, Any]) -> dict[str, str]:
    """Write what the weights are like, and how well they are proven."""
    rows = {}
    if "mode_ranks" in facts:
        rows["mode ranks"] = spans(facts["mode_ranks"])
    for mode, values in enumerate(facts.get("singular_values", []), start=1):
        rows[f"mode {mode}"] = _bars(values)
    if "dual_gap" in facts:
        rows["duality gap"] = f"{facts['dual_gap']:.1e} after {facts['n_iter']} iterations"
        rows["objective"] = f"{facts['objective']:.6g}"
    return rows


def _rows(facts: dict[str, Any]) -> dict[str, str]:
    """Write the facts for people."""
    rows = {"what": facts["kind"], **_said(facts), **_learned(facts)}
    if "n_features" in facts:
        rows["features"], rows["targets"] = f"{facts['n_features']:,}", f"{facts['n_targets']:,}"
    if facts.get("moments") is False:
        rows["moments"] = "no: it cannot merge or go on learning"
    elif facts.get("weight") is not None:
        rows["moments"] = f"of samples of weight {facts['weight']:,g}"
    rows["format"] = f"{facts['format']}, written by tracelearn {facts['tracelearn']}"
    return rows


def inspect_command(
    model: Annotated[Path, typer.Argument(help="File of a model or of moments.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as one JSON object.")] = False,
) -> None:
    """Say what is in a file: the model, its weights, and how well it is solved."""
    facts = _describe(model)
    if as_json:
        typer.echo(json.dumps(facts))
    else:
        show_table(_rows(facts), rich.console.Console())
