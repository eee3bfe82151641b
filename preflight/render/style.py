"""How the screen looks: width, glyphs and styles, and the ways to lay a line out.

Nothing is guessed here: whoever calls decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight.frozen import dataclass
from preflight.model import Status, Verdict
from preflight.render.layout import wrapped
from preflight.sanitize import LONGEST, legible

WIDTH = 98
"""Columns where nothing says how wide the output is."""

NARROW = 60
"""Below this many columns blanks are saved and the times of the rows are left out."""

ID_WIDTH = 17
PASTED = 4096
"""Characters of a command that is shown: no list of nodes is longer."""
MARKS_LIMIT = 16
"""Ranks of one node that get a mark each; more are counted."""
MEASURED_WIDTH = 24
"""Columns that the marks of several nodes leave to what was measured, else they are folded."""

GLYPHS = {
    Status.PASS: "✓",
    Status.WARN: "!",
    Status.FAIL: "✗",
    Status.UNDECIDED: "?",
    Status.MISSING: "…",
    Status.SKIP: "–",
}
ASCII = {
    Status.PASS: "ok",
    Status.WARN: "!",
    Status.FAIL: "X",
    Status.UNDECIDED: "?",
    Status.MISSING: "M",
    Status.SKIP: "-",
}
STYLES = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.UNDECIDED: "magenta",
    Status.MISSING: "red",
    Status.SKIP: "dim",
}
WORDS = {
    Verdict.READY: ("READY", "bold green"),
    Verdict.NOT_READY: ("NOT READY", "bold red"),
    Verdict.INCOMPLETE: ("INCOMPLETE", "bold red"),
    Verdict.UNDECIDED: ("UNDECIDED", "bold magenta"),
}

Segment = tuple[str, str]
Line = list[Segment]


@dataclass(frozen=True, slots=True)
class Look:
    """How to print: decided once, by the command line."""

    width: int = WIDTH
    ascii: bool = False
    colour: bool = False
    quiet: bool = False
    verbose: bool = False
    saved_as: str = ""
    merged_with: str = ""
    """The files of all parts of this report, where it is one of several."""

    @property
    def narrow(self) -> bool:
        return self.width < NARROW

    @property
    def indent(self) -> int:
        """Where the text of a finding begins."""
        return 1 if self.narrow else 3

    @property
    def label(self) -> int:
        """Columns of the words saw, expected, … of a finding."""
        return 9 if self.narrow else 11

    def say(self, text: str, longest: int = LONGEST) -> str:
        """Foreign text, fit for this screen."""
        return legible(text, self.ascii, longest)

    def paste(self, text: str) -> str:
        """The same of what is pasted into a shell: whole, or not at all."""
        return self.say(text, PASTED) if len(text) <= PASTED else ""

    def glyph(self, status: Status) -> str:
        return (ASCII if self.ascii else GLYPHS)[status]


BESIDE = 50
"""Columns in which a long first part is begun, before it goes on below."""


def flow(parts: Sequence[str], look: Look, first: Line, indent: int) -> Iterator[Line]:
    """`parts` joined by dots behind `first`, going on below itself where a part doesn't fit."""
    line, used = list(first), sum(len(text) for text, _ in first)
    empty = True
    for part in parts:
        beside = empty and look.width - used >= BESIDE
        if not beside and used > indent and used + (0 if empty else 3) + len(part) > look.width:
            yield line
            line, used, empty = [(" " * indent, "")], indent, True
        further = max(0, indent - used)
        for number, piece in enumerate(wrapped(part, look.width - used, further)):
            if number:
                yield line
                line, used = [(" " * indent, "")], indent
            text = piece.lstrip() if empty or number else f" · {piece}"
            line.append((text, ""))
            used += len(text)
            empty = False
    yield line
