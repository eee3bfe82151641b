"""Report files by their names: compressed when they are written, and read by what is in them."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.output import compressed, files, tasks

TEXT = json.dumps({"world": {"source": "slurm", "size": 16}, "more": "ä" * 5000})


def written(path: Path, text: str = TEXT) -> str:
    return tasks.write_file({"path": str(path), "text": text}, None, None)  # type: ignore[arg-type]


class Said:
    """In place of a worker's line."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def say(self, topic: str, part: str) -> None:
        self.parts.append(part)


def read(path: Path, **limits: int) -> dict[str, str]:
    args: dict[str, Any] = {"path": str(path), "limit": 1 << 20, **limits}
    found = tasks.read_file(args, None, None)  # type: ignore[arg-type]
    said = Said()
    told = tasks.say_file(args, said, None)  # type: ignore[arg-type]
    assert told == {key: why for key, why in found.items() if key == "error"}
    assert told or "".join(said.parts) == found["text"]
    return found


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r.json.zst", "r"])
def test_it_is_read_back_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    assert written(path) == ""
    small = path.stat().st_size < len(TEXT) / 10
    assert small == (path.suffix in compressed.NAMES)
    elsewhere = path.rename(tmp_path / "renamed")
    assert read(elsewhere) == {"text": TEXT}


def test_without_a_library_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "before.zst")
    for name in ("compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    for told in (written(tmp_path / "r.zst"), read(tmp_path / "before.zst")["error"]):
        assert "zstandard" in told
        assert "\n" not in told
    assert not (tmp_path / "r.zst").exists()


def test_what_is_damaged_is_told_in_one_line(tmp_path: Path) -> None:
    for name in ("r.gz", "r.zst"):
        path = tmp_path / name
        written(path)
        whole = path.read_bytes()
        for cut in (whole[: len(whole) // 2], whole[:20] + bytes(20) + whole[40:], whole[:5]):
            path.write_bytes(cut)
            found = read(path)
            assert found.get("text") != TEXT
            assert "\n" not in found.get("error", "")


def test_a_limit_grows_with_the_ranks_that_the_document_claims(tmp_path: Path) -> None:
    path = tmp_path / "r.json.gz"
    written(path, TEXT + " " * 5000)
    assert "text" in read(path, limit=1000, more=4000, most=1 << 20)
    error = read(path, limit=1000, more=100, most=1 << 20)["error"]
    assert error.endswith("the most that is read of a report of 16 ranks")
    assert "larger than" in read(path, limit=1000, more=1 << 20, most=2000)["error"]


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
    assert "larger than 1 MiB" in read(path)["error"]


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r.json.zst"])
def test_a_letter_may_lie_between_two_parts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PART", 3)
    path = tmp_path / name
    written(path, "aé\u1234\U0001f600" * 7)
    assert read(path) == {"text": "aé\u1234\U0001f600" * 7}


@pytest.mark.parametrize("data", [b"\xff", b"{}\xc3", b"\xc3" + b"a" * 20])
def test_what_is_not_utf_8_is_refused(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "PART", 3)
    (tmp_path / "r").write_bytes(data)
    assert read(tmp_path / "r")["error"].endswith("not a report: it is no UTF-8 text")
    assert "larger than 0 MiB" in read(tmp_path / "r", limit=len(data) - 1)["error"]


def test_a_part_keeps_its_kind() -> None:
    split = files._name_and_kind
    assert split("a/preflight.json.gz") == ("a/preflight", ".json.gz")
    assert split("x.zst") == ("x", ".zst")
    assert split("x.json") == ("x", ".json")
    assert split("x") == ("x", "")


@pytest.mark.skipif(sys.version_info < (3, 14), reason="compression.zstd is new in Python 3.14")
def test_the_standard_library_s_zstd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "r.zst"
    assert written(path) == ""
    assert read(path) == {"text": TEXT}
    library = importlib.import_module("compression.zstd")
    assert library.open(io.BytesIO(path.read_bytes())).read().decode() == TEXT
