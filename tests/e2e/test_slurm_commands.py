"""The hooks as commands, with an scontrol that writes down what it is asked."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest
from support.command import CHECK, Done, judges, observes, planted, preflight, start

NODE_FAULT = """yield Found("bad", tuple(s for s, _ in world.each()), saw="it burns",
    blame=Blame.{blame}, confidence=Confidence.{confidence}, alternatives={alternatives})"""


def judging(blame: str = "NODE", confidence: str = "CERTAIN", alternatives: str = "()") -> str:
    text = NODE_FAULT.format(blame=blame, confidence=confidence, alternatives=alternatives)
    return judges(text)


SCONTROL = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
show) {show} ;;
esac
"""


class Fake:
    """An scontrol that writes down what it is asked, and answers as it is told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers("echo NodeName=n1 State=IDLE Weight=1")

    def answers(self, show: str) -> None:
        script = self.folder / "scontrol"
        script.write_text(SCONTROL.format(folder=self.folder, show=show))
        script.chmod(0o755)

    @property
    def asked(self) -> list[str]:
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, hook: str, package: Path | None = None, *more: str, **env: str) -> Done:
        slurmd = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "31", "SLURM_JOB_UID": "12345"}
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        state = ("--state", str(self.folder), *more)
        return preflight("slurm", hook, *state, package=package, env=slurmd | path | env)


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Fake(folder)


REASON = "preflight: planted.fire n1: it burns [prolog job 31]"


def test_a_node_at_fault_is_drained(fake: Fake, tmp_path: Path) -> None:
    done = fake.run("prolog", planted(tmp_path / "p", planted_fire=judging()))
    assert done.code == 3
    assert done.out == ""
    assert done.said == REASON
    assert fake.asked == [
        "show node -o n1",
        f"update NodeName=n1 State=DRAIN Reason={REASON}",
    ]


@pytest.mark.parametrize(
    "kind",
    [
        {"blame": "JOB"},
        {"blame": "NETWORK"},
        {"blame": "UNKNOWN"},
        {"blame": "TOOL"},
        {"confidence": "POSSIBLE"},
        {"confidence": "LIKELY", "alternatives": '("a slow start",)'},
    ],
    ids=str,
)
def test_who_is_not_surely_at_fault_is_not(
    fake: Fake, tmp_path: Path, kind: dict[str, str]
) -> None:
    done = fake.run("prolog", planted(tmp_path / "p", planted_fire=judging(**kind)))
    assert (done.code, done.said, fake.asked) == (0, "", [])


def test_a_drain_of_somebody_else_stays(fake: Fake, tmp_path: Path) -> None:
    shown = "NodeName=n1 State=IDLE+DRAIN Reason=fan roars [jo@2026-11-21T23:14:44]"
    fake.answers(f"echo '{shown}'")
    done = fake.run("prolog", planted(tmp_path / "p", planted_fire=judging()))
    assert done.code == 3
    assert done.err == f"{REASON}\npreflight: no reason set: drained already: fan roars\n"
    assert fake.asked == ["show node -o n1"]


@pytest.mark.parametrize("show", ["exit 1", "echo nonsense", "kill -9 $$", "rm -f /nowhere"])
def test_the_node_is_at_fault_even_if_nobody_can_be_told(
    fake: Fake, tmp_path: Path, show: str
) -> None:
    fake.answers(show)
    done = fake.run("prolog", planted(tmp_path / "p", planted_fire=judging()))
    assert done.code == 3
    assert "\npreflight: no reason set: " in done.err


def test_a_controller_that_never_answers(fake: Fake, tmp_path: Path) -> None:
    fake.answers(f"echo $$ > {fake.folder}/pid; trap '' TERM; while :; do sleep 95; done")
    done = fake.run("prolog", planted(tmp_path / "p", planted_fire=judging()))
    assert done.code == 3
    assert done.seconds < 8
    assert "no reason set: no answer of scontrol in time" in done.err
    assert not Path("/proc", (fake.folder / "pid").read_text().strip()).exists()


@pytest.mark.parametrize("name", ["", "ALL", "n[1-9]"])
def test_without_the_name_of_one_node_nobody_is_drained(
    fake: Fake, tmp_path: Path, name: str
) -> None:
    package = planted(tmp_path / "p", planted_fire=judging())
    done = fake.run("prolog", package, SLURMD_NODENAME=name)
    said = REASON.replace("n1", socket.gethostname().partition(".")[0])
    assert (done.code, done.said, fake.asked) == (3, said, [])


def test_a_waiver_in_the_config_file_counts(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[tolerate."planted.fire"]\nwhy = "known"\n')
    package = planted(tmp_path / "p", planted_fire=judging())
    done = fake.run("prolog", package, "--config", str(file))
    assert (done.code, done.said, fake.asked) == (0, "", [])


def test_what_it_takes_no_setting_from(fake: Fake, tmp_path: Path) -> None:
    """The environment, the working directory, a home."""
    (tmp_path / "preflight.toml").write_text("[expect]\nmemlock_gib = 999999\n")
    home = tmp_path / ".config/preflight"
    home.mkdir(parents=True)
    (home / "config.toml").write_text("[expect]\nmemlock_gib = 999999\n")
    env = {
        "HOME": str(tmp_path),
        "PREFLIGHT_CONFIG": "/nowhere",
        "PREFLIGHT_EXPECT": "memlock_gib=999999",
        "TMPDIR": "/nowhere",
        "MASTER_ADDR": "nowhere.invalid",
        "SLURM_GPUS_ON_NODE": "8",  # of another node, say: it would be a GPU too few
    }
    running = start("slurm", "prolog", "--state", str(tmp_path), env=env, cwd=tmp_path)
    assert running.end().code == 0


def test_a_config_file_that_is_wrong_drains_nobody(fake: Fake, tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("expct = 1\n")
    done = fake.run("prolog", None, "--config", str(file))
    assert done.code == 0
    assert "no key 'expct'" in done.said


@pytest.mark.parametrize("hook", ["prolog", "healthcheck", "epilog", "task-prolog"])
def test_a_bug_of_ours_is_no_end_of_a_job(fake: Fake, tmp_path: Path, hook: str) -> None:
    package = planted(tmp_path / "p")
    file = package / "preflight/slurm/node_check.py"
    file.write_text(file.read_text() + "\n1 / 0\n")
    done = fake.run(hook, package)
    assert done.code == 0
    assert "ZeroDivisionError" in done.err
    assert "this is our fault, not this node's" in done.err
    assert fake.asked == []


def test_nobody_holds_the_pipe_of_slurmd(tmp_path: Path) -> None:
    """slurmd reads until all have closed it. A probe that became a daemon is none of them."""
    daemon = observes(f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open("{tmp_path}/pid", "w").write(str(os.getpid()))
                time.sleep(600)
        time.sleep(600)
    """).replace("budget=0.5", "budget=60.0")
    package = planted(tmp_path / "p", planted_daemon=daemon)
    began = time.monotonic()
    done = preflight("slurm", "prolog", "--state", str(tmp_path), package=package)
    assert done.code == 0
    assert time.monotonic() - began < 8
    assert "could not look: planted.daemon" in done.err
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()


# --- the health check ---


def test_a_health_check_asks_once_in_a_while(fake: Fake) -> None:
    """All nodes have theirs at once: a healthy one doesn't load slurmctld every time."""
    for _ in range(2):
        assert fake.run("healthcheck").code == 0
        assert fake.asked == ["show node -o n1"]
    asked = fake.folder / "controller-asked"
    os.utime(asked, (0, 0))
    assert fake.run("healthcheck").code == 0
    assert len(fake.asked) == 2


def test_a_drain_of_ours_has_the_health_check_ask_again(fake: Fake, tmp_path: Path) -> None:
    assert fake.run("healthcheck").code == 0
    fake.run("prolog", planted(tmp_path / "p", planted_fire=judging()))
    before = len(fake.asked)
    assert fake.run("healthcheck").code == 0
    assert fake.asked[before:] == ["show node -o n1"]


def test_a_health_check_takes_back_what_we_have_drained(fake: Fake, tmp_path: Path) -> None:
    reason = "preflight: planted.fire it burns [prolog job 31]"
    shown = f"NodeName=n1 State=IDLE+DRAIN Reason={reason} [root@2026-11-21T23:14:44]"
    fake.answers(f"echo '{shown}'")
    done = fake.run("healthcheck", planted(tmp_path / "p", planted_fire=CHECK))
    assert done.code == 0
    assert f"back in service, healthy again; it was drained for: {reason}" in done.err
    assert fake.asked[1:] == ["update NodeName=n1 State=UNDRAIN"]


@pytest.mark.parametrize(
    "now",
    [
        judging("JOB"),
        judging(),
        CHECK.replace("return Answer()", "raise NotApplicable('gone')"),
        CHECK.replace("return Answer()", "raise CannotObserve('no')"),
        "def broken(:\n",
    ],
    ids=["another fault", "the same", "nothing to look at", "can't look", "check is broken"],
)
def test_what_is_not_seen_to_be_whole_is_not_taken_back(
    fake: Fake, tmp_path: Path, now: str
) -> None:
    reason = "preflight: planted.fire it burns [prolog job 31]"
    shown = f"NodeName=n1 State=IDLE+DRAIN Reason={reason} [root@2026-11-21T23:14:44]"
    fake.answers(f"echo '{shown}'")
    fake.run("healthcheck", planted(tmp_path / "p", planted_fire=now))
    assert not [line for line in fake.asked if line.startswith("update")]


def test_a_node_with_another_trouble_is_not_taken_back(fake: Fake, tmp_path: Path) -> None:
    """What we have drained it for is gone; but this is no healthy node."""
    reason = "preflight: planted.fire it burns [prolog job 31]"
    fake.answers(f"echo 'NodeName=n1 State=IDLE+DRAIN Reason={reason} [root@2026-11-21T23:14:44]'")
    package = planted(tmp_path / "p", planted_fire=CHECK, planted_other=judging("UNKNOWN"))
    assert fake.run("healthcheck", package).code == 0
    assert not [line for line in fake.asked if line.startswith("update")]


# --- the task prolog ---


def test_the_task_prolog_says_one_line(tmp_path: Path) -> None:
    saved = tmp_path / "r.json"
    assert preflight("run", "--only", "host.limits", "-o", f"json={saved}").code == 0
    document = json.loads(saved.read_text())
    done = preflight("slurm", "task-prolog", "--report", str(saved))
    seconds = f"{document['seconds']:.1f}s"
    assert done.code == 0
    assert done.out == (
        f"print preflight: READY 1 check {seconds} ({document['world']['nodes'][0]['name']})\n"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"observations": 1}', "\x00" * 99])
def test_without_a_good_report_it_looks_itself(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    done = preflight("slurm", "task-prolog", "--report", str(tmp_path / "r.json"))
    assert done.code == 0
    assert done.out.startswith("print preflight: ")
    assert done.out.count("\n") == 1
