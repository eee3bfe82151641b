"""Turns the histories of the processes into the record of the ranks. Pure: their answers are data,
and hostile."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.domains.job.record import (
    CALLS,
    FRAMES,
    TEXT,
    BusyThread,
    Calls,
    Caught,
    Collective,
    End,
    Frame,
    Group,
    Growth,
    HeldStore,
    Joins,
    Life,
    Pace,
    RehearsalRecord,
    Rehearsed,
    Volume,
    WatchedCommand,
)
from preflight.domains.job.stack_sites import group_of_stack
from preflight.domains.job.torch_warnings import CODES, TorchWarning
from preflight.humanize import size
from preflight.redact import redact
from preflight.rehearsal.client import (
    frame_from_json,
    frames_from_json,
    mapping_or_empty,
    sane_numbers,
)
from preflight.rehearsal.history import (
    BULK,
    CPU_SECONDS,
    IDLE,
    OPEN_SECONDS,
    History,
    count_of,
)
from preflight.sanitize import clip, one_line

GROUPS = 64
TIMES = 1 << 32
"""Of a warning, at most."""
Place = tuple[str, int]
"""Host and port."""
FALL = 0.8
"""A process that ends falls below this part of what it had from one look to the next."""
CPUS = 4096
"""Numbers of CPUs that are kept of a rank."""
PAYLOADS = 8
"""Lines of which it is kept what they carry."""
TOGETHER, PAIRS = 4, 32
"""Calls that a line may make for one purpose, as to gather predictions and then labels in one
function, and how often it must have done so."""
LENGTHY, WHOLE = ("out of memory", "ncclUnhandled", "finished reduction"), 2000
"""Errors that say what matters at their end: torch names each process on the GPU before that, DDP
all that may be wrong. And how many characters are kept of them."""
STEADY = 5
"""Steps that are enough for a median."""
PAUSE, PAUSES = 4.0, 64
"""How many times as long as usual a step takes that has a pause, and how many of these are kept.
What is short beside the longest few comes from a busy machine."""


def end_of(
    word: Mapping[str, Any] | None, gone: float, code: int | None, crash: tuple[Frame, ...] = ()
) -> End:
    """How a rank ended: by its own last word, else by what the kernel knows; `crash` is where it
    was when it crashed."""
    if word is None:
        if code is not None and code >= 0:
            crash = ()  # a child's, which has the same line to the watch
        return End("vanished", gone, code, frames=crash[:FRAMES])
    how = "raised" if word.get("how") == "raised" else "exited"
    at = word.get("at")
    text = redact("", one_line(word.get("text", ""), WHOLE), WHOLE)
    return End(
        how=how,
        at=float(at) if isinstance(at, (int, float)) and 0 < at < 1e12 else gone,
        code=code,
        text=clip(text, TEXT),
        frames=frames_from_json(word.get("frames"), FRAMES),
        whole=text if len(text) > TEXT and any(word in text for word in LENGTHY) else "",
    )


def joins_of(word: object, pid: int, began: float, refused: Mapping[Place, str]) -> Joins | None:
    """The word that preflight_responder.py leaves of a call of init_process_group. `began`: when
    the command did, on the wall clock; `refused`: why nobody was reached at an address."""
    if not isinstance(word, dict):
        return None
    port, rank, at = word.get("port"), word.get("rank"), word.get("at")
    host = one_line(word.get("host", ""), 255)
    stale = 0.0
    match word.get("file"):
        case [int(size), int() | float() as age] if size > 0 and isinstance(at, float):
            stale = round(max(0.0, began - (at - age)), 1)
    return Joins(
        pid=pid,
        how=one_line(word.get("how", ""), 20),
        host=host,
        port=port if type(port) is int and 0 < port < 1 << 16 else 0,
        path=one_line(word.get("path", "")),
        rank=rank if type(rank) is int and 0 <= rank < 1 << 24 else None,
        world=count_of(word, "world"),
        frame=frame_from_json(word.get("frame")),
        stale=stale,
        refused=refused.get((host, port if type(port) is int else 0), ""),
        held=_held_store(word.get("held")),
    )


def _held_store(told: object) -> HeldStore | None:
    match told:
        case {"host": str(host), "port": int(port), "frame": frame} if 0 < port < 1 << 16:
            return HeldStore(one_line(host, 255), port, frame_from_json(frame))
    return None


def with_last_look(end: End, history: History | None, wall: float) -> End:
    """Of one that ended without saying where: the place of its last sample. Of one that raised: the
    last one at which it did not wait for others, which may long have waited for it. `wall`: what
    the wall clock is ahead of the one of samples."""
    if history is None:
        return end
    stack, at = history.away
    if end.how == "raised" and stack:
        return replace(end, last=stack, ago=round(max(0.0, end.at - wall - at), 1))
    if end.how != "vanished" or end.frames or not history.stack:
        return end
    ago = round(max(0.0, end.at - wall - history.answered), 1)
    pending = any(entered > through for entered, through in history.groups.values())
    return replace(end, last=history.stack, ago=ago, open=pending or history.at == "collective")


def groups_of(history: History, dump: Mapping[str, Any], now: float) -> tuple[Group, ...]:
    """What a rank knows of its groups, as far as it told. Of one that is only seen from outside:
    the call that its main thread is in, as one of all ranks."""
    stands = history.at == "collective" and now - history.changed >= OPEN_SECONDS
    if not (history.inside or history.served) and history.at == "collective" and history.stack:
        return (group_of_stack(history.stack, history.world),)
    recorded, members, made = (
        mapping_or_empty(dump.get(name)) for name in ("recorded", "members", "made")
    )
    # one that it waits in new_group for, which has no call yet
    making = [name] if isinstance(name := dump.get("making"), str) and name in members else []
    names = list(dict.fromkeys([*history.groups, *recorded, *making]))[:GROUPS]
    found = []
    for name in names:
        told = recorded.get(name)
        known = members.get(name)
        ranks = sane_numbers(known[:4096]) if isinstance(known, list) else ()
        calls = [_call(entry, ranks) for entry in told[-CALLS:]] if isinstance(told, list) else []
        enqueued, completed = history.groups.get(name, (0, 0))
        known = tuple(call for call in calls if call is not None)
        found.append(
            Group(
                name=one_line(name, 40),
                ranks=ranks,
                enqueued=enqueued,
                completed=completed,
                calls=_with_unstarted(known, enqueued) if stands else known,
                made=frame_from_json(made.get(name)),
            )
        )
    return tuple(found)


def _with_unstarted(calls: tuple[Collective, ...], enqueued: int) -> tuple[Collective, ...]:
    """Of a rank that stands in a collective: NCCL may connect the ranks in there, and torch takes
    a call of which nothing is on the GPU yet for one that has ended."""
    if not calls or calls[-1].p2p or calls[-1].seq != enqueued + 1:
        return calls
    return (*calls[:-1], replace(calls[-1], done=False))


def _call(entry: object, ranks: Sequence[int]) -> Collective | None:
    """`ranks` of its group, in which its root is counted."""
    if not isinstance(entry, dict):
        return None
    timeout, root = entry.get("timeout"), entry.get("root")
    known = ranks[root] if isinstance(root, int) and 0 <= root < len(ranks) else None
    return Collective(
        seq=count_of(entry, "seq"),
        op=one_line(entry.get("op", ""), 60),
        shape=one_line(entry.get("shape", "")),
        output=one_line(entry.get("output", "")),
        frame=frame_from_json(entry.get("frame")),
        p2p=entry.get("p2p") is True,
        done=entry.get("done") is not False,
        started=entry.get("started") is True,
        timeout=float(timeout) if isinstance(timeout, (int, float)) and timeout >= 0 else 0.0,
        root=known,
        tag=tag if isinstance(tag := entry.get("tag"), int) else None,
        thread=entry.get("thread") is True,
    )


def pace_of(history: History, dump: Mapping[str, Any], cpus: float = 0.0) -> Pace:
    """Where the time of its steps went; `cpus` that it may use for itself."""
    durations = _timed_entries(dump.get("durations"))[2:]  # the first ones load and compile
    waits = _timed_entries(dump.get("waits"))
    steps = history.done - history.first[0]
    calls = history.collectives - history.first[1]
    calls_told = _calls_with_bytes(dump)
    sizes = [size for _, size, _ in calls_told]
    looks = history.looks
    own = history.own.most_common(1)
    between, after = history.between.most_common(1), history.after.most_common(1)
    loading, loading_looks = _busiest_line(history.loading)
    synced = history.synced.most_common(1)
    enough = len(durations) >= STEADY
    since = durations[0][0] if durations else 0.0
    waited = sum(seconds for at, seconds in waits if at > since)
    whole = sum(seconds for _, seconds in durations)
    step = statistics.median(s for _, s in durations) if enough else 0.0
    lengths = sorted(seconds for _, seconds in durations)
    least = max(PAUSE * step, lengths[-STEADY] / 2) if enough else math.inf
    long = [n for n, (_, seconds) in enumerate(durations) if seconds >= least > 0]
    return Pace(
        rank=history.rank,
        step=step,
        pauses=tuple(long[-PAUSES:]),
        steps=len(durations),
        loader=min(1.0, waited / whole) if enough and whole > 0 else 0.0,
        waiting=history.places["collective"] / looks if looks else 0.0,
        looks=looks,
        pending=history.pending / looks if looks else 0.0,
        mean=(history.last - history.began) / max(1, steps),  # one that has not ended is longer
        own=own[0][0] if own else None,
        own_part=own[0][1] / looks if own else 0.0,
        between=between[0][0] if between and between[0][1] else None,
        after=after[0][0] if after and after[0][1] else None,
        loading=loading,
        loading_part=loading_looks / looks if looks else 0.0,
        synced=history.synced.total() / looks if looks else 0.0,
        copied=history.copied / looks if looks else 0.0,
        sync=synced[0][0][0] if synced else "",
        sync_at=synced[0][0][1] if synced else None,
        collectives=calls / steps if steps > 0 and calls > 0 else 0.0,
        size=float(statistics.median(sizes)) if sizes else 0.0,
        mean_size=statistics.fmean(sizes) if sizes else 0.0,
        payloads=_payloads(calls_told),
        workers=history.loader.workers if history.loader else 0,
        cuda=history.gpu_limit > 0,
        cpus=cpus,
        pinned=tuple(sorted(history.pinned)[:CPUS]),
        thread=_busiest(history),
        ran=_part_of_time(history, 1),
        unserved=_part_of_time(history, 2),
    )


def _busiest_line(lines: Counter[Frame]) -> tuple[Frame | None, int]:
    """Of the function at whose lines most looks were the line with most of them, and the looks at
    the function. A tokenizer written in Python is a loop of many lines."""
    functions: Counter[tuple[str, str]] = Counter()
    for frame, looks in lines.items():
        functions[frame.file, frame.function] += looks
    if not functions.total():
        return None, 0
    ((busiest, looks),) = functions.most_common(1)
    inside = (frame for frame in lines if (frame.file, frame.function) == busiest)
    return max(inside, key=lambda frame: lines[frame]), looks


def _part_of_time(history: History, which: int) -> float:
    """By how much such a count went on, as a part of the time."""
    if len(history.cpu_looks) < 2:
        return 0.0
    first, last = history.cpu_looks
    seconds = last[0] - first[0]
    return min(1.0, max(0.0, last[which] - first[which]) / seconds) if seconds > 0 else 0.0


def _busiest(history: History) -> BusyThread | None:
    """The thread beside the main one that used most of the CPU."""
    seconds = history.last - history.began
    most = max(history.threads.values(), key=lambda one: one.used, default=None)
    if most is None or seconds <= 0:
        return None
    lines = most.lines.most_common(1)
    return BusyThread(most.name, most.used / seconds, lines[0][0] if lines else None)


def _calls_with_bytes(dump: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], int, float]]:
    """The recorded calls of all groups, what each carries, and how many others each stands for:
    those before the latest ones of its group are not kept."""
    made = mapping_or_empty(dump.get("groups"))
    return [
        (entry, carried, max(1.0, _made(made.get(name)) / min(len(told), CALLS)))
        for name, told in mapping_or_empty(dump.get("recorded")).items()
        if isinstance(told, list)
        for entry in told[-CALLS:]
        if isinstance(entry, dict) and type(carried := entry.get("bytes")) is int
    ]


def _made(counts: object) -> int:
    match counts:
        case [int(made), *_] if 0 <= made < 1 << 40:
            return made
    return 0


def _payloads(calls: Sequence[tuple[Mapping[str, Any], int, float]]) -> tuple[Volume, ...]:
    """What the calls of each line carry, of the lines whose last calls carry most."""
    series: dict[tuple[Frame, str, str], list[int]] = {}
    stand: dict[tuple[Frame, str, str], float] = {}
    for entry, carried, of in calls:
        frame = frame_from_json(entry.get("frame"))
        if frame is not None and carried >= 0:
            # all_gather_object calls it for the sizes first, then for the bytes
            kind = one_line(entry.get("shape", "")).rpartition(" ")[2]
            key = frame, one_line(entry.get("op", ""), 60), kind
            series.setdefault(key, []).append(carried)
            stand[key] = stand.get(key, 0.0) + of
    found = []
    for key, sizes in series.items():
        if (quarter := len(sizes) // 4) > 0:
            rises = max(_rises(sizes, each) for each in range(1, TOGETHER + 1))
            early, late = (float(statistics.median(s)) for s in (sizes[:quarter], sizes[-quarter:]))
            made = round(stand[key])
            rose = round(rises, 3)
            found.append(Volume(*key[:2], len(sizes), early, late, rose, made, key[2][:20]))
    return tuple(sorted(found, key=lambda payload: -payload.late)[:PAYLOADS])


def _rises(sizes: Sequence[int], each: int) -> float:
    """Part of the calls that carry more than the one `each` before."""
    pairs = list(zip(sizes, sizes[each:], strict=False))
    if not pairs or (each > 1 and len(pairs) < PAIRS):
        return 0.0
    return sum(b > a for a, b in pairs) / len(pairs)


def _timed_entries(told: object) -> list[tuple[float, float]]:
    """[[when, seconds], …]"""
    found = []
    for entry in told if isinstance(told, list) else ():
        match entry:
            case [float() | int() as at, float() | int() as seconds] if 0 <= seconds < 1e7:
                found.append((float(at), float(seconds)))
    return found


def _all_gloo(told: object) -> bool:
    """Whether all groups of a rank are Gloo's: {group: {kind of tensors: backend}}."""
    groups = list(mapping_or_empty(told).values())[:64]
    backends = {str(b) for one in groups for b in list(mapping_or_empty(one).values())[:8]}
    return backends == {"gloo"}


def calls_of(
    history: History, dump: Mapping[str, Any], ended: str, why: str, now: float, began: float
) -> Calls:
    """What it called and where it is, at the end of the watch."""
    return Calls(
        rank=history.rank,
        world=history.world,
        why=why,
        at="gone" if ended else history.at,
        still=round(max(0.0, now - history.since), 2),
        quiet=round(max(0.0, now - history.changed), 2),
        cpu=round(history.cpu, 3),
        stack=history.stack,
        state=history.state,
        wchan=one_line(history.wchan, 64),
        steps=history.steps,
        batches=history.batches,
        loader=history.loader,
        groups=groups_of(history, dump, now),
        unrecorded=history.unrecorded,
        libraries=_names(dump.get("libraries")),
        gloo=_all_gloo(dump.get("backends")),
        children=history.children,
        lost=history.lost,
        caught=_caught(dump.get("caught")),
        ended=ended,
        seconds=round(now - began, 2),
        works=_work_elsewhere(history),
        leaving=history.leaving,
        failure=history.failure,
        keys=history.keys,
        pause=round(history.nap[1] - history.nap[0], 1) if history.nap[1] > now else 0.0,
        asks=history.asks,
        gpu_wait="" if ended else history.gpu_wait,
    )


def _names(told: object) -> tuple[str, ...]:
    return tuple(one_line(name, 40) for name in told[:GROUPS]) if isinstance(told, list) else ()


def _work_elsewhere(history: History) -> str:
    """What it does that its stack and CPU don't show, in words."""
    moves, parts = history.moves, []
    if history.below >= IDLE:
        busy = next((c.name for c in history.children if c.state == "R"), "")
        busy = busy or next((c.name for c in history.children), "a child")
        parts.append(f"its child {one_line(busy, 30)} uses {history.below:.0%} of a CPU")
    if moves.net:
        peer = f" with {one_line(moves.peer, 60)}" if moves.peer else ""
        parts.append(f"{size(round(moves.net / CPU_SECONDS))}/s over TCP{peer}")
    if moves.files >= BULK:
        parts.append(f"{size(round(moves.files / CPU_SECONDS))}/s through files")
    return ", ".join(parts)


def _caught(told: object) -> tuple[Caught, ...]:
    entries = [e for e in told[:GROUPS] if isinstance(e, dict)] if isinstance(told, list) else []
    return tuple(
        Caught(
            text=redact("", one_line(entry.get("text", "")), TEXT),
            frame=frame_from_json(entry.get("raised")),
            handler=frame_from_json(entry.get("handler")),
            times=count_of(entry, "times"),
            now=entry.get("now") is True,
        )
        for entry in entries
    )


def warnings_of(dump: Mapping[str, Any]) -> tuple[TorchWarning, ...]:
    """Those of torch that preflight_warned.py knows, one of each code."""
    told = dump.get("warned")
    found: dict[str, TorchWarning] = {}
    for entry in told[: len(CODES)] if isinstance(told, list) else ():
        match entry:
            case [str(code), str(text), frame, int(times)] if code in CODES and times > 0:
                words = redact("", one_line(text), TEXT)
                found[code] = TorchWarning(code, words, frame_from_json(frame), min(times, TIMES))
    return tuple(found.values())


def record_of_ranks(
    ranks: Sequence[Rehearsed], command: WatchedCommand, problem: str
) -> RehearsalRecord:
    """At least one entry: of a command in which no rank was seen, that there was none."""
    if ranks:
        return RehearsalRecord(tuple(ranks))
    life = Life(command, watched="", problem=problem)
    return RehearsalRecord((Rehearsed(life, Calls(why=command.why, seconds=command.seconds)),))


Sample = tuple[float, int, int, int]


def _before_the_end(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those before the falls at the end."""
    while samples:
        last = samples[-1][2]
        first = len(samples) - 1
        while first and samples[first - 1][2] <= last / FALL:
            first -= 1
        if not first or last >= FALL * samples[first - 1][2]:
            break
        samples = samples[:first]
    return samples


def growth_of(
    history: History,
    began: float,
    memory: tuple[int, int],
    here: int,
    shm: int = 0,
    shm_free: int = 0,
    *,
    ended: bool = False,
) -> Growth:
    """Its memory, in seconds since the command began. What a process gives back while it ends is
    none of its use: the last looks may have met it there."""
    limit, available = memory
    taken = _before_the_end(history.samples) if ended else history.samples
    return Growth(
        rank=history.rank,
        samples=tuple((round(a - began, 2), s, rss, gpu) for a, s, rss, gpu in taken),
        limit=limit,
        available=available,
        gpu_limit=history.gpu_limit,
        here=here,
        shm=shm,
        shm_samples=tuple((round(at - began, 2), steps, used) for at, steps, used in history.shm),
        shm_free=shm_free,
    )
