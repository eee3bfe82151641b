"""How a run is set up, each value with its source: flag > PREFLIGHT_<FLAG> > config file > default.

The config file is looked for where the contract says, never in the working directory or HOME for
root; unknown keys are refused by name with the nearest known one.
"""

from __future__ import annotations

import datetime
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from preflight.check import Catalogue, Level, nearest
from preflight.expect import KEYS, Expect, value_of
from preflight.model import PreflightError, Setting
from preflight.verdict import Policy, Waiver

CONFIG_LIMIT = 1 << 20
"""Bytes of a config file; a longer one is a mistake."""

DEFAULTS: Mapping[str, Any] = {
    "level": "standard",
    "deadline": "90s",
    "strict": False,
    "only": (),
    "skip": (),
    "checkpoint_dir": "",
}
TOP_KEYS = (*DEFAULTS, "nproc", "expect", "checks", "tolerate", "output")
CHECK_KEYS = ("timeout", "enabled")
WAIVER_KEYS = ("why", "until")
OUTPUT_KEYS = ("format", "file")
FORMATS = ("human", "json")

DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?\s*")
UNITS = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LONGEST = 86400.0


def seconds_of(text: object, name: str) -> float:
    """`90s`, `2m`, `1.5` as seconds; more than none, at most a day."""
    found = DURATION.fullmatch(str(text))
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= LONGEST:
        raise PreflightError(f"{name} wants a time such as 90s or 2m, got {str(text)!r:.60}")
    return seconds


@dataclass(frozen=True, slots=True)
class Output:
    """One `-o`: a format and where it goes (`-` is stdout)."""

    format: str
    file: str = "-"


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line and the environment said; None and () where they did not. `sources`
    names the flag or the variable of each that was given."""

    level: str | None = None
    nproc: int | None = None
    deadline: str | None = None
    strict: bool | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    tolerate: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    timeout: tuple[str, ...] = ()
    checkpoint_dir: str | None = None
    output: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a run goes by. `shown` is what the report records."""

    level: Level
    nproc: int | None
    nproc_source: str
    deadline: float
    only: tuple[str, ...]
    skip: tuple[str, ...]
    expect: Expect
    policy: Policy
    budgets: Mapping[str, float]
    options: Mapping[str, Mapping[str, Any]]
    enabled: Mapping[str, Level]
    outputs: tuple[Output, ...]
    shown: Mapping[str, Setting]


# --- the config file ---


def config_path(given: str | None, environ: Mapping[str, str], root: bool) -> Path | None:
    """The config file to read. Root never takes one from the working directory or a HOME."""
    if given:
        return Path(given)
    places = []
    if not root:
        places.append(Path("preflight.toml"))
        home = environ.get("XDG_CONFIG_HOME") or (
            f"{environ['HOME']}/.config" if environ.get("HOME") else ""
        )
        if home:
            places.append(Path(home) / "preflight/config.toml")
    places.append(Path("/etc/preflight/config.toml"))
    return next((place for place in places if place.is_file()), None)


def read_config(path: Path) -> dict[str, Any]:
    """The parsed file; PreflightError in one line when it can't be."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_LIMIT + 1)
    except (OSError, ValueError) as error:
        raise PreflightError(f"config {path}: {getattr(error, 'strerror', error)}") from None
    if len(data) > CONFIG_LIMIT:
        raise PreflightError(f"config {path}: larger than {CONFIG_LIMIT >> 20} MiB")
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise PreflightError(f"config {path}: {error}") from None


def _known(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in keys:
        if key not in known:
            raise PreflightError(f"{where}: no key {key!r}{nearest(key, known)}")


def _table(config: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = config.get(key, {})
    if not isinstance(table, dict):
        raise PreflightError(f"{where}: {key} wants to be a table")
    return table


# --- all together ---


def wants_torch(flags: Flags, config: Mapping[str, Any]) -> bool:
    """Whether this run will surely need torch, as far as that can be told before the checks are
    loaded; what it can't tell is found out later."""
    level = flags.level or config.get("level", DEFAULTS["level"])
    chosen = flags.only or flags.skip or config.get("only") or config.get("skip")
    return level != Level.QUICK and not chosen


def resolve(
    flags: Flags,
    config: Mapping[str, Any],
    config_name: str,
    catalogue: Catalogue,
    today: datetime.date,
) -> Config:
    """The setup of a run; PreflightError for anything unknown, with the nearest name."""
    where = f"config {config_name}"
    _known(config, TOP_KEYS, where)
    shown: dict[str, Setting] = {}

    def pick(name: str) -> Any:
        given = getattr(flags, name)
        if given not in (None, ()):
            shown[name] = Setting(given, flags.sources.get(name, f"--{name.replace('_', '-')}"))
        elif name in config:
            shown[name] = Setting(config[name], where)
        elif name in DEFAULTS:
            shown[name] = Setting(DEFAULTS[name], "default")
        else:
            return None
        return shown[name].value

    level = _level(pick("level"), "level")
    strict = pick("strict")
    if not isinstance(strict, bool):
        raise PreflightError(f"{where}: strict wants true or false")
    nproc = pick("nproc")
    if nproc is not None and (isinstance(nproc, bool) or not isinstance(nproc, int) or nproc < 1):
        raise PreflightError(f"nproc wants a number from 1 on, got {nproc!r:.40}")
    deadline = seconds_of(pick("deadline"), "deadline")
    shown["deadline"] = Setting(deadline, shown["deadline"].source)
    only, skip = (_patterns(pick(name), name, catalogue) for name in ("only", "skip"))
    budgets, options, enabled = _checks(_table(config, "checks", where), where, catalogue)
    shown |= {f"timeout.{i}": Setting(seconds, where) for i, seconds in budgets.items()}
    for check_id, seconds in _timeouts(flags, catalogue).items():
        budgets[check_id] = seconds
        shown[f"timeout.{check_id}"] = Setting(seconds, flags.sources.get("timeout", "--timeout"))
    checkpoint_dir = pick("checkpoint_dir")
    if checkpoint_dir:
        options.setdefault("host.storage", {})["checkpoint_dir"] = os.path.abspath(checkpoint_dir)
    expect = _expect(flags, _table(config, "expect", where), where)
    shown |= {f"expect.{key}": setting for key, setting in expect.values.items()}
    waivers = _waivers(flags, _table(config, "tolerate", where), where, catalogue)
    return Config(
        level=level,
        nproc=nproc,
        nproc_source=shown["nproc"].source if nproc is not None else "",
        deadline=deadline,
        only=only,
        skip=skip,
        expect=expect,
        policy=Policy(strict=strict, waivers=waivers, today=today.isoformat()),
        budgets=budgets,
        options=options,
        enabled=enabled,
        outputs=_outputs(flags, config.get("output", []), where),
        shown={name: s for name, s in shown.items() if s.value not in ((), "")},
    )


def _level(value: object, name: str) -> Level:
    try:
        return Level(str(value))
    except ValueError:
        words = [str(level) for level in Level]
        raise PreflightError(
            f"{name} is one of {', '.join(words)}, got {value!r:.40}{nearest(str(value), words)}"
        ) from None


def _patterns(value: object, name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Ids, prefixes and globs, each known (`--only net.port,host.*`)."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
        raise PreflightError(f"{name} wants a list of ids")
    found = tuple(part.strip() for item in items for part in item.split(",") if part.strip())
    for pattern in found:
        catalogue.matching(pattern)
    return found


def _timeouts(flags: Flags, catalogue: Catalogue) -> dict[str, float]:
    found = {}
    for text in flags.timeout:
        pattern, sign, value = text.partition("=")
        if not sign:
            raise PreflightError(f"--timeout wants ID=20s, got {text!r:.60}")
        for check_id in catalogue.matching(pattern):
            found[check_id] = seconds_of(value, f"--timeout {pattern}")
    return found


def _checks(
    table: Mapping[str, Any], where: str, catalogue: Catalogue
) -> tuple[dict[str, float], dict[str, dict[str, Any]], dict[str, Level]]:
    budgets: dict[str, float] = {}
    options: dict[str, dict[str, Any]] = {}
    enabled: dict[str, Level] = {}
    for name, entries in table.items():
        check_id = catalogue.resolve(name)
        place = f'{where}: [checks."{name}"]'
        if not isinstance(entries, dict):
            raise PreflightError(f"{place} wants to be a table")
        loaded = catalogue.checks.get(check_id)
        own = loaded.check.options if loaded else {}
        _known(entries, (*CHECK_KEYS, *own), place)
        for key, value in entries.items():
            if key == "timeout":
                budgets[check_id] = seconds_of(value, f"{place} timeout")
            elif key == "enabled":
                enabled[check_id] = _level(value, f"{place} enabled")
            else:
                options.setdefault(check_id, {})[key] = value
    return budgets, options, enabled


def _expect(flags: Flags, table: Mapping[str, Any], where: str) -> Expect:
    _known(table, KEYS, f"{where}: [expect]")
    values = {key: Setting(value_of(key, raw), where) for key, raw in table.items()}
    for text in flags.expect:
        key, sign, raw = text.partition("=")
        if not sign:
            raise PreflightError(f"--expect wants key=value, got {text!r:.60}")
        _known([key], KEYS, "--expect")
        values[key] = Setting(value_of(key, raw), f"--expect {key}={raw}"[:80])
    return Expect(values)


def _waivers(
    flags: Flags, table: Mapping[str, Any], where: str, catalogue: Catalogue
) -> tuple[Waiver, ...]:
    found = []
    for text in flags.tolerate:
        for pattern in filter(None, text.split(",")):
            catalogue.matching(pattern)
            found.append(Waiver(pattern, flags.sources.get("tolerate", "--tolerate")))
    for pattern, entry in table.items():
        place = f'{where}: [tolerate."{pattern}"]'
        catalogue.matching(pattern)
        if not isinstance(entry, dict):
            raise PreflightError(f"{place} wants a table with why and until")
        _known(entry, WAIVER_KEYS, place)
        if not str(entry.get("why", "")).strip():
            raise PreflightError(f"{place} wants a reason: why = …")
        until = entry.get("until", "")
        if until and not isinstance(until, datetime.date):
            raise PreflightError(f"{place} until wants a date such as 2026-12-31")
        found.append(Waiver(pattern, str(entry["why"])[:120], str(until)))
    return tuple(found)


def _outputs(flags: Flags, config: object, where: str) -> tuple[Output, ...]:
    """Every `-o`; human on stdout unless something else goes there."""
    found = []
    for text in flags.output:
        name, _, file = text.partition("=")
        found.append(Output(known_format(name, "-o"), file or "-"))
    if not flags.output:
        if not isinstance(config, list) or not all(isinstance(e, dict) for e in config):
            raise PreflightError(f"{where}: output wants to be written as [[output]]")
        for entry in config:
            _known(entry, OUTPUT_KEYS, f"{where}: [[output]]")
            name = known_format(entry.get("format"), f"{where}: [[output]] format")
            found.append(Output(name, str(entry.get("file", "-"))))
    if sum(output.file == "-" for output in found) > 1:
        raise PreflightError("only one -o can go to stdout; give the others a file: -o json=FILE")
    if not any(output.file == "-" for output in found):
        found.insert(0, Output("human"))
    return tuple(found)


def known_format(name: object, where: str) -> str:
    """`name` when there is such a format; PreflightError with the nearest when not."""
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise PreflightError(
            f"{where}: no format {name!r:.40}{nearest(str(name), FORMATS)}; there are {known}"
        )
    return str(name)
