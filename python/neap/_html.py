"""Shows figures in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Returns a table with a line below it. All text is escaped."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
    below = f"<p>{html.escape(note.strip())}</p>" if note.strip() else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}" if body else below
