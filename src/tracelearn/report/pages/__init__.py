"""What our pages share: one HTML file with everything in it, to read on any screen, by day and by night, without a network."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

__all__ = ["as_json", "document", "read_text", "table"]


def read_text(package: str, name: str) -> str:
    """Read a file that came with a package."""
    return (files(package) / name).read_text(encoding="utf-8")


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
