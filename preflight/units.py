"""Numbers for people: bytes, seconds and counts, the same on every screen; and a report's time."""

from __future__ import annotations

import re

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def size(count: int) -> str:
    """A number of bytes: `64 MiB`, `1.5 GiB`; -1 is `unlimited`."""
    if count < 0:
        return "unlimited"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            number = count / unit
            return (
                f"{number:.1f} {name}" if number < 10 and count % unit else f"{number:.0f} {name}"
            )
    return f"{count} B"


def count(number: int) -> str:
    """A limit that counts things: `1024`, `unlimited`."""
    return "unlimited" if number < 0 else str(number)


def duration(seconds: float) -> str:
    """A time: `0.4 ms`, `12 ms`, `3.1 s`, `4 min 10 s`, `30 min`, `26 h`, `12 days`."""
    if seconds < 0.001:
        return f"{seconds * 1000:.1f} ms" if seconds >= 0.00005 else "0 ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"


def plural(number: int, word: str) -> str:
    """`1 rank`, `4 ranks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def epoch(started: str) -> int | None:
    """The time of a report (`2026-05-01T10:00:00Z`) in seconds since 1970; None for what is no
    time."""
    import calendar  # few formats need it

    found = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", started, re.ASCII)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    known = year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60
    if not known or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return None
    return calendar.timegm((year, month, day, hour, minute, second))
