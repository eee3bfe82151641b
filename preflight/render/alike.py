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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from preflight.humanize import rank_list
from preflight.model import Node, key_of, place_of
from preflight.packed import (
    Leaves,
    Packed,
    Shape,
    changed,
    differing,
    digest,
    flat,
    flat_of,
    is_numbered,
    packed,
    paths,
    plain,
    restored,
)
from preflight.serde import DEPTH

FROM = 128
"""Observations of a check, from which on they are written in groups."""
LEAST = 4
"""Observations that make a group."""
SHARE = 0.02
"""Of those of a shape, from which on equal ones are a group of their own, without columns."""
APART_MOST = 16
"""Nodes that claim the same ranks as others, up to which they are written by themselves."""
KEYS_MOST = 1 << 22
"""Keys that the groups of a document may stand for: 31 checks of 100,000 ranks are 1.4 million."""

NODE = "{node}"
AGAIN = 64
"""Values after which a column may begin anew: what is of a rank's place on its node does."""

SAME_FROM = 8
"""Letters of a text that may be told by another column: the UUID of a GPU, of which three checks
speak, or an address."""

T = TypeVar("T")
V = TypeVar("V")
KNOWN = 1024
"""Objects of which it is known for a while what they are: those that many have in common are."""

Group = dict[str, Any]


class Places:
    """The keys of a world by number: a node's place, a rank. A rank that two nodes claim has no
    number, nor has whoever is not in the world. Where few nodes claim the same ranks as others,
    they have none either: then columns by node and by rank still have the same values in turn."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: place for place, node in enumerate(nodes)}
        self._ranks: dict[int, str] = {}
        twice, rivals = set(), set()
        for node in nodes:
            for rank in node.ranks:
                if rank in self._ranks:
                    twice.add(rank)
                    rivals |= {place_of(self._ranks[rank])[0], node.name}
                self._ranks[rank] = key_of(node.name, rank)
        for rank in twice:
            del self._ranks[rank]
        self._apart = rivals if len(rivals) <= APART_MOST else set()
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
        return None if place is None or node in self._apart else ("nodes", place)

    def order(self, key: str) -> tuple[int, int]:
        """Nodes as they are in the world, the ranks of each in their order, then the others."""
        node, rank = place_of(key)
        return self._nodes.get(node, self._end), -1 if rank is None else rank

    def in_order(self, found: dict[str, V]) -> dict[str, V]:
        """The same by this order. Mostly all of them are nodes, or all are ranks."""
        for line in (self._nodes_in_order, self._ranks_in_order):
            made = {key: found[key] for key in line if key in found}
            if len(made) == len(found):
                return made
        return {key: found[key] for key in sorted(found, key=self.order)}

    @cached_property
    def _nodes_in_order(self) -> list[str]:
        return sorted(self._nodes, key=self.order)

    @cached_property
    def _ranks_in_order(self) -> list[str]:
        return sorted(self._ranks.values(), key=self.order)

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
    `{"alike": [{"ranks": "0-99999", "values": […]}, …]}`; where all are one, `"value"`. Who has no
    number, as two nodes that claim the same ranks, is there by name: `{"alone": {…}}`."""
    if not isinstance(data, dict):
        return data
    by_kind: dict[str, list[tuple[int, Any]]] = {}
    alone: dict[str, Any] = {}
    for key, value in data.items() if len(data) >= FROM else ():
        place = places.number(key)
        if place is None:
            alone[key] = value
        else:
            by_kind.setdefault(place[0], []).append((place[1], value))
    if sum(map(len, by_kind.values())) < FROM:
        return {key: numbers_folded(one, places) for key, one in data.items()}
    groups: list[dict[str, Any]] = []
    for kind, own in by_kind.items():
        own.sort(key=operator.itemgetter(0))
        values = [value for _, value in own]
        if any(isinstance(value, (dict, list)) for value in values):
            return data  # something else than numbers
        same = len({(type(v), v) for v in values}) == 1
        told = {"value": values[0]} if same else {"values": values}
        groups.append(places.written(kind, [number for number, _ in own]) | told)
    return {"alike": [*groups, *([{"alone": alone}] if alone else ())]}


def numbers_unfolded(data: Any, places: Places) -> Any:
    """Inverse of numbers_folded(); ValueError for what makes no sense."""
    if not isinstance(data, dict):
        return data
    if data.keys() != {"alike"} or not isinstance(data["alike"], list):
        return {key: numbers_unfolded(one, places) for key, one in data.items()}
    found: dict[str, Any] = {}
    for group in data["alike"]:
        if "alone" in group:
            found |= dict(group["alone"])
            continue
        keys = places.read(group)
        values = group["values"] if "values" in group else [group["value"]] * len(keys)
        found |= zip(keys, values, strict=True)
    return places.in_order(found)


# --- writing ---


class Columns:
    """The columns of a report that stand there value by value, by where they do. Of each its length
    and its digest are kept: the values themselves are a hundred thousand UUIDs."""

    def __init__(self) -> None:
        self._lengths: dict[str, list[int]] = {}
        """By their first value."""
        self._pointers: dict[bytes, str] = {}

    def note(self, pointer: str, values: list[Any]) -> None:
        if len(values) >= FROM and type(values[0]) is str and len(values[0]) >= SAME_FROM:
            self._lengths.setdefault(values[0], []).append(len(values))
            self._pointers.setdefault(digest(values), pointer)

    def same(self, values: list[Any]) -> list[str]:
        """Where these stand already: in one column, or in turn in several, as what is of a rank
        does that is told of each node's GPUs. Empty where they do not."""
        for length in self._lengths.get(values[0], ()) if type(values[0]) is str else ():
            turns, rest = divmod(len(values), length)
            if rest or not 0 < turns <= AGAIN:
                continue
            found = [self._pointers.get(digest(values[turn::turns]), "") for turn in range(turns)]
            if all(found):
                return found
        return []


def folded(
    by_key: Mapping[str, T],
    places: Places,
    columns: Columns | None = None,
    check: str = "",
    data_of: Callable[[T], dict[str, Any]] = lambda one: one,  # type: ignore[assignment, return-value]
) -> tuple[dict[str, dict[str, Any]], Iterator[Group]]:
    """Those that are written by themselves, and the groups, each made on request.
    `by_key`: observations, of which equal ones may be the same object; `data_of`: one as JSON data,
    whose value may be packed. It is made whenever it is looked at: a hundred thousand of them would
    take more than the report. `columns`: those of all checks."""
    columns = columns or Columns()
    alone: set[str] = set()
    shapes: dict[tuple[str, Shape], list[_Member[T]]] = {}
    looked = _Looked(data_of)
    for key, one in by_key.items():
        place = places.number(key)
        if place is None:
            alone.add(key)
            continue
        shape, told = looked.at(one)
        shapes.setdefault((place[0], shape), []).append((place[1], key, one, told))
    parts: list[tuple[str, list[_Member[T]]]] = []
    for (kind, _), members in shapes.items():
        for part in _parts(members):
            if len(part) < LEAST:
                alone.update(key for _, key, *_ in part)
            else:
                parts.append((kind, part))
    groups = (
        _group(kind, part, data_of, places, columns, (check, number))
        for number, (kind, part) in enumerate(parts)
    )
    return {key: _plain(data_of(one)) for key, one in by_key.items() if key in alone}, groups


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "ok": plain(data["ok"])} if type(data.get("ok")) is Packed else data


_Member = tuple[int, str, T, bytes]
"""Number, key, observation, and the digest of its leaves."""


class _Looked(Generic[T]):
    """Shape and digest of each observation. One that many have, or whose value they have, is looked
    through once. Of equal shapes one is kept."""

    def __init__(self, data_of: Callable[[T], dict[str, Any]]) -> None:
        self._data_of = data_of
        self._whole: dict[int, tuple[Shape, bytes]] = {}
        self._values: dict[int, tuple[Shape, bytes]] = {}
        self._same: dict[Any, Any] = {}

    def at(self, one: T) -> tuple[Shape, bytes]:
        told = self._whole.get(id(one))
        if told is None:
            _bound(self._whole)
            shape: Shape = ()
            said: list[Any] = []
            for name, inner in self._data_of(one).items():
                inner_shape, leaves = self._value(inner) if name == "ok" else flat(inner)
                shape += (name, inner_shape)
                said.append(leaves)
            told = self._whole[id(one)] = self._same.setdefault(shape, shape), digest(said)
        return told

    def _value(self, value: Any) -> tuple[Shape, bytes]:
        told = self._values.get(id(value))
        if told is None:
            _bound(self._values)
            shape, leaves = flat_of(value)
            told = self._values[id(value)] = self._same.setdefault(shape, shape), digest(leaves)
        return told


def _bound(known: dict[int, Any]) -> None:
    """Forget what is known of objects by their id(), where each node has one of its own."""
    if len(known) >= KNOWN:
        known.clear()


def _parts(members: list[_Member[T]]) -> Iterator[list[_Member[T]]]:
    """Members of one shape: those of which many are equal, each for itself, and the rest."""
    least = max(LEAST, int(SHARE * len(members)))
    counts = Counter(told for *_, told in members)
    equal: dict[bytes, list[_Member[T]]] = {t: [] for t, n in counts.items() if n >= least}
    rest: list[_Member[T]] = []
    for member in members:
        equal.get(member[3], rest).append(member)
    yield from equal.values()
    if rest:
        yield rest


def _group(
    kind: str,
    members: list[_Member[T]],
    data_of: Callable[[T], dict[str, Any]],
    places: Places,
    known: Columns,
    at: tuple[str, int],
) -> Group:
    members = sorted(members, key=lambda member: member[0])
    group: Group = places.written(kind, [number for number, *_ in members])
    group["as"] = _plain(data_of(members[0][2]))
    are_equal = all(told == members[0][3] for *_, told in members)
    lists = {} if are_equal else _lists([one for _, _, one, _ in members], data_of)
    nodes = [place_of(key)[0] for _, key, *_ in members] if lists else []
    columns = {}
    for number, path in enumerate(paths(group["as"]) if lists else ()):
        values = lists.pop(number, None)
        if values is not None:
            pointer = _pointer(path)
            told = _column(values, nodes)
            if told is values:
                same = known.same(values)
                known.note(_pointer(("alike", *at, "but", pointer)), values)
                told = {"same": same} if same else values
            columns[pointer] = told
    return group | ({"but": columns} if columns else {})


def _lists(observations: list[T], data_of: Callable[[T], dict[str, Any]]) -> dict[int, list[Any]]:
    """The leaves that are not the same for all observations of one shape, by their number: one
    value each. Of a packed value only what is its own is looked at."""
    lists: dict[int, list[Any]] = {}
    bases: list[tuple[int, Any, Leaves]] = []
    count = 0
    for inner in data_of(observations[0]).values():
        base = inner.layout.form.data if type(inner) is Packed else inner
        bases.append((count, base, flat(base)[1]))
        count += len(bases[-1][2])
    values_known: dict[int, list[tuple[int, Any]]] = {}
    for number, one in enumerate(observations):
        parts = data_of(one).items()
        for (name, inner), (first, base, leaves) in zip(parts, bases, strict=True):
            own = values_known.get(id(inner)) if name == "ok" else None
            if own is None:
                own = _own(inner, base, leaves)
                if name == "ok":
                    _bound(values_known)
                    values_known[id(inner)] = own
            for place, value in own:
                values = lists.get(first + place)
                if values is None:
                    values = lists[first + place] = [leaves[place]] * len(observations)
                values[number] = value
    return {number: values for number, values in lists.items() if _differ(values)}


def _own(inner: Any, base: Any, leaves: Leaves) -> list[tuple[int, Any]]:
    """The leaves of a part of an observation that are not those of `base`, by their number."""
    if inner is base or (type(inner) is type(base) is float and inner == base != 0.0):
        return []
    if type(inner) is Packed and inner.layout.form.data is base:
        return list(zip(inner.layout.places, inner.own, strict=True))
    said = flat_of(inner)[1]
    return [(number, said[number]) for number in differing(said, leaves)]


def _differ(values: list[Any]) -> bool:
    first = values[:1] * len(values)
    return next(differing(values, first), None) is not None


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
    """(key, observation as JSON data) of a group; its value is packed where nothing but leaves of
    it differs. Equal ones are one object, and so is every part of them that no column changes.
    `groups`: all of them, since a column may be that of another; columns may be stored. ValueError
    for what makes no sense."""
    data, columns = group.get("as"), group.get("but", {})
    if not isinstance(data, dict) or not isinstance(columns, dict):
        raise ValueError("alike: a group without an observation")
    if not columns:
        yield from ((key, data) for key in keys)
        return
    changes: dict[Any, Any] = {}
    nodes = [place_of(key)[0] for key in keys]
    lists = {p: _values(column, nodes, p, groups) for p, column in columns.items()}
    for pointer, values in lists.items():
        _put(changes, data, pointer, values)
    if packing := _packing(data.get("ok"), lists):
        del changes["ok"]
    for number, key in enumerate(keys):
        made = changed(data, changes, operator.itemgetter(number))
        yield key, {**made, "ok": next(packing)} if packing else made


def _packing(value: Any, lists: Mapping[str, list[Any]]) -> Iterator[Packed] | None:
    """The value of each observation, packed; None where there is nothing to pack."""
    own = {p: values for p, values in lists.items() if _step(p.split("/")[1]) == "ok"}
    if not own or not isinstance(value, (dict, list)):
        return None
    numbers = {_pointer(("ok", *path)): number for number, path in enumerate(paths(value))}
    if not own.keys() <= numbers.keys():
        return None
    try:
        return packed(value, {numbers[pointer]: values for pointer, values in own.items()})
    except ValueError:
        return None


def _values(
    column: Any, nodes: Sequence[str], pointer: str, groups: Mapping[str, Sequence[Group]]
) -> list[Any]:
    """Inverse of _column()."""
    column = restored(column)
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
            found = restored(groups[check][_digits(number)]["but"][name])
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
