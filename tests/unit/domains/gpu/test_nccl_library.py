"""nccl_library: which libraries the linker may find, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.gpu import nccl_library
from preflight.domains.gpu.nccl_library import (
    PACKAGE,
    PRELOAD,
    SEARCH,
    SYSTEM,
    Library,
    LoadedNccl,
    absent_preloads,
    expected_version,
    libraries,
    loaded_nccl,
)
from preflight.host import Host


def test_libraries_come_in_the_linkers_order(tmp_path: Path) -> None:
    for folder in ("own", "site", "usr/lib64"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "libnccl.so.2").touch()
        (tmp_path / folder / "libother.so").touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc\0libnccl.so.2\0/cached/libnccl.so.2\0")
    environ = {"LD_PRELOAD": "/x/libnccl.so.2:/x/libc.so", "LD_LIBRARY_PATH": "/own/:relative:"}
    found = libraries(Host(str(tmp_path), environ), folders={"/site": PACKAGE})
    assert found == (
        Library("/x/libnccl.so.2", PRELOAD),
        Library("/own/libnccl.so.2", SEARCH),
        Library("/site/libnccl.so.2", PACKAGE),
        Library("/cached/libnccl.so.2", SYSTEM),
        Library("/usr/lib64/libnccl.so.2", SYSTEM),
    )


def test_the_version_of_a_library_that_is_not_loaded(tmp_path: Path) -> None:
    host = Host(str(tmp_path), {"LD_LIBRARY_PATH": "/own"})
    assert expected_version(host) == ""
    for folder, name in (("usr/lib64", "libnccl.so.2.18.3"), ("own", "libnccl.so.2")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).touch()
    assert expected_version(host) == "", "the first one has no version in its name"
    assert expected_version(Host(str(tmp_path))) == "2.18.3"
    (tmp_path / "own/libnccl.so.2").unlink()
    (tmp_path / "own/libnccl.so.2.26.2").touch()
    (tmp_path / "own/libnccl.so.2").symlink_to("libnccl.so.2.26.2")
    assert expected_version(host) == "2.26.2"


def test_the_version_of_pythons_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/libnccl.so.2").touch()
    packages = {"nvidia-nccl-cu12": ("2.21.5", "/site")}
    monkeypatch.setattr(nccl_library, "nccl_packages", lambda: packages)
    host = Host(str(tmp_path))
    assert expected_version(host) == "", "of a copied tree nobody knows its Python"
    host.live = True
    assert expected_version(host) == "2.21.5"
    packages["nvidia-nccl-cu13"] = ("2.27.3", "/site")
    assert expected_version(host) == "", "one has overwritten the other"


def test_a_process_without_nccl(tmp_path: Path) -> None:
    assert loaded_nccl(Host(str(tmp_path)), ()) == LoadedNccl()
    (tmp_path / "proc/self").mkdir(parents=True)
    maps = "7f00 r-xp 0 08:01 1 /nowhere/libnccl.so.2.21\n"
    (tmp_path / "proc/self/maps").write_text(maps)
    assert loaded_nccl(Host(str(tmp_path)), ()) == LoadedNccl(
        "/nowhere/libnccl.so.2.21", "", SYSTEM
    )


@pytest.mark.parametrize(
    ("value", "absent"),
    [
        ("", ()),
        ("/there.so", ()),
        ("/there.so /gone.so:/gone too", ("/gone.so", "/gone")),
        ("libjemalloc.so.2", ()),
        ("/usr/$LIB/libx.so", ()),
    ],
)
def test_preloads_that_are_gone(tmp_path: Path, value: str, absent: tuple[str, ...]) -> None:
    (tmp_path / "there.so").touch()
    assert absent_preloads(Host(str(tmp_path), {"LD_PRELOAD": value})) == absent
