"""The keys that a thread waits for are known while it waits, and its store works as without us."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_store_waits as store_waits
from preflight.rehearsal.injected.preflight_store_waits import KEYS, TEXT

ME = threading.get_ident()


class Store:
    """torch's, which tells what is known of its waits meanwhile."""

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """torch's own words."""
        return store_waits.told(ME)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        if args == ("fails",):
            raise RuntimeError("Socket Timeout")
        return store_waits.told(ME), self.get("inner"), store_waits.told(ME)


@pytest.fixture(autouse=True)
def followed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("get", "wait"):
        monkeypatch.setattr(Store, name, vars(Store)[name])
    monkeypatch.setattr(store_waits.Waits, "followed", set())
    for _ in range(2):
        store_waits.follow(SimpleNamespace(Store=Store), lambda *_: None)


def test_what_is_waited_for() -> None:
    assert Store().get("ready") == {"keys": ["ready"], "ends": None}
    assert Store().get(key="ready") == {"keys": ["ready"], "ends": None}
    outer, inner, again = Store().wait([f"k{n}" for n in range(9)], timedelta(seconds=9))
    assert outer["keys"] == [f"k{n}" for n in range(KEYS)]
    assert inner["keys"] == ["inner"]
    assert again == outer
    assert outer["ends"] > 0
    assert store_waits.told(ME) is None
    assert len(Store().get("x" * 999)["keys"][0]) == TEXT


def test_what_fails_fails_as_without_us() -> None:
    with pytest.raises(RuntimeError, match="Socket Timeout"):
        Store().wait("fails")
    assert store_waits.told(ME) is None
    assert Store.get.__doc__ == "torch's own words."
    assert Store.get.__code__.co_name == "get"


def test_another_thread_is_another() -> None:
    told: list[object] = []
    thread = threading.Thread(target=lambda: told.append(Store().get("ready")))
    thread.start()
    thread.join()
    assert told == [None]
