"""What users and launchers write: the variables of a launcher, node lists, config files. They are
understood, or refused in one line."""

from __future__ import annotations

import datetime
import json
import os
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st
from support import launcher_environments
from support.cases import context
from support.fuzzing import EXAMPLES, in_one_line, look
from support.hostile import damaged

from preflight import nodeset, registry
from preflight.checks import agree_env, env_identity, env_vars
from preflight.config import file, resolve
from preflight.config.resolve import Flags
from preflight.host import Host
from preflight.identity import discover, launchers, slurm_hosts
from preflight.model import PreflightError, Topology
from preflight.serde import encode, parsed

WORDS = (
    *("", " ", "-1", "0", "00", "1" * 30, "1" * 5000, "٣", "²", "1e3", "0x10", "+2", "nan", "true"),
    *("4(x2),3", "4(x999999)", "4(x", "1:4", "1:", ":29500", "a:b:c", "[::1]:29500", "a" * 5000),
    *(
        "n[1-3",
        "n[1-99999999]",
        "n[3-1]",
        "n[01-003]",
        "n1,,n2",
        "[1-2][1-9][1-9]",
        "@all",
        "n1,n1",
    ),
    *("{port}", "$(id)", "`id`", "a\nb", "\x1b[2J", "\u202e", "\udcff", "é", "localhost", "::1"),
)
VALUES = st.sampled_from(WORDS) | st.text(st.characters(exclude_characters="\0"), max_size=12)


@cache
def environments() -> tuple[dict[str, str], ...]:
    names = launcher_environments.names()
    return tuple(dict(p.environ) for n in names for p in launcher_environments.processes(n)[:2])


@cache
def catalogue() -> registry.Catalogue:
    return registry.load()


@st.composite
def changed(draw: st.DrawFn) -> dict[str, str]:
    """The environment of a launcher with something else in some of its variables."""
    environ = dict(draw(st.sampled_from(environments())))
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(environ) or ["RANK"]))
        match draw(st.integers(0, 3)):
            case 0:
                environ.pop(name, None)
            case 1:
                inside = os.fsencode(environ.get(name, ""))
                environ[name] = os.fsdecode(draw(damaged(inside))).replace("\0", "")
            case _:
                environ[name] = draw(VALUES)
    return environ


@given(changed(), st.integers(0, 8), st.none() | st.integers(1, 4))
@example({"RANK": "0", "WORLD_SIZE": "2", "PET_NNODES": "0000001" + "0" * 5000}, 0, None)
@example({"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "٣" * 5000}, 0, None)
@EXAMPLES
def test_a_launcher(environ: dict[str, str], gpus: int, nproc: int | None) -> None:
    launchers.detect(environ)
    try:
        top = discover.discover(environ, "n1", nproc=nproc, gpus=gpus, gpus_source="x", cpus=4)
    except PreflightError as error:
        in_one_line(error)
        top = Topology()
    parsed(json.dumps(encode(top), allow_nan=False).encode())
    slurm_hosts.expected_hosts(environ, 2, max(1, top.size))
    slurm_hosts.first_host(environ.get("SLURM_JOB_NODELIST", ""))
    host = Host("/nonexistent", environ)
    for module in (env_identity, env_vars, agree_env):
        look(module, host, context(topology=top, local_world_size=1))


@given(VALUES, st.lists(VALUES, max_size=4))
@example("n[1-3],m[007-010]", [])
@EXAMPLES
def test_a_node_list(text: str, names: list[str]) -> None:
    hosts = nodeset.expand(text)
    assert len(hosts) <= nodeset.HOSTS_MOST
    for folded in (nodeset.folded([*hosts, *names]), nodeset.hostlist([*hosts, *names])):
        assert isinstance(folded, str)
    listed = nodeset.hostlist(names)
    assert all(word not in listed for word in ("$", "`", ";", "\n", " ", "\x1b"))


CONFIG = """\
level = "quick"
strict = true
nproc = 4
deadline = "90s"
only = ["net.*"]
checkpoint_dir = "/ckpt"
python = "/opt/bin/python"

[checks."host.storage"]
timeout = "5s"
enabled = "quick"

[expect]
gpus_per_node = 8
nofile = 65536

[tolerate."net.rdma"]
why = "no fabric yet"
until = 2030-01-31

[[output]]
format = "json"
file = "report.json"
"""
TOML = st.sampled_from(
    [
        *(
            "-1",
            "nan",
            "inf",
            "-inf",
            "1e999",
            "1" * 4000,
            "0x7fffffffffffffff",
            "true",
            '""',
            '"\\u0000"',
        ),
        *(
            "[]",
            "{}",
            "[[1]]",
            "[{a=1}]",
            '{a="b"}',
            "2030-01-31",
            "07:32:00",
            "1979-05-27T07:32:00Z",
        ),
        *('"~/x"', '"../x"', '"90x"', '"net.*"', '"no.such"', "'''\na\n'''", "[" * 40 + "]" * 40),
    ]
)


@st.composite
def config(draw: st.DrawFn) -> str:
    lines = CONFIG.splitlines()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        key, sign, _ = lines[at].partition("=")
        if sign and draw(st.booleans()):
            lines[at] = f"{key}= {draw(TOML)}"
        else:
            lines[at] = draw(damaged(lines[at].encode())).decode(errors="replace")
    return "\n".join(lines)


@given(config(), st.booleans())
@example("deadline = " + "1" * 4000, False)
@example("[checks]\n'host.storage' = 1", True)
@example("a = " + "[" * 5000, False)
@EXAMPLES
def test_a_config_file(text: str, here: bool) -> None:
    name = file.HERE if here else "/etc/preflight/config.toml"
    try:
        table = file.parsed(name, text)
        chosen = resolve.resolve(Flags(), table, name, catalogue(), datetime.date(2026, 1, 1))
    except PreflightError as error:
        in_one_line(error)
        str(error).encode()
        return
    if here:
        assert all(o.below for o in chosen.outputs if o.file != "-")
        assert not chosen.shown["python"].value
