"""What the readers of environment variables make of a value: NCCL, torch, Gloo, torchrun, OpenMP.

Each function mimics one reader and is named by a kind in the tables of variables.py. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from preflight.domains.params import c10d_bool, strtoll
from preflight.domains.settings.variables import Known
from preflight.redact import quoted

TRUE_WORDS = frozenset(("true", "t", "yes", "y", "on", "enable", "enabled", "1"))
FALSE_WORDS = frozenset(("false", "f", "no", "n", "off", "disable", "disabled", "none", "0", ""))


class Effect(StrEnum):
    """What a bad value does."""

    MISREAD = "misread"  # silently taken for something else, or ignored
    RANGE = "range"  # outside of what is documented
    SYNTAX = "syntax"  # a list of interfaces that names what nobody meant
    REFUSED = "refused"  # its reader stops
    HANGS = "hangs"  # its reader never returns
    IMPORT = "import"  # `import torch.distributed` fails


class Reading(NamedTuple):
    """A bad value: what it does, what its reader makes of it, what it should be."""

    effect: Effect
    means: str
    wants: str


def reading(variable: Known, value: str) -> Reading | None:
    """What is bad about a value; None when it means what it says."""
    return READERS[variable.kind](variable, value)


def _flag(variable: Known, value: str) -> Reading | None:
    if value.strip().lower() in FALSE_WORDS:
        return None  # read as 0, which is what it says
    return _int(variable._replace(args=("0", "1")), value, "0 or 1")


def _int(variable: Known, value: str, wants: str = "") -> Reading | None:
    """ncclLoadParam: strtoll with base 0, the rest of the text ignored without a word; an empty
    value is the default."""
    low, high = variable.args
    wants = wants or _span(low, high)
    number, rest = strtoll(value)
    if not value:
        return None
    if not -(1 << 63) <= number < 1 << 64:
        return Reading(Effect.MISREAD, "too large: NCCL takes its default", wants)
    digits = re.match(r"\s*[+-]?0[0-7]+", value)
    if rest.strip() or (digits and number != int(digits[0][:40])):
        why = " (a leading 0 makes it octal)" if digits and not rest.strip() else ""
        why = " (quotes are no digits)" if value.lstrip()[0] in "\"'" else why
        return Reading(Effect.MISREAD, f"NCCL reads {number}{why}", wants)
    return _ranged(number, low, high, wants)


def _ranged(number: int, low: str, high: str, wants: str) -> Reading | None:
    # -1 and -2 stand for "not set" in NCCL's own code
    below = low != "-" and number < int(low) and number not in (-1, -2)
    if below or (high != "-" and number > int(high)):
        return Reading(Effect.RANGE, f"{number} is outside of the documented range", wants)
    return None


def _span(low: str, high: str) -> str:
    if low == high == "-":
        return "a number in digits alone"
    return f"a number from {low} to {high}" if high != "-" else f"a number of at least {low}"


def _word(variable: Known, value: str) -> Reading | None:
    if not value or value in variable.args:
        return None
    return Reading(Effect.MISREAD, "no word that NCCL knows: ignored", " or ".join(variable.args))


def _text(variable: Known, value: str) -> Reading | None:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return Reading(Effect.MISREAD, "the quotes are part of the value", "no quotes")
    if value != value.strip():
        return Reading(Effect.MISREAD, "the blanks around it are part of the value", "no blanks")
    if " #" in value:
        return Reading(Effect.MISREAD, "the comment is part of the value", "no comment")
    return None


LEVELS = "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS"


def _level(variable: Known, value: str) -> Reading | None:
    """ncclGetLevel: strcmp with the upper-case words, else a number; the rest is ignored."""
    if not value or value in LEVELS.split() or value[0] in "0123456789":
        return None
    return Reading(Effect.MISREAD, "ignored: NCCL compares upper-case words", f"one of {LEVELS}")


def _debug(variable: Known, value: str) -> Reading | None:
    words = "VERSION WARN INFO TRACE"
    if value.upper() in (*words.split(), "ABORT", "NONE") or value.lower() in FALSE_WORDS:
        return None
    return Reading(Effect.MISREAD, "no level that NCCL knows: it logs nothing", f"one of {words}")


SUBSYSTEMS = (
    "INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC ALLOC_HOST CALL PROXY NVLS BOOTSTRAP REG PROFILE "
    "RAS DESTROY ALL"
)


def _subsystems(variable: Known, value: str) -> Reading | None:
    words = [word for word in value.upper().removeprefix("^").split(",") if word]
    # a newer NCCL may know more: one known word is enough
    if not words or any(word in SUBSYSTEMS.split() for word in words):
        return None
    return Reading(Effect.MISREAD, "no subsystem that NCCL knows", "such as INIT,NET,GRAPH")


ALGORITHMS = "Ring Tree CollnetChain CollnetDirect NVLS NVLSTree PAT"
PROTOCOLS = "LL LL128 Simple"


def _choices(words: str) -> Callable[[Known, str], Reading | None]:
    """parseList (src/graph/tuning.cc): `[^]a,b`, or from 2.24 on `function:a,b;…`."""
    allowed = frozenset(words.lower().split())

    def read(variable: Known, value: str) -> Reading | None:
        for entry in value.split(";"):
            for word in entry.rpartition(":")[2].removeprefix("^").split(","):
                if word and word.lower() not in allowed:
                    means = f"{quoted(word, 40)} is unknown: NCCL from 2.24 on stops"
                    return Reading(Effect.REFUSED, means, f"one or more of {words}")
        return None

    return read


def _interfaces(variable: Known, value: str) -> Reading | None:
    """parseStringList (src/misc/utils.cc): `[^][=]a,b`; nothing is trimmed."""
    wants = "[^][=]name,name…, as ip link or ibv_devices shows the names"
    if len(value) == 1 and variable.name != "NCCL_IB_HCA":
        return Reading(Effect.SYNTAX, "a single character is ignored", wants)
    names = value.removeprefix("^").removeprefix("=").split(",")
    return _odd_name(names, "^=", "^ and = count once, before the first name", wants)


def _gloo_interfaces(variable: Known, value: str) -> Reading | None:
    """Whole names, separated by commas (ProcessGroupGloo.cpp)."""
    wants = "whole names, separated by commas"
    if len(value) == 1:
        return Reading(Effect.SYNTAX, "a single character is ignored", wants)
    return _odd_name(value.split(","), "^=", "Gloo takes ^ and = for a part of the name", wants)


def _odd_name(names: Iterable[str], signs: str, why: str, wants: str) -> Reading | None:
    for name in names:
        if name.startswith(tuple(signs)):
            return Reading(Effect.SYNTAX, f"{why}: it looks for {quoted(name, 40)}", wants)
        if name != name.strip() or name.strip("\"'") != name:
            sign = "blanks" if name != name.strip() else "quotes"
            means = f"{sign} are part of the name: it looks for {quoted(name, 40)}"
            return Reading(Effect.SYNTAX, means, wants)
    return None


BOOLEAN = "0 or 1"


def _c10d_bool(variable: Known, value: str) -> Reading | None:
    if c10d_bool(value) is None:
        return Reading(Effect.REFUSED, "torch raises: no boolean that it knows", BOOLEAN)
    return None


def _stoi(value: str) -> tuple[int, str] | None:
    """C++'s std::stoi and what it leaves unread; None where it throws."""
    found = re.match(r"\s*[+-]?\d+", value, re.ASCII)
    if not found or not -(1 << 31) <= int(found[0][:40]) < 1 << 31:
        return None
    return int(found[0]), value[found.end() :]


def _c10d_int(variable: Known, value: str) -> Reading | None:
    wants = _span(*variable.args)
    found = _stoi(value)
    if found is None:
        return Reading(Effect.REFUSED, "torch raises: no whole number", wants)
    number, rest = found
    if rest.strip():
        return Reading(Effect.MISREAD, f"torch reads {number}", wants)
    low, high = variable.args
    return _ranged(number, low, high, wants)


def _recorder(variable: Known, value: str) -> Reading | None:
    """The flight recorder is made inside init_process_group, also of Gloo; a throw there never
    comes back (seen with torch 2.13)."""
    number = variable.kind == "recorder-int"
    found = _stoi(value)
    if (found if number else c10d_bool(value)) is None:
        wants = "a whole number, 0 for none" if number else BOOLEAN
        return Reading(Effect.HANGS, "torch can't read it", wants)
    if number and found and found[1].strip():
        return Reading(Effect.MISREAD, f"torch reads {found[0]}", "digits alone")
    return None


def _python(convert: Callable[[str], object], wants: str) -> Callable[[Known, str], Reading | None]:
    def read(variable: Known, value: str) -> Reading | None:
        try:
            convert(value)
        except ValueError:
            return Reading(Effect.REFUSED, "Python's int() or float() raises", wants)
        return None

    return read


def _exactly(word: str) -> Callable[[Known, str], Reading | None]:
    """`value == word`: everything else is off, also what looks like on."""

    def read(variable: Known, value: str) -> Reading | None:
        if value != word and value.strip().lower() in TRUE_WORDS:
            return Reading(Effect.MISREAD, f"off: only {word!r} is on", word)
        return None

    return read


def _gloo_bool(variable: Known, value: str) -> Reading | None:
    return None if value in ("1", "True") else _exactly("1")(variable, value)


def _nonempty(variable: Known, value: str) -> Reading | None:
    if value and value.strip().lower() in FALSE_WORDS:
        return Reading(Effect.MISREAD, "on: any text is", "1, or not set")
    return None


def _checked(variable: Known, value: str) -> Reading | None:
    """c10::utils::check_env: 0 or 1, anything else is ignored with a warning."""
    if value in ("0", "1", ""):
        return None
    return Reading(Effect.MISREAD, "ignored: torch knows 0 and 1 only", BOOLEAN)


def _debug_level(variable: Known, value: str) -> Reading | None:
    if value.upper() in ("OFF", "INFO", "DETAIL"):
        return None
    return Reading(Effect.IMPORT, "no level that torch knows", "OFF, INFO or DETAIL, or not set")


def _log_level(variable: Known, value: str) -> Reading | None:
    words = "INFO WARNING ERROR FATAL"
    if value.upper() in (*words.split(), "0", "1", "2", "3", ""):
        return None
    return Reading(Effect.MISREAD, "ignored: torch can't parse it", f"one of {words}")


def _transport(variable: Known, value: str) -> Reading | None:
    if value in ("LINUX", "TCP", "TCP_TLS", "UV"):
        # the last two are built into some torch, not into the one on PyPI
        ours = value in ("LINUX", "TCP")
        means = "not built into torch's wheels"
        return None if ours else Reading(Effect.REFUSED, means, "TCP, or not set")
    return Reading(Effect.REFUSED, "no transport that Gloo knows", "TCP, or not set")


def _openmp(variable: Known, value: str) -> Reading | None:
    parts = value.strip().split(",")
    if not value.strip() or all(p.strip().isdecimal() and int(p[:9]) > 0 for p in parts):
        return None
    means = "OpenMP ignores it: as many threads as there are CPUs, in each rank"
    return Reading(Effect.MISREAD, means, "a number of at least 1")


def _any(variable: Known, value: str) -> Reading | None:
    return None


READERS: Mapping[str, Callable[[Known, str], Reading | None]] = {
    "any": _any,
    "flag": _flag,
    "int": _int,
    "word": _word,
    "text": _text,
    "level": _level,
    "debug": _debug,
    "subsystems": _subsystems,
    "algorithms": _choices(ALGORITHMS),
    "protocols": _choices(PROTOCOLS),
    "interfaces": _interfaces,
    "gloo-interfaces": _gloo_interfaces,
    "c10d-bool": _c10d_bool,
    "nccl-bool": _c10d_bool,
    "nccl-int": _c10d_int,
    "recorder-int": _recorder,
    "recorder-bool": _recorder,
    "py-int": _python(int, "a whole number"),
    "py-float": _python(float, "a number"),
    "one": _exactly("1"),
    "python-true": _exactly("True"),
    "gloo-bool": _gloo_bool,
    "nonempty": _nonempty,
    "checked": _checked,
    "debug-level": _debug_level,
    "log-level": _log_level,
    "transport": _transport,
    "openmp": _openmp,
}
