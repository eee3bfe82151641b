"""/proc/PID of a job's processes, which may be gone, a container's or gVisor's, and whose names,
words and variables are the job's: `attach` and `rehearse` read them, and raise nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES
from support.proc_tree import NUMBERS, contents

from preflight.identity import launcher_options
from preflight.rehearsal import procfs
from preflight.serde import encode

STAT = b"4711 (python) S 1 4711 4711 0 -1 4194560 100 0 0 0 50 20 3 4 20 0 9 0 12345 900000 5000 "
STAT += b"18446744073709551615 " + b"0 " * 24 + b"0 0 0\n"
STATUS = b"Name:\tpython\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t12\n"
ENVIRON = b"RANK=0\0WORLD_SIZE=2\0SLURM_JOB_ID=7\0SLURM_PROCID=1\0MASTER_ADDR=n1\0\0"
WORDS = (
    b"python\0-m\0torch.distributed.run\0--nnodes=1:2\0--node_rank\0001\0--rdzv-endpoint=n1:29400\0"
)
WORDS += b"--rdzv-id=x\0--rdzv-backend=c10d\0--nproc-per-node=2\0train.py\0--token=x\0"
FILES: dict[str, bytes] = {
    "stat": STAT,
    "status": STATUS,
    "environ": ENVIRON,
    "cmdline": WORDS,
    "children": b"4712 4713 \n",
    "wchan": b"futex_wait_queue",
    "maps": b"7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/libtorch.so\n",
    "cgroup": b"0::/job/step\n",
    "meminfo": b"MemTotal: 263000000 kB\nMemAvailable: 200000000 kB\n",
    "memory.events": b"low 0\noom 0\noom_kill 2\n",
    "memory.oom_control": b"oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    "memory.max": b"1073741824\n",
    "memory.current": b"1000000\n",
    "memory.stat": b"anon 5\ninactive_file 7\n",
}
CHANGED = st.dictionaries(st.sampled_from(sorted(FILES)), st.integers(0, 9), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: contents(FILES[name]) for name in names})
)
NAMES = ("PET_NNODES", "PET_NODE_RANK", "PET_RDZV_ENDPOINT", "MASTER_ADDR", "MASTER_PORT")
ASKED: tuple[Callable[[], Any], ...] = (
    lambda: procfs.stat(4711),
    lambda: procfs.children(1),
    lambda: list(procfs.descendants(1)),
    lambda: list(procfs.ancestors(4711)),
    lambda: procfs.switches(4711),
    lambda: procfs.command_line(4711, 80),
    lambda: [procfs.rank_of(4711, names) for names in procfs.RANKS],
    lambda: procfs.variable(4711, "MASTER_ADDR"),
    lambda: procfs.wchan(4711),
    lambda: procfs.has_torch(4711),
    procfs.oom_kills,
    procfs.memory,
    lambda: (found := procfs.stat(4711)) and procfs.child_process(found),
)


@given(CHANGED)
@example({"stat": STAT.replace(b"50 20", b"50 x")})
@example({"stat": STAT.replace(b" 12345 ", b" " + b"9" * 4000 + b" ")})
@example({"status": b"voluntary_ctxt_switches:\t" + b"1" * 5000})
@example({"cmdline": b"\0" * 9000})
@EXAMPLES
def test_what_the_kernel_says_of_a_process(changed: dict[str, bytes | None]) -> None:
    files = FILES | changed

    def read(path: str, limit: int) -> str:
        return (files[path.rpartition("/")[2]] or b"")[:limit].decode(errors="replace")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(procfs, "read", read)
        for ask in ASKED:
            said = json.dumps(encode(ask()), allow_nan=False, ensure_ascii=False)
            said.encode()


WORD = st.sampled_from(WORDS.decode().split("\0")) | st.text(max_size=12) | st.sampled_from(NUMBERS)


@given(st.lists(WORD, max_size=12), st.dictionaries(st.sampled_from(NAMES), WORD, max_size=4))
@example(["torchrun", "--nnodes=" + "9" * 5000, "--node-rank=٣", "x.py"], {})
@EXAMPLES
def test_what_a_launcher_was_started_with(words: list[str], environ: dict[str, str]) -> None:
    found = launcher_options.launcher_options(words, environ)
    if found is not None:
        said = json.dumps(encode((found, found.place, found.started_as(1))), ensure_ascii=False)
        said.encode(errors="surrogatepass")
