"""Each value from where the contract says, with its source; unknown names are
refused with the nearest."""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import LIMITS, preflight

from preflight import registry
from preflight.check import Level
from preflight.config import file
from preflight.config import resolve as config
from preflight.config.resolve import Config, Flags, Output, seconds_of
from preflight.judge.policy import Waiver
from preflight.model import PreflightError, Setting
from preflight.registry import Catalogue

TODAY = datetime.date(2026, 5, 1)


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return registry.load()


@pytest.fixture
def resolve(catalogue: Catalogue) -> Any:
    """resolve(flags, TOML text) -> Config."""

    def resolved(flags: Flags | None = None, text: str = "") -> Config:
        return config.resolve(
            flags or Flags(), file.parsed("f.toml", text), "f.toml", catalogue, TODAY
        )

    return resolved


# --- where the file is ---


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A working directory and a HOME that both hold a config file."""
    made = {
        "cwd": tmp_path / "job" / "preflight.toml",
        "xdg": tmp_path / "xdg" / "preflight" / "config.toml",
        "home": tmp_path / "home" / ".config" / "preflight" / "config.toml",
    }
    for path in made.values():
        path.parent.mkdir(parents=True)
        path.write_text("")
    monkeypatch.chdir(tmp_path / "job")
    return made


def found(root: bool = False, given: str | None = None, **environ: str) -> str:
    return str(file.find(given, environ, root=root) or "")


ETC = "/etc/preflight/config.toml"
needs_no_etc = pytest.mark.skipif(os.path.exists(ETC), reason=f"this machine has {ETC}")


@needs_no_etc
def test_the_nearest_file_wins(places: dict[str, Path], tmp_path: Path) -> None:
    home, xdg = str(tmp_path / "home"), str(tmp_path / "xdg")
    assert found(given="x.toml", HOME=home) == "x.toml"
    assert found(HOME=home, XDG_CONFIG_HOME=xdg) == "./preflight.toml"
    places["cwd"].unlink()
    assert found(HOME=home, XDG_CONFIG_HOME=xdg) == str(places["xdg"])
    assert found(HOME=home) == str(places["home"])
    assert found() == ""


@needs_no_etc
def test_root_takes_none_that_another_user_may_have_put_there(
    places: dict[str, Path], tmp_path: Path
) -> None:
    assert (
        found(root=True, HOME=str(tmp_path / "home"), XDG_CONFIG_HOME=str(tmp_path / "xdg")) == ""
    )
    assert found(root=True, given="preflight.toml") == "preflight.toml", "unless asked to"


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be it")
STRANGER, STRANGERS = 54321, 54322


@ROOT
@needs_no_etc
@pytest.mark.parametrize(
    ("mode", "uid", "of", "why"),
    [
        (0o644, STRANGER, "cwd", "it belongs to another user"),
        (0o666, 0, "cwd", "every user may write to it"),
        (0o664, 0, "cwd", "other users may write to it"),
        (0o755, STRANGER, "job", "its folder belongs to another user"),
        (0o1777, 0, "job", "every user may write to its folder"),
        (0o775, 0, "job", "other users may write to its folder"),
    ],
)
def test_a_file_that_another_may_have_written_is_not_taken(
    places: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    mode: int,
    uid: int,
    of: str,
    why: str,
) -> None:
    home = {"XDG_CONFIG_HOME": str(places["xdg"].parents[1])}
    for name, there in (("cwd", places["cwd"]), ("xdg", places["xdg"])):
        path = there if of == "cwd" else there.parent
        before = path.stat()
        os.chown(path, uid, STRANGERS)
        path.chmod(mode)
        assert found(**home) == ("" if name == "xdg" else str(places["xdg"]))
        told = "./preflight.toml" if name == "cwd" else str(there)
        said = f"preflight: config {told}: not used: {why} (--config takes it all the same)"
        assert said in capsys.readouterr().err.splitlines()
        if name == "xdg":
            os.chown(path, before.st_uid, before.st_gid)
            path.chmod(before.st_mode)
    assert found(given="preflight.toml") == "preflight.toml", "what is named is trusted"


@ROOT
@needs_no_etc
def test_nor_one_that_a_link_leads_to_where_another_may_write(
    places: dict[str, Path], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    places["cwd"].rename(theirs / "x.toml")
    places["cwd"].symlink_to(theirs / "x.toml")
    assert found() == "./preflight.toml"
    os.chown(theirs, STRANGER, STRANGERS)
    assert found() == ""


def test_a_group_of_ones_own_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the umask is 002 and everybody has a group alone; not with an ACL for others."""
    mine = SimpleNamespace(pw_name="eve", gr_name="eve", gr_mem=["eve"])
    monkeypatch.setattr(file.pwd, "getpwuid", lambda uid: mine)
    monkeypatch.setattr(file.grp, "getgrgid", lambda gid: mine)
    assert file._is_own_group(1000)
    assert not file._is_own_group(0)
    mine.gr_mem = ["eve", "mallory"]
    assert not file._is_own_group(1000)
    mine.gr_mem, mine.gr_name = [], "users"
    assert not file._is_own_group(1000)


@pytest.mark.parametrize("path", ["/tmp/x", "~/x", "../x", "a/../../x", "~root/x"])
def test_a_file_that_was_found_here_names_none_elsewhere(catalogue: Catalogue, path: str) -> None:
    table = {"output": [{"format": "json", "file": path}]}
    with pytest.raises(PreflightError, match="outside of the working directory"):
        config.resolve(Flags(), table, file.HERE, catalogue, TODAY)
    given = config.resolve(Flags(), table, "preflight.toml", catalogue, TODAY)
    assert given.outputs[1] == Output("json", path)


def test_a_file_that_was_found_here_says_not_what_is_run(catalogue: Catalogue) -> None:
    table = {"python": "./python"}
    with pytest.raises(PreflightError, match="may say what is run"):
        config.resolve(Flags(), table, file.HERE, catalogue, TODAY)
    assert config.resolve(Flags(), table, "preflight.toml", catalogue, TODAY).python == "./python"
    assert config.resolve(Flags(python="/p"), table, file.HERE, catalogue, TODAY).python == "/p"


def test_the_file_that_was_taken_is_a_setting(catalogue: Catalogue) -> None:
    table = {"output": [{"format": "json", "file": "out/x.json"}]}
    found_here = config.resolve(Flags(), table, file.HERE, catalogue, TODAY)
    assert found_here.outputs[1] == Output("json", "out/x.json", below=True)
    assert found_here.shown["config"] == Setting(
        f"{os.getcwd()}/preflight.toml", "working directory"
    )
    assert "config" not in config.resolve(Flags(), {}, "", catalogue, TODAY).shown


@ROOT
def test_root_as_a_user_has_it(tmp_path: Path) -> None:
    (tmp_path / "preflight.toml").write_text("this is no TOML")
    (tmp_path / ".config" / "preflight").mkdir(parents=True)
    (tmp_path / ".config" / "preflight" / "config.toml").write_text("nor is this")
    assert preflight("run", *LIMITS, cwd=tmp_path, env={"HOME": str(tmp_path)}).code == 0


@needs_no_etc
def test_a_home_that_may_not_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HOME=/root in a container that runs as somebody else."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").write_text("not even a folder")
    assert found(HOME=str(tmp_path / "home")) == ""
    assert found(HOME=f"{tmp_path}/\0") == ""


# --- its text ---


def refused(path: Path) -> str:
    with pytest.raises(PreflightError) as error:
        file.read(path)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"config {path}: ")
    return line.removeprefix(f"config {path}: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"level = ", "no TOML: Invalid value"),
        (b"a = 1\na = 2", "no TOML: Cannot overwrite a value"),
        (b"\xff\xfe", "no TOML: it is no UTF-8 text"),
        (b"a = '\0'", "no TOML: "),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"#" * (2 << 20), "larger than 1 MiB"),
    ],
    ids=range(6),
)
def test_a_file_that_is_no_config(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    assert refused(path).startswith(said)


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent") == "No such file or directory"
    assert refused(tmp_path) == "Is a directory"
    assert refused(Path("/dev/zero")) == "larger than 1 MiB"


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refused(tmp_path / "fifo") == "a FIFO, not a file"


def test_dev_null_is_an_empty_config() -> None:
    assert file.read("/dev/null") == {}


# --- unknown and wrong ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("levl = 'quick'", "no key 'levl'; did you mean 'level'?"),
        ("[expct]", "no key 'expct'; did you mean 'expect'?"),
        ("[expect]\ngpu_per_node = 4", "[expect]: no key 'gpu_per_node'; did you mean 'gpus_per_"),
        ('[checks."net.prt"]', "[checks]: no check 'net.prt'; did you mean 'net.port'?"),
        ('[checks."net.port"]\ntimout = 1', "no key 'timout'; did you mean 'timeout'?"),
        ('[checks."world.ddp"]\nbakend = "nccl"', "no key 'bakend'; did you mean 'backend'?"),
        ('[tolerate."net.prt"]', "[tolerate]: no check 'net.prt'; did you mean 'net.port'?"),
        ('[tolerate."net.port"]\nwhy = "x"\nuntl = 1', "no key 'untl'; did you mean 'until'?"),
        ("[[output]]\nformt = 'json'", "[[output]]: no key 'formt'; did you mean 'format'?"),
        (
            "[[output]]\nformat = 'jsn'",
            "[[output]]: no format 'jsn', there are human, json, junit, ",
        ),
        ("only = 'net.prt'", "only: no check 'net.prt'; did you mean 'net.port'?"),
        ("skip = ['net.port', 'hots']", "skip: no check 'hots'; did you mean 'host'?"),
        (
            "level = 'quik'",
            "level is one of quick, standard, deep, got 'quik'; did you mean",
        ),
        ("level = 3", "level is one of quick, standard, deep, got 3"),
        ("strict = 'yes'", "strict wants true or false"),
        ("nproc = '4'", "nproc wants a number from 1 to 4096"),
        ("nproc = true", "nproc wants a number from 1 to 4096"),
        ("nproc = 1000000000", "nproc wants a number from 1 to 4096"),
        ("deadline = true", "deadline wants a time such as 90s or 2m, got 'True'"),
        ("deadline = '9 weeks'", "deadline wants a time such as 90s or 2m, got '9 weeks'"),
        ("only = [3]", "only wants a list of ids"),
        ("only = ''", "only names no check"),
        ("checks = 3", "checks wants to be a table"),
        ('[checks]\n"net.port" = 3', '[checks."net.port"] wants to be a table'),
        ('[checks."net.port"]\ntimeout = "soon"', '[checks."net.port"] timeout wants a time such'),
        ('[checks."net.port"]\nenabled = false', '[checks."net.port"] enabled is one of quick, st'),
        ('[checks."host.storage"]\ninit_file = 3', "init_file wants a text: path or file://"),
        ('[checks."host.storage"]\ninit_file = 2020-01-01', "init_file wants a text"),
        ("checkpoint_dir = 3", "checkpoint_dir wants the name of a folder"),
        ("checkpoint_dir = ''", "checkpoint_dir wants the name of a folder"),
        ("python = 3", "python wants the name of an interpreter"),
        ("python = ''", "python wants the name of an interpreter"),
        ("expect = 3", "expect wants to be a table"),
        ("[expect]\nnofile = 'many'", "[expect] nofile wants a number, got 'many'"),
        ("[expect]\nnofile = nan", "[expect] nofile wants a number, got nan"),
        ("[expect]\nnofile = -1", "[expect] nofile wants a number, got -1"),
        ("[expect]\nnofile = true", "[expect] nofile wants a number, got True"),
        ("[expect]\ngpus_per_node = 1.5", "[expect] gpus_per_node wants a whole number, got 1.5"),
        ("[expect]\nnccl = 'new'", "[expect] nccl wants a version such as >=2.6, got 'new'"),
        ("[expect]\ngpu_model = 100", "[expect] gpu_model wants a text, got 100"),
        ('[tolerate]\n"net.port" = "x"', "wants a table with why and until"),
        ('[tolerate."net.port"]', "wants a reason: why = …"),
        ('[tolerate."net.port"]\nwhy = " "', "wants a reason: why = …"),
        ('[tolerate."net.port"]\nwhy = "x"\nuntil = "soon"', "until wants a date such as 2026-12"),
        ("output = 'json'", "output wants to be written as [[output]]"),
        ("[[output]]\nfile = 'x'", "[[output]]: no format ''"),
        ("[[output]]\nformat = 'json'\nfile = 3", "[[output]] file wants the name of a file"),
        (
            "[[output]]\nformat = 'json'\n[[output]]\nformat = 'human'",
            "only one -o can go to",
        ),
    ],
)
def test_what_a_file_may_not_say(resolve: Any, text: str, said: str) -> None:
    with pytest.raises(PreflightError) as error:
        resolve(text=text)
    assert said in str(error.value)
    if "only one" not in said:
        assert str(error.value).startswith("config f.toml: ")


@given(st.text(max_size=40))
def test_any_time_is_one_or_refused(text: str) -> None:
    try:
        seconds = seconds_of(text, "x")
    except PreflightError:
        return
    assert 0 < seconds <= config.LONGEST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("2m", 120),
        ("1.5", 1.5),
        ("5ms", 0.005),
        ("1 h", 3600),
        (" 3 min ", 180),
        (7, 7),
    ],
)
def test_times(text: object, seconds: float) -> None:
    assert seconds_of(text, "x") == seconds


# --- precedence and sources ---


def test_a_flag_goes_before_the_file_before_the_default(resolve: Any) -> None:
    sources = {"level": "env PREFLIGHT_LEVEL"}
    chosen = resolve(Flags(level="deep", sources=sources), "level = 'quick'\ndeadline = '5s'")
    assert chosen.level is Level.DEEP
    assert chosen.deadline == 5.0
    assert chosen.shown["level"] == Setting("deep", "env PREFLIGHT_LEVEL")
    assert chosen.shown["deadline"] == Setting(5.0, "config f.toml")
    assert chosen.shown["strict"] == Setting(False, "default")


def test_a_file_that_says_everything(resolve: Any) -> None:
    text = """
        level = "standard"
        deadline = "2m"
        arrive = "20s"
        strict = true
        nproc = 4
        only = ["net", "host.*"]
        skip = ["net.port"]
        checkpoint_dir = "/ckpt"
        [expect]
        gpus_per_node = 4
        gpu_model = "H100"
        nccl = ">=2.26"
        shm_gib = 0.5
        [checks."net.name"]
        timeout = "3s"
        [checks."world.nccl"]
        enabled = "deep"
        [checks."world.ddp"]
        backend = "nccl"
        [tolerate."net.port"]
        why = "INC-1"
        until = 2026-05-01
        [[output]]
        format = "json"
        file = "r.json"
    """
    chosen = resolve(text=text)
    assert (chosen.level, chosen.deadline, chosen.nproc) == (Level.STANDARD, 120.0, 4)
    assert chosen.arrive == 20.0
    assert chosen.nproc_source == "config f.toml"
    assert chosen.policy.strict
    assert chosen.policy.today == "2026-05-01"
    assert chosen.policy.waivers == (Waiver("net.port", "INC-1", "2026-05-01"),)
    assert chosen.only == ("net", "host.*")
    assert chosen.skip == ("net.port",)
    assert chosen.budgets == {"net.name": 3.0}
    assert chosen.enabled == {"world.nccl": Level.DEEP}
    assert chosen.options == {
        "world.ddp": {"backend": "nccl"},
        "host.storage": {"checkpoint_dir": "/ckpt"},
    }
    assert chosen.expect.number("gpus_per_node") == 4
    assert chosen.expect.number("shm_gib") == 0.5
    assert chosen.expect.text("nccl") == ">=2.26"
    assert chosen.outputs == (Output("human"), Output("json", "r.json"))
    sources = {name: s.source for name, s in chosen.shown.items()}
    assert sources.pop("config") == "config file"
    assert {*sources.values()} == {"config f.toml"}
    tolerated = chosen.shown["tolerate.net.port"]
    assert tolerated.value == {"why": "INC-1", "until": "2026-05-01"}


def test_a_timeout_of_the_flag_goes_before_that_of_the_file(resolve: Any) -> None:
    flags = Flags(timeout=("net=2s",), sources={"timeout": "--timeout"})
    chosen = resolve(flags, '[checks."net.name"]\ntimeout = "3s"\n[checks."host.cpu"]\ntimeout = 4')
    assert chosen.budgets["net.name"] == chosen.budgets["net.port"] == 2.0
    assert chosen.budgets["host.cpu"] == 4.0
    assert chosen.shown["timeout.net.name"] == Setting(2.0, "--timeout")
    assert chosen.shown["timeout.host.cpu"] == Setting(4.0, "config f.toml")


def test_an_expectation_of_the_flag_goes_before_that_of_the_file(resolve: Any) -> None:
    chosen = resolve(Flags(expect=("nofile=5", "torch=2.6")), "[expect]\nnofile = 7\nshm_gib = 1")
    assert chosen.expect.number("nofile") == 5
    assert chosen.expect.source("nofile") == "--expect nofile=5"
    assert chosen.expect.source("shm_gib") == "config f.toml"
    flags = Flags(expect=("nofile=5",), sources={"expect": "env PREFLIGHT_EXPECT"})
    assert resolve(flags).expect.source("nofile") == "env PREFLIGHT_EXPECT"


def test_waivers_of_flags_go_first_and_patterns_become_ids(resolve: Any) -> None:
    flags = Flags(tolerate=("net.po*,host.cpu",))
    chosen = resolve(flags, '[tolerate."host.cpu"]\nwhy = "x"\nuntil = 2020-01-01')
    assert [w.pattern for w in chosen.policy.waivers] == ["net.port", "host.cpu", "host.cpu"]
    assert chosen.shown["tolerate.host.cpu"].source == "--tolerate"


def test_an_old_id_is_the_new_one_everywhere(catalogue: Catalogue) -> None:
    import dataclasses

    loaded = catalogue.checks["net.port"]
    renamed = dataclasses.replace(loaded, check=dataclasses.replace(loaded.check, was=("old.id",)))
    known = Catalogue({**catalogue.checks, "net.port": renamed}, {})
    flags = Flags(only=("old.id",), tolerate=("old.id",), timeout=("old.id=2s",))
    table = {"checks": {"old.id": {"enabled": "deep"}}}
    chosen = config.resolve(flags, table, "f", known, TODAY)
    assert chosen.policy.waivers[0].pattern == "net.port"
    assert chosen.budgets == {"net.port": 2.0}
    assert chosen.enabled == {"net.port": Level.DEEP}
    selected = registry.select(known, level=chosen.level, only=chosen.only)
    assert list(selected) == ["net.port"]


def test_the_outputs_of_flags_replace_those_of_the_file(resolve: Any) -> None:
    text = "[[output]]\nformat = 'json'\nfile = 'a'"
    assert resolve(text=text).outputs == (Output("human"), Output("json", "a"))
    assert resolve(Flags(output=("json",)), text).outputs == (Output("json"),)
    assert resolve(Flags(output=("json=b", "human=-")), text).outputs == (
        Output("json", "b"),
        Output("human"),
    )


def test_a_relative_checkpoint_folder_is_that_of_the_caller(
    resolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = resolve(Flags(checkpoint_dir="here"))
    assert chosen.options["host.storage"]["checkpoint_dir"] == str(tmp_path / "here")


@pytest.mark.parametrize(
    ("flags", "text", "wants"),
    [
        (Flags(), "", True),
        (Flags(level="quick"), "", False),
        (Flags(level="deep"), "level = 'quick'", True),
        (Flags(), "level = 'quick'", False),
        (Flags(only=("net",)), "", False),
        (Flags(), "skip = ['world']", False),
    ],
)
def test_torch_is_begun_early_where_it_is_surely_needed(
    flags: Flags, text: str, wants: bool
) -> None:
    assert config.wants_torch(flags, file.parsed("f.toml", text)) is wants


@pytest.mark.parametrize(
    ("flags", "text", "level"),
    [
        (Flags(), "", Level.STANDARD),
        (Flags(level="quick"), "", Level.QUICK),
        (Flags(level="deep"), "", Level.DEEP),
        (Flags(), "level = 'quick'", Level.QUICK),
        (Flags(level="standard"), "level = 'quick'", Level.STANDARD),
        (Flags(level="quick", skip=("net",)), "", Level.STANDARD),
        (Flags(level="quick", only=("env.*,host",)), "", Level.QUICK),
        (Flags(level="quick", timeout=("net.mesh=2s",)), "", Level.STANDARD),
        (Flags(level="quick"), "[checks.'net.mesh']\nenabled = 'quick'", Level.STANDARD),
        (Flags(level="quick"), "[tolerate.'net.mesh']\nwhy = 'x'", Level.STANDARD),
        (Flags(), "only = 'job.model'", Level.DEEP),
        (Flags(only=("*",)), "", Level.DEEP),
        (Flags(level="quick", only=("net.mehs",)), "", Level.DEEP),
        (Flags(level="quick"), "skip = 5", Level.DEEP),
        (Flags(level="fast"), "", Level.DEEP),
        (Flags(only=("odd",)), "", Level.DEEP),
    ],
)
def test_what_a_run_loads(flags: Flags, text: str, level: Level) -> None:
    """What its level has and what is named; all of it where a name is wrong."""
    declared = {
        "env.vars": "quick",
        "host.cpu": "quick",
        "net.port": "quick",
        "net.mesh": "standard",
        "job.model": "deep",
        "odd.level": "leisurely",
    }
    assert config.level_needed(flags, file.parsed("f.toml", text), declared) is level


# --- the environment ---


def settings(*args: str, **env: str) -> dict[str, Any]:
    done = preflight("run", *args, "-o", "json", env=env)
    assert done.code == 0, done
    found: dict[str, Any] = done.document["settings"]
    return found


def test_every_flag_from_its_variable(tmp_path: Path) -> None:
    done = preflight(
        "run",
        env={
            "PREFLIGHT_NPROC": "2",
            "PREFLIGHT_LEVEL": "quick",
            "PREFLIGHT_ONLY": "net.port,host.limits",
            "PREFLIGHT_SKIP": "net.port",
            "PREFLIGHT_TOLERATE": "host.limits",
            "PREFLIGHT_STRICT": "1",
            "PREFLIGHT_EXPECT": "nofile=1000000000 shm_gib=0",
            "PREFLIGHT_DEADLINE": "9s",
            "PREFLIGHT_ARRIVE": "8s",
            "PREFLIGHT_NODES": "1",
            "PREFLIGHT_NODE_RANK": "0",
            "PREFLIGHT_MEET": "127.0.0.1:29511",
            "PREFLIGHT_TIMEOUT": "net.port=3s host.limits=4s",
            "PREFLIGHT_CHECKPOINT_DIR": "/tmp",
            "PREFLIGHT_PYTHON": sys.executable,
            "PREFLIGHT_EXIT": "nagios",
            "PREFLIGHT_OUTPUT": f"human json={tmp_path}/r.json",
            "PREFLIGHT_QUIET": "1",
            "PREFLIGHT_COLOR": "always",
            "PREFLIGHT_ASCII": "1",
            "PREFLIGHT_CONFIG": "/dev/null",
        },
    )
    assert done.code == 1, "nagios: READY with a warning that is tolerated"
    assert done.out.isascii()
    assert "\x1b[" in done.out
    assert "identity" not in done.out
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["world"]["size"] == 2
    assert document["skipped"] == ["net.port"]
    assert document["tolerated"] == ["host.limits"]
    shown = {name: s["from"] for name, s in document["settings"].items()}
    assert shown == {
        "nproc": "env PREFLIGHT_NPROC",
        "level": "env PREFLIGHT_LEVEL",
        "only": "env PREFLIGHT_ONLY",
        "skip": "env PREFLIGHT_SKIP",
        "strict": "env PREFLIGHT_STRICT",
        "nodes": "env PREFLIGHT_NODES",
        "node_rank": "env PREFLIGHT_NODE_RANK",
        "meet": "env PREFLIGHT_MEET",
        "deadline": "env PREFLIGHT_DEADLINE",
        "arrive": "env PREFLIGHT_ARRIVE",
        "checkpoint_dir": "env PREFLIGHT_CHECKPOINT_DIR",
        "python": "env PREFLIGHT_PYTHON",
        "timeout.net.port": "env PREFLIGHT_TIMEOUT",
        "timeout.host.limits": "env PREFLIGHT_TIMEOUT",
        "expect.nofile": "env PREFLIGHT_EXPECT",
        "expect.shm_gib": "env PREFLIGHT_EXPECT",
        "tolerate.host.limits": "env PREFLIGHT_TOLERATE",
    }


def test_an_error_names_the_variable() -> None:
    for name, value in (("ONLY", "net.prt"), ("LEVEL", "quik"), ("TIMEOUT", "x"), ("EXIT", "y")):
        done = preflight("run", env={f"PREFLIGHT_{name}": value})
        assert done.code == 2
        assert done.said.startswith(f"preflight: env PREFLIGHT_{name}")


def test_a_flag_goes_before_its_variable() -> None:
    shown = settings(*LIMITS, PREFLIGHT_ONLY="net.port", PREFLIGHT_LEVEL="quick")
    assert shown["only"] == {"value": ["host.limits"], "from": "--only"}
    assert shown["level"] == {"value": "quick", "from": "env PREFLIGHT_LEVEL"}


def test_an_empty_variable_says_nothing() -> None:
    shown = settings(*LIMITS, PREFLIGHT_LEVEL="", PREFLIGHT_SKIP="", PREFLIGHT_CONFIG="")
    assert shown["level"]["from"] == "default"
    assert "skip" not in shown


def test_no_strict_undoes_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("strict = true\nonly = 'host.limits'\n")
    shown = settings("--config", str(tmp_path / "c.toml"), "--no-strict")
    assert shown["strict"] == {"value": False, "from": "--no-strict"}
    assert shown["only"]["from"] == f"config {tmp_path}/c.toml"


def test_outputs_of_the_file_are_written(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        f"only = ['host.limits']\n[[output]]\nformat = 'json'\nfile = '{tmp_path}/r.json'\n"
    )
    done = preflight("run", "--config", str(tmp_path / "c.toml"))
    assert done.code == 0
    assert "READY" in done.out
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "ready"


def test_a_waiver_ends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    waiver = "only = ['host.limits']\n[tolerate.'host.limits']\nwhy = 'INC-1'\nuntil = {}\n"
    fails = ("--expect", "nofile=1000000000", "-o", "json", "--config", str(path))
    path.write_text(waiver.format("2999-12-31"))
    done = preflight("run", *fails)
    assert done.code == 0
    assert done.document["tolerated"] == ["host.limits"]
    assert "tolerated: INC-1" in done.findings("host.limits")[0]["saw"]
    path.write_text(waiver.format("2020-01-01"))
    done = preflight("run", *fails)
    assert done.code == 3
    assert "its waiver ended on 2020-01-01" in done.findings("host.limits")[0]["saw"]
    saved = tmp_path / "r.json"
    saved.write_text(done.out)
    judged = preflight("show", str(saved), "--judge", "--expect", "nofile=5", "-o", "json")
    assert judged.code == 0, "today's expectations, not those of the run"


def test_a_quick_run_waits_less_for_a_slow_driver(resolve: Any) -> None:
    assert "gpu.visible" not in resolve(Flags(), "").budgets
    quick = Flags(level="quick", sources={"level": "--level"})
    assert resolve(quick, "").budgets["gpu.visible"] == 8.0
    said = '[checks."gpu.visible"]\ntimeout = "3s"'
    assert resolve(quick, said).budgets["gpu.visible"] == 3.0


# --- where the documentation is ---


def test_the_address_of_the_documentation_is_kept(resolve: Any) -> None:
    chosen = resolve(text='docs = "https://docs.example/preflight"')
    assert chosen.shown["docs"] == Setting("https://docs.example/preflight", "config f.toml")
    assert "docs" not in resolve().shown


@pytest.mark.parametrize("docs", ['"javascript:alert(1)"', "3", '"docs.example"'])
def test_what_is_no_address_is_refused(resolve: Any, docs: str) -> None:
    with pytest.raises(PreflightError, match="docs wants an address"):
        resolve(text=f"docs = {docs}")


def test_a_file_that_was_found_here_says_not_where_to_read(catalogue: Catalogue) -> None:
    table = {"docs": "https://docs.example"}
    with pytest.raises(PreflightError, match="only a file that --config names"):
        config.resolve(Flags(), table, file.HERE, catalogue, TODAY)


def test_what_nobody_has_set_grows_with_the_ranks(resolve: Any) -> None:
    small = resolve()
    assert small.among(8) == small
    large = small.among(100_000)
    assert (large.deadline, large.arrive) == (340, 80)
    assert large.shown["deadline"] == Setting(340, "default for 100,000 ranks")
    assert small.among(10**9).deadline < 500
    own = resolve(Flags(deadline="20s"), "arrive = '5s'").among(100_000)
    assert (own.deadline, own.arrive) == (20, 5)
    assert own.shown["deadline"].source == "--deadline"
