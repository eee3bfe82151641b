"""Which Python has the job's torch: the one that is named, else that of torchrun, else PATH's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from preflight.process.interpreter import HEAD, SEARCH, interpreter_of, job_python

CONDA = "/opt/conda/bin/python3.10"
BY_SHELL = "#!/bin/sh\n'''exec' {} \"$0\" \"$@\"\n' '''\nimport sys\n"


def program(folder: Path, name: str, text: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "python"),
    [
        (f"#!{CONDA}\nimport sys\n", CONDA),
        (f"#! {CONDA} -I\n", CONDA),
        ("#!/usr/bin/env python3\n", "{bin}/python3"),
        ("#!/usr/bin/env -S python3 -u\n", "{bin}/python3"),
        ("#!/usr/bin/env nosuchpython\n", ""),
        (BY_SHELL.format('"/opt/a b/bin/python"'), "/opt/a b/bin/python"),
        (BY_SHELL.format("/opt/b/bin/python"), "/opt/b/bin/python"),
        ("#!/usr/bin/env bash\nexec pyenv exec torchrun\n", ""),
        ("\x7fELF\x02\x01", ""),
        ("#!\n", ""),
        ("", ""),
        ("#!" + "x" * 2 * HEAD, ""),
    ],
    ids=range(12),
)
def test_the_interpreter_of_a_script(
    text: str, python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    program(folder, "python3", "")
    monkeypatch.setenv("PATH", str(folder))
    assert interpreter_of(program(folder, "torchrun", text)) == python.format(bin=folder)


def test_what_is_no_file_has_none(tmp_path: Path) -> None:
    assert interpreter_of(str(tmp_path)) == interpreter_of(str(tmp_path / "none")) == ""


@pytest.mark.parametrize(
    ("there", "python", "note"),
    [
        ({"torchrun": f"#!{CONDA}\n", "python": ""}, CONDA, "torchrun on PATH"),
        ({"torchrun": "#!/bin/bash\n", "python": ""}, "{bin}/python", "python on PATH"),
        ({"python3": ""}, "{bin}/python3", "python3 on PATH"),
        ({"torchrun": f"#!{sys.executable}\n"}, "", ""),
        ({}, "", ""),
    ],
    ids=range(5),
)
def test_where_ours_has_no_torch(
    there: dict[str, str],
    python: str,
    note: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As root it is only told: what is on PATH may be anybody's."""
    for name, text in there.items():
        program(tmp_path, name, text)
    monkeypatch.setenv("PATH", str(tmp_path))
    python = python.format(bin=tmp_path)
    assert job_python(SEARCH, "no_such_torch", root=False) == (python, note)
    taken, why = job_python(SEARCH, "no_such_torch", root=True)
    assert taken == ""
    assert why.endswith(f"--python {python}" if python else "")
    assert bool(why) == bool(python)


def test_ours_is_taken_where_it_has_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "torchrun", f"#!{CONDA}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_python(SEARCH, "json", root=False) == ("", "")


def test_the_named_one_is_taken_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path, "python3.10", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    for root in (False, True):
        assert job_python(CONDA, "json", root) == (CONDA, "--python")
        assert job_python("python3.10", "json", root) == (mine, "--python")
