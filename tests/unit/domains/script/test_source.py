"""What is read of a script, and of what it imports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.script_files import looked_at, write_script

from preflight.domains.script import source
from preflight.domains.script.source import FILES_MAX, SIZE_MAX
from preflight.host import Host
from preflight.model import CannotObserve, NotApplicable

UNDER = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"


def test_silence_is_for_a_comment_alone(tmp_path: Path) -> None:
    text = UNDER.replace("barrier()", "barrier(); print('# preflight: ignore')")
    assert len(looked_at(write_script(tmp_path, "train.py", text))) == 1
    quiet = UNDER.replace("barrier()", "barrier()  # preflight: ignore, rank 0 has a twin")
    assert looked_at(write_script(tmp_path, "train.py", quiet)) == ()
    elsewhere = "# preflight: ignore\n" + UNDER
    assert len(looked_at(write_script(tmp_path, "train.py", elsewhere))) == 1


def files(path: Path) -> list[str]:
    return [m.file for m in source.read_program(Host(), path.name, str(path.parent)).modules]


def test_imports_are_followed_beside_the_script_and_no_further(tmp_path: Path) -> None:
    start = write_script(
        tmp_path, "train.py", "import os, torch, a.b\nfrom c import d\ndef f():\n import e"
    )
    write_script(tmp_path, "a/__init__.py", "from . import near\nfrom .. import above")
    write_script(tmp_path, "a/b.py", "from .near import x\nraise SystemExit('it was run')")
    write_script(tmp_path, "a/near.py", "")
    write_script(tmp_path, "c.py", "import train")
    write_script(tmp_path, "e.py", "")
    write_script(tmp_path, "unused.py", UNDER)
    expected = ["train.py", "a/__init__.py", "a/b.py", "c.py", "e.py", "a/near.py"]
    assert files(start) == expected


def test_how_far_and_how_many(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    for number in range(6):
        write_script(chain, f"m{number}.py", f"import m{number + 1}")
    assert files(chain / "m0.py") == ["m0.py", "m1.py", "m2.py", "m3.py"]
    wide = tmp_path / "wide"
    start = write_script(wide, "train.py", "\n".join(f"import w{n}" for n in range(80)))
    for number in range(80):
        write_script(wide, f"w{number}.py", "")
    assert len(files(start)) == FILES_MAX


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    start = write_script(tmp_path, "train.py", "import pipe, folder, large, gone")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    write_script(tmp_path, "large.py", "#" * (SIZE_MAX + 1))
    (tmp_path / "gone.py").symlink_to("nowhere")
    assert files(start) == ["train.py"]
    for name in ("pipe.py", "folder.py", "large.py", "gone.py", "/dev/zero"):
        with pytest.raises(CannotObserve, match=name.rpartition("/")[2]):
            files(tmp_path / name)


@pytest.mark.parametrize("data", [b"#!/bin/bash\necho", b"\x7fELF\0\0", b"a = 1\0"])
def test_what_is_not_python_is_not_judged(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "train").write_bytes(data)
    with pytest.raises(NotApplicable, match="not a Python script"):
        files(tmp_path / "train")


def test_scripts_have_any_name_and_encoding(tmp_path: Path) -> None:
    path = tmp_path / "train"
    path.write_bytes(b"#!/usr/bin/env python3\n# coding: latin-1\n# \xe9\n" + UNDER.encode())
    (hit,) = looked_at(path)
    assert hit.line == 6


def test_a_syntax_error_is_found_where_it_is(tmp_path: Path) -> None:
    (hit,) = looked_at(write_script(tmp_path, "train.py", "import os\n\nif True\n    pass\n"))
    assert (hit.rule, hit.line, hit.text) == ("syntax-error", 3, "if True")
    assert hit.other == "expected ':'"


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("import broken", True),
        ("import fine", True),
        ("try:\n    import broken\nexcept Exception:\n    broken = None", False),
        ("def later():\n    import broken", False),
    ],
)
def test_a_module_with_one_matters_where_it_is_surely_imported(
    tmp_path: Path, start: str, told: bool
) -> None:
    write_script(tmp_path, "broken.py", "x = = 1")
    write_script(tmp_path, "fine.py", "import broken")
    hits = looked_at(write_script(tmp_path, "train.py", start))
    assert [(h.rule, h.file, h.line) for h in hits] == (
        [("syntax-error", str(tmp_path / "broken.py")[1:], 1)] if told else []
    )
