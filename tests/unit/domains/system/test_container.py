"""What is taken for a container. In real ones: test_container.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.system import container
from preflight.host import Host

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize(
    ("sign", "root", "environ", "kind"),
    [
        ("", "overlay", {}, ""),  # a stateless node
        (".dockerenv", "overlay", {}, "container"),
        ("run/.containerenv", "btrfs", {}, "container"),
        (".dockerenv", "ext4", {}, ""),  # a machine that was installed from an image
        (".dockerenv", "", {}, "container"),  # a sandbox that shows no mounts
        ("", "overlay", POD, "kubernetes"),
        (".dockerenv", "ext4", POD, "kubernetes"),
        ("", "overlay", {"APPTAINER_CONTAINER": "/x.sif", "container": "apptainer"}, ""),
    ],
)
def test_the_kind(tmp_path: Path, sign: str, root: str, environ: dict[str, str], kind: str) -> None:
    if sign:
        (tmp_path / sign).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / sign).touch()
    if root:
        mounts = tmp_path / "proc/self/mountinfo"
        mounts.parent.mkdir(parents=True)
        mounts.write_text(f"21 1 0:20 / / rw - {root} {root} rw\n")
    assert container.kind(Host(str(tmp_path), environ)) == kind


def test_another_machines_user_is_not_asked_for(tmp_path: Path) -> None:
    assert container.nameless(Host(str(tmp_path), {})) is None


def test_a_network_of_its_own_is_a_containers(tmp_path: Path) -> None:
    host = Host(str(tmp_path), {})
    assert not container.network_kind(host), "nothing says so"
    for pid, network in (("self", "net:[4026532411]"), ("1", "net:[4026531840]")):
        (tmp_path / "proc" / pid / "ns").mkdir(parents=True)
        (tmp_path / "proc" / pid / "ns/net").symlink_to(network)
    assert container.network_kind(host)
    (tmp_path / "proc/1/ns/net").unlink()
    (tmp_path / "proc/1/ns/net").symlink_to("net:[4026532411]")
    assert not container.network_kind(host)
