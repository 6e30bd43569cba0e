"""Formats sizes for people: like `neap`, and in the customary "GB" of log lines, which is 2**30 bytes."""

from __future__ import annotations

import re

GIB = 1 << 30
MIB = 1 << 20
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size(count: int) -> str:
    """1536 -> "1.50 KiB"."""
    sign = "-" if count < 0 else ""
    value = float(abs(count))
    unit = "B"
    for larger in _UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{sign}{int(value)} B"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{sign}{value:.{digits}f} {unit}"


def parse_size(text: str | int) -> int:
    """ "2 GiB", "512MB" (2**20: sizes of memory), 4096 -> bytes. Raises ValueError."""
    if isinstance(text, int):
        value = text
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:([kmgt])(?:i?b)?|b)?\s*", text, re.IGNORECASE)
        if not match:
            raise ValueError(f"size {text!r}: expected a number and a unit, such as '2 GiB'")
        value = int(float(match[1]) * 1024 ** (" kmgt".index((match[2] or " ").lower())))
    if value < 0:
        raise ValueError(f"size {text!r}: is negative")
    return value


def gb(count: int) -> str:
    """Formats a log line's figure: "8.2 GB"."""
    return f"{count / GIB:.1f} GB"


def delta_gb(count: int) -> str:
    """Formats a log line's change: "Δ+0.3 GB"."""
    return f"Δ{count / GIB:+.1f} GB"
