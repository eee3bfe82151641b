"""torch's own worker server in the ranks of a job that already runs: their stacks and flight
records, where the script has called torch.distributed.debug.start_debug_server() or runs under
torch.distributed.elastic.control_plane.worker_main().

Asked is only what is known to be such a server, before a byte is sent: a thread of the process has
the name that torch gives it and waits in accept() on that very socket. Where the kernel does not
tell us that (it asks for the right to ptrace), a process with such a thread must have one listener
alone that can be it. Gloo, NCCL and the store listen, too, and would take an HTTP request amiss.
Everything read is text or JSON; the pickles that such a server may offer are not asked for. Only in
a worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from preflight.attach import sockets
from preflight.domains.job.record import CALLS, FRAMES, Frame
from preflight.frozen import dataclass
from preflight.rehearsal import client, procfs
from preflight.rehearsal.history import activity, leaves

THREAD = "pt_workerserver"
"""Of torch 2.6 and later."""
SOCKET = "TORCH_WORKER_SERVER_SOCKET"
"""Where worker_main() puts it, in torch of any version."""
ACCEPT = {"x86_64": ("43", "288"), "aarch64": ("202", "242")}
"""The numbers of accept and accept4."""
SECONDS = 3.0
"""For one question to all of them: ranks that share a few busy CPUs take their time."""
THREADS = 1024
GROUPS = 64
ENTRIES = 100_000
RECORDS = {"fr_trace_json": "", "dump_nccl_trace_json": "?includecollectives=true&onlyactive=false"}
"""Handlers that tell the flight record as JSON: of all backends but NCCL, and of NCCL."""
STACK = "dump_traceback"


def address_of(pid: int) -> client.Address | None:
    """Where the worker server of this process listens; None where it has none, where that is not
    sure, and where it listens in another network than ours."""
    threads = list(_threads(pid))
    promised = procfs.variable(pid, SOCKET)
    if not threads and not promised:
        return None
    listeners = {one.descriptor: one for one in sockets.listeners(pid)}
    accepting = [n for t in threads if (n := _accepting_on(pid, t)) is not None]
    if accepting:
        return next((listeners[n].address for n in accepting if n in listeners), None)
    for one in listeners.values():
        if promised and one.path == promised:
            return one.address
    store = procfs.variable(pid, "MASTER_PORT")
    likely = [
        one
        for one in listeners.values()
        if threads and (one.path or (one.everywhere and str(one.port) != store))
    ]
    return likely[0].address if len(likely) == 1 else None


def _threads(pid: int) -> Iterator[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:THREADS]
    except OSError:
        return
    for thread in threads:
        if procfs.read(f"/proc/{pid}/task/{thread}/comm", 64).strip() == THREAD:
            yield thread


def _accepting_on(pid: int, thread: str) -> int | None:
    """The descriptor on which a thread waits in accept()."""
    words = procfs.read(f"/proc/{pid}/task/{thread}/syscall", 512).split()
    if len(words) < 2 or words[0] not in ACCEPT.get(os.uname().machine, ()):
        return None
    try:
        return int(words[1], 16)
    except ValueError:
        return None


@dataclass(slots=True)
class Servers:
    """Those of the ranks of a job. `recorded` and `stacks` are their latest answers, `silent` those
    that had none once: torch keeps such a question until it can answer, so they get no other."""

    known: dict[int, client.Address]
    handlers: dict[int, frozenset[str]] = field(default_factory=dict)
    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    recorded: dict[int, FlightRecord] = field(default_factory=dict)
    silent: set[tuple[int, str]] = field(default_factory=set)

    def greet(self) -> None:
        """Keep those that tell of themselves that they are such a server."""
        for pid, names in client.get_path(self.known, "/handler/", SECONDS).items():
            told = client.parse_json(names)
            if isinstance(told, list) and STACK in told:
                self.handlers[pid] = frozenset(n for n in told[:256] if isinstance(n, str))

    def ask(self, worlds: Mapping[int, int]) -> dict[int, dict[str, Any]]:
        """pid -> where it is and what it has called, as the inside of a rehearsed process tells it.
        worlds: pid -> ranks of its job."""
        self.stacks = {
            pid: client.parse_faulthandler(text)[:FRAMES] for pid, text in self._post(STACK).items()
        }
        told: dict[int, list[Any]] = {}
        for name, options in RECORDS.items():
            for pid, text in self._post(name, options).items():
                told.setdefault(pid, []).append(client.parse_json(text))
        for pid, parts in told.items():
            self.recorded[pid] = flight_record_of(
                parts, self.stacks.get(pid, ()), worlds.get(pid, 0)
            )
        pulses: dict[int, dict[str, Any]] = {}
        for pid in self.stacks:
            stack = self.stacks[pid]
            pulses[pid] = {"stack": client.frames_to_json(stack), "leaving": leaves(stack)}
            if pid in self.recorded:
                pulses[pid] |= {"groups": self.recorded[pid].groups, "joined": True}
        return pulses

    def _post(self, name: str, options: str = "") -> dict[int, str]:
        asked = {
            pid: self.known[pid]
            for pid, names in self.handlers.items()
            if name in names and (pid, name) not in self.silent
        }
        answers = client.post_handler(asked, name + options, SECONDS)
        self.silent |= {(pid, name) for pid in asked.keys() - answers.keys()}
        return answers


def find_servers(pids: Iterable[int]) -> Servers:
    """The worker servers of these processes, as far as they answer."""
    servers = Servers({pid: at for pid in pids if (at := address_of(pid)) is not None})
    servers.greet()
    return servers


# --- the flight record ---


@dataclass(frozen=True, slots=True)
class FlightRecord:
    """groups: name -> collectives enqueued and completed; recorded: name -> its calls; members:
    name -> its ranks, as far as torch tells them. Of a shape that aggregate.py checks."""

    groups: Mapping[str, list[int]]
    recorded: Mapping[str, list[dict[str, Any]]]
    members: dict[str, list[int]]


def flight_record_of(parts: Iterable[object], stack: tuple[Frame, ...], world: int) -> FlightRecord:
    """The flight record of one rank, which has one for each kind of backend. It tells no places;
    that of the call in which the main thread is, its stack tells."""
    groups: dict[str, list[int]] = {}
    recorded: dict[str, list[dict[str, Any]]] = {}
    members: dict[str, list[int]] = {}
    newest: tuple[int, dict[str, Any] | None] = (-1, None)
    for part in parts:
        if not isinstance(part, dict):
            continue
        for name, counts in list(client.mapping_or_empty(part.get("pg_status")).items())[:GROUPS]:
            pair = [_count(counts, f"last_{what}_collective") for what in ("enqueued", "completed")]
            groups[name] = [max(a, b) for a, b in zip(pair, groups.get(name, [0, 0]), strict=True)]
        for name, described in list(client.mapping_or_empty(part.get("pg_config")).items())[
            :GROUPS
        ]:
            if ranks := parse_ranks(client.mapping_or_empty(described).get("ranks")):
                members[name] = ranks
        entries = part.get("entries")
        for entry in entries[-ENTRIES:] if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            name, described = _group_name(entry.get("process_group"))
            if described == "default_pg" and world:
                members[name] = list(range(min(world, 4096)))
            call = _call(entry)
            recorded.setdefault(name, []).append(call)
            made = entry.get("time_created_ns")
            if not call["done"] and type(made) is int and made > newest[0]:
                newest = made, call
    if newest[1] is not None and activity(stack) == "collective":
        own = next((f for f in stack if f.own), None)
        newest[1]["frame"] = [own.file, own.line, own.function, True] if own else None
    kept = {name: calls[-CALLS:] for name, calls in list(recorded.items())[:GROUPS]}
    return FlightRecord(groups, kept, members)


def _call(entry: Mapping[str, Any]) -> dict[str, Any]:
    p2p = entry.get("is_p2p") is True
    seq, timeout = entry.get("p2p_seq_id" if p2p else "collective_seq_id"), entry.get("timeout_ms")
    return {
        "seq": seq if type(seq) is int else 0,
        "op": str(entry.get("profiling_name", ""))[:200].rpartition(":")[2],
        "shape": _shape(entry),
        "frame": None,
        "p2p": p2p,
        "done": entry.get("retired") is True or entry.get("state") == "completed",
        "timeout": timeout / 1e3 if type(timeout) is int and 0 <= timeout < 1 << 53 else 0.0,
    }


def _shape(entry: Mapping[str, Any]) -> str:
    sizes, kinds = entry.get("input_sizes"), entry.get("input_dtypes")
    if not isinstance(sizes, list) or not isinstance(kinds, list):
        return ""
    return "; ".join(f"{size} {kind}" for size, kind in zip(sizes[:64], kinds[:64], strict=False))


def _group_name(told: object) -> tuple[str, str]:
    match told:
        case [str(name), str(described), *_]:
            return name, described
    return "?", ""


def _count(told: object, name: str) -> int:
    """A count, which torch writes as text; -1 is none."""
    value = client.mapping_or_empty(told).get(name)
    text = str(value) if isinstance(value, (str, int)) else ""
    return int(text) if text.isdecimal() and len(text) < 16 else 0


def parse_ranks(told: object) -> list[int]:
    """`[0, 1]`, as text."""
    words = told.strip("[]").split(",")[:4096] if isinstance(told, str) else []
    return [int(w) for w in words if w.strip().isdecimal() and len(w) < 9]


def infer_members(
    records: Mapping[int, FlightRecord], waiting: Mapping[int, bool], world: int
) -> None:
    """Name the members of groups that torch does not name (Gloo's other than the first),
    where all ranks of the job are here. records, waiting (in a collective) by rank: those that have
    called it, and where each of them waits for the end of one call those, too, that wait in none:
    somebody else holds them up."""
    if set(records) != set(range(world)):
        return
    names = {name for record in records.values() for name in record.recorded}
    for name in names:
        if any(name in record.members for record in records.values()):
            continue
        users = {rank for rank, record in records.items() if name in record.recorded}
        last = {r: records[r].recorded[name][-1] for r in users}
        together = len({call["seq"] for call in last.values()}) == 1
        if together and not any(call["done"] or call["p2p"] for call in last.values()):
            users |= {rank for rank, waits in waiting.items() if not waits}
        for rank in users:
            records[rank].members[name] = sorted(users)
