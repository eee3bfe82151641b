"""Lines of a screen: broken where we want them broken, commands left whole for pasting. Pure."""

from __future__ import annotations

import re
import textwrap

QUOTED = re.compile(r"(?<!\w)'[^']*'(?:\"'\"'[^']*')*")
SUBSTITUTION = re.compile(r"\S*\$\([^()]*(?:\([^()]*\)[^()]*)*\)")
"""`$(scontrol show hostnames $X | head -n1)`, `MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))`."""
OPTION = re.compile(
    r"(?<=[\w'\"]) (?=--?\w)"
    r"|(?<=[\w/]) (?=(?:\||>>?|&&) ?[\w/$])|(?<=[\w/] \|) (?=\w)"
    r"|(?:(?<![\w-])(?:--?[\w-]+|(?:pip install|dcgmi diag|preflight run|docker run"
    r"|kubectl|scontrol|systemctl|sysctl|srun|sbatch|export|unset|ulimit))) (?=[\w$./{'~-])"
)
"""The blanks of a command within a sentence: before and behind an option, before and behind `|`,
and behind the first word of commands that have a second one."""
GLUE = "\x1f"
"""Stands for a blank where no line may end; nothing legible() has it."""


def cut(text: str, room: int, more: str = "…") -> str:
    """`text` in at most `room` characters, ended between two words where one ends near."""
    if len(text) <= room:
        return text
    kept = text[: max(0, room - len(more))]
    start, blank, _ = kept.rpartition(" ")
    if blank and text[len(kept)] != " " and len(start) >= len(kept) * 2 // 3:
        kept = start
    return kept.rstrip(" ·|,;:") + more


def wrapped(text: str, room: int, hang: int = 0) -> list[str]:
    """Lines of at most `room` characters, the further ones indented by `hang`; a longer word (a
    path, a value) is left whole, so that it can be copied."""
    return textwrap.wrap(
        text,
        max(room, 16),
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def action(text: str, remark: str, room: int) -> list[str]:
    """A command that can be pasted, with its remark as a comment behind it or, where that is too
    long, above it."""
    if not remark:
        return [text]
    if len(text) + len(remark) + 5 <= room:
        return [f"{text}   # {remark}"]
    return [*(f"# {line}" for line in wrapped(remark, room - 2)), text]


def pasteable(text: str, room: int) -> list[str]:
    """A `do now`: where three blanks divide it, a command and a remark; else a sentence, in which
    a command, and what is quoted for a shell, stays on one line, so that it can be copied."""
    command, blanks, remark = text.partition("   ")
    if not blanks:
        return [line.replace(GLUE, " ") for line in wrapped(glued(text), room)]
    return action(command, remark.strip(), room)


def glued(text: str) -> str:
    """A sentence with GLUE in place of the blanks of its commands and of what it quotes."""
    for whole in (QUOTED, SUBSTITUTION, OPTION):
        text = whole.sub(lambda found: found[0].replace(" ", GLUE), text)
    return text
