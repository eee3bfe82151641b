"""nccl_library: which libraries the linker may find, in its order."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.gpu.nccl_library import (
    PACKAGE,
    PRELOAD,
    SEARCH,
    SYSTEM,
    Library,
    LoadedNccl,
    absent_preloads,
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
