"""The machine formats as a user asks for them: `-o` of run, show and merge, the config file, and
the summary of a step of GitHub Actions."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from junitparser import JUnitXml
from prometheus_client.parser import text_string_to_metric_families
from support.command import LIMITS, Done, preflight
from support.scenarios import NAMES, judged

from preflight.config.resolve import FORMATS, Output
from preflight.engine import agent
from preflight.model import Report
from preflight.output import files
from preflight.process.signals import Interrupt
from preflight.render import formats, human
from preflight.render import json as as_json
from preflight.render.html import embedded

TOO_MANY = (*LIMITS, "--expect", "nofile=1000000000")
"""A run of one check that fails."""


def xml(text: str) -> int:
    return sum(suite.tests for suite in JUnitXml.fromstring(text.encode()))


def metrics(text: str) -> int:
    return len(list(text_string_to_metric_families(text)))


READ: dict[str, Callable[[str], object]] = {
    "human": lambda text: " READY " in text or " NOT READY " in text,
    "json": lambda text: json.loads(text)["checks"],
    "junit": xml,
    "prometheus": metrics,
    "nagios": lambda text: text.startswith("PREFLIGHT ") and text.count("\n") == 1,
    "markdown": lambda text: text.startswith("### preflight: "),
    "slurm": lambda text: not text or text.count("\n") == 1,
    "html": lambda text: json.loads(embedded.unpacked(text))["checks"],
    "github": lambda text: all(line.startswith("::") for line in text.splitlines()),
}
a_format = pytest.mark.parametrize("name", FORMATS)


def saved(folder: Path, of: Report, name: str = "report.json") -> str:
    path = folder / name
    path.write_text(as_json.render(of), encoding="utf-8")
    return str(path)


# --- the formats ---


def test_every_format_has_a_reader_here() -> None:
    assert set(READ) == set(FORMATS)


def test_every_format_is_another() -> None:
    texts = ["".join(formats.parts(name, judged("nodes-64"), human.Look())) for name in FORMATS]
    assert len(set(texts)) == len(FORMATS)


@a_format
@pytest.mark.parametrize("scenario", NAMES)
def test_a_report_is_the_same_before_and_after_it_was_saved(name: str, scenario: str) -> None:
    of = judged(scenario)
    again = as_json.parse(as_json.render(of))
    look = human.Look()
    assert "".join(formats.parts(name, again, look)) == "".join(formats.parts(name, of, look))


# --- -o ---


@a_format
def test_on_stdout(name: str) -> None:
    done = preflight("run", *LIMITS, "-o", name)
    assert done.code == 0
    assert READ[name](done.out)


@a_format
def test_into_a_file_beside_the_screen(name: str, tmp_path: Path) -> None:
    file = tmp_path / "report"
    done = preflight("run", *LIMITS, "-o", f"{name}={file}")
    assert done.code == 0
    assert " READY " in done.out
    assert READ[name](file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_into_what_a_shell_has_opened(path: str, tmp_path: Path) -> None:
    """A worker has another stdout: what it wrote there would be lost, and nothing said of it."""
    log = tmp_path / "log"
    log.write_text("kept\n")
    with log.open("a") as file:
        words = [sys.executable, "-m", "preflight", "run", *LIMITS, "-o", f"json={path}"]
        assert subprocess.run(words, stdout=file, stderr=subprocess.DEVNULL).returncode == 0
    kept, _, rest = log.read_text().partition("\n")
    assert kept == "kept"
    assert json.JSONDecoder().raw_decode(rest)[0]["verdict"] == "ready"


def test_into_a_descriptor_of_its_own(tmp_path: Path) -> None:
    with (tmp_path / "report").open("w") as file:
        number = file.fileno()
        for path, code in ((f"/dev/fd/{number}", 0), ("/dev/fd/999", 74), ("/dev/stderr", 0)):
            ended = subprocess.run(
                [sys.executable, "-m", "preflight", "run", *LIMITS, "-o", f"json={path}"],
                pass_fds=[number],
                capture_output=True,
                text=True,
            )
            assert ended.returncode == code, ended
            if code:
                assert "/dev/fd/999: Bad file descriptor" in ended.stderr
    assert json.loads((tmp_path / "report").read_text())["verdict"] == "ready"
    assert json.loads(ended.stderr[ended.stderr.index("{") :])["verdict"] == "ready"


def test_from_what_a_shell_has_opened(tmp_path: Path) -> None:
    """`preflight show <(zcat report.json.gz)`, and a report through a pipe."""
    saved = tmp_path / "r.json"
    assert preflight("run", *LIMITS, "-o", f"json={saved}").code == 0
    for command in ("show <(cat {0})", "cat {0} | {1} show /dev/stdin", "show /dev/stdin <{0}"):
        tool = f"{sys.executable} -m preflight"
        text = command.format(saved, tool)
        text = text if "|" in text else f"{tool} {text}"
        ended = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert " READY " in ended.stdout


def test_no_report_goes_into_a_descriptor_of_ours() -> None:
    reading, writing = os.pipe()  # closed on exec, as all of ours
    assert files._to_descriptor(writing, "x", ["report"]) == "x: Bad file descriptor"
    os.close(writing)
    assert os.read(reading, 9) == b""
    os.close(reading)


def test_all_at_once_and_from_the_config_file(tmp_path: Path) -> None:
    text = "only = ['host.limits']\n" + "".join(
        f"[[output]]\nformat = '{name}'\nfile = '{tmp_path}/{name}'\n" for name in FORMATS
    )
    (tmp_path / "c.toml").write_text(text)
    done = preflight("run", "--config", str(tmp_path / "c.toml"))
    assert done.code == 0
    for name in FORMATS:
        assert READ[name]((tmp_path / name).read_text(encoding="utf-8"))


def test_the_help_names_them_all() -> None:
    said = " ".join(preflight("run", "--help").out.split())
    assert all(f"{name}" in said.partition("--output <str>")[2] for name in FORMATS)


def test_a_format_changes_no_exit_code() -> None:
    for name in FORMATS:
        assert preflight("run", *TOO_MANY, "-o", name).code == 3
    assert preflight("run", *TOO_MANY, "-o", "nagios", "--exit", "nagios").code == 2


@a_format
def test_show_prints_it_and_exits_0(name: str, tmp_path: Path) -> None:
    of = judged("nodes-64")
    done = preflight("show", saved(tmp_path, of), "-o", name)
    assert (done.code, done.errors) == (0, "")
    assert done.out == "".join(formats.parts(name, of, human.Look()))


def test_show_writes_files(tmp_path: Path) -> None:
    of = judged("nodes-64")
    flags = [f"-o{name}={tmp_path}/{name}" for name in FORMATS]
    done = preflight("show", saved(tmp_path, of), *flags)
    assert (done.code, done.errors) == (0, "")
    assert " NOT READY " in done.out
    for name in FORMATS:
        written = (tmp_path / name).read_text(encoding="utf-8")
        assert written == "".join(formats.parts(name, of, human.Look()))


def test_show_says_what_it_could_not_write(tmp_path: Path) -> None:
    done = preflight(
        "show", saved(tmp_path, judged("healthy")), "-o", f"junit={tmp_path}/none/x.xml"
    )
    assert done.code == 74
    assert done.said == (
        f"preflight: could not write the report: {tmp_path}/none/x.xml: No such file or directory"
    )


def test_merge_writes_them(tmp_path: Path) -> None:
    report = saved(tmp_path, judged("two-nodes"))
    flags = [f"-o{name}={tmp_path}/{name}" for name in FORMATS]
    done = preflight("merge", report, report, *flags, "--config", "/dev/null")
    assert done.code == 0
    for name in FORMATS:
        assert READ[name]((tmp_path / name).read_text(encoding="utf-8"))


def test_merge_leaves_out_what_an_earlier_run_has_left(tmp_path: Path) -> None:
    now = judged("slow-pair")
    report = saved(tmp_path, now)
    old = replace(now.observations, started="2020-01-01T00:00:00Z")
    stale = saved(tmp_path, replace(now, observations=old), "stale.json")
    done = preflight("merge", stale, report, "--config", "/dev/null")
    assert done.code == 0
    assert re.fullmatch(
        rf"preflight: {stale} is of an earlier run and was left out: it ended \d+ days before "
        rf"{report} began\n",
        done.err,
    )


def test_nothing_to_exclude_is_an_empty_file(tmp_path: Path) -> None:
    report = saved(tmp_path, judged("healthy"))
    done = preflight("show", report, "-o", f"slurm={tmp_path}/exclude", "-o", "nagios")
    assert done.code == 0
    assert (tmp_path / "exclude").read_bytes() == b""
    assert preflight("show", report, "-o", "slurm").out == ""


def test_an_ascii_stdout_gets_well_formed_ones(tmp_path: Path) -> None:
    report = saved(tmp_path, judged("hostile"))
    for name in ("junit", "prometheus", "nagios"):
        done = preflight("show", report, "-o", name, env={"LANG": "C", "PYTHONUTF8": "0"})
        assert done.code == 0
        assert done.out.isascii()
        assert READ[name](done.out)


# --- files ---


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_collector_may_read_its_file_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        flags = [f"-o{name}={tmp_path}/{name}" for name in ("prometheus", "json")]
        assert preflight("run", *LIMITS, *flags).code == 0
    finally:
        os.umask(before)
    assert mode(tmp_path / "prometheus") == 0o644
    assert mode(tmp_path / "json") == 0o600


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Whoever has it open reads the old one to its end; nothing else is left in the folder."""
    file = tmp_path / "preflight.prom"
    file.write_text("old\n")
    with file.open() as opened:
        assert preflight("run", *LIMITS, "-o", f"prometheus={file}").code == 0
        assert opened.read() == "old\n"
    assert metrics(file.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["preflight.prom"]


def test_metrics_of_an_agent_that_met_nobody_have_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside preflight.prom a second file would hold each of its series once more."""
    monkeypatch.chdir(tmp_path)
    outputs = [Output(name, f"{tmp_path}/r.{name}") for name in ("prometheus", "junit")]
    with agent.session(Interrupt()) as workers:
        assert files.publish(workers, outputs, judged("healthy"), human.Look(), "gpu-b07") == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "preflight.gpu-b07.json",
        "r.gpu-b07.junit",
        "r.prometheus",
    ]


@pytest.mark.parametrize(
    ("asked", "part", "hosted_part", "written", "merged"),
    [
        ("", "gpu2", "", "preflight.gpu2.json", "preflight.*.json"),
        ("", "", "gpu1", "preflight.gpu1.json", "preflight.*.json"),
        ("r.json.gz", "gpu2", "", "r.gpu2.json.gz", "r.*json.gz"),
        ("r.json.gz", "", "gpu1", "r.json.gz", "r.*json.gz"),
        ("preflight.json", "", "gpu1", "preflight.json", "preflight.*json"),
        ("report", "gpu2", "", "report", ""),
    ],
)
def test_what_is_to_be_merged_is_what_host_and_guests_write(
    asked: str,
    part: str,
    hosted_part: str,
    written: str,
    merged: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The parts of guests have their names in them, the host's only where nobody asked for it."""
    monkeypatch.chdir(tmp_path)
    outputs = [Output("human", "-"), *([Output("json", asked)] if asked else [])]
    with agent.session(Interrupt()) as workers:
        files.publish(workers, outputs, judged("healthy"), human.Look(), part, hosted_part)
    assert [path.name for path in tmp_path.iterdir()] == [written]
    found = re.findall(r"preflight merge (\S+)", capsys.readouterr().out)
    assert found == [merged] * bool(merged)
    assert not merged or [path.name for path in tmp_path.glob(merged)] == [written]


# --- GitHub Actions ---


def step(file: Path | str, *args: str, **more: object) -> Done:
    env = {"GITHUB_STEP_SUMMARY": str(file)}
    return preflight(*(args or ("run", *LIMITS)), env=env, **more)  # type: ignore[arg-type]


def test_a_run_is_in_the_summary_of_its_step(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    file.write_text("# mine")
    assert step(file).errors == ""
    assert step(file, "run", *TOO_MANY).code == 3
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# mine\n### preflight: READY\n")
    assert text.count("### preflight: ") == 2
    assert "### preflight: NOT READY\n" in text


def test_each_finding_is_an_annotation_of_its_step(tmp_path: Path) -> None:
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    red = preflight("run", *TOO_MANY, env=env)
    title = "::error title=preflight host.limits%3Anofile-low::"
    assert (red.code, red.errors.count("\n")) == (3, 1)
    assert red.errors.startswith(f"{title}a process may open ")
    assert preflight("run", *LIMITS, env=env).errors == ""


def test_so_are_gate_and_merge_but_not_show(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    done = step(file, "gate", *LIMITS, "--", "cat", str(file))
    assert "### preflight: READY\n" in done.out, "it is there before CMD begins"
    report = saved(tmp_path, judged("nodes-64"))
    step(file, "merge", report, "--config", "/dev/null")
    assert file.read_text(encoding="utf-8").count("### preflight: ") == 2
    step(file, "show", report)
    assert file.read_text(encoding="utf-8").count("### preflight: ") == 2


def test_one_that_the_user_writes_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    assert step(file, "run", *LIMITS, "-o", f"markdown={file}").code == 0
    assert file.read_text(encoding="utf-8").count("### preflight: ") == 1


def test_a_variable_that_is_empty_is_none(tmp_path: Path) -> None:
    done = step("", cwd=tmp_path)
    assert (done.code, done.errors) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("left", "headings", "tables"), [(50_000, 1, 1), (600, 1, 0), (10, 0, 0)])
def test_no_more_than_github_takes(left: int, headings: int, tables: int, tmp_path: Path) -> None:
    file = tmp_path / "summary"
    file.write_bytes(b"x" * ((1 << 20) - left))
    done = step(file, "run", *TOO_MANY)
    assert done.code == 3
    assert file.stat().st_size <= 1 << 20
    added = file.read_bytes()[(1 << 20) - left :].decode()
    assert (added.count("### preflight"), added.count("| Result |")) == (headings, tables)
    assert done.said == (
        ""
        if headings
        else f"preflight: GITHUB_STEP_SUMMARY: {file}: full, 1048566 of 1048576 bytes"
    )


@pytest.mark.parametrize("args", [("run", *LIMITS), ("run", *TOO_MANY)], ids=len)
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none/summary", "No such file or directory"),
        ("/tmp", "Is a directory"),
        ("/dev/null", "not a regular file"),
        ("fifo", "No such device or address"),
    ],
)
def test_a_summary_that_can_not_be_written_changes_nothing(
    path: str, why: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    path = str(tmp_path / path)  # which an absolute one remains
    done = step(path, *args)
    assert done.code == (3 if args[1:] == TOO_MANY else 0)
    assert done.said == f"preflight: GITHUB_STEP_SUMMARY: {path}: {why}"
    assert done.seconds < 20
