"""frozen: what the standard library's frozen, slotted dataclasses do, ours do as well."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import pytest

from preflight import frozen

T = TypeVar("T")


@frozen.dataclass(frozen=True, slots=True)
class Ours(Generic[T]):
    """Fields of each kind."""

    name: str
    value: T
    size: int = 1
    more: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def twice(self) -> int:
        return 2 * self.size


@frozen.dataclass(frozen=True, slots=True)
class Empty:
    pass


@frozen.dataclass(frozen=True, slots=True)
class Below(Ours[int]):
    last: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs(Generic[T]):
    """Fields of each kind."""

    name: str
    value: T
    size: int = 1
    more: Mapping[str, int] = dataclasses.field(default_factory=dict)


def test_it_is_made_shown_and_compared_as_theirs() -> None:
    ours, theirs = Ours("a", (1,), size=3), Theirs("a", (1,), size=3)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)  # type: ignore[call-overload]
    assert ours == Ours("a", (1,), 3, {})
    assert ours != Ours("a", (1,), 4)
    assert ours.__eq__(theirs) is NotImplemented
    assert ours.twice == 6
    assert Empty() == Empty()
    assert {Empty(): 1}[Empty()] == 1
    assert repr(Empty()) == "Empty()"


def test_each_has_defaults_of_its_own() -> None:
    first, second = Ours("a", 1), Ours("a", 1)
    assert first.more == {}
    assert first.more is not second.more


def test_it_is_hashed_by_its_fields() -> None:
    @frozen.dataclass(frozen=True, slots=True)
    class Key:
        node: str
        rank: int = 0

    assert len({Key("a"), Key("a", 0), Key("b")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a", 1))


def test_it_is_frozen_and_slotted() -> None:
    ours: Any = Ours("a", 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        ours.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del ours.name
    with pytest.raises(AttributeError):
        ours.unknown = 1
    assert not hasattr(ours, "__dict__")
    assert Ours.__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_arguments_are_checked() -> None:
    make: Any = Ours
    for args, named in (((), {}), (("a",), {}), (("a", 1, 2, {}, 5), {}), (("a", 1), {"b": 2})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            make(*args, **named)


def test_it_is_copied_pickled_and_replaced() -> None:
    ours = Ours("a", 1, more={"b": 2})
    assert copy.deepcopy(ours) == ours
    assert copy.copy(ours) == ours
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert dataclasses.replace(ours, size=5) == Ours("a", 1, 5, {"b": 2})


def test_a_class_below_it_has_its_fields() -> None:
    for made in (Below("a", 1, last=4), Below("a", 1, 1, {}, 4)):
        assert (made.name, made.size, made.last) == ("a", 1, 4)
    assert Ours("a", 1) == Ours("a", 1)


def test_matching_by_place() -> None:
    match Ours("a", 7):
        case Ours(name, value):
            assert (name, value) == ("a", 7)


def test_a_class_that_is_no_frozen_one_is_the_librarys() -> None:
    @frozen.dataclass(slots=True)
    class Open:
        count: int = 0

    found = Open()
    found.count += 1
    assert found == Open(1)


def test_two_threads_may_make_the_first_instance() -> None:
    """The slower one finds the __init__ replaced between its call and its look for the class."""

    @frozen.dataclass(frozen=True, slots=True)
    class Address:
        ip: str

    first, second = Address("10.0.0.1"), object.__new__(Address)
    frozen._init(second, "10.0.0.1")
    assert second == first


def test_the_first_instances_are_refused_and_filled_as_the_later_ones() -> None:
    @frozen.dataclass(frozen=True, slots=True)
    class Pair:
        left: int
        right: list[int] = dataclasses.field(default_factory=list)

    for _ in range(2 * frozen.FIRST):
        assert (Pair(1).right, Pair(1, [2]).right, Pair(right=[3], left=1).right) == ([], [2], [3])
        assert Pair(1).right is not Pair(1).right
    for ill in ((), (1, [], 2)):
        for late in (False, True):

            @frozen.dataclass(frozen=True, slots=True)
            class Other:
                left: int
                right: int = 0

            if late:
                Other(1)
            with pytest.raises(TypeError, match="positional argument"):
                Other(*ill)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="multiple values"):
        Pair(1, left=2)  # type: ignore[misc]
    with pytest.raises(TypeError, match="unexpected keyword"):
        Pair(1, other=2)  # type: ignore[call-arg]
