"""HTML for notebooks: the tables that objects show as their last word in a cell.

Every text is escaped.  Not a page (a report brings its own style).  Called by `_repr_html_` methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.base.fork_locks import LATE_IMPORTS


def html_table(
    caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]]
) -> str:
    """A table; numbers stand at the right."""
    with LATE_IMPORTS:
        from html import escape  # noqa: PLC0415 - 3 ms that only notebooks should pay

    def cell(value: object) -> str:
        style = ' style="text-align:right"' if isinstance(value, int | float) else ""
        return f"<td{style}>{escape(str(value))}</td>"

    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
