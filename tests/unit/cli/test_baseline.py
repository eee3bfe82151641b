"""`preflight baseline` as a user has it: files, screens, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import preflight
from support.scenarios import catalogue, document, judged
from support.terminal import ASCII_ENV, PREFLIGHT, in_pipe, on_terminal

from preflight.baseline.learn import learnt
from preflight.expect import Expect
from preflight.judge import verdict
from preflight.render import expect_toml
from preflight.render import json as as_json

GPUS, TWO = "healthy-8-gpus", "two-nodes"

# --- record ---


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.json"
    path.write_text(as_json.render(judged(GPUS)))
    return path


def test_a_recorded_file_is_a_config_file(good: Path, tmp_path: Path) -> None:
    file = tmp_path / "baseline.toml"
    done = preflight("baseline", "record", str(good), "-o", str(file))
    assert (done.code, done.out, done.err) == (0, "", "")
    shown = preflight("show", str(good), "--judge", "--config", str(file))
    assert shown.code == 0
    assert "expectations" in shown.out
    assert preflight("baseline", "record", str(good)).out == file.read_text()


def test_a_run_fails_by_a_recorded_expectation(tmp_path: Path) -> None:
    """From a run of this machine to a run of this machine, which has no such GPUs."""
    file = tmp_path / "baseline.toml"
    file.write_text(expect_toml.render("good.json", judged(GPUS), learnt(judged(GPUS))))
    done = preflight("run", "--nproc", "1", "--only", "gpu.visible", "--config", str(file))
    assert done.code == 3
    assert "expected   8 GPUs (config" in done.out


def test_a_file_that_is_there_stays(good: Path, tmp_path: Path) -> None:
    file = tmp_path / "preflight.toml"
    file.write_text('level = "deep"\n')
    done = preflight("baseline", "record", str(good), "-o", str(file))
    assert done.code == 74
    assert "is there already" in done.said
    assert file.read_text() == 'level = "deep"\n'


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("/nonexistent/a.json",), "No such file"),
        (("/etc/hostname",), "not a report"),
        (("/dev/null", "-o", ""), "-o names no file"),
    ],
)
def test_what_can_not_be_recorded_is_said_in_a_line(args: tuple[str, ...], told: str) -> None:
    done = preflight("baseline", "record", *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.said
    assert "\n" not in done.said


def test_a_report_that_is_not_ready_is_refused_by_its_name(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(as_json.render(judged("port-held")))
    done = preflight("baseline", "record", str(bad), "-o", str(tmp_path / "new.toml"))
    assert done.code == 2
    assert done.said.startswith(f"preflight: {bad}: a baseline is made of a report that is READY")
    assert not (tmp_path / "new.toml").exists()


# --- diff ---


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Two reports of two nodes: another torch, another limit, slower sums."""
    made = json.loads(json.dumps(document(TWO)))  # no node shares a value with another
    seen = made["observations"]
    for software in seen["host.software"].values():
        software["ok"]["build"]["version"] = "2.14.0"
    for rank in seen["world.gloo"].values():
        for reduced in rank["ok"]["reduced"]:
            reduced["seconds"] *= 8
    seen["host.limits"]["gpu-b08"]["ok"]["memlock"] = 65536
    made |= {"checks": [], "findings": [], "verdict": "ready", "exit_code": 0}
    observed = as_json.parse(json.dumps(made)).observations
    later = verdict.judge(observed, catalogue(), Expect())
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, one in zip(paths, (judged(TWO), later), strict=True):
        path.write_text(as_json.render(one))
    return str(paths[0]), str(paths[1])


def test_the_document_has_a_shape_that_stays(files: tuple[str, str]) -> None:
    done = preflight("baseline", "diff", *files, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found = done.document
    assert (found["document"], found["version"]) == ("diff", 1)
    assert set(found) >= {"tool", "before", "after", "nodes", "changes", "numbers", "noise"}
    assert found["nodes"] == {"both": ["gpu-b07", "gpu-b08"], "came": [], "gone": []}
    assert set(found["before"]) == {"started", "verdict", "tool", "size"}
    assert found["changes"][0] == {
        "part": "software",
        "name": "torch",
        "before": "2.13.0+cpu",
        "after": "2.14.0",
        "nodes": ["gpu-b07", "gpu-b08"],
    }
    names = {"check", "name", "before", "after", "ratio", "worse", "changed", "seconds", "of"}
    assert all(set(number) == names for number in found["numbers"])
    assert len(found["numbers"]) > sum(number["changed"] for number in found["numbers"]) > 0


@pytest.mark.parametrize("columns", [40, 80])
def test_it_fits_a_terminal(files: tuple[str, str], columns: int) -> None:
    shown = on_terminal([*PREFLIGHT, "baseline", "diff", *files], columns)
    assert shown.code == 0
    lines = [line for line in shown.lines if "before.json" not in line and "after.json" not in line]
    assert max(map(len, lines)) <= columns
    text = "\n".join(shown.lines)
    assert "unlimited → 64 KiB" in text
    assert "0.734 → 0.092" in text
    assert shown.styles("busbw_gbs") == {("brown", False)}


def test_in_a_pipe_it_is_plain_and_as_wide_as_a_report(files: tuple[str, str]) -> None:
    text = preflight("baseline", "diff", *files).out
    assert "\x1b" not in text
    assert "   torch               2.13.0+cpu → 2.14.0 · gpu-b[07-08]\n" in text
    assert "\n 2 changes · 2 of " in text


def test_in_ascii_where_the_locale_has_no_more(files: tuple[str, str]) -> None:
    done = in_pipe([*PREFLIGHT, "baseline", "diff", *files], ASCII_ENV)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"2.13.0+cpu -> 2.14.0 | gpu-b[07-08]" in done.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("a.json", "/nonexistent/b.json"), "a.json: No such file"),
        (("/etc/hostname", "/etc/hostname"), "not a report"),
    ],
)
def test_what_is_no_report_is_said_in_a_line(args: tuple[str, ...], said: str) -> None:
    done = preflight("baseline", "diff", *args)
    assert (done.code, done.out) == (2, "")
    assert said in done.said
    assert "\n" not in done.said


def test_what_it_can_not_print(files: tuple[str, str]) -> None:
    assert preflight("baseline", "diff", *files, "-o", "yaml").said == (
        "preflight: -o is one of human, json, html, got 'yaml'"
    )
    assert preflight("baseline", "diff", *files, "--color", "alway").said.endswith(
        "did you mean 'always'?"
    )


def test_the_exit_code_is_0_whatever_has_changed(files: tuple[str, str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(as_json.render(judged("port-held")))
    assert preflight("baseline", "diff", files[0], str(bad)).code == 0
