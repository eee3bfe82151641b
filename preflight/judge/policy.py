"""How strict a run is: waivers and --strict. Plain data."""

from __future__ import annotations

from preflight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Waiver:
    """`tolerate`: a FAIL of these checks counts as a WARN until a date (ISO, "" forever)."""

    pattern: str
    why: str = ""
    until: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict this run is. `today` (ISO date) is what waivers are held against."""

    strict: bool = False
    waivers: tuple[Waiver, ...] = ()
    today: str = ""
