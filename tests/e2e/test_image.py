"""The Dockerfile is built, both of its targets, and the images do what they are for."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab import container, image
from lab.container import Container
from lab.running import Ended
from support.command import REPOSITORY

from preflight import __version__

# minutes on a busy machine: most of it is packing files
pytestmark = [pytest.mark.root, pytest.mark.at_length, pytest.mark.timeout(600)]

STARTED = ("sh", "-c", "echo started")
ABSENT = ("ClusterShell",)
"""What the base of the target `full` lacks."""


@pytest.fixture(scope="module")
def builder() -> Iterator[image.Builder]:
    if why := image.missing() or container.missing():
        pytest.skip(why)
    # podman takes no runroot of more than 50 characters, which pytest's own folders may have
    with tempfile.TemporaryDirectory(prefix="images-", ignore_cleanup_errors=True) as folder:
        yield image.Builder(Path(folder))


@pytest.fixture(scope="module")
def base(builder: image.Builder) -> str:
    return builder.base("base")


@pytest.fixture(scope="module")
def images(builder: image.Builder, base: str) -> dict[str, str]:
    """Target -> image, from the files that the project ships."""
    context = builder.folder / "context"
    junk = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info", "tests")
    context.mkdir()
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(REPOSITORY / name, context)
    for name in ("checks", "preflight"):
        shutil.copytree(REPOSITORY / name, context / name, symlinks=True, ignore=junk)
    lacking = builder.base("lacking", without=ABSENT)
    return {
        "light": builder.build(context, "light", PYTHON=base),
        "full": builder.build(context, "full", PYTHON=base, BASE=lacking),
    }


def run(
    builder: image.Builder, name: str, words: Sequence[str] = (), flags: Sequence[str] = ()
) -> Ended:
    """An image as it is started: with its own user, entry point and environment."""
    inside = Container(image=name, store=builder.folder, user="", shm="2g", flags=flags)
    return container.run(list(words), inside)


def python(program: str) -> tuple[str, str, str]:
    return ("python3", "-c", program)


@pytest.mark.parametrize("target", ["light", "full"])
def test_an_image_is_a_gate(builder: image.Builder, images: dict[str, str], target: str) -> None:
    program = "import os; print(os.getpid(), os.getuid(), os.environ['PYTHONSAFEPATH'])"
    flags = ("--env=PREFLIGHT_LEVEL=quick",)
    ended = run(builder, images[target], python(program), flags)
    assert ended.code == 0, ended
    assert " READY " in ended.out
    assert ended.out.splitlines()[-1] == "1 10001 1"
    ended = run(builder, images[target], ("sh", "-c", "exit 9"), flags)
    assert ended.code == 9, "the command's own code"
    ended = run(builder, images[target], (), flags)
    assert ended.code == 2, "what is to be started, the caller says"


def test_without_torch_the_light_one_looks_at_what_it_can(
    builder: image.Builder, images: dict[str, str]
) -> None:
    """Without a flag: a gate of the standard level would never open in it."""
    ended = run(builder, images["light"], STARTED)
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "started"), ended
    assert "level quick" in ended.out
    ended = run(builder, images["full"], STARTED)
    assert ended.code == 4, "there is no torch in this base"
    assert "sh was not started.   exit 4" in ended.err


def test_what_the_base_lacked_was_added_and_nothing_else_changed(
    builder: image.Builder, images: dict[str, str]
) -> None:
    program = (
        "import json; from importlib import metadata as m; "
        "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    )
    flags = ("--entrypoint=[]",)
    there = packages(run(builder, images["full"], python(program), flags))
    before = packages(run(builder, "localhost/lacking", python(program)))
    assert {name: there.pop(name) for name in ("cluster-preflight", *ABSENT)} == {
        "cluster-preflight": __version__,
        **{name: image.metadata.version(name) for name in ABSENT},
    }
    assert there == before


def packages(ended: Ended) -> dict[str, str]:
    assert ended.code == 0, ended
    found: dict[str, str] = json.loads(ended.out)
    return found


def test_a_job_behind_the_full_one_has_a_name_and_a_home(
    builder: image.Builder, images: dict[str, str]
) -> None:
    """Whatever number it runs under."""
    program = (
        "import getpass, pathlib as p; print(getpass.getuser()); (p.Path.home() / 'x').touch()"
    )
    for user in ("10001:10001", "1000720000:0"):
        inside = Container(
            image=images["full"],
            store=builder.folder,
            user=user,
            flags=("--passwd=false", "--entrypoint=[]"),
        )
        ended = container.run(python(program), inside)
        assert (ended.code, ended.out) == (0, "job\n"), ended


def test_the_project_alone_is_in_it(builder: image.Builder, images: dict[str, str]) -> None:
    """No tests, no sources, no folder of a build."""
    program = (
        "import pathlib; r = pathlib.Path('/'); "
        "print([str(p) for d in ('src', 'wheels') for p in r.glob(f'{d}/**/*')])"
    )
    for target in ("light", "full"):
        ended = run(builder, images[target], python(program), ("--entrypoint=[]",))
        assert ended.out.strip() == "[]", ended


def test_an_entry_point_that_is_no_shell(builder: image.Builder, images: dict[str, str]) -> None:
    told: Any = json.loads(builder.buildah("inspect", "--type=image", images["full"]))
    settings = told["OCIv1"]["config"]
    assert settings["Entrypoint"] == ["preflight", "gate", "--"]
    assert settings["User"] == "10001:10001"
    assert not settings.get("Cmd")
