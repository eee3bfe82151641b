"""What is shipped: wheel and sdist hold what they should, an installed preflight is shadowed by
nothing, and the files around it (Dockerfile, Makefile, pins) have the shape that they need."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from preflight import __version__
from preflight.config import file

ROOT = Path(__file__).resolve().parent.parent
PROJECT: Mapping[str, Any] = file.read(ROOT / "pyproject.toml")
NAME = f"cluster_preflight-{__version__}"
JUNK = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests")


def run(
    *command: str | Path,
    cwd: Path,
    exits: int = 0,
    **variables: str | Path,
) -> str:
    """What a command prints, to both streams."""
    # MAKE…: these tests may themselves have been started by make, with variables of its own
    others = ("PYTHON", "PREFLIGHT_", "MAKE", "MFLAGS", "TORCH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | {name: str(value) for name, value in variables.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == exits, ended.stdout
    return ended.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to build in: a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("build") / "source"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=JUNK)
    return copy


def build_wheel(source: Path) -> Path:
    out = source.parent / f"{source.name}-wheel"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-index"]
    run(*pip, "--no-deps", "--no-build-isolation", "-w", out, source, cwd=source.parent)
    (wheel,) = out.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return build_wheel(source)


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The wheel alone in a folder; what it depends on comes from this environment."""
    folder = wheel.parent / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    run(*pip, "--no-deps", "--target", folder, wheel, cwd=wheel.parent)
    return folder


def files_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


# --- what is in it ---


def test_packages_are_folders() -> None:
    """A package that is not named in pyproject.toml is missing from the wheel, and only there."""
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "preflight").rglob("__init__.py")
        if "checks" not in path.parts
    }
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found | {"preflight.checks"}
    assert os.readlink(ROOT / "preflight/checks") == "../checks"


def test_the_wheel_holds_all_modules_and_no_tests(wheel: Path) -> None:
    listing = files_in(wheel)
    ours = {name for name in listing if not name.startswith(f"{NAME}.dist-info/")}
    wanted = {
        *(str(path.relative_to(ROOT)) for path in (ROOT / "preflight").rglob("*.py")),
        *(f"preflight/checks/{path.name}" for path in (ROOT / "checks").glob("*.py")),
        "preflight/py.typed",
        "preflight/report-v1.schema.json",
        *(str(path.relative_to(ROOT)) for path in (ROOT / "preflight/render/html").glob("*.[jc]*")),
        *(str(path.relative_to(ROOT)) for path in (ROOT / "preflight/demos").iterdir()),
    }
    assert ours == wanted
    assert f"{NAME}.dist-info/licenses/LICENSE" in listing
    assert len(listing) == len(set(listing))


def test_the_wheel_asks_for_no_torch(wheel: Path) -> None:
    """Inside a training image torch must not be replaced."""
    with zipfile.ZipFile(wheel) as archive:
        about = archive.read(f"{NAME}.dist-info/METADATA").decode()
    wanted = [Requirement(r) for r in re.findall(r"^Requires-Dist: (.+)$", about, re.MULTILINE)]
    base = {r.name for r in wanted if not r.marker or r.marker.evaluate({"extra": ""})}
    assert base - {"py-spy", "tomli"} == {"typer", "rich", "psutil", "nvidia-ml-py", "ClusterShell"}
    assert "\nName: cluster-preflight\n" in about
    assert "\nLicense-Expression: Apache-2.0\n" in about


def test_the_sdist_builds_the_same_wheel(source: Path, wheel: Path) -> None:
    out = source.parent / "sdist"
    build = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, out, cwd=source)
    with tarfile.open(out / f"{NAME}.tar.gz") as archive:
        archive.extractall(out, filter="data")
    assert sorted(files_in(build_wheel(out / NAME))) == sorted(files_in(wheel))


# --- it runs, and is shadowed by nothing ---


def foreign(folder: Path, *names: str) -> Path:
    """A project whose own modules have names that we use."""
    folder.mkdir()
    for name in names:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a foreign module was taken for ours')\n")
    return folder


THEIRS = ("checks/__init__.py", "checks/host_limits.py", "json.py", "typer.py", "torch.py")


def test_the_installed_command_runs_beside_foreign_modules(installed: Path, tmp_path: Path) -> None:
    project = foreign(tmp_path / "project", *THEIRS, "preflight/__init__.py")
    command = installed / "bin/preflight"
    said = run(command, "--version", cwd=project, PYTHONPATH=installed)
    assert said == f"preflight {__version__} from {installed}/preflight\n"
    listed = json.loads(run(command, "list", "--json", cwd=project, PYTHONPATH=installed))
    assert {c["id"].replace(".", "_") for c in listed} == {
        path.stem for path in (ROOT / "checks").glob("[a-z]*.py")
    }


def test_workers_are_not_shadowed_either(installed: Path, tmp_path: Path) -> None:
    project = foreign(tmp_path / "project", *THEIRS, "preflight/__init__.py")
    only = ["-q", "--only", "host.limits", "--only", "env.vars", "-o", "json"]
    said = run(installed / "bin/preflight", "run", *only, cwd=project, PYTHONPATH=installed)
    assert {row["id"]: row["status"] for row in json.loads(said)["checks"]} == {
        "env.vars": "pass",
        "host.limits": "pass",
    }


@pytest.mark.torch
def test_torch_is_the_environments_own(installed: Path, tmp_path: Path) -> None:
    """The process that imports it is started in the job's working directory, too."""
    project = foreign(tmp_path / "project", *THEIRS)
    only = ["-q", "--only", "host.software", "-o", "json"]
    said = run(installed / "bin/preflight", "run", *only, cwd=project, PYTHONPATH=installed)
    (row,) = (row for row in json.loads(said)["checks"] if row["id"] == "host.software")
    assert row["status"] in ("pass", "warn"), said


@pytest.mark.parametrize("flags", [["-P", "-m"], ["-m"]], ids=lambda f: f[0])
def test_python_m_preflight(installed: Path, tmp_path: Path, flags: Sequence[str]) -> None:
    """-P for a folder that has a preflight of its own; without it all but that name is safe."""
    names = (*THEIRS, "preflight/__init__.py") if "-P" in flags else THEIRS
    project = foreign(tmp_path / "project", *names)
    said = run(sys.executable, *flags, "preflight", "--version", cwd=project, PYTHONPATH=installed)
    assert said == f"preflight {__version__} from {installed}/preflight\n"


def test_version_prints_the_path_of_whoever_answers(tmp_path: Path) -> None:
    """PyPI's `preflight` has the same import name: the path tells which one runs."""
    said = run(sys.executable, "-P", "-m", "preflight", "--version", cwd=tmp_path)
    assert said == f"preflight {__version__} from {ROOT}/preflight\n"


# --- the files around it ---


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    here = [r for r in wanted if r.marker is None or r.marker.evaluate({"python_version": "3.10"})]
    return {r.name: next(iter(r.specifier)).version for r in here}


def test_the_pins_are_what_the_project_accepts() -> None:
    """And they are complete: what is requested by name has a version."""
    project = PROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(r) for r in [*project["dependencies"], *extras["torch"], *extras["test"]]]
    pinned = pins()
    assert {r.name for r in wanted} - set(pinned) == set()
    for requirement in wanted:
        assert requirement.specifier.contains(pinned[requirement.name]), str(requirement)
    assert pinned["torch"] == "2.13.0"


def test_what_is_installed_is_what_the_wheel_says() -> None:
    """The version is written once, in preflight/__init__.py."""
    assert metadata.version("cluster-preflight") == __version__
    assert f"## [{__version__}]" in changelog() or f" {__version__}:" in changelog()


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def stages() -> dict[str, list[tuple[str, str]]]:
    """Target -> its instructions."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found[rest.rpartition(" AS ")[2]] = []
        found[list(found)[-1]].append((word, " ".join(rest.split())))
    return found


@pytest.mark.parametrize("target", ["full", "light"])
def test_an_image_starts_the_gate_as_nobody_special(target: str) -> None:
    steps = stages()[target]
    entry = [rest for word, rest in steps if word == "ENTRYPOINT"]
    assert [json.loads(e) for e in entry] == [["preflight", "gate", "--"]], "exec form"
    assert not [rest for word, rest in steps if word == "CMD"]
    users = [rest for word, rest in steps if word == "USER"]
    # numeric: Kubernetes' runAsNonRoot can't judge a name
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1])
    assert ("ENV", "PYTHONSAFEPATH=1") in steps
    assert steps.index(("USER", users[-1])) > max(
        n for n, (word, _) in enumerate(steps) if word == "RUN"
    )


def test_the_wheel_of_an_image_is_built_once() -> None:
    builds = [t for t, steps in stages().items() for _, rest in steps if "pip wheel" in rest]
    assert builds == ["wheel"]
    (full,) = (rest for word, rest in stages()["full"] if word == "RUN")
    assert "pip install --no-deps /wheels/*.whl" in full
    assert ("FROM", "${BASE} AS full") in stages()["full"]


def test_an_image_looks_for_all_that_the_project_needs() -> None:
    """What its base lacks is added, and what it has is left alone: it is requested each of them."""
    (full,) = (rest for word, rest in stages()["full"] if word == "RUN")
    first, *others = re.findall(r'-c "import ([^"]+)"', full)
    assert others == ["tomllib", "tomli"]  # either, by the Python
    owners = metadata.packages_distributions()
    assert "command -v py-spy" in full  # it is no module
    wanted = {Requirement(text).name for text in PROJECT["project"]["dependencies"]}
    assert {owners[name][0] for name in first.split(", ")} == wanted - {"py-spy", "tomli"}


def test_what_the_image_copies_is_not_ignored() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        name
        for steps in stages().values()
        for word, rest in steps
        if word == "COPY"
        for name in rest.split()[:-1]
    }
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A project whose virtual environment make takes for finished."""
    folder = tmp_path / "project"
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    for name in ("python", "preflight"):
        script = folder / ".venv/bin" / name
        script.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        script.chmod(0o755)
    (folder / ".venv/.ready").write_text(f"torch=={pins()['torch']}\n")
    return folder


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_a_second_make_run_starts_no_pip(made: Path) -> None:
    assert run("make", "run", cwd=made) == "preflight run --nproc 4\n"  # no line of python's
    # a new pin, or another torch, and it is not finished any more
    assert "-m pip" in run("make", "run", "TORCH=torch==2.9.0 --index-url x", cwd=made)
    assert "-m pip" not in run("make", "run", "TORCH=torch==2.9.0 --index-url x", cwd=made)
    os.utime(made / "constraints.txt", (time.time() + 5, time.time() + 5))
    assert "-m pip" in run("make", "run", "TORCH=torch==2.9.0 --index-url x", cwd=made)


@pytest.mark.skipif(not shutil.which("make"), reason="needs make")
def test_make_says_what_it_lacks(made: Path) -> None:
    shutil.rmtree(made / ".venv")
    said = run("make", "run", "PYTHON=python2.7", cwd=made, exits=2)
    assert "no Python >= 3.10 with venv among: python2.7" in said


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert text.endswith("exec make test\n")
    run("bash", "-n", script, cwd=ROOT)
