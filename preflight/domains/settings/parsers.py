"""What the readers of environment variables make of a value: NCCL, torch, Gloo, torchrun, OpenMP.

Each function mimics one reader and is named by a kind in the tables of variables.py. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from preflight.domains.params import c10d_bool, strtoll
from preflight.domains.settings import algorithms, allocator
from preflight.domains.settings.variables import Known
from preflight.sanitize import quoted
from preflight.strenum import StrEnum

TRUE_WORDS = frozenset(("true", "t", "yes", "y", "on", "enable", "enabled", "1"))
FALSE_WORDS = frozenset(("false", "f", "no", "n", "off", "disable", "disabled", "none", "0", ""))


class ValueEffect(StrEnum):
    """What a bad value does."""

    MISREAD = "misread"  # silently taken for something else, or ignored
    RANGE = "range"  # outside of what is documented
    SYNTAX = "syntax"  # a list of interfaces that names what nobody meant
    REFUSED = "refused"  # its reader stops
    HANGS = "hangs"  # its reader never returns
    IMPORT = "import"  # `import torch.distributed` fails


class BadValue(NamedTuple):
    """A bad value: what it does, what its reader makes of it, what it should be."""

    effect: ValueEffect
    means: str
    wants: str


Reader = Callable[[Known, str], BadValue | None]


def find_bad_value(variable: Known, value: str) -> BadValue | None:
    """What is bad about a value; None when it means what it says."""
    return READERS[variable.kind](variable, value)


def _flag(variable: Known, value: str) -> BadValue | None:
    if value.strip().lower() in FALSE_WORDS:
        return None  # read as 0, which is what it says
    return _int(variable._replace(args=("0", "1")), value, "0 or 1")


def _int(variable: Known, value: str, wants: str = "") -> BadValue | None:
    """ncclLoadParam: strtoll with base 0, the rest of the text silently ignored; an empty value
    is the default."""
    low, high = variable.args
    wants = wants or _span(low, high)
    number, rest = strtoll(value)
    if not value:
        return None
    if not -(1 << 63) <= number < 1 << 64:
        return BadValue(ValueEffect.MISREAD, "too large: NCCL uses its default", wants)
    digits = re.match(r"\s*[+-]?0[0-7]+", value)
    if rest.strip() or (digits and number != int(digits[0][:40])):
        why = " (a leading 0 makes it octal)" if digits and not rest.strip() else ""
        why = " (quotes are not digits)" if value.lstrip()[0] in "\"'" else why
        return BadValue(ValueEffect.MISREAD, f"NCCL reads {number}{why}", wants)
    return _ranged(number, low, high, wants)


def _ranged(number: int, low: str, high: str, wants: str) -> BadValue | None:
    # -1 and -2 stand for "not set" in NCCL's own code
    below = low != "-" and number < int(low) and number not in (-1, -2)
    if below or (high != "-" and number > int(high)):
        return BadValue(ValueEffect.RANGE, f"{number} is outside the documented range", wants)
    return None


def _span(low: str, high: str) -> str:
    if low == high == "-":
        return "a number in digits alone"
    return f"a number from {low} to {high}" if high != "-" else f"a number of at least {low}"


def _word(variable: Known, value: str) -> BadValue | None:
    if not value or value in variable.args:
        return None
    return BadValue(
        ValueEffect.MISREAD, "no word that NCCL knows: ignored", " or ".join(variable.args)
    )


def _text(variable: Known, value: str) -> BadValue | None:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return BadValue(ValueEffect.MISREAD, "the quotes are part of the value", "no quotes")
    if value != value.strip():
        return BadValue(
            ValueEffect.MISREAD, "the blanks around it are part of the value", "no blanks"
        )
    if " #" in value:
        return BadValue(ValueEffect.MISREAD, "the comment is part of the value", "no comment")
    return None


LEVELS = "LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS"
DEBUG_LEVELS = "VERSION WARN INFO TRACE"
SUBSYSTEMS = (
    "INIT COLL P2P SHM NET GRAPH TUNING ENV ALLOC ALLOC_HOST CALL PROXY NVLS BOOTSTRAP REG PROFILE "
    "RAS DESTROY ALL"
)
TORCH_LOG_LEVELS = "INFO WARNING ERROR FATAL"


def _unless(
    accepts: Callable[[str], object],
    means: str,
    wants: str,
    effect: ValueEffect = ValueEffect.MISREAD,
) -> Reader:
    """A reader that finds fault with every value that is not accepted."""
    bad = BadValue(effect, means, wants)
    return lambda variable, value: None if accepts(value) else bad


def _nccl_level(value: str) -> bool:
    """ncclGetLevel: strcmp with the upper-case words, else a number; the rest is ignored."""
    return not value or value in LEVELS.split() or value[0] in "0123456789"


def _debug_level(value: str) -> bool:
    words = (*DEBUG_LEVELS.split(), "ABORT", "NONE")
    return value.upper() in words or value.lower() in FALSE_WORDS


def _subsystem(value: str) -> bool:
    words = [word for word in value.upper().removeprefix("^").split(",") if word]
    # a newer NCCL may know more: one known word is enough
    return not words or any(word in SUBSYSTEMS.split() for word in words)


def _threads(value: str) -> bool:
    parts = value.strip().split(",")
    return not value.strip() or all(p.strip().isdecimal() and int(p[:9]) > 0 for p in parts)


def _means_yes(value: str) -> bool:
    return value.strip().lower() in TRUE_WORDS


BOOLEAN = "0 or 1"
PROTOCOLS = "LL LL128 Simple"


def _choices(words: str) -> Reader:
    """parseList (src/graph/tuning.cc): `[^]a,b`, or from 2.24 on `function:a,b;…`."""
    allowed = frozenset(words.lower().split())

    def read(variable: Known, value: str) -> BadValue | None:
        for number, (function, names) in enumerate(algorithms.entries(value)):
            if number and not function:
                means = f"{quoted(names, 40)} names no function: NCCL 2.24 and later stop"
                return BadValue(
                    ValueEffect.REFUSED,
                    means,
                    "a list in which every entry but the first names its function",
                )
            for word in names.removeprefix("^").split(","):
                if word and word.lower() not in allowed:
                    means = (
                        f"{quoted(word, 40)} is unknown: with two ranks NCCL 2.24 and later stop"
                    )
                    return BadValue(ValueEffect.REFUSED, means, f"one or more of {words}")
        return None

    return read


def _interfaces(variable: Known, value: str) -> BadValue | None:
    """parseStringList (src/misc/utils.cc): `[^][=]a,b`; nothing is trimmed."""
    wants = (
        "names separated by commas, as ip link or ibv_devices shows them, with a caret or an "
        "equals sign before the first one alone"
    )
    if len(value) == 1 and variable.name != "NCCL_IB_HCA":
        return BadValue(ValueEffect.SYNTAX, "a single character is ignored", wants)
    names = value.removeprefix("^").removeprefix("=").split(",")
    return _odd_name(names, "^=", "^ and = count once, before the first name", wants)


def _gloo_interfaces(variable: Known, value: str) -> BadValue | None:
    """Whole names, separated by commas (ProcessGroupGloo.cpp)."""
    wants = "full names, separated by commas"
    if len(value) == 1:
        return BadValue(ValueEffect.SYNTAX, "a single character is ignored", wants)
    return _odd_name(value.split(","), "^=", "Gloo reads ^ and = as part of the name", wants)


def _odd_name(names: Iterable[str], signs: str, why: str, wants: str) -> BadValue | None:
    for name in names:
        if name.startswith(tuple(signs)):
            return BadValue(ValueEffect.SYNTAX, f"{why}: it looks for {quoted(name, 40)}", wants)
        if name != name.strip() or name.strip("\"'") != name:
            sign = "blanks" if name != name.strip() else "quotes"
            means = f"{sign} are part of the name: it looks for {quoted(name, 40)}"
            return BadValue(ValueEffect.SYNTAX, means, wants)
    return None


def _stoi(value: str) -> tuple[int, str] | None:
    """C++'s std::stoi and what it leaves unread; None where it throws."""
    found = re.match(r"\s*[+-]?\d+", value, re.ASCII)
    if not found or not -(1 << 31) <= int(found[0][:40]) < 1 << 31:
        return None
    return int(found[0]), value[found.end() :]


def _c10d_int(variable: Known, value: str) -> BadValue | None:
    wants = _span(*variable.args)
    found = _stoi(value)
    if found is None:
        return BadValue(ValueEffect.REFUSED, "torch raises: no whole number", wants)
    number, rest = found
    if rest.strip():
        return BadValue(ValueEffect.MISREAD, f"torch reads {number}", wants)
    low, high = variable.args
    return _ranged(number, low, high, wants)


def _recorder_int(variable: Known, value: str) -> BadValue | None:
    """The flight recorder is made inside init_process_group, also of Gloo; a throw there never
    comes back (seen with torch 2.13)."""
    found = _stoi(value)
    if found is None:
        return BadValue(ValueEffect.HANGS, "torch can't read it", "a whole number, 0 for none")
    if found[1].strip():
        return BadValue(ValueEffect.MISREAD, f"torch reads {found[0]}", "digits alone")
    return None


def _converts(convert: Callable[[str], object]) -> Callable[[str], bool]:
    """Whether Python's int or float takes a value."""

    def accepts(value: str) -> bool:
        try:
            convert(value)
        except ValueError:
            return False
        return True

    return accepts


def _transport(variable: Known, value: str) -> BadValue | None:
    if value in ("LINUX", "TCP"):
        return None
    # these two are built into some torch, not into the one on PyPI
    known = "not built into torch's wheels" if value in ("TCP_TLS", "UV") else ""
    means = known or "not a transport that Gloo knows"
    return BadValue(ValueEffect.REFUSED, means, "TCP, or not set")


def _allocator(variable: Known, value: str) -> BadValue | None:
    why = allocator.refused_because(value)
    return BadValue(ValueEffect.REFUSED, why, allocator.FORM) if why else None


def _only(word: str) -> Reader:
    """`value == word`: everything else is off, also what looks like on."""
    means = f"off: only {word!r} is on"
    return _unless(lambda v: v == word or not _means_yes(v), means, word)


DEVICE_ORDERS = ("FASTEST_FIRST", "PCI_BUS_ID")
REFUSED, HANGS, IMPORT = ValueEffect.REFUSED, ValueEffect.HANGS, ValueEffect.IMPORT
PYTHON_RAISES = "Python's int() or float() raises"
_c10d_bool = _unless(
    lambda v: c10d_bool(v) is not None,
    "torch raises: not a boolean that it knows",
    BOOLEAN,
    REFUSED,
)

READERS: Mapping[str, Reader] = {
    "any": lambda variable, value: None,
    "flag": _flag,
    "int": _int,
    "word": _word,
    "text": _text,
    "level": _unless(_nccl_level, "ignored: NCCL compares upper-case words", f"one of {LEVELS}"),
    "debug": _unless(
        _debug_level, "no level that NCCL knows: it logs nothing", f"one of {DEBUG_LEVELS}"
    ),
    "subsystems": _unless(_subsystem, "no subsystem that NCCL knows", "such as INIT,NET,GRAPH"),
    "algorithms": _choices(algorithms.ALGORITHMS),
    "protocols": _choices(PROTOCOLS),
    "interfaces": _interfaces,
    "gloo-interfaces": _gloo_interfaces,
    "c10d-bool": _c10d_bool,
    "nccl-bool": _c10d_bool,
    "nccl-int": _c10d_int,
    "recorder-int": _recorder_int,
    "recorder-bool": _unless(
        lambda v: c10d_bool(v) is not None, "torch can't read it", BOOLEAN, HANGS
    ),
    "py-int": _unless(_converts(int), PYTHON_RAISES, "a whole number", REFUSED),
    "py-float": _unless(_converts(float), PYTHON_RAISES, "a number", REFUSED),
    "one": _only("1"),
    "python-true": _only("True"),
    "gloo-bool": _unless(
        lambda v: v in ("1", "True") or not _means_yes(v), "off: only '1' is on", "1"
    ),
    "nonempty": _unless(
        lambda v: not v or v.strip().lower() not in FALSE_WORDS, "on: any text is", "1, or not set"
    ),
    # c10::utils::check_env: 0 or 1, anything else is ignored with a warning
    "checked": _unless(lambda v: v in ("0", "1", ""), "ignored: torch knows 0 and 1 only", BOOLEAN),
    "debug-level": _unless(
        lambda v: v.upper() in ("OFF", "INFO", "DETAIL"),
        "not a level that torch knows",
        "OFF, INFO or DETAIL, or not set",
        IMPORT,
    ),
    "log-level": _unless(
        lambda v: v.upper() in (*TORCH_LOG_LEVELS.split(), "0", "1", "2", "3", ""),
        "ignored: torch can't parse it",
        f"one of {TORCH_LOG_LEVELS}",
    ),
    "transport": _transport,
    "allocator": _allocator,
    # to the letter: seen with driver 580, also of the empty value
    "device-order": _unless(
        lambda v: v in DEVICE_ORDERS,
        "CUDA finds no GPU: error 101, invalid device ordinal",
        " or ".join(DEVICE_ORDERS),
        REFUSED,
    ),
    "openmp": _unless(
        _threads,
        "OpenMP ignores it: as many threads as there are CPUs, in each rank",
        "a number of at least 1",
    ),
}
