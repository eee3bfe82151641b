"""What the job calls itself, its commands and its files is text to whoever reads what `gate`,
`attach` and SLURM's hooks say: the terminal, slurmd's log, scontrol's reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Done, judges, planted, preflight
from support.payloads import PAYLOADS

from preflight.sanitize import IN_LINES

ARGUMENTS = [text for text in PAYLOADS if "\0" not in text and "\ud800" not in text]
"""Those that can be words of a command line."""
TOGETHER = "".join(ARGUMENTS)


def inert(done: Done, *folders: Path) -> None:
    """Nothing of it moves a cursor, hides a text or begins a line of its own."""
    texts = [done.out, done.err]
    texts += [p.read_text() for folder in folders for p in folder.rglob("*") if p.is_file()]
    for text in texts:
        assert IN_LINES.search(text) is None
        assert not any(line.startswith("::") for line in text.splitlines())


@pytest.mark.parametrize("payload", [*ARGUMENTS[:3], TOGETHER[:3000]], ids=ascii)
def test_a_command_that_gate_can_not_start(payload: str) -> None:
    done = preflight("gate", "--only", "host.limits", "--nproc", "1", "--", f"/no/{payload}")
    assert done.code in (126, 127), done
    assert len(done.err.splitlines()) == 1
    inert(done)


@pytest.mark.parametrize("hook", ["prolog", "healthcheck"])
@pytest.mark.parametrize("payload", [TOGETHER, "".join(PAYLOADS[-7:])], ids=ascii)
def test_the_reason_of_a_drain(tmp_path: Path, hook: str, payload: str) -> None:
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f'#!/bin/sh\nfor word; do printf "%s\\n" "$word" >>{tmp_path}/asked; done\n'
        "[ $1 = update ] || echo NodeName=n1 State=IDLE\n"
    )
    scontrol.chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    found = f'yield Found("bad", tuple(s for s, _ in world.each()), saw={payload!a}, '
    package = planted(
        tmp_path / "package", planted_one=judges(f"{found} blame=Blame.NODE, fields={{}})")
    )
    slurmd = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "31", "SLURM_JOB_UID": "65534"}
    env = slurmd | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = preflight("slurm", hook, "--state", str(state), env=env, package=package)
    assert done.code == 3, done
    inert(done, state)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[:5] == ["show", "node", "-o", "n1", "update"]
    assert asked[5:7] == ["NodeName=n1", "State=DRAIN"]
    assert [word.partition("=")[0] for word in asked[7:]] == ["Reason"]


@pytest.mark.torch
def test_a_job_that_attach_looks_at(tmp_path: Path) -> None:
    script = tmp_path / "\x1b[2J\x9b31m\u202e<script>|`id`.py"
    script.write_text(
        "import os, time, torch.distributed as dist\n"
        "os.environ.update(RANK='0', WORLD_SIZE='1', MASTER_ADDR='127.0.0.1', MASTER_PORT='0')\n"
        "dist.init_process_group('gloo')\nprint('ready', flush=True)\ntime.sleep(99)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script), *ARGUMENTS], stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            files = [f"{name}={tmp_path}/report.{name}" for name in ("html", "markdown", "junit")]
            more = [word for file in files for word in ("-o", file)]
            done = preflight("attach", str(process.pid), "--for", "1s", "-v", *more, within=90.0)
        finally:
            process.kill()
    assert done.code == 0, done
    script.unlink()
    inert(done, tmp_path)
