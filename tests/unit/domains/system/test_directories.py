"""directories: the init file as torch reads its address, and the paths that the job writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from preflight.domains.system.directories import (
    InitFileUrl,
    Role,
    init_file_url,
    probe_paths,
)
from preflight.host import Host


@pytest.mark.parametrize(
    ("given", "environ", "url"),
    [
        ("", {}, None),
        ("/shared/init", {}, InitFileUrl("/shared/init", "init_file", "", "/shared/init")),
        ("file:///a/b", {}, InitFileUrl("file:///a/b", "init_file", "", "/a/b")),
        ("file://a/b", {}, InitFileUrl("file://a/b", "init_file", "a", "/b")),
        ("", {"DIST_URL": "file:///x"}, InitFileUrl("file:///x", "env DIST_URL", "", "/x")),
        ("", {"INIT_METHOD": "tcp://h:1"}, None),
        ("file://[", {}, InitFileUrl("file://[", "init_file", "", "")),
    ],
)
def test_the_address_of_an_init_file(
    given: str, environ: dict[str, str], url: InitFileUrl | None, tmp_path: Path
) -> None:
    assert init_file_url(Host(str(tmp_path), environ), given) == url


def test_tmpdir_that_does_not_exist_is_followed_to_tmp(tmp_path: Path) -> None:
    host = Host("/", {"TMPDIR": str(tmp_path / "gone"), "HOME": str(tmp_path)})
    tmpdir, *others = probe_paths(host, {}, 20.0)
    assert (tmpdir.role, tmpdir.tested, tmpdir.gone) == (Role.TMPDIR, "/tmp", 1)
    assert [place.role for place in others] == [Role.WORK, Role.HOME]
