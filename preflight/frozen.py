"""`@dataclass(frozen=True, slots=True)` at a third of its cost.

The standard library compiles six methods for each class when it is made, and 110 classes of ours
took a quarter of the CPU of a quick run. Here all classes share five of them, and the sixth, their
__init__, is compiled once there are some instances; most classes that a run imports never have
more than a few in that process. Everything else is the standard library's, and so is what the type
checker sees.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

CHEAP = {"frozen": True, "slots": True}
FIRST = 12
"""Instances that are made before a class is worth an __init__ of its own."""

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: Any = None, /, **how: bool) -> Any:
        """The decorator; what is to be anything else than frozen and slotted is the library's."""
        return _made if how == CHEAP else dataclasses.dataclass(cls, **how)


def _made(cls: Any) -> Any:
    if any(map(dataclasses.is_dataclass, cls.__bases__)):
        return dataclasses.dataclass(**CHEAP)(cls)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature is worked out for that
    methods = {name: method for name, method in METHODS.items() if name not in vars(cls)}
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in methods.items():
        setattr(made, name, method)
    made.__dataclass_params__.frozen = True
    return made


def _init(self: Any, *args: Any, **named: Any) -> None:
    """The __init__ of a class that has no instance yet."""
    cls = next((c for c in type(self).__mro__ if vars(c).get("__init__") is _init), None)
    if cls is None:  # another thread has made the first instance meanwhile
        type(self).__init__(self, *args, **named)
        return
    init = _unhurried(cls)
    setattr(cls, "__init__", init)  # noqa: B010  it is no attribute to the type checker
    init(self, *args, **named)


def _unhurried(cls: type) -> Any:
    """An __init__ that takes some microseconds, for the first instances: to compile one takes as
    long as dozens of them. What it does not understand is left to the compiled one as well, so that
    it is refused in the same words."""
    fields = [
        (one.name, getattr(cls, one.name).__set__, one.default, one.default_factory)
        for one in dataclasses.fields(cls)
    ]
    none = dataclasses.MISSING
    left = FIRST

    def init(self: Any, *args: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        given = dict(zip((name for name, *_ in fields), args, strict=False))
        both = given | named
        fits = len(args) <= len(fields) and len(both) == len(args) + len(named)
        values = [
            both.pop(name) if name in both else make() if make is not none else default
            for name, _, default, make in fields
        ]
        if left < 0 or not fits or both or any(value is none for value in values):
            compiled = _compiled(cls)
            setattr(cls, "__init__", compiled)  # noqa: B010
            compiled(self, *args, **named)
            return
        for (_, fill, *_), value in zip(fields, values, strict=True):
            fill(self, value)

    return init


def _compiled(cls: type) -> Any:
    """The __init__ that the standard library would have made, but that each slot is set by itself,
    which takes two thirds of what it takes to find it by its name: of a hundred thousand ranks a
    judge makes millions of instances."""
    parameters, lines = [], []
    known: dict[str, Any] = {"_none": dataclasses.MISSING}
    for number, one in enumerate(dataclasses.fields(cls)):
        known[f"_{number}"] = getattr(cls, one.name).__set__
        name = value = one.name
        if one.default is not dataclasses.MISSING:
            known[f"_{name}"] = one.default
            parameters.append(f"{name}=_{name}")
        elif one.default_factory is not dataclasses.MISSING:
            known[f"_{name}"] = one.default_factory
            parameters.append(f"{name}=_none")
            value = f"_{name}() if {name} is _none else {name}"
        else:
            parameters.append(name)
        lines.append(f" _{number}(self, {value})\n")
    exec(f"def __init__(self, {', '.join(parameters)}):\n{''.join(lines) or ' pass'}", known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


@cache
def _values(cls: type) -> Any:
    """What takes the values of all fields from an instance: a tuple where there are several."""
    names = [one.name for one in dataclasses.fields(cls)]
    return attrgetter(*names) if names else lambda instance: ()


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    values = _values(self.__class__)
    return self is other or values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(_values(self.__class__)(self))


def _repr(self: Any) -> str:
    fields = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self))
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _refuse(self: Any, name: str, *value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__getstate__": _state,
    "__setstate__": _restore,
}
