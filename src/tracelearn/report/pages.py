"""What all pages share: templates, and one HTML file with everything in it, to read on any screen without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from tracelearn.optional import require

__all__ = ["as_json", "document", "number", "percent", "signed", "times"]


def number(value: float, digits: int = 3) -> str:
    """Write a number with so many significant digits, and a large or small one with a power of ten.

    Examples
    --------
    >>> from tracelearn.report.pages import number
    >>> number(0.01685), number(-4.2e-07), number(1e-10), number(0.0)
    ('0.0169', '−4.2 × 10⁻⁷', '10⁻¹⁰', '0')
    """
    front, _, exponent = f"{value:.{digits}g}".replace("-", "−").partition("e")
    if not exponent:
        return front
    power = "10" + str(int(exponent.replace("−", "-"))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if front == "1" else f"{front} × {power}"


def percent(share: float, digits: int = 1) -> str:
    """Write a share in percent; no line ends before the sign."""
    return f"{100 * share:.{digits}f}\u00a0%"


def signed(value: float, digits: int = 3) -> str:
    """Write a score with so many decimals."""
    return f"{value:z.{digits}f}".replace("-", "−")


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
    environment.filters.update(number=number, percent=percent, signed=signed, times=times)
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
