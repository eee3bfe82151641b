"""One place of a Python stack."""

from __future__ import annotations

from preflight.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One place of a Python stack. `own`: of the user's code, neither torch's, nor that of another
    installed package or of Python's own library."""

    file: str
    line: int
    function: str
    own: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
