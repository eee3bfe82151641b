"""Which port a torchrun of one node will take, as torchrun itself takes it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from preflight.domains.rendezvous.torchrun_port import DEFAULT, TorchrunPort, run_of, torchrun_port
from preflight.host import Host
from preflight.identity.launcher_options import as_variables

C10D = "torchrun --rdzv-backend=c10d --rdzv-endpoint="


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name, of no version."""
    package = tmp_path / "site/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('nobody imports it')\n")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return package


def taken(line: str, **environ: str) -> TorchrunPort | None:
    found = environ | as_variables([*line.split(), "train.py"], environ)
    return torchrun_port(Host(environ=found), "n1")


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("2.11.0+cu130", True),
        ("2.4.1", True),
        ("2.12.0", False),
        ("2.13.0+cpu", False),
        ("x", None),
    ],
)
def test_the_default_is_that_of_an_older_torch(
    torch: Path, version: str, older: bool | None
) -> None:
    (torch / "version.py").write_text(f"__all__ = []\n__version__ = '{version}'\ncuda = None\n")
    wanted = None if older is False else TorchrunPort(DEFAULT, older)
    assert taken("torchrun --nproc-per-node=2") == wanted
    assert taken("torchrun --nnodes=1:1 --master-addr=n1", PET_MASTER_PORT="") == wanted


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --master-port=29500",
        "torchrun --nnodes=2",
        "torchrun --nnodes=1:2",
        "torchrun --standalone",
        f"{C10D}localhost:0",
        f"{C10D}n2:29500",
        f"{C10D}localhost:99999",
        f"{C10D}localhost:29500 --rdzv-conf=is_host=0",
        "torchrun --rdzv-backend=etcd --rdzv-endpoint=localhost:2379",
        "python train.py",
    ],
)
@pytest.mark.usefixtures("torch")
def test_it_is_the_jobs_own_or_none(line: str) -> None:
    assert taken(line) is None


def test_of_several_nodes_the_endpoint_may_be_on_another_one() -> None:
    found = taken(f"{C10D}n2:29511 --nnodes=2 --rdzv-id=7")
    assert found == TorchrunPort(29511, run="7", several=True)


def test_a_variable_is_a_port_as_well(torch: Path) -> None:
    (torch / "version.py").write_text("__version__ = '2.4.1'\n")
    assert taken("torchrun", PET_MASTER_PORT="29501") is None


@pytest.mark.parametrize("place", ["localhost:29511", "127.0.0.1:29511", "n1:29511", "[::1]:29511"])
def test_c10d_opens_its_store_at_an_endpoint_of_this_machine(place: str) -> None:
    assert taken(f"{C10D}{place}") == TorchrunPort(29511, run="none")
    assert taken(f"{C10D}{place} --rdzv-id=7") == TorchrunPort(29511, run="7")


def test_without_a_port_it_is_29400() -> None:
    assert taken(f"{C10D}localhost") == TorchrunPort(29400, run="none")
    assert taken("torchrun --rdzv-backend=c10d") == TorchrunPort(29400, run="none")


@pytest.mark.parametrize(
    ("argv", "environ", "run"),
    [
        (f"python {C10D}localhost:29500 --rdzv-id=7 t.py", "", "7"),
        (f"{C10D}localhost:29500 t.py", "", "none"),
        ("torchrun t.py", "PET_RDZV_BACKEND=c10d PET_RDZV_ID=8 SECRET=9", "8"),
        ("torchrun --standalone t.py", "", None),
        ("torchrun t.py", "", None),
        ("python -m http.server", "", None),
    ],
)
def test_the_run_of_a_process(tmp_path: Path, argv: str, environ: str, run: str | None) -> None:
    process = tmp_path / "proc/77"
    process.mkdir(parents=True)
    for name, text in (("cmdline", argv), ("environ", environ)):
        (process / name).write_text("".join(f"{word}\0" for word in text.split()))
    assert run_of(Host(str(tmp_path), {}), 77) == run


def test_one_that_is_gone_has_none(tmp_path: Path) -> None:
    assert run_of(Host(str(tmp_path), {}), 77) is None
    assert run_of(Host(environ={}), os.getpid()) is None
