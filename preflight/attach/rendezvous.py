"""What launchers and ranks of a running job wait for before they have a process group: where, and
who has come there so far, as the job's own store tells. The store is only read. Only in a worker.
"""

from __future__ import annotations

import base64
import binascii
import os
import pickletools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.domains.job.joining import ELSEWHERE, LAUNCHER, RANK, Joining
from preflight.domains.job.record import Frame
from preflight.domains.net.dns import addresses, c10d_order, look_up
from preflight.host import Host
from preflight.identity.launcher_options import LauncherOptions, launcher_options
from preflight.redact import redact
from preflight.rehearsal import procfs
from preflight.rehearsal.store_client import NoStore, read_keys
from preflight.sanitize import one_line

SECONDS = 3.0
"""For a look-up, and for the store to answer."""
ADDRESSES = 4
RANKS = 4096
"""Ranks and nodes that a store is asked for."""
NAMES = 64
COMMAND = 2000
"""Characters of a command that is shown: a longer one is none that can be pasted."""
STAGES = ("/elastic/rendezvous/", "/rendezvous/c10d_rendezvous")
FUNCTIONS = ("_assign_worker_ranks", "next_rendezvous", "_rendezvous")
JOINED = "init/"
"""Counts those that have opened the store as one of so many."""


def launchers(pids: Iterable[int]) -> dict[int, LauncherOptions]:
    """Those of these processes that are launchers of torch's."""
    found = {}
    for pid in pids:
        argv = procfs.read(f"/proc/{pid}/cmdline", 1 << 16).split("\0")[:-1]
        if (options := launcher_options(argv, procfs.environ(pid))) is not None:
            found[pid] = options
    return found


def launcher_joining(
    pid: int, options: LauncherOptions, stack: Sequence[Frame], problem: str
) -> Joining:
    """Whether a launcher that has started no rank waits for other nodes, and for which."""
    since = _waited(pid)
    inside = any(f.function in FUNCTIONS or any(s in f.file for s in STAGES) for f in stack)
    if options.least < 2 or (stack and not inside):
        return Joining(LAUNCHER, since=since, error=problem)
    if options.alone:
        return Joining(LAUNCHER, since=since, size=options.least, alone=True)
    static = options.backend == "static"
    state = f"/torch.rendezvous.{options.run_id}"
    roles = [
        f"/{options.run_id}/torchelastic/role_info/{n}" for n in range(min(options.least, RANKS))
    ]
    keys = [JOINED, *roles] if static else [state]
    found, error = _read(pid, options.host, options.port, keys)
    names: tuple[str, ...] = ()
    come, complete = None, False
    known: tuple[int, ...] = ()
    if static and not error:
        come = _count(found[JOINED])
        known = tuple(n for n, key in enumerate(roles) if found[key] is not None)
        if come == options.least and known:
            come = len(known)
    elif not error:
        names, complete = participants(found[state] or b"")
        come = len(names)
    others = [n for n in range(options.least) if n not in (options.rank, *known)]
    following = (0 if error else others[0]) if static and others else None
    typed = options.started_as(following)
    words = [*typed[0].split(), *(redact("", one_line(word), COMMAND) for word in typed[1:])]
    command = "\0".join(words)
    return Joining(
        LAUNCHER,
        place=one_line(options.place, 300),
        since=since,
        mine=options.rank if static else None,
        size=options.least,
        come=come,
        known=known,
        names=names[:NAMES],
        complete=complete,
        error=error,
        command="" if len(command) > COMMAND else command,
        run_id=one_line(options.run_id),
    )


def rank_joining(pid: int, called: Mapping[str, str]) -> Joining | None:
    """Where a rank waits that is in init_process_group, and who has come there. `called`: what its
    own call says, see pyspy.arguments(); None where that is no whole world of ranks."""
    environ = procfs.environ(pid)
    host = called.get("hostname") or called.get("host") or environ.get("MASTER_ADDR", "")
    port = _number(called.get("port") or environ.get("MASTER_PORT", ""))
    rank = _number(called.get("rank") or environ.get("RANK", ""))
    size = _number(called.get("world_size") or environ.get("WORLD_SIZE", ""))
    if rank is None or not size:
        return None
    waits = Joining(RANK, since=_waited(pid), mine=rank, size=size)
    if not host or not port:
        return waits
    attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    # up to 2.4 the ranks of torchrun have a part of the store for themselves
    prefixes = ("/default_pg/0//", f"//worker/attempt_{attempt[:6]}/default_pg/0//")
    keys = [
        f"{prefix}{device}//0/{r}"
        for prefix in prefixes
        for device in ("cpu", "cuda")
        for r in range(min(size, RANKS))
    ]
    found, error = _read(pid, host, port, [JOINED, *keys])
    known = {int(key.rpartition("/")[2]) for key in keys if found.get(key) is not None}
    come = _count(found.get(JOINED))
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        come = None  # it counts nodes there
    if not error and "hostname" in called:
        known.add(rank)  # it has the store, and waits there until all have come
    return Joining(
        RANK,
        place=one_line(f"{host}:{port}", 300),
        since=waits.since,
        mine=rank,
        size=size,
        come=come if come is not None or not known else len(known),
        known=tuple(sorted(known)),
        error=error,
    )


def _read(
    pid: int, host: str, port: int, keys: Sequence[str]
) -> tuple[Mapping[str, bytes | None], str]:
    """What the store at host:port has of these, and why it could not be read."""
    nothing: Mapping[str, bytes | None] = {}
    try:
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            return nothing, ELSEWHERE
    except OSError:
        return nothing, "its network namespace can't be seen"
    machine = Host()
    asked = look_up(host, lambda: addresses(machine, host), SECONDS)
    if asked.error:
        return nothing, asked.error
    error = ""
    for ip in c10d_order(asked.found)[:ADDRESSES]:
        try:
            return read_keys((ip, port), keys, SECONDS), ""
        except NoStore as why:
            error = str(why)
    return nothing, error


def _waited(pid: int) -> float:
    """Seconds since its youngest thread began: a process that waits for others starts none."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")[:RANKS]
    except OSError:
        return 0.0
    up = procfs.read("/proc/uptime", 64).split()
    began = [
        int(fields[19])
        for thread in threads
        if len(
            fields := procfs.read(f"/proc/{pid}/task/{thread}/stat", 4096)
            .rpartition(")")[2]
            .split()
        )
        > 19
    ]
    if not began or not up:
        return 0.0
    return round(max(0.0, float(up[0]) - max(began) / procfs.TICKS), 1)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 8 else None


def _count(value: bytes | None) -> int | None:
    return _number(value.decode(errors="replace")) if value else None


# --- the state of a c10d rendezvous ---


def participants(state: bytes) -> tuple[tuple[str, ...], bool]:
    """The nodes that are in a rendezvous, and whether it is complete, of the state that torchrun
    keeps in its store: a pickle, whose words are read one by one, and which is never loaded."""
    names: list[str] = []
    complete, part, before = False, "", None
    for word in _words(state):
        if word in ("participants", "wait_list", "redundancy_list", "last_heartbeats"):
            part = str(word)
        elif before == "complete":
            complete = word is True
        elif before == "addr" and part == "participants":
            names.append(one_line(word, 64))
        before = word
    return tuple(names), complete


def _words(state: bytes) -> Iterator[object]:
    """The texts and truth values of a pickle in base64, in their order."""
    known: list[object] = []
    last: object = None
    try:
        for code, value, _ in pickletools.genops(base64.b64decode(state, validate=True)):
            match code.name:
                case "MEMOIZE":
                    known.append(last)
                    continue
                case "BINGET" | "LONG_BINGET" if isinstance(value, int) and value < len(known):
                    last = known[value]
                case "NEWTRUE" | "NEWFALSE":
                    last = code.name == "NEWTRUE"
                case _:
                    last = value if isinstance(value, str) else None
            if last is not None:
                yield last
    except (ValueError, binascii.Error):
        return
