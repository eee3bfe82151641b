"""Observations that are alike, written once: how a report of many nodes stays small. Pure.

What many nodes or ranks have said in the same shape is one group: for whom it stands, the
observation as the first of them made it, and for each number or text in it that is not the same
everywhere a column with one value each:

    {"ranks": "0-99999", "as": {"ok": {"store": 0.13, …}, "seconds": 0.9, "marks": []},
     "but": {"/ok/store": [0.13, 0.12, …]}}

`nodes` are places in `world.nodes`, `ranks` are ranks, both as `0-3,7`; the values of a column
follow their order. A column that is one text in place of a list is that text for all, with the name
of each one's node for `{node}`; one that begins anew after so many is `{"again": […]}`, and what
stands in another column, or in turn in several, is `{"same": […]}` with their JSON pointers in the
report. A place within the observation is written as a JSON pointer (RFC 6901); of an object whose
keys are numbers `#2` is the name of its third member and `=2` its value.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from preflight.humanize import rank_list
from preflight.model import Node, key_of, place_of
from preflight.packed import Flat, Packed, changed, flat, is_numbered, paths, plain
from preflight.serde import DEPTH

FROM = 128
"""Observations of a check, from which on they are written in groups."""
LEAST = 4
"""Observations that make a group."""
SHARE = 0.02
"""Of those of a shape, from which on equal ones are a group of their own, without columns."""
KEYS_MOST = 1 << 22
"""Keys that the groups of a document may stand for: 31 checks of 100,000 ranks are 1.4 million."""

NODE = "{node}"
AGAIN = 64
"""Values after which a column may begin anew: what is of a rank's place on its node does."""

SAME_FROM = 8
"""Letters of a text that may be told by another column: the UUID of a GPU, of which three checks
speak, or an address."""

Group = dict[str, Any]


class Places:
    """The keys of a world by number: a node's place, a rank. A rank that two nodes claim has no
    number, nor has whoever is not in the world."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: place for place, node in enumerate(nodes)}
        self._ranks: dict[int, str] = {}
        twice = set()
        for node in nodes:
            for rank in node.ranks:
                if rank in self._ranks:
                    twice.add(rank)
                self._ranks[rank] = key_of(node.name, rank)
        for rank in twice:
            del self._ranks[rank]
        self._names = [node.name for node in nodes]
        self._end = len(nodes)

    @property
    def nodes(self) -> int:
        return self._end

    def number(self, key: str) -> tuple[str, int] | None:
        """`nodes` or `ranks`, and the number there; None where a key has none."""
        node, rank = place_of(key)
        if rank is not None:
            return ("ranks", rank) if self._ranks.get(rank) == key else None
        place = self._nodes.get(node)
        return None if place is None else ("nodes", place)

    def order(self, key: str) -> tuple[int, int]:
        """Nodes as they are in the world, the ranks of each in their order, then the others."""
        node, rank = place_of(key)
        return self._nodes.get(node, self._end), -1 if rank is None else rank

    def written(self, kind: str, numbers: Iterable[int]) -> dict[str, str]:
        return {kind: rank_list(numbers, None).partition(" ")[2]}

    def read(self, group: Mapping[str, Any]) -> list[str]:
        """The keys that a group is about; ValueError where one is not of this world."""
        kinds = [kind for kind in ("nodes", "ranks") if kind in group]
        if len(kinds) != 1 or not isinstance(group[kinds[0]], str):
            raise ValueError("alike: neither nodes nor ranks")
        most = self._end if kinds[0] == "nodes" else len(self._ranks)
        numbers = list(_numbers(group[kinds[0]], most))
        try:
            if kinds[0] == "nodes":
                return [self._names[number] for number in numbers]
            return [self._ranks[number] for number in numbers]
        except LookupError:
            raise ValueError(f"alike: {kinds[0]} that are not in the world") from None


def _numbers(text: str, most: int) -> Iterator[int]:
    """The numbers of `0-3,7`, which rise, and are no more than `most`."""
    last, count = -1, 0
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        low, high = int(first), int(end if dash else first)
        if low <= last or high < low or (count := count + high - low + 1) > most:
            raise ValueError("alike: numbers that are not in order, or too many of them")
        yield from range(low, high + 1)
        last = high


# --- numbers by key, as a check has measured them ---


def numbers_folded(data: Any, places: Places) -> Any:
    """The same data, where what has an entry for each of many nodes or ranks is a list of groups
    `{"alike": [{"ranks": "0-99999", "values": […]}, …]}`; where all are one, `"value"`."""
    if not isinstance(data, dict):
        return data
    numbers = [places.number(key) for key in data] if len(data) >= FROM else [None]
    if None in numbers:
        return {key: numbers_folded(one, places) for key, one in data.items()}
    groups = []
    for kind in dict.fromkeys(place[0] for place in numbers if place):
        own = sorted(
            (place[1], value)
            for place, value in zip(numbers, data.values(), strict=True)
            if place and place[0] == kind and not isinstance(value, (dict, list))
        )
        values = [value for _, value in own]
        same = len({(type(v), v) for v in values}) == 1
        told = {"value": values[0]} if same else {"values": values}
        groups.append(places.written(kind, [number for number, _ in own]) | told)
    if sum(len(places.read(group)) for group in groups) < len(data):
        return data  # something else than numbers
    return {"alike": groups}


def numbers_unfolded(data: Any, places: Places) -> Any:
    """Inverse of numbers_folded(); ValueError for what makes no sense."""
    if not isinstance(data, dict):
        return data
    if data.keys() != {"alike"} or not isinstance(data["alike"], list):
        return {key: numbers_unfolded(one, places) for key, one in data.items()}
    found: dict[str, Any] = {}
    for group in data["alike"]:
        keys = places.read(group)
        values = group["values"] if "values" in group else [group["value"]] * len(keys)
        found |= zip(keys, values, strict=True)
    return {key: found[key] for key in sorted(found, key=places.order)}


# --- writing ---


class Columns:
    """The columns of a report that stand there value by value, by where they do."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, list[Any]]]] = {}
        """By their first value."""

    def note(self, pointer: str, values: list[Any]) -> None:
        if len(values) >= FROM and type(values[0]) is str and len(values[0]) >= SAME_FROM:
            self._known.setdefault(values[0], []).append((pointer, values))

    def same(self, values: list[Any]) -> list[str]:
        """Where these stand already: in one column, or in turn in several, as what is of a rank
        does that is told of each node's GPUs. Empty where they do not."""
        for _, first in self._known.get(values[0], ()) if type(values[0]) is str else ():
            turns, rest = divmod(len(values), len(first))
            if rest or not 0 < turns <= AGAIN:
                continue
            found = [self._pointer(values[turn::turns]) for turn in range(turns)]
            if all(found):
                return found
        return []

    def _pointer(self, values: list[Any]) -> str:
        known = self._known.get(values[0], ()) if type(values[0]) is str else ()
        return next((pointer for pointer, one in known if one == values), "")


def folded(
    by_key: Mapping[str, dict[str, Any]],
    places: Places,
    columns: Columns | None = None,
    check: str = "",
) -> tuple[dict[str, dict[str, Any]], list[Group]]:
    """Those that are written by themselves, and the groups. `by_key`: observations as JSON data, of
    which equal ones may be the same object; `columns`: those of all checks."""
    columns = columns or Columns()
    alone: dict[str, dict[str, Any]] = {}
    shapes: dict[tuple[Any, ...], list[_Member]] = {}
    parts: dict[int, Flat] = {}
    whole: dict[int, Flat] = {}
    same: dict[Any, Any] = {}
    for key, data in by_key.items():
        place = places.number(key)
        if place is None:
            alone[key] = data
            continue
        if id(data) not in whole:
            whole[id(data)] = _flat_of_all(data, parts, same)
        shape, leaves = whole[id(data)]
        shapes.setdefault((place[0], shape), []).append((place[1], key, data, leaves))
    groups: list[Group] = []
    for (kind, _), members in shapes.items():
        for part in _parts(members):
            if len(part) < LEAST:
                alone |= {key: data for _, key, data, _ in part}
            else:
                members = sorted(part, key=lambda m: m[0])
                groups.append(_group(kind, members, places, columns, (check, len(groups))))
    return {key: _plain(alone[key]) for key in by_key if key in alone}, groups


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "ok": plain(data["ok"])} if type(data.get("ok")) is Packed else data


_Member = tuple[int, str, dict[str, Any], tuple[Any, ...]]
"""Number, key, observation, and its leaves."""


def _flat_of_all(data: dict[str, Any], known: dict[int, Flat], same: dict[Any, Any]) -> Flat:
    """An observation, of which the value may be that of many: it is looked through once. Of equal
    shapes and leaves one is kept."""
    shape: tuple[Any, ...] = ()
    leaves: tuple[Any, ...] = ()
    for name, inner in data.items():
        told = known.get(id(inner)) if name == "ok" else None
        if told is None:
            shape_of, own = inner.flat() if type(inner) is Packed else flat(inner)
            told = same.setdefault(shape_of, shape_of), own
            if name == "ok":
                known[id(inner)] = told
        shape += (name, told[0])
        leaves += told[1]
    return same.setdefault(shape, shape), leaves


def _parts(members: list[_Member]) -> Iterator[list[_Member]]:
    """Members of one shape: those of which many are equal, each for itself, and the rest."""
    equal: dict[Any, list[_Member]] = {}
    same: dict[Any, Any] = {}
    for member in members:
        # 1, 1.0 and True are three things in JSON
        types = tuple(map(type, member[3]))
        equal.setdefault((member[3], same.setdefault(types, types)), []).append(member)
    least = max(LEAST, int(SHARE * len(members)))
    rest = [member for part in equal.values() if len(part) < least for member in part]
    yield from (part for part in equal.values() if len(part) >= least)
    if rest:
        yield rest


def _group(
    kind: str, members: list[_Member], places: Places, known: Columns, at: tuple[str, int]
) -> Group:
    group: Group = places.written(kind, [number for number, *_ in members])
    group["as"] = _plain(members[0][2])
    columns = {}
    several = zip(*{id(m[3]): m[3] for m in members}.values(), strict=True)
    differ = [len({(type(v), v) for v in values}) > 1 for values in several]
    for number, path in enumerate(paths(group["as"])):
        if differ[number]:
            values = [leaves[number] for *_, leaves in members]
            pointer = _pointer(path)
            told = _column(values, [place_of(key)[0] for _, key, *_ in members])
            if told is values:
                same = known.same(values)
                known.note(_pointer(("alike", *at, "but", pointer)), values)
                told = {"same": same} if same else values
            columns[pointer] = told
    return group | ({"but": columns} if columns else {})


def _column(values: list[Any], nodes: Sequence[str]) -> Any:
    """The values of a column, or what they can all be made from."""
    first = values[0]
    if type(first) is str and nodes[0] in first and NODE not in first:
        text = first.replace(nodes[0], NODE)
        if all(v == text.replace(NODE, node) for v, node in zip(values, nodes, strict=True)):
            return text
    for period in range(2, AGAIN + 1) if len(set(map(type, values))) == 1 else ():
        if 2 * period <= len(values) and values[period:] == values[:-period]:
            return {"again": values[:period]}
    return values


def _pointer(path: Sequence[Any]) -> str:
    return "".join(f"/{str(p).replace('~', '~0').replace('/', '~1')}" for p in path)


# --- reading ---


def unfolded(
    group: Mapping[str, Any], keys: Sequence[str], groups: Mapping[str, Sequence[Group]] = {}
) -> Iterator[tuple[str, Any]]:
    """(key, observation as JSON data) of a group; equal ones are one object, and so is every part
    of them that no column changes. `groups`: all of them, since a column may be that of another.
    ValueError for what makes no sense."""
    data, columns = group.get("as"), group.get("but", {})
    if not isinstance(data, dict) or not isinstance(columns, dict):
        raise ValueError("alike: a group without an observation")
    if not columns:
        yield from ((key, data) for key in keys)
        return
    changes: dict[Any, Any] = {}
    nodes = [place_of(key)[0] for key in keys]
    for pointer, column in columns.items():
        _put(changes, data, pointer, _values(column, nodes, pointer, groups))
    for number, key in enumerate(keys):
        yield key, changed(data, changes, operator.itemgetter(number))


def _values(
    column: Any, nodes: Sequence[str], pointer: str, groups: Mapping[str, Sequence[Group]]
) -> list[Any]:
    """Inverse of _column()."""
    if isinstance(column, str):
        return [column.replace(NODE, node) for node in nodes]
    if isinstance(column, dict) and isinstance(column.get("same"), list):
        others = [_referred(one, groups) for one in column["same"][:AGAIN]]
        turns = zip(*others, strict=True)  # a ValueError where one is longer
        column = [value for turn in turns for value in turn]
    elif isinstance(column, dict):
        column = column.get("again")
        if isinstance(column, list) and column:
            return [*itertools.islice(itertools.cycle(column), len(nodes))]
    if not isinstance(column, list) or len(column) != len(nodes):
        raise ValueError(f"alike: {pointer!r:.60} has not one value for each")
    return column


def _referred(pointer: Any, groups: Mapping[str, Sequence[Group]]) -> list[Any]:
    """The column at a place of the report that is a list itself."""
    found: Any = None
    try:
        root, alike, check, number, but, name = map(_step, str(pointer).split("/"))
        if (root, alike, but) == ("", "alike", "but"):
            found = groups[check][_digits(number)]["but"][name]
    except (LookupError, TypeError, ValueError):
        pass
    if not isinstance(found, list):
        raise ValueError(f"alike: {pointer!r:.60} is no column")
    return found


def _put(changes: dict[Any, Any], data: Any, pointer: str, column: list[Any]) -> None:
    """Note a column under the place that it is for."""
    parts = pointer.split("/")[1:]
    if not parts or len(parts) > DEPTH:
        raise ValueError(f"alike: {pointer!r:.60} is no place in an observation")
    inner = changes
    for number, part in enumerate(parts):
        step: Any = _step(part)
        try:
            if is_numbered(data):
                data = list(data if step[:1] == "#" else data.values())[_digits(step[1:])]
            else:
                step = _digits(step) if isinstance(data, list) else step
                data = data[step]
        except (LookupError, TypeError, ValueError):
            raise ValueError(f"alike: {pointer!r:.60} is no place in an observation") from None
        if number == len(parts) - 1:
            inner[step] = column
        else:
            inner = inner.setdefault(step, {})
            if not isinstance(inner, dict):
                raise ValueError(f"alike: {pointer!r:.60} is within another column")


def _step(part: str) -> str:
    """A step of a JSON pointer."""
    return part.replace("~1", "/").replace("~0", "~")


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError("not a place in a list")
    return int(text)
