"""What our pages share: one HTML file with everything in it, to read on any screen, by day and by night, without a network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["as_json", "document", "fill", "power", "read_text", "table"]


def read_text(package: str, name: str) -> str:
    """Read a file that came with a package."""
    return (files(package) / name).read_text(encoding="utf-8")


class _Formatter(string.Formatter):
    """Know some formats more than ``str.format``."""

    def __init__(self, known: dict[str, Callable[[Any], str]]) -> None:
        self.known = known

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec in self.known:
            return self.known[format_spec](value)
        return str(super().format_field(value, format_spec))


def fill(template: str, values: dict[str, Any], **formats: Callable[[Any], str]) -> str:
    """Fill in a template as ``str.format`` does; a comment names the value without which the part after it is left out.

    Where the value is a list, the part is written once for each of its members, dictionaries of more values. Values are HTML
    already. ``formats`` are more formats than those of ``str.format``, by their names.

    Examples
    --------
    >>> from tracelearn.report.pages import fill
    >>> template = "Rank {rank}<!-- gap -->, gap {gap:.0e}<!-- always -->."
    >>> fill(template, {"rank": 3, "gap": 1e-7}), fill(template, {"rank": 3})
    ('Rank 3, gap 1e-07.', 'Rank 3.')
    >>> fill("<ul><!-- ranks --><li>{rank}</li><!-- always --></ul>", {"ranks": [{"rank": 3}, {"rank": 5}]})
    '<ul><li>3</li><li>5</li></ul>'
    """
    _, *parts = re.split(r"<!-- (\w+) -->", f"<!-- always -->{template}")
    values, formatter = {"always": True, **values}, _Formatter(formats)
    filled = []
    for needed, text in zip(parts[::2], parts[1::2], strict=True):
        found = values.get(needed)
        members = found if isinstance(found, list) else [{}] if found else []
        filled += [formatter.vformat(text, (), {**values, **own}) for own in members]
    return "".join(filled)


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


def table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Lay out cells that are HTML already; ``data-label`` lets a narrow screen stack them."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(
        "<tr>"
        + "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in zip(head, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


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


def document(title: str, body: str, style: str, script: str = "", data: Any = None) -> str:
    """Put a page together; ``body`` and ``style`` are HTML and CSS already, ``data`` is what the script reads.

    The policy in its head lets the page load nothing, and run no script but this one.
    """
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; " + (
        f"script-src 'sha256-{digest}'" if script else "script-src 'none'"
    )
    base = read_text("tracelearn.report.pages", "base.css")
    end = f'<script type="application/json" id="data">{as_json(data)}</script>' if data is not None else ""
    end += f"<script>{script}</script>" if script else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{base}{style}</style></head><body><main>{body}</main>{end}</body></html>\n"
    )
