"""How NCCL and c10d parse a parameter."""

from __future__ import annotations

import re


def strtoll(text: str) -> tuple[int, str]:
    """The number that C's strtoll(text, NULL, 0) sees, and what it leaves unread."""
    found = re.match(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", text)
    if not found:
        return 0, text
    digits = found[0].strip()
    sign, digits = (-1, digits[1:]) if digits[0] == "-" else (1, digits.removeprefix("+"))
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return sign * int(digits[:40], base), text[found.end() :]


def switched_on(value: str) -> bool:
    """Whether NCCL takes a flag's value for on."""
    return strtoll(value)[0] != 0


def c10d_bool(value: str) -> bool | None:
    """getCvarBool: None is where it raises."""
    word = value.lower()
    if word in ("y", "yes", "1", "t", "true"):
        return True
    return False if word in ("n", "no", "0", "f", "false") else None
