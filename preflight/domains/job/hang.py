"""The ranks of a rehearsal in words, and those that ran out of data before the others. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from preflight.domains.job import collective_order
from preflight.domains.job.collective_order import CallMismatch, Key
from preflight.domains.job.inferred_calls import with_inferred_calls
from preflight.domains.job.record import Calls, Collective, Frame, Group
from preflight.domains.job.wait_graph import COLLECTIVE, INIT
from preflight.frozen import dataclass
from preflight.humanize import plural, rank_list
from preflight.model import Blame, Confidence, Found, Kind, Subject, World, place_of

COLLECTING = frozenset({"reduce", "gather"})
"""In these the root gets what the others have."""
NEW_GROUP = "new_group"
PLACES = 4
"""That are named of all ranks."""


RPC = "/torch/distributed/rpc/"


@dataclass(frozen=True, slots=True)
class Hang:
    """The ranks of a rehearsal by their true numbers. keys: where each was observed."""

    calls: Mapping[int, Calls]
    keys: Mapping[int, str]
    groups: Mapping[Key, Mapping[int, Group]]
    several: bool = False

    @classmethod
    def of(cls, world: World[Calls]) -> Hang:
        """The latest process of each rank, with the calls that can be inferred."""
        calls: dict[int, Calls] = {}
        keys: dict[int, str] = {}
        for key, seen in world.seen.items():
            rank = seen.rank if seen.rank is not None else place_of(key)[1]
            # a launcher may have started it again
            if rank is not None and (rank not in calls or calls[rank].ended):
                calls[rank], keys[rank] = seen, key
        calls = with_inferred_calls(calls)
        nodes = {place_of(key)[0] for key in keys.values()}
        return cls(calls, keys, collective_order.groups_by_key(calls), len(nodes) > 1)

    @property
    def stopped(self) -> bool:
        return any(seen.why == "stuck" for seen in self.calls.values())

    @property
    def failed(self) -> bool:
        return any(seen.ended in ("raised", "vanished") for seen in self.calls.values())

    @property
    def distributed(self) -> bool:
        return any(seen.world > 1 or seen.groups or in_rpc(seen) for seen in self.calls.values())

    def subjects(self, ranks: Iterable[int]) -> tuple[Subject, ...]:
        return tuple(
            Subject(Kind.RANK, place_of(self.keys[r])[0], str(r), ranks=(r,)) for r in ranks
        )

    def group(self, key: Key) -> str:
        """Which group, where it is not that of all ranks."""
        everybody = max((seen.world for seen in self.calls.values()), default=0)
        whole = not key[1] or len(key[1]) >= max(everybody, len(self.calls))
        return "" if whole else f" of the group of {rank_list(key[1])}"

    def either(self, ranks: Collection[int]) -> tuple[str, ...]:
        """Of a tie: each of them may be the one at fault."""
        return tuple(f"{self.where(r)} is the intended one" for r in list(ranks)[:2])

    def where(self, rank: int) -> str:
        """`rank 1 on n2`, the node only where there are several."""
        return f"rank {rank}" + f" on {place_of(self.keys[rank])[0]}" * self.several

    def places(self) -> str:
        """Where the ranks are, for a finding about all of them: the first few places."""
        there: dict[str, list[int]] = {}
        for rank, seen in self.calls.items():
            frame = frame_of(seen)
            if seen.at == INIT:
                making = f"new_group at {seen.own}" if in_new_group(seen) else "init_process_group"
                there.setdefault(f"in {making}", []).append(rank)
            elif frame is not None:
                waits = f" (it waits for its GPU: {seen.gpu_wait})" if seen.gpu_wait else ""
                there.setdefault(f"at {frame}{waits}", []).append(rank)
        told = [f"{rank_list(ranks)} {place}" for place, ranks in list(there.items())[:PLACES]]
        told += [f"{plural(len(there) - PLACES, 'more place')}"] * (len(there) > PLACES)
        return f" · {', '.join(told)}" if told else ""


def in_rpc(seen: Calls) -> bool:
    """Whether its main thread waits in torch.distributed.rpc, which takes no process group; the
    threads of that spin while they wait for messages."""
    return any(RPC in frame.file for frame in seen.stack if not frame.own)


def in_new_group(seen: Calls) -> bool:
    """Whether it makes a further group: its stack shows that, or it has groups by now."""
    return bool(seen.groups) or any(f.function == NEW_GROUP for f in seen.stack)


def frame_of(seen: Calls) -> Frame | None:
    """The user's line, else the innermost place that is known."""
    return seen.own or next(iter(seen.stack), None)


def at_frame(frame: Frame | None) -> str:
    """`at train.py:40 in main`."""
    return f"at {frame} in {frame.function}" if frame is not None else "at a place unknown"


def location(seen: Calls) -> str:
    """Where a rank is, as `at_frame` writes it."""
    return at_frame(frame_of(seen))


def describe_call(call: Collective) -> str:
    """`broadcast [8] Float from rank 0 at train.py:40`."""
    at = f" at {call.frame}" if call.frame is not None else ""
    at += " in a thread" if call.thread else ""
    output = f" into {call.output}" if call.output and call.output != call.shape else ""
    if call.root is not None:
        output += f" {'to' if call.op in COLLECTING else 'from'} rank {call.root}"
    output += f" tag {call.tag}" if call.tag else ""
    return f"{call.op or 'a collective'} {call.shape}".strip() + output + at


def numbered(call: Collective) -> str:
    """The same with its number, where that is known."""
    number = "the first call of its group" if call.first else f"number {call.seq}" * bool(call.seq)
    return describe_call(call) + f", {number}" * bool(number)


def describe_mismatch(difference: CallMismatch) -> str:
    """Who calls what, those that differ first."""
    by_call: dict[str, list[int]] = {}
    for rank in sorted(difference.calls, key=lambda r: (r not in difference.odd, r)):
        by_call.setdefault(describe_call(difference.calls[rank]), []).append(rank)
    rows = [f"{rank_list(ranks)}: {call}" for call, ranks in by_call.items()]
    return "; ".join(rows[:4]) + f"; and {len(rows) - 4} more" * (len(rows) > 4)


def mismatch_fields(line: object, advice: str = "") -> dict[str, str]:
    """For the fix of collective-mismatch; `line`: a user's, if one is known."""
    return {"line": str(line or "that line"), "advice": advice or "only some ranks reach it"}


def pair_fields(line: object, advice: str = "") -> dict[str, str]:
    """The same of peer-mismatch."""
    return {"line": str(line or "that line"), "advice": advice or "check src, dst and tag"}


def uneven_data(hang: Hang, ranks: Iterable[int], *, sure: bool = True) -> Found | None:
    """Ranks that have no data left where others have. Not so where the others have begun the next
    pass, and had as much in those before: that one does something else in between."""
    here = {rank: hang.calls[rank] for rank in ranks}
    done = {r for r, seen in here.items() if _data_exhausted(seen)}
    most = max((here[r].batches for r in here.keys() - done), default=0)
    fewer = [r for r in here if r in done and here[r].batches < most]
    if not fewer:
        return None
    least = min(here[r].batches for r in fewer)
    more = [r for r in here if r not in done and here[r].batches > least]
    if all(_batches_before(here[r]) == least for r in more):
        return None
    rows: dict[str, list[int]] = {}
    for rank in (*fewer, *more):
        rows.setdefault(_describe_data(here[rank], done=rank in fewer), []).append(rank)
    saw = "; ".join(f"{rank_list(of)}: {text}" for text, of in list(rows.items())[:6])
    waits = next((w for r in more if (w := _waiting_frame(here[r])) is not None), None)
    return Found(
        "data-uneven",
        hang.subjects(sorted(fewer)),
        saw=saw + (f", and wait {at_frame(waits)}" if waits is not None else ""),
        expected="as many batches on every rank, or Join",
        # where all have ended it may be the symptom of another end
        blame=None if sure else Blame.UNKNOWN,
        confidence=Confidence.LIKELY,
    )


def _batches_before(seen: Calls) -> int:
    """What it had in all passes before the one in which it is."""
    return seen.batches - (seen.loader.given if seen.loader is not None else 0)


def _data_exhausted(seen: Calls) -> bool:
    """Whether it has had all of its data. Who counts its batches, as Lightning does, never asks for
    one too many."""
    loader = seen.loader
    if loader is None:
        return False
    counted = loader.length is not None and 0 < loader.length <= loader.given
    return loader.exhausted or (counted and seen.ended == "exited")


def _waiting_frame(seen: Calls) -> Frame | None:
    """Where it waits for others; of one that has failed since, the line of its last call, which may
    count as done then."""
    if seen.at == COLLECTIVE:
        return frame_of(seen)
    last = [group.open or group.calls[-1] for group in seen.groups if group.calls]
    return last[0].frame if last and seen.ended in ("raised", "vanished") else None


def _describe_data(seen: Calls, *, done: bool) -> str:
    loader = seen.loader
    parts = [plural(seen.steps, "step")] if seen.steps else []
    parts.append(plural(seen.batches, "batch").replace("batchs", "batches"))
    if loader is not None and loader.length is not None:
        parts.append(f"len(loader) {loader.length}")
    if loader is not None and loader.sampler:
        parts.append(loader.sampler)
    return ", ".join(parts) + (" and no more" if done else "")


def uneven_data_at_end(hang: Hang) -> Found | None:
    """A rank that has left at the end of its data, with others that wait or failed since."""
    if hang.failed:
        return uneven_data(hang, hang.calls, sure=False)
    left = [r for r, seen in hang.calls.items() if seen.ended == "exited"]
    rest = [r for r in hang.calls if r not in left]
    return uneven_data(hang, [*left, *rest]) if hang.stopped and left else None
