"""Planted secrets of forty kinds are in nothing that a command prints, writes or leaves behind: in
no format, also of one that is added, in no log of a crash, and in no report of a rehearsed command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import Done, observes, planted, preflight

from preflight.config.resolve import FORMATS

QUICK = ("run", "--level", "quick")


def of(number: int) -> str:
    return f"PLANTED-{number:02}-XYZabc9"


NAMED = (
    *(
        "AWS_SECRET_ACCESS_KEY",
        "WANDB_API_KEY",
        "NCCL_MY_TOKEN",
        "HF_TOKEN",
        "PGPASSWORD",
        "DB_PASSWD",
    ),
    *(
        "GITHUB_PAT",
        "SLACK_WEBHOOK_URL",
        "SENTRY_DSN",
        "KEY_PASSPHRASE",
        "NPM_AUTH",
        "SESSION_COOKIE",
    ),
    *(
        "AZURE_STORAGE_CONNECTION_STRING",
        "GOOGLE_APPLICATION_CREDENTIALS_JSON",
        "JWT",
        "X_SIGNATURE",
    ),
    *("PREFLIGHT_TOKEN", "NCCL_SECRET"),
)
"""Variables that are secret by their names."""
INSIDE = {
    "http_proxy": f"http://user:{of(40)}@proxy:3128",
    "MASTER_ADDR": f"http://user:{of(41)}@host",
    "MASTER_PORT": f"tcp://user:{of(42)}@host:1",
    "NCCL_NET_PLUGIN": f"hf_{of(43)}abcdefgh",
    "RANK": f"token={of(44)}",
    "TMPDIR": f"/tmp/password={of(45)}",
    "CUDA_VISIBLE_DEVICES": f"key={of(46)}",
    "SLURM_JOB_ID": f"token={of(47)}",
    "NCCL_SOCKET_IFNAME": f"user:{of(48)}@b",
    "INIT_METHOD": f"tcp://user:{of(49)}@h:1",
    "LD_LIBRARY_PATH": f"/a/token={of(50)}",
    "OMP_NUM_THREADS": f"secret={of(51)}",
    "TORCH_DISTRIBUTED_DEBUG": f"https://u:{of(52)}@b",
    "NCCL_DEBUG_FILE": f"/x?X-Amz-Signature={of(53)}&b",
    "NCCL_TOPO_FILE": f"Authorization: Bearer {of(54)}",
    "NCCL_IB_HCA": f"AKIA{of(55).replace('-', '')}",
    "GLOO_SOCKET_IFNAME": f"eyJ{of(56)}.eyJ{of(56)}.x",
    "NCCL_TUNER_CONFIG_PATH": f"Server=h;Uid=u;Pwd={of(71)};",
    "NCCL_COMM_ID": f'{{"token": "{of(72)}"}}',
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"machine h login u password {of(73)}",
    "GLOO_DEVICE_TRANSPORT": f"glpat-{of(74)}",
    "NCCL_HOSTID": f"-----BEGIN PRIVATE KEY-----\nMIIE{of(75)}\n-----END PRIVATE KEY-----",
    "NCCL_GRAPH_FILE": f"https://hooks.slack.com/services/T0/B0/{of(76)}",
    "TORCH_CUDA_ARCH_LIST": f"password: {of(77)}",
    # a secret by its name, and in the value of another variable
    "NCCL_ALGO": of(1),
    "TORCH_LOGS": f"x{of(3)}x",
}
"""Variables that hold one, and that checks show."""
SECRETS = {name: of(number) for number, name in enumerate(NAMED)} | INSIDE
TYPED = (
    *("--api-key", of(60), f"--passphrase={of(61)}", "-p", of(62), "-u", f"user:{of(63)}"),
    *("--header", f"Authorization: Basic {of(64)}", f"https://user:{of(65)}@host/x"),
    *("--auth-token", of(66), f"password={of(67)}", f"--db-password=a {of(68)} b"),
    f"https://api.telegram.org/bot12345678:{of(69)}",
)
"""Words of a command line."""

MEANT = (
    *(
        "RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "LD_LIBRARY_PATH",
        "TMPDIR",
        "INIT_METHOD",
        "TORCH_LOGS",
    ),
    *("OMP_NUM_THREADS", "TORCH_DISTRIBUTED_DEBUG", "SLURM_JOB_ID", "GLOO_SOCKET_IFNAME"),
    "GLOO_DEVICE_TRANSPORT",
)
"""Those with which a script would not begin."""
SCRIPT = """\
import logging, os, sys
import torch.distributed as dist

os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo")
try:
    raise KeyError(f"token {os.environ['HF_TOKEN']} of {os.environ['http_proxy']}")
except KeyError as error:
    kept = error
raise ValueError(f"{kept} with {sys.argv[1:]!r} and password={os.environ['PGPASSWORD']}")
"""


def test_there_are_forty_kinds() -> None:
    assert len(SECRETS) + len([word for word in TYPED if "PLANTED" in word]) >= 40


def found_in(done: Done, *folders: Path) -> list[str]:
    """Where one of them stands: in what was said, and in whatever is in these folders."""
    texts = {"stdout": done.out, "stderr": done.err}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                texts[str(path)] = path.read_bytes().decode(errors="replace")
    return [
        f"{name}: {text[max(0, found.start() - 60) : found.end()]}"
        for name, text in texts.items()
        for found in re.finditer(r"PLANTED-?\d+", text)
    ]


@pytest.mark.parametrize(
    "given", [("-v",), ("--ascii",), ("-o", "json"), ("-o", "markdown")], ids=" ".join
)
def test_run(tmp_path: Path, given: tuple[str, ...]) -> None:
    files = [word for name in FORMATS for word in ("-o", f"{name}={tmp_path}/report.{name}")]
    done = preflight(
        *QUICK, *given, *(files if given[0] != "-o" else ()), env=SECRETS, cwd=tmp_path
    )
    assert done.code == 3
    if given[0] != "-o":
        assert len(list(tmp_path.iterdir())) == len(FORMATS)
        assert "***" in (tmp_path / "report.json").read_text()
    assert found_in(done, tmp_path) == []


SLOW = """
    import time
    time.sleep(2.5)
    return Answer()
"""


def test_while_it_goes_on(tmp_path: Path) -> None:
    """What has failed is said before the report is there, once a run takes longer than a moment."""
    package = planted(tmp_path / "package", planted_slow=observes(SLOW))
    check = package / "preflight/checks/planted_slow.py"
    check.write_text(check.read_text().replace("budget=0.5", "budget=5.0"))
    done = preflight("run", env=SECRETS, package=package, cwd=tmp_path)
    assert " failed: " in done.err
    assert found_in(done) == []


def test_plan(tmp_path: Path) -> None:
    done = preflight("plan", "-v", env=SECRETS, cwd=tmp_path)
    assert found_in(done, tmp_path) == []


def test_a_crash(tmp_path: Path) -> None:
    """Of the parent: where the judge's own code fails."""
    package = planted(tmp_path / "package")
    module = package / "preflight/judge/verdict.py"
    bug = """import os
def judge(*a):
    raise RuntimeError(os.environ["HF_TOKEN"] + os.environ["http_proxy"])

def _j(
"""
    text = module.read_text()
    assert "def judge(\n" in text
    module.write_text(text.replace("def judge(\n", bug))
    done = preflight(*QUICK, env=SECRETS, package=package, cwd=tmp_path)
    named = re.findall(r"/tmp/preflight-crash-\w+\.\w+", done.err)
    logs = [Path(name) for name in dict.fromkeys(named)]
    try:
        assert done.code == 70
        assert logs
        kept = tmp_path / "kept"
        kept.mkdir()
        for log in logs:
            (kept / log.name).write_bytes(log.read_bytes())
        assert found_in(done, kept) == []
    finally:
        for log in logs:
            log.unlink()


@pytest.mark.torch
def test_a_rehearsal(tmp_path: Path) -> None:
    """What the script itself prints is its own affair: that it goes to the terminal unread."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    reports = tmp_path / "reports"
    reports.mkdir()
    files = [word for name in FORMATS for word in ("-o", f"{name}={reports}/report.{name}")]
    env = {name: value for name, value in SECRETS.items() if name not in MEANT}
    done = preflight(
        "rehearse",
        *files,
        "--",
        sys.executable,
        str(script),
        *TYPED,
        env=env,
        cwd=tmp_path,
        within=90.0,
    )
    assert done.code == 3, done
    assert "ValueError" in (reports / "report.json").read_text()
    assert found_in(Done(done.code, "", "", 0.0), reports) == []
    ours = done.out[done.out.index("preflight ") :] if "preflight " in done.out else done.out
    assert not re.search(r"PLANTED-?\d+", ours)


def every_format(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return [word for name in FORMATS for word in ("-o", f"{name}={folder}/report.{name}")]


def test_gate(tmp_path: Path) -> None:
    """One that refuses, and one that starts its command."""
    reports = every_format(tmp_path / "reports")
    words = ("--", "true", *TYPED)
    done = preflight("gate", "--level", "quick", "-v", *reports, *words, env=SECRETS, cwd=tmp_path)
    assert done.code == 3
    assert "true was not started" in done.err
    assert found_in(done, tmp_path) == []
    named = {name: SECRETS[name] for name in NAMED}
    done = preflight("gate", "--only", "host.limits", *reports, *words, env=named, cwd=tmp_path)
    assert done.code == 0
    assert found_in(done, tmp_path) == []
    done = preflight("gate", "--only", "host.limits", "--", f"/no/token={of(70)}", cwd=tmp_path)
    assert done.code == 127
    assert found_in(done) == []


WAITS = """\
import os, sys, time
import torch.distributed as dist

os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("gloo")
print("ready", flush=True)
time.sleep(120)
"""


@pytest.mark.torch
@pytest.mark.parametrize("job", ["torch", "none"])
def test_attach(tmp_path: Path, job: str) -> None:
    """The job was started with all of them, and so are we."""
    script = tmp_path / "train.py"
    script.write_text(
        WAITS if job == "torch" else "import time; print(1, flush=True); time.sleep(99)"
    )
    env = {name: value for name, value in SECRETS.items() if name not in MEANT}
    reports = every_format(tmp_path / "reports")
    with subprocess.Popen(
        [sys.executable, str(script), *TYPED],
        env={"PATH": os.environ["PATH"], **env},
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            given = ("attach", str(process.pid), "--for", "1s", "-v", *reports)
            done = preflight(*given, env=env, cwd=tmp_path, within=90.0)
        finally:
            process.kill()
    assert done.code == (2 if job == "none" else 0), done
    assert found_in(done, tmp_path / "reports") == []


SAYS = '401 for {os.environ.get("HF_TOKEN")} of {os.environ.get("http_proxy")}'


@pytest.mark.parametrize("hook", ["prolog", "healthcheck", "epilog", "task-prolog"])
@pytest.mark.parametrize("how", ["well", "blind", "broken"])
def test_hooks(tmp_path: Path, hook: str, how: str) -> None:
    """slurmd gives them the job's variables."""
    state = tmp_path / "state"
    state.mkdir()
    slurmd = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "31", "SLURM_JOB_UID": "65534"}
    env = {name: value for name, value in SECRETS.items() if name != "TMPDIR"} | slurmd
    body = {
        "well": "return Answer()",
        "blind": f"import os\nraise CannotObserve(f'{SAYS}')",
        "broken": f"import os\nraise ValueError(f'{SAYS}')",
    }
    package = planted(tmp_path / "package", planted_one=observes(body[how]))
    done = preflight("slurm", hook, "--state", str(state), env=env, package=package, cwd=tmp_path)
    assert done.code in (0, 3)
    assert found_in(done, state) == []
