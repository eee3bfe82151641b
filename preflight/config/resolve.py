"""How a run is set up, each value with its source: flag > PREFLIGHT_<FLAG> > config file > default.

Unknown keys are refused by name with the nearest known one.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from preflight.check import Level
from preflight.config import file
from preflight.expect import KEYS, Expect, value_of
from preflight.frozen import dataclass
from preflight.humanize import nearest
from preflight.judge.policy import Policy, Waiver
from preflight.model import PreflightError, Setting
from preflight.registry import Catalogue, selected

NPROC_LIMIT = 4096
"""Ranks of one node; more is a typing error."""

DEFAULTS: Mapping[str, Any] = {
    "level": "standard",
    "deadline": None,
    "arrive": "30s",
    "strict": False,
    "only": (),
    "skip": (),
    "checkpoint_dir": "",
}
UNSET = "default"
"""The source of what nobody has set."""
DEADLINES = {Level.QUICK: "15s"}
DEADLINE = "90s"
"""Of a whole run: of a level, and of all others."""
DEADLINE_PER_RANK, ARRIVE_PER_RANK = 0.0025, 0.0005
RANKS_MOST = 1 << 17
"""Seconds by which both grow with the ranks of a job where nobody has set them, and how many of
these count: the host takes 8 ms of CPU for what a node of eight ranks says, so that 12,500 nodes
take it 100 s, and a launcher takes longer to start them. See docs/scale.md."""
TOP_KEYS = (*DEFAULTS, "nproc", "python", "docs", "expect", "checks", "tolerate", "output")
CHECK_KEYS = ("timeout", "enabled")
WAIVER_KEYS = ("why", "until")
OUTPUT_KEYS = ("format", "file")
FORMATS = ("human", "json", "junit", "prometheus", "nagios", "markdown", "slurm", "html", "github")
LACKING = "-o html needs Jinja2: pip install 'cluster-preflight[html]'"

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
    below: bool = False
    """Only below the working directory, whatever links are there."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line and the environment said; None and () where they did not. `sources`
    names the flag or the variable of each that was given."""

    level: str | None = None
    nproc: int | None = None
    nodes: int | None = None
    node_rank: int | None = None
    meet: str | None = None
    deadline: str | None = None
    arrive: str | None = None
    strict: bool | None = None
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    tolerate: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    timeout: tuple[str, ...] = ()
    checkpoint_dir: str | None = None
    python: str | None = None
    output: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)

    def source(self, name: str) -> str:
        """The flag or the variable that a value came from."""
        return self.sources.get(name, f"--{name.replace('_', '-')}")


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that a run goes by. `shown` is what the report records."""

    level: Level
    nproc: int | None
    nproc_source: str
    nodes: int | None
    node_rank: int | None
    meet: str | None
    python: str
    deadline: float
    arrive: float
    only: tuple[str, ...]
    skip: tuple[str, ...]
    expect: Expect
    policy: Policy
    budgets: Mapping[str, float]
    options: Mapping[str, Mapping[str, Any]]
    enabled: Mapping[str, Level]
    outputs: tuple[Output, ...]
    shown: Mapping[str, Setting]

    def among(self, ranks: int) -> Config:
        """The same for a job of as many ranks: a limit that nobody has set grows with them."""
        grown, counted = {}, min(ranks, RANKS_MOST)
        for name, each in (("deadline", DEADLINE_PER_RANK), ("arrive", ARRIVE_PER_RANK)):
            more = int(each * counted)
            if more and self.shown[name].source == UNSET:
                seconds = getattr(self, name) + more
                grown[name] = Setting(seconds, f"{UNSET} for {ranks:,} ranks")
        values = {name: setting.value for name, setting in grown.items()}
        return replace(self, **values, shown={**self.shown, **grown})


def _known(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in keys:
        if key not in known:
            raise PreflightError(f"{where}: no key {key!r}{nearest(key, known)}")


def _table(config: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    table = config.get(key, {})
    if not isinstance(table, dict):
        raise PreflightError(f"{where}: {key} wants to be a table")
    return table


def wants_torch(flags: Flags, config: Mapping[str, Any]) -> bool:
    """Whether this run will surely need torch, as far as that can be told before the checks are
    loaded; what it can't tell is found out later."""
    level = flags.level or config.get("level", DEFAULTS["level"])
    chosen = flags.only or flags.skip or config.get("only") or config.get("skip")
    return level != Level.QUICK and not chosen


def job_python(flags: Flags, config: Mapping[str, Any], config_name: str) -> Setting:
    """The job's interpreter; empty where nobody says it. It will be run: a file that came with a
    working directory, as with a repository of somebody else, names none."""
    where = f"config {config_name}: python"
    if flags.python is None and "python" not in config:
        return Setting("", UNSET)
    if flags.python is None and config_name == file.HERE:
        raise PreflightError(f"{where}: only a file that --config names may say what is run")
    given, source = flags.python, flags.source("python")
    if given is None:
        given, source = config["python"], f"config {config_name}"
    if not isinstance(given, str) or not given:
        place = source if flags.python is not None else where
        raise PreflightError(f"{place} wants the name of an interpreter")
    return Setting(given, source)


def level_needed(flags: Flags, config: Mapping[str, Any], declared: Mapping[str, str]) -> Level:
    """The level whose checks have to be loaded for a run: the run's, or that of a check that is
    named and `declared` to be beyond it. All where a name is unknown or a value wrong: the
    error suggests the nearest name."""
    timeouts = [text.partition("=")[0] for text in flags.timeout]
    tables = [config.get(key, ()) for key in ("only", "skip", "tolerate", "checks")]
    levels = {str(flags.level or config.get("level", DEFAULTS["level"]))}
    for named in (flags.only, flags.skip, flags.tolerate, timeouts, *tables):
        texts = [named] if isinstance(named, str) else named
        if not isinstance(texts, Iterable):
            return Level.DEEP
        for pattern in ",".join(map(str, texts)).split(","):
            chosen = selected(pattern.strip(), declared)
            if pattern and not chosen:
                return Level.DEEP
            levels.update(declared[check_id] for check_id in chosen)
    order = list(map(str, Level))
    return Level(max(levels, key=order.index)) if levels <= {*order} else Level.DEEP


def resolve(
    flags: Flags,
    config: Mapping[str, Any],
    config_name: str,
    catalogue: Catalogue,
    today: datetime.date,
) -> Config:
    """The setup of a run; PreflightError for anything unknown, with the nearest name."""
    where, found_here = f"config {config_name}", config_name == file.HERE
    _known(config, TOP_KEYS, where)
    shown: dict[str, Setting] = {}
    if config:
        source = "working directory" if found_here else "config file"
        shown["config"] = Setting(absolute(config_name), source)

    def pick(name: str) -> Any:
        given = getattr(flags, name)
        if given not in (None, ()):
            shown[name] = Setting(given, flags.source(name))
        elif name in config:
            shown[name] = Setting(config[name], where)
        elif name in DEFAULTS:
            shown[name] = Setting(DEFAULTS[name], UNSET)
        else:
            return None
        return shown[name].value

    def place(name: str) -> str:
        """How to call a value in an error: its flag, its variable, or its key in the file."""
        return f"{where}: {name}" if shown[name].source == where else shown[name].source

    level = _level(pick("level"), place("level"))
    strict = pick("strict")
    if not isinstance(strict, bool):
        raise PreflightError(f"{place('strict')} wants true or false")
    nproc = pick("nproc")
    if nproc is not None and not (type(nproc) is int and 0 < nproc <= NPROC_LIMIT):
        raise PreflightError(f"{place('nproc')} wants a number from 1 to {NPROC_LIMIT}")
    limit = pick("deadline")
    limit = DEADLINES.get(level, DEADLINE) if limit is None else limit
    deadline = seconds_of(limit, place("deadline"))
    shown["deadline"] = Setting(deadline, shown["deadline"].source)
    arrive = seconds_of(pick("arrive"), place("arrive"))
    shown["arrive"] = Setting(arrive, shown["arrive"].source)
    for name in ("nodes", "node_rank", "meet"):
        if (given := getattr(flags, name)) is not None:
            shown[name] = Setting(given, flags.source(name))
    only, skip = (_patterns(pick(name), place(name), catalogue) for name in ("only", "skip"))
    budgets, options, enabled = _checks(_table(config, "checks", where), where, catalogue)
    shown |= {f"timeout.{i}": Setting(seconds, where) for i, seconds in budgets.items()}
    if level == Level.QUICK:
        for loaded in catalogue:
            if loaded.check.quick_budget is not None:
                budgets.setdefault(loaded.id, loaded.check.quick_budget)
    for check_id, seconds in _timeouts(flags, catalogue).items():
        budgets[check_id] = seconds
        shown[f"timeout.{check_id}"] = Setting(seconds, flags.source("timeout"))
    shown["python"] = job_python(flags, config, config_name)
    if docs := _documentation(config, where, found_here):
        shown["docs"] = Setting(docs, where)
    folder = pick("checkpoint_dir")
    if shown["checkpoint_dir"].source != UNSET:
        if not isinstance(folder, str) or not folder:
            raise PreflightError(f"{place('checkpoint_dir')} wants the name of a folder")
        for loaded in catalogue:
            if "checkpoint_dir" in loaded.check.options:
                options.setdefault(loaded.id, {})["checkpoint_dir"] = absolute(folder)
    expect = _expect(flags, _table(config, "expect", where), where)
    shown |= {f"expect.{key}": setting for key, setting in expect.values.items()}
    waivers = _waivers(flags, _table(config, "tolerate", where), where, catalogue)
    for waiver, source in reversed(waivers):  # the first wins: what a flag says
        ends = {"why": waiver.why, "until": waiver.until}
        shown[f"tolerate.{waiver.pattern}"] = Setting(ends, source)
    policy = Policy(strict, tuple(waiver for waiver, _ in waivers), today.isoformat())
    return Config(
        level=level,
        nproc=nproc,
        nproc_source=shown["nproc"].source if nproc is not None else "",
        nodes=flags.nodes,
        node_rank=flags.node_rank,
        meet=flags.meet,
        python=shown["python"].value,
        deadline=deadline,
        arrive=arrive,
        only=only,
        skip=skip,
        expect=expect,
        policy=policy,
        budgets=budgets,
        options=options,
        enabled=enabled,
        outputs=outputs(flags, config.get("output", []), where, found_here),
        shown={name: s for name, s in shown.items() if s.value not in ((), "")},
    )


def absolute(path: str) -> str:
    """`path` from the root on; as it is where the working directory is gone."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path


def _level(value: object, place: str) -> Level:
    try:
        return Level(str(value))
    except ValueError:
        words = [str(level) for level in Level]
        raise PreflightError(
            f"{place} is one of {', '.join(words)}, got {value!r:.40}{nearest(str(value), words)}"
        ) from None


def _matching(catalogue: Catalogue, pattern: str, place: str) -> tuple[str, ...]:
    """The ids that a pattern selects."""
    try:
        return catalogue.matching(pattern)
    except PreflightError as error:
        raise PreflightError(f"{place}: {error}") from None


def _patterns(value: object, place: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Ids, prefixes and globs, each known (`--only net.port,host.*`)."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
        raise PreflightError(f"{place} wants a list of ids")
    found = tuple(part.strip() for item in items for part in item.split(",") if part.strip())
    if items and not found:
        raise PreflightError(f"{place} names no check")
    for pattern in found:
        _matching(catalogue, pattern, place)
    return found


def _timeouts(flags: Flags, catalogue: Catalogue) -> dict[str, float]:
    found = {}
    place = flags.source("timeout")
    for text in flags.timeout:
        pattern, sign, value = text.partition("=")
        if not sign:
            raise PreflightError(f"{place} wants ID=20s, got {text!r:.60}")
        for check_id in _matching(catalogue, pattern, place):
            found[check_id] = seconds_of(value, f"{place} {pattern:.40}")
    return found


def _checks(
    table: Mapping[str, Any], where: str, catalogue: Catalogue
) -> tuple[dict[str, float], dict[str, dict[str, Any]], dict[str, Level]]:
    budgets: dict[str, float] = {}
    options: dict[str, dict[str, Any]] = {}
    enabled: dict[str, Level] = {}
    for name, entries in table.items():
        place = f'{where}: [checks."{name:.40}"]'
        try:
            check_id = catalogue.resolve(name)
        except PreflightError as error:
            raise PreflightError(f"{where}: [checks]: {error}") from None
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
            elif not isinstance(value, str):
                raise PreflightError(f"{place} {key} wants a text: {own[key]}")
            else:
                options.setdefault(check_id, {})[key] = value
    return budgets, options, enabled


def _expect(flags: Flags, table: Mapping[str, Any], where: str) -> Expect:
    _known(table, KEYS, f"{where}: [expect]")
    values = {
        key: Setting(value_of(key, raw, f"{where}: [expect] {key}"), where)
        for key, raw in table.items()
    }
    place = flags.source("expect")
    for text in flags.expect:
        key, sign, raw = text.partition("=")
        if not sign:
            raise PreflightError(f"{place} wants key=value, got {text!r:.60}")
        _known([key], KEYS, place)
        source = f"{place} {key}={raw}"[:80] if place == "--expect" else place
        values[key] = Setting(value_of(key, raw, f"{place} {key}"), source)
    return Expect(values)


def _waivers(
    flags: Flags, table: Mapping[str, Any], where: str, catalogue: Catalogue
) -> list[tuple[Waiver, str]]:
    """Each waiver with its source, those of flags first: ids, not patterns, so that old names of
    checks count."""
    found = []
    source = flags.source("tolerate")
    for pattern in _patterns(flags.tolerate, source, catalogue):
        found += [(Waiver(i, source), source) for i in _matching(catalogue, pattern, source)]
    for pattern, entry in table.items():
        place = f'{where}: [tolerate."{pattern:.40}"]'
        ids = _matching(catalogue, pattern, f"{where}: [tolerate]")
        if not isinstance(entry, dict):
            raise PreflightError(f"{place} wants a table with why and until")
        _known(entry, WAIVER_KEYS, place)
        why, until = entry.get("why", ""), entry.get("until", "")
        if not isinstance(why, str) or not why.strip():
            raise PreflightError(f"{place} wants a reason: why = …")
        if until and not isinstance(until, datetime.date):
            raise PreflightError(f"{place} until wants a date such as 2026-12-31")
        found += [(Waiver(i, why[:120], str(until)[:10]), where) for i in ids]
    return found


def outputs(
    flags: Flags, config: object, where: str, found_here: bool = False
) -> tuple[Output, ...]:
    """Every `-o`; human on stdout unless something else goes there. A config file that came with a
    working directory, as with a repository of somebody else, says nothing of files outside."""
    found = []
    for text in flags.output:
        name, sign, path = text.partition("=")
        place = flags.source("output")
        if sign and not path:
            raise PreflightError(f"{place} {text:.40} names no file")
        found.append(Output(known_format(name, place), path or "-"))
    if not flags.output:
        if not isinstance(config, list) or not all(isinstance(e, dict) for e in config):
            raise PreflightError(f"{where}: output wants to be written as [[output]]")
        for entry in config:
            place = f"{where}: [[output]]"
            _known(entry, OUTPUT_KEYS, place)
            name, path = known_format(entry.get("format", ""), place), entry.get("file", "-")
            if not isinstance(path, str) or not path:
                raise PreflightError(f"{place} file wants the name of a file")
            if found_here and (path[0] in "/~" or ".." in path.split("/")):
                raise PreflightError(
                    f"{place} file {path!r:.60}: outside of the working directory; only a file "
                    "that --config names may say that"
                )
            found.append(Output(name, path, below=found_here))
    if sum(output.file == "-" for output in found) > 1:
        raise PreflightError("only one -o can go to stdout; give the others a file: -o json=FILE")
    if not any(output.file == "-" for output in found):
        found.insert(0, Output("human"))
    return tuple(found)


def _documentation(config: Mapping[str, Any], where: str, found_here: bool) -> str:
    """Where the pages of `make docs` are: findings link to theirs. A file that came with a working
    directory does not say where to read."""
    docs = config.get("docs", "")
    if docs and found_here:
        raise PreflightError(f"{where}: docs: only a file that --config names may say it")
    if docs and not (isinstance(docs, str) and docs.startswith(("http://", "https://"))):
        raise PreflightError(f"{where}: docs wants an address, e.g. https://docs.example/preflight")
    return str(docs)


def known_format(name: object, place: str) -> str:
    """`name` when there is such a format; PreflightError with the nearest when not."""
    if name not in FORMATS:
        known = f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
        raise PreflightError(
            f"{place}: no format {name!r:.40}, there are {known}{nearest(str(name), FORMATS)}"
        )
    if name == "html" and importlib.util.find_spec("jinja2") is None:
        raise PreflightError(LACKING)
    return str(name)
