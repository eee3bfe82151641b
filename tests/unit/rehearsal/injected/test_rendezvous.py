"""What a call of init_process_group says of where and as whom it joins."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected.preflight_rendezvous import (
    HELD,
    Address,
    follow_environment,
    read_call,
    replaced_address,
    started_with,
)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: object = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
) -> None:
    """With the arguments of torch's."""


def read(*args: object, **kwargs: object) -> dict[str, Any]:
    found: dict[str, Any] = read_call(init_process_group, args, kwargs)
    return found


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")


def test_settings_that_the_script_has_set_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("NCCL_", "TORCH_", "GLOO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_ALGO", "Tree" * 200)
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert read("nccl")["settings"] == {"NCCL_ALGO": ("Tree" * 200)[:300]}
    # torch has read its own when it was imported
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    level = SimpleNamespace(name="OFF")
    monkeypatch.setitem(globals(), "get_debug_level", lambda: level)
    assert read("nccl")["settings"]["TORCH_DISTRIBUTED_DEBUG"] == "OFF"
    for number in range(200):
        monkeypatch.setenv(f"NCCL_{number}", "x")
    assert len(read("nccl")["settings"]) <= 65


TCP = "tcp://10.0.0.1:23456"


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        (("gloo",), {}, ("env", "n1", 29500, "", 1, 4)),
        (("gloo", "env://"), {"rank": 2}, ("env", "n1", 29500, "", 2, 4)),
        (("gloo", TCP, None, 2, 0), {}, ("tcp", "10.0.0.1", 23456, "", 0, 2)),
        (("gloo", f"{TCP}?rank=1&world_size=3"), {}, ("tcp", "10.0.0.1", 23456, "", 1, 3)),
        # RANK is not asked for by tcp://
        ((), {"init_method": TCP}, ("tcp", "10.0.0.1", 23456, "", None, 0)),
        ((), {"init_method": "tcp://[::1]:1", "rank": 0}, ("tcp", "::1", 1, "", 0, 0)),
        ((), {"init_method": "file:///gone/x", "rank": 0}, ("file", "", 0, "/gone/x", 0, 0)),
    ],
)
def test_where_and_as_whom(args: Any, kwargs: Any, told: tuple[object, ...]) -> None:
    found = read(*args, **kwargs)
    names = ("how", "host", "port", "path", "rank", "world")
    assert tuple(found[name] for name in names) == told


def test_a_store_says_where_it_is() -> None:
    tcp = SimpleNamespace(underlying_store=SimpleNamespace(host="n7", port=1234))
    found = read(store=tcp, rank=0, world_size=2)
    assert (found["how"], found["host"], found["port"]) == ("store", "n7", 1234)
    found = read(store=SimpleNamespace(path="/shared/x"), rank=0, world_size=2)
    assert (found["how"], found["path"], found["world"]) == ("store", "/shared/x", 2)


def test_what_a_file_was_before(tmp_path: Path) -> None:
    path = tmp_path / "meet"
    assert read(init_method=f"file://{path}")["file"] is None
    path.write_bytes(b"x" * 70)
    os.utime(path, (time.time() - 500,) * 2)
    size, age = read(init_method=f"file://{path}")["file"]
    assert size == 70
    assert 500 <= age < 600


@pytest.mark.parametrize("bad", ["tcp://h:port", "tcp://[", "tcp://h:99999"])
def test_what_can_not_be_read_is_an_error_of_ours(bad: str) -> None:
    """Which the caller swallows: what torch says of it is for the user."""
    with pytest.raises(ValueError):  # noqa: PT011
        print(read(init_method=bad, rank=0)["port"])


GIVEN = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500", HELD: "True"}
OWN = {**GIVEN, "MASTER_PORT": "29501"}


def test_an_address_of_the_scripts_own() -> None:
    Address.set.clear()
    told = {"host": "n1", "port": 29500, "frame": None}
    assert replaced_address(OWN, GIVEN) == told
    module = SimpleNamespace(fsdecode=os.fsdecode, putenv=lambda name, value: None)
    follow_environment(module, lambda: ["train.py", 3, "f", True])
    module.putenv(b"HOME", b"/")
    assert not Address.set
    module.putenv(b"MASTER_PORT", b"29501")
    assert replaced_address(OWN, GIVEN) == {**told, "frame": ["train.py", 3, "f", True]}
    Address.set.clear()


@pytest.mark.parametrize(
    ("now", "before"),
    [
        (GIVEN, GIVEN),
        (OWN, {**GIVEN, HELD: "False"}),  # rank 0 listens itself
        ({**OWN, HELD: "False"}, GIVEN),  # and where the script says so
        (OWN, {}),
        (OWN, {HELD: "True"}),
    ],
)
def test_an_address_that_is_the_launchers(now: dict[str, str], before: dict[str, str]) -> None:
    assert replaced_address(now, before) is None


def test_what_it_was_started_with() -> None:
    assert "PATH" in started_with()
