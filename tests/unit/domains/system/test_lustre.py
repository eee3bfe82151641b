"""The connections to Lustre servers, from files as the kernel has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.system.lustre import (
    FOLDERS,
    KEPT,
    NETWORK,
    LostTarget,
    file_system,
    lost_targets,
)
from preflight.host import Host, Mount

NOW = 1_800_000_000.0
CLIENT = "ffff9d6153c91000"


def target(
    root: Path,
    name: str,
    *changes: tuple[float, str],
    state: str = "",
    kind: str = "osc",
    top: str = FOLDERS[0],
    more: str = "",
    client: str = CLIENT,
) -> Path:
    """The files of one connection; `changes`: how many seconds ago, and to what."""
    folder = root / top[1:] / kind / f"{name}-{kind}-{client}"
    folder.mkdir(parents=True)
    history = "".join(f" - [ {NOW - ago:.0f}, {to} ]\n" for ago, to in changes)
    now = state or changes[-1][1]
    (folder / "state").write_text(f"current_state: {now}\nstate_history:\n{history}")
    server = {"osc": "ost", "mdc": "mds"}[kind]
    (folder / f"{server}_server_uuid").write_text(f"{name}_UUID\t{now}{more}\n")
    return folder


def lost(root: Path, *names: str) -> tuple[LostTarget, ...]:
    return tuple(lost_targets(Host(str(root)), names or ("scratch",), NOW))


def test_a_target_that_is_lost_for_two_minutes(tmp_path: Path) -> None:
    tries = [(100.0 - n, s) for n in range(0, 99, 50) for s in ("CONNECTING", "DISCONN")]
    target(tmp_path, "scratch-OST0003", (9e3, "FULL"), (120, "DISCONN"), *tries)
    target(tmp_path, "scratch-OST0004", (9e3, "CONNECTING"), (9e3, "FULL"))
    at = tmp_path / NETWORK[1:] / "osc" / f"scratch-OST0003-osc-{CLIENT}"
    at.mkdir(parents=True)
    (at / "ost_conn_uuid").write_text("10.1.1.5@o2ib\n")
    assert lost(tmp_path) == (LostTarget("scratch-OST0003", "DISCONN", "10.1.1.5@o2ib", 120.0),)
    assert lost(tmp_path, "home") == ()


def test_longer_than_the_changes_that_are_kept(tmp_path: Path) -> None:
    tries = [(n, s) for n in range(400, 0, -50) for s in ("CONNECTING", "DISCONN")]
    target(tmp_path, "scratch-MDT0000", *tries, kind="mdc", top=FOLDERS[1])
    (one,) = lost(tmp_path)
    assert one == LostTarget("scratch-MDT0000", "DISCONN", "", 400.0, at_least=True)


@pytest.mark.parametrize("state", ["FULL", "IDLE", "NEW", "CLOSED", "<UNKNOWN>", "SOMETHING_NEW"])
def test_what_is_no_loss(tmp_path: Path, state: str) -> None:
    target(tmp_path, "scratch-OST0000", (500, "DISCONN"), state=state)
    assert lost(tmp_path) == ()


def test_what_was_deactivated_is_not_waited_for(tmp_path: Path) -> None:
    target(tmp_path, "scratch-OST0000", (500, "DISCONN"), more="\tDEACTIVATED")
    assert lost(tmp_path) == ()


def test_a_servers_own_connections(tmp_path: Path) -> None:
    target(tmp_path, "scratch-OST0000", (500, "DISCONN"), client="MDT0000")
    assert lost(tmp_path) == ()


def test_files_that_cannot_be_understood(tmp_path: Path) -> None:
    for name, text in enumerate(("", "current_state: \n", "\0" * 99, "current_state: DISCONN")):
        folder = target(tmp_path, f"scratch-OST000{name}", (500, "DISCONN"))
        (folder / "state").write_text(text)
    (target(tmp_path, "scratch-OST0009", (5, "DISCONN")) / "state").unlink()
    assert lost(tmp_path) == (LostTarget("scratch-OST0003", "DISCONN", "", 0.0, at_least=True),)


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    target(tmp_path, "scratch-OST0000", (9e3, "FULL"), (-500, "DISCONN"))
    assert lost(tmp_path)[0].seconds == 0.0


def test_no_more_than_a_report_can_bear(tmp_path: Path) -> None:
    for n in range(KEPT + 9):
        target(tmp_path, f"scratch-OST{n:04x}", (500, "FULL"), (400, "DISCONN"))
    assert len(lost(tmp_path)) == KEPT


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("10.1.1.5@o2ib:/scratch", "scratch"),
        ("10.1.1.5@o2ib,10.2.1.5@tcp1:10.1.1.6@o2ib:/my-fs/home/ada", "my-fs"),
        ("fd00::5@tcp:/scratch", "scratch"),
        ("12@gni:/snx11001", "snx11001"),
        ("filer:/home", ""),
        ("tmpfs", ""),
        ("/dev/vda1", ""),
    ],
)
def test_the_file_system_of_a_mount(source: str, name: str) -> None:
    assert file_system(Mount("/x", "lustre", source, "rw")) == name
    assert file_system(None) == ""
