"""Reports are written part by part, by a worker, or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from preflight.config.resolve import Output
from preflight.engine.agent import session
from preflight.model import Observations, Report, Topology, Verdict
from preflight.output import files
from preflight.process.signals import Interrupt
from preflight.render import formats
from preflight.render.human import Look

REPORT = Report(Verdict.READY, 0, (), (), Observations({}, "", 0.0, {}, Topology(nodes=()), {}))
PART = "ä text\n" * 50_000


def published(path: Path) -> tuple[str, ...]:
    with session(Interrupt()) as workers:
        return files.publish(workers, [Output("json", str(path))], REPORT, Look())


def parts_are(monkeypatch: pytest.MonkeyPatch, made: Iterator[str]) -> None:
    def parts(*_: Any) -> Iterator[str]:
        return made

    monkeypatch.setattr(formats, "parts", parts)


@pytest.mark.parametrize("name", ["r.json", "r.json.gz"])
def test_a_text_in_parts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts_are(monkeypatch, (f"{n}{PART}" for n in range(20)))
    assert published(tmp_path / name) == ()
    data = (tmp_path / name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    assert text == "".join(f"{n}{PART}" for n in range(20))


def test_why_it_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Long before the text has ended."""
    parts_are(monkeypatch, (PART for _ in range(200)))
    path = tmp_path / "nowhere" / "r.json"
    assert published(path) == (f"{path}: No such file or directory",)
    assert "could not write the report" in capfd.readouterr().err


def test_half_a_report_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours in the middle of it leaves what was there."""

    def broken() -> Iterator[str]:
        yield PART
        yield PART
        raise KeyError("a bug")

    (tmp_path / "r.json").write_text("before")
    parts_are(monkeypatch, broken())
    with pytest.raises(KeyError, match="a bug"):
        published(tmp_path / "r.json")
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]
    assert (tmp_path / "r.json").read_text() == "before"


def test_a_text_begins_with_a_word() -> None:
    for parts in (["<!doctype html>"], [" \n", "", "\t<!Doc", "TYPE"]):
        assert files._begins_with(parts, files.HTML)
    for parts in ([], [" "], ["<!doc"], ["{", "<!doctype html>"]):
        assert not files._begins_with(parts, files.HTML)
