"""The scripts that slurmd runs around the hooks."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import preflight

from preflight.cli.slurm import FOLDER
from preflight.slurm import wrapper_script

SHELLS = [[name] for name in ("sh", "dash", "bash", "busybox") if shutil.which(name)]
SHELLS = [[*words, "sh"] if words == ["busybox"] else words for words in SHELLS]
PYTHON = "/opt/my tools/python's"


@pytest.mark.parametrize("hook", wrapper_script.SETTING)
@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_a_script_is_good_shell(shell: list[str], hook: str) -> None:
    text = wrapper_script.script(hook, PYTHON, FOLDER, "/etc/my slurm/$x.conf")
    ended = subprocess.run([*shell, "-n"], input=text, capture_output=True, text=True, timeout=10)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert shlex.quote(PYTHON) in text
    assert max(map(len, text.splitlines())) <= 110


def played(hook: str, folder: Path, python: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A script as slurmd runs it, with this shell in place of the interpreter."""
    (folder / "python").write_text(f"#!/bin/sh\n{python}\n")
    (folder / "python").chmod(0o755)
    (folder / "state").mkdir(exist_ok=True)
    text = wrapper_script.script(hook, str(folder / "python"), str(folder / "state"))
    (folder / "hook.sh").write_text(text)
    return subprocess.run(
        ["sh", str(folder / "hook.sh")],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 70, 74, 124, 126, 127, 137, 143, 255])
@pytest.mark.parametrize("hook", wrapper_script.SETTING)
def test_one_code_of_one_hook_is_an_end(tmp_path: Path, hook: str, code: int) -> None:
    ended = played(hook, tmp_path, f"echo said >&2; exit {code}", SLURM_JOB_ID="5")
    assert ended.returncode == (1 if (hook, code) == ("prolog", 3) else 0)
    assert (ended.stdout, ended.stderr) == ("", "")
    logs = [path.name for path in (tmp_path / "state").iterdir()]
    assert logs == ([] if hook == "task-prolog" else [f"{hook}-5.log"])


def test_the_verdict_counts_where_no_log_can_be_kept(tmp_path: Path) -> None:
    played("prolog", tmp_path, "exit 0")
    text = (tmp_path / "hook.sh").read_text().replace(str(tmp_path / "state"), "/dev/null/state")
    (tmp_path / "python").write_text("#!/bin/sh\nexit 3\n")
    ended = subprocess.run(["sh", "-c", text], timeout=30, env={}, check=False)
    assert ended.returncode == 1
    assert Path("/dev/null").is_char_device()


def test_what_a_script_passes_on(tmp_path: Path) -> None:
    """Names of the node and its cluster, whatever is in them, and nothing of the job's."""
    odd = "a b'c\"d$(touch x)\n*"
    job = {"SLURM_JOB_COMMENT": odd, "CUDA_VISIBLE_DEVICES": "7", "HOME": "/h", "PYTHONPATH": "/p"}
    env = {"SLURM_CLUSTER_NAME": odd, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "../../5", **job}
    played("prolog", tmp_path, "env -0 >&2; echo $0 $*; exit 0", **env)
    (log,) = (tmp_path / "state").iterdir()
    assert log.name == "prolog-none.log"
    text = log.read_text()
    assert f"SLURM_CLUSTER_NAME={odd}\0" in text
    assert "SLURMD_NODENAME=n1\0" in text
    for name in job:
        assert name not in text
    assert "-I -m preflight slurm prolog" in text


def test_where_the_cluster_is_configured_elsewhere(tmp_path: Path) -> None:
    """A health check is not told by slurmd."""
    text = wrapper_script.script("healthcheck", "/usr/bin/python3", FOLDER, "/srv/a b/$c.conf")
    line = next(line for line in text.splitlines() if "/srv" in line)
    told = subprocess.run(
        ["sh", "-c", f'{line}\nprintf %s "$SLURM_CONF"'], capture_output=True, text=True, env={}
    )
    assert told.stdout == "/srv/a b/$c.conf"


def test_the_task_prolog_is_said_once_a_node(tmp_path: Path) -> None:
    said = "echo print once"
    assert played("task-prolog", tmp_path, said, SLURM_LOCALID="0").stdout == "print once\n"
    assert played("task-prolog", tmp_path, said, SLURM_LOCALID="1").stdout == ""


def test_the_command_prints_the_script_with_this_interpreter() -> None:
    done = preflight("slurm", "snippet", "epilog")
    assert done.out == wrapper_script.script("epilog", sys.executable, FOLDER)
    done = preflight("slurm", "snippet", "prolgo")
    assert done.code == 2
    assert "did you mean 'prolog'?" in done.said
