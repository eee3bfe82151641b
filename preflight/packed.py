"""Values of thousands of nodes, of each only what is its own.

What they say has the same form and mostly the same words. So of each value only those leaves (texts
and numbers) are kept that are not as in the first one of its form, as bytes: of what a node with
eight GPUs says that is a twentieth of the room that Python's objects take. `plain()` is the value
again, as JSON data; what no leaf of its own is in is the same object for all.
"""

from __future__ import annotations

import itertools
import marshal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from math import copysign
from typing import Any

Shape = tuple[Any, ...]
Leaves = tuple[Any, ...]
Flat = tuple[Shape, Leaves]
"""The shape, which is the keys or the length of all that is not a leaf, and the leaves."""

MARSHALLED = 2
"""The version of marshal that writes equal data in the same way, whichever objects it is made of,
and tells 1, 1.0 and True apart. Nothing is read back but what has been written in this process."""
BRANCHES = frozenset((dict, list))
"""What is no leaf."""
KEYS_SHARED = 28
"""Keys that Python lets the dicts of a class share, at least."""
CLASSES = 1024
"""A class takes a kilobyte, and whoever says what is kept may have a new one for each line."""
SMALL = 257
"""Whole numbers of which Python itself keeps one (some of those below 0, too)."""
DIGESTED = 32
"""Bytes beyond which what is written out is told by its digest."""
SCALARS = frozenset((str, int, float, bool, type(None)))
ENTRY, NUMBER = 128, 32
"""Bytes of an entry of a dict with its key, and of a number."""
OBJECT = 48
"""Bytes of a Packed."""


# --- what a form is ---


def flat(data: Any) -> Flat:
    shape: list[Any] = []
    leaves: list[Any] = []
    _look_through([data], shape, leaves)
    return tuple(shape), tuple(leaves)


def flat_of(value: Any) -> Flat:
    """The same of a value that may be packed."""
    return value.flat() if type(value) is Packed else flat(value)


def _look_through(one: Any, shape: list[Any], leaves: list[Any]) -> None:
    # no function within flat(), which would be a cycle: for all of them nothing is collected
    inner: Collection[Any]
    if is_numbered(one):
        shape.append(-len(one))
        inner = [*itertools.chain.from_iterable(one.items())]
    elif type(one) is dict:
        shape.append(tuple(one))
        inner = one.values()
    else:
        shape.append(len(one))
        inner = one
    if BRANCHES.isdisjoint(map(type, inner)):  # so is most of what is looked through
        shape += itertools.repeat(None, len(inner))
        leaves += inner
        return
    for value in inner:
        if type(value) is dict or type(value) is list:
            _look_through(value, shape, leaves)
        else:
            shape.append(None)
            leaves.append(value)


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the leaves are, in the order of flat(). Of an object by numbers `#2` is the name of its
    third member, `=2` its value."""
    if is_numbered(data):
        for number, inner in enumerate(data.values()):
            yield (*path, f"#{number}")
            yield from paths(inner, (*path, f"={number}"))
    elif isinstance(data, (dict, list)):
        for step, inner in data.items() if isinstance(data, dict) else enumerate(data):
            yield from paths(inner, (*path, step))
    else:
        yield path


def is_numbered(data: Any) -> bool:
    """Whether it is an object by numbers, such as of a node's peers: other nodes have others."""
    if type(data) is not dict or not data or not next(iter(data)).isdecimal():
        return False
    return all(key.isdecimal() for key in data)


def changed(data: Any, changes: dict[Any, Any], value_of: Callable[[Any], Any]) -> Any:
    """A copy with other leaves: `changes` has by each step what value_of() takes, or the changes
    within. What has none is the same object."""
    if is_numbered(data):
        names, values = list(data), list(data.values())
        for step, inner in changes.items():
            of, at = (names if step[0] == "#" else values), int(step[1:])
            of[at] = changed(of[at], inner, value_of) if type(inner) is dict else value_of(inner)
        return dict(zip(map(str, names), values, strict=True))
    made = data.copy()
    for step, inner in changes.items():
        if type(inner) is dict:
            made[step] = changed(data[step], inner, value_of)
        else:
            made[step] = value_of(inner)
    return made


# --- equal parts ---


class Shared:
    """JSON data of many who mostly say the same: equal parts of it become one object. A thousand
    nodes differ in their addresses and in some numbers, and share the rest of what they say.
    `held`: bytes that the parts take, about and at most."""

    def __init__(self) -> None:
        self._known: dict[bytes | str | int | float, Any] = {}
        self._slim = SlimDicts()
        self.held = 0

    def of(self, data: Any) -> Any:
        """The same data; nobody may change it any more."""
        kind = type(data)
        if kind is str:
            made = self._known.get(data)
            return self._keep(data, data) if made is None else made
        if kind is float or (kind is int and not -SMALL <= data < SMALL):
            return self._number(data)
        if kind is not dict and kind is not list:
            return data
        key = _key(data)
        made = self._known.get(key)
        if made is None:
            if kind is dict:
                made = self._slim.of({self.of(k): self.of(v) for k, v in data.items()})
            else:
                made = [self.of(one) for one in data]
            self._keep(key, made)
        return made

    def known(self, data: Any) -> Any:
        """A dict or a list that has been said before, as one object; None where it has not."""
        return self._known.get(_key(data))

    def _number(self, data: float) -> float:
        """A number that somebody has said before. 1.0 equals 1, and 0.0 equals -0.0: of what is
        known under the same key only the same thing will do."""
        made = self._known.get(data) if data else data
        if made is None:
            self.held += ENTRY
            made = self._known[data] = data
        return made if type(made) is type(data) else data

    def _keep(self, key: bytes | str, made: Any) -> Any:
        self._known[key] = made
        self.held += sys.getsizeof(made) + ENTRY
        if type(made) is not str:
            self.held += NUMBER * len(made)
        return made


class SlimDicts:
    """Dicts that share their keys, as those of the instances of one class do (PEP 412): one of 18
    fields takes 250 bytes in place of 470."""

    def __init__(self) -> None:
        self._classes: dict[tuple[str, ...], type] = {}

    def of(self, data: dict[str, Any]) -> dict[str, Any]:
        """An equal dict, with its keys in the same order."""
        keys = tuple(data)
        made = self._classes.get(keys)
        if made is None:
            if not 0 < len(keys) <= KEYS_SHARED or len(self._classes) >= CLASSES:
                return data
            made = self._classes[keys] = type("Slim", (), {})
        one = made()
        for key in keys:
            object.__setattr__(one, key, data[key])
        slim: dict[str, Any] = one.__dict__
        return slim


@cache
def _blake2b() -> Callable[..., Any]:
    """Loaded for whoever packs: hashlib brings OpenSSL, which a run of one node has no use for."""
    from hashlib import blake2b

    return blake2b


def digest(data: Any) -> bytes:
    """16 bytes that are the same for equal data: 1, 1.0 and True are three things."""
    return _digest_of(marshal.dumps(data, MARSHALLED))


def _digest_of(text: bytes) -> bytes:
    made: bytes = _blake2b()(text, digest_size=16).digest()
    return made


def _key(data: Any) -> bytes:
    key = marshal.dumps(data, MARSHALLED)
    return key if len(key) <= DIGESTED else _digest_of(key)


# --- values without what they have in common ---


class Form:
    """The first value of a shape, which says what others have in common with it."""

    __slots__ = ("_layouts", "_paths", "data", "leaves", "shape")

    def __init__(self, data: Any, shape: Shape, leaves: Leaves) -> None:
        self.data = data
        self.shape = shape
        self.leaves = leaves
        self._paths: list[tuple[Any, ...]] = []
        self._layouts: dict[tuple[int, ...], Layout] = {}

    def layout(self, places: tuple[int, ...]) -> Layout:
        """What has leaves of its own at these places."""
        found = self._layouts.get(places)
        if found is None:
            self._paths = self._paths or list(paths(self.data))
            found = self._layouts[places] = Layout(self, places, self._paths)
        return found


class Layout:
    """Which leaves are not those of the form, by their number, and the way to each."""

    __slots__ = ("changes", "form", "places")

    def __init__(self, form: Form, places: tuple[int, ...], ways: Sequence[tuple[Any, ...]]):
        self.form = form
        self.places = places
        self.changes: dict[Any, Any] = {}
        for number, place in enumerate(places):
            *steps, last = ways[place]
            inner = self.changes
            for step in steps:
                inner = inner.setdefault(step, {})
            inner[last] = number


class Packed:
    """One value."""

    __slots__ = ("_own", "layout")

    def __init__(self, layout: Layout, own: bytes) -> None:
        self.layout = layout
        self._own = own

    @property
    def own(self) -> Leaves:
        """Its own leaves, in the order of the layout's places."""
        return marshal.loads(self._own)  # type: ignore[no-any-return]

    def plain(self) -> Any:
        """The value."""
        return changed(self.layout.form.data, self.layout.changes, self.own.__getitem__)

    def flat(self) -> Flat:
        form, leaves = self.layout.form, list(self.layout.form.leaves)
        for place, value in zip(self.layout.places, self.own, strict=True):
            leaves[place] = value
        return form.shape, tuple(leaves)

    def __eq__(self, other: object) -> bool:
        """Whether it stands for the same value."""
        return bool(self.plain() == plain(other))

    __hash__ = None  # type: ignore[assignment]  # as of what it stands for


class Stored:
    """JSON data that are not looked at for now, as bytes."""

    __slots__ = ("_own",)

    def __init__(self, data: Any) -> None:
        self._own = marshal.dumps(data)

    @property
    def data(self) -> Any:
        """Made each time somebody looks at them."""
        return marshal.loads(self._own)


def stored(data: Any) -> Any:
    """The same data, or a Stored of them."""
    return Stored(data) if type(data) in BRANCHES else data


def restored(data: Any) -> Any:
    """Data that may be stored, as they are."""
    return data.data if type(data) is Stored else data


def packed(data: Any, columns: Mapping[int, Sequence[Any]]) -> Iterator[Packed]:
    """Values which are as `data` but for these leaves, by their number in the order of flat(): as
    many as there are values of each. Equal ones are one object. ValueError where one would not have
    the shape of `data`."""
    form = Form(data, *flat(data))
    _keep_shape(data, form.leaves, columns)
    return _each_packed(form.layout(tuple(sorted(columns))), columns)


def _each_packed(layout: Layout, columns: Mapping[int, Sequence[Any]]) -> Iterator[Packed]:
    known: dict[bytes, Packed] = {}
    for values in zip(*(columns[place] for place in layout.places), strict=True):
        own = marshal.dumps(values, MARSHALLED)
        if own not in known:
            known[own] = Packed(layout, own)
        yield known[own]


def _keep_shape(data: Any, leaves: Leaves, columns: Mapping[int, Sequence[Any]]) -> None:
    """ValueError where a leaf is none, or where members of an object by numbers are to have names
    that are no numbers, or the same one."""
    for values in columns.values():
        if not SCALARS.issuperset(map(type, values)):
            raise ValueError("not a leaf")
    names: dict[tuple[Any, ...], list[int]] = {}
    for number, way in enumerate(paths(data)):
        if type(way[-1]) is str and way[-1].startswith("#"):
            names.setdefault(way[:-1], []).append(number)
    for numbers in names.values():
        count = max((len(columns[n]) for n in numbers if n in columns), default=0)
        told = [columns.get(number, [leaves[number]] * count) for number in numbers]
        for row in zip(*told, strict=True) if count else ():
            are_numbers = all(type(name) is str and name.isdecimal() for name in row)
            if not are_numbers or len(set(row)) < len(row):
                raise ValueError("not an object by numbers")


def plain(value: Any) -> Any:
    """A value that may be packed, as JSON data."""
    return value.plain() if type(value) is Packed else value


class Packing:
    """JSON data of many who mostly say the same. Equal values are one object. `held`: bytes that
    they take, about and at most."""

    def __init__(self) -> None:
        self._shared = Shared()
        self._forms: dict[Shape, Form] = {}
        self._known: dict[Layout, dict[bytes, Packed]] = {}
        self._held = 0

    @property
    def held(self) -> int:
        return self._held + self._shared.held

    def whole(self, data: Any) -> Any:
        """The same data, not packed; equal parts are one object. Nobody may change it any more."""
        return self._shared.of(data)

    def of(self, data: Any, *, new: bool = False) -> Any:
        """The same data, or a Packed of it. `new`: whoever asks knows by himself what has come
        before, and this has not, nor will it again."""
        if type(data) is not dict and type(data) is not list:
            return self._shared.of(data)
        known = None if new else self._shared.known(data)
        if known is not None:
            return known
        shape, leaves = flat(data)
        form = self._forms.get(shape)
        if form is None:
            made = self._shared.of(data)
            self._forms[shape] = Form(made, shape, flat(made)[1])
            self._held += 2 * ENTRY + NUMBER * len(shape)
            return made
        places = tuple(differing(leaves, form.leaves))
        own = marshal.dumps(tuple(leaves[place] for place in places), MARSHALLED)
        layout = form.layout(places)
        if layout not in self._known:
            self._known[layout] = {}
            self._held += ENTRY * (2 + len(places))
        by_own = self._known[layout]
        packed = by_own.get(own)
        if packed is None:
            packed = Packed(layout, own)
            self._held += sys.getsizeof(own) + OBJECT + ENTRY
            if not new:
                by_own[own] = packed
        return packed


def differing(leaves: Sequence[Any], others: Sequence[Any]) -> Iterator[int]:
    """Which are not the same to whoever reads them as JSON: 1, 1.0 and True are three things, and
    so are 0.0 and -0.0."""
    for number, (one, other) in enumerate(zip(leaves, others, strict=True)):
        if one is other:
            continue
        same = one == other and type(one) is type(other)
        if not same or (one == 0.0 and copysign(1.0, one) != copysign(1.0, other)):
            yield number
