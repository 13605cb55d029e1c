"""What all pages share: templates, and one HTML file with everything in it, to read on any screen without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from tracelearn.optional import require

__all__ = ["as_json", "document", "power", "signed", "times"]


def power(value: float) -> str:
    """Write a number with a power of ten, as people do.

    Examples
    --------
    >>> from tracelearn.report.pages import power
    >>> power(4.2e-07), power(1e-10), power(0.0)
    ('4.2 × 10⁻⁷', '10⁻¹⁰', '0')
    """
    if value == 0.0:
        return "0"
    digits, exponent = f"{value:.1e}".split("e")
    raised = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return raised if digits == "1.0" else f"{digits.removesuffix('.0')} × {raised}"


def signed(value: float) -> str:
    """Write a score with three digits."""
    return f"{value:.3f}".replace("-", "−")


def times(sizes: Any) -> str:
    """Write the sizes of modes."""
    return " × ".join(f"{size:,}" for size in sizes)


def as_json(value: Any) -> str:
    r"""Write a value as JSON that can stand in a script element: no text in it can end the element.

    Examples
    --------
    >>> from tracelearn.report.pages import as_json
    >>> as_json({"class": "</script>"})
    '{"class":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _templates() -> Any:
    """Open the templates, which escape all they are given."""
    jinja2 = require("jinja2", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tracelearn.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        lstrip_blocks=True,
    )
    environment.filters.update(power=power, signed=signed, times=times)
    return environment


def document(template: str, values: dict[str, Any], *, data: Any = None) -> str:
    """Fill in a template with its style and its script, ``NAME.html``, ``NAME.css`` and ``NAME.js``.

    The policy in the head of a page lets it load nothing, and run no script but this one.

    Parameters
    ----------
    template : the NAME
    values : what the template shows
    data : what the script reads; None: there is no script
    """
    folder = files("tracelearn.report") / "templates"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    script = read(f"{template}.js") if data is not None else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page: str = (
        _templates()
        .get_template(f"{template}.html")
        .render(
            **values,
            style=read("base.css") + read(f"{template}.css"),
            script=script,
            script_source=f"'sha256-{digest}'" if script else "'none'",
            data="" if data is None else as_json(data),
        )
    )
    return page + "\n"
