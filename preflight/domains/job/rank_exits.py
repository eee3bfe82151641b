"""How ranks end: which end is a cause, and which only says that somebody else is gone. Pure.

When one rank of a job ends, the others end too: with errors that name a peer, after a timeout, or
by a signal of the launcher. These may even be noticed before the cause.
"""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from preflight.domains.job.gpu_errors import GpuError, gpu_error
from preflight.domains.job.gpu_memory import GpuMemory, out_of_memory
from preflight.domains.job.record import End, Frame, Life
from preflight.frozen import dataclass
from preflight.humanize import plural, rank_list

RAISED, KILLED, VANISHED, EXITED = "raised", "killed", "vanished", "exited"

API = "/torch/distributed/distributed_c10d.py"
OURS = ("time", "stuck", "steps", "interrupted")
"""WatchedCommand.why where it was we who ended it, or a signal that reached us as well."""
INTERRUPT = "KeyboardInterrupt"
LAUNCHERS = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"})
"""What launchers and schedulers end the other ranks with."""

# texts of a rank whose peers are gone, late or out of reach: Gloo, c10d's store, NCCL's watchdog
COMPLAINT = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection was likely closed"
    r"|Broken pipe|Timed out waiting \d+ms for (?:recv|send)|Read error \[|Write error \["
    r"|failed to pass monitoredBarrier|wait timeout after \d+ms, keys|clients joined"
    r"|client socket has (?:timed out|failed to connect)|Gloo connectFullMesh failed"
    r"|Connect timeout \[none\]|Watchdog caught collective operation timeout"
    r"|NCCL communicator (?:was|is) aborted|communicator was aborted|ncclRemoteError"
    r"|remote process exited or there was a network error|Socket [Tt]imeout"
    r"|NCCL operations have failed or timed out|failed to recv, got 0 bytes"
    r"|RendezvousTimeoutError|RendezvousConnectionError|SignalException|DistStoreError"
    r"|DistNetworkError"
    # all that goes wrong between Gloo's pairs, but for sizes (MISFIT)
    r"|gloo/transport/\w+/(?:pair|\w*buffer|socket)\.cc:\d+\] (?!op\.preamble)",
    re.IGNORECASE,
)
# exceptions of Python's own and of HTTP clients with the same words: about another connection
OTHERS = re.compile(
    r"(?:\w+\.)*(?:BrokenPipeError|Connection\w*Error|OSError|HTTPError|SSLError|ProtocolError)\b"
)
# how Gloo says that it has waited for a peer as long as it may. NCCL's watchdog says nothing about
# where ranks are: they call, and go on
GAVE_UP = re.compile(
    r"(?:Timed out waiting (?=\d+ms for (?:recv|send))|failed to pass monitoredBarrier in )"
    r"(?P<ms>\d{1,12}) ?ms"
)
# of ranks that had come to the barrier in which rank 0 gave up
RELEASED = "successfully reached monitoredBarrier"
IN_USE = "EADDRINUSE"  # in a text of c10d's store, too: somebody else listens on the port of rank 0
# one fault of the job that each rank finds for itself
MUTUAL = re.compile(
    r"Detected mismatch between collectives|DDP expects same model across all ranks"
    r"|appears not to match sizes of the same param",
)

# a rank that got more than it has room for: who sends and who receives, one of them is wrong
MISFIT = re.compile(r"op\.preamble\.\w+ <= op\.|Received data size doesn't match expected size")

WORD_SECONDS = 0.3
"""From the end of a rank's connections to its last word; a launcher needs longer to notice an end
and to end the others."""
SEEN_SECONDS = 1.0
"""Before a rank gave up: a launcher ends the others at once, so that they were looked at before."""

SIGNS = {
    "SIGSEGV": "a bad pointer in native code: an extension, a library of another build",
    "SIGABRT": "an assertion in native code; Gloo does so when a peer sends more than fits: see "
    "whether all ranks make this call, with equal sizes",
    "SIGBUS": "most often /dev/shm is full (df -h /dev/shm), or a mapped file was cut",
    "SIGILL": "a binary for another CPU",
    "SIGFPE": "a division by zero in native code",
    "SIGKILL": "killed from outside: by the node's OOM killer, a scheduler or a person",
    "SIGTERM": "asked to end by a scheduler or a person",
    "SIGINT": "interrupted from outside",
    "SIGHUP": "its terminal or session was closed",
    "SIGXCPU": "its limit of CPU time (ulimit -t) was reached",
    "SIGSYS": "a system call that the container forbids",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one rank. what: RAISED, KILLED, VANISHED or EXITED, which is also what vanished
    with an exit status; how: End.how."""

    key: str
    rank: int | None
    at: float
    what: str
    how: str = EXITED
    text: str = ""
    code: int | None = None
    signal: str = ""
    frame: Frame | None = None
    inside: str = ""
    """The function of torch.distributed that it ended in."""
    last: Frame | None = None
    ago: float = 0.0
    """Of one without a frame: where it was seen last, and how many seconds before its end."""
    elsewhere: bool = False
    """It had no collective open there."""
    done: bool = False
    """It had said that it is done, and was killed or crashed while its interpreter was taken
    down."""
    whole: str = ""
    """End.whole, or the text where that is all."""

    @property
    def same(self) -> tuple[str, str, int | None]:
        """Equal for ranks that ended for the same reason: numbers in a text don't count."""
        text = self.text
        if self.memory is not None:
            text = "out of memory"  # each GPU has other numbers
        elif (error := self.error) is not None:
            text = error.text
        return re.sub(r"\d+", "#", text), self.signal, self.code

    @property
    def memory(self) -> GpuMemory | None:
        """Of one that raised: what it says of a GPU that had too little memory."""
        return out_of_memory(self.whole) if self.what == RAISED else None

    @property
    def error(self) -> GpuError | None:
        """Of one that raised: an error of CUDA, if it is one."""
        return gpu_error(self.whole) if self.what == RAISED and self.memory is None else None

    @property
    def mutual(self) -> bool:
        return bool(MUTUAL.search(self.text))

    @property
    def misfit(self) -> bool:
        """Whether it may be the symptom of other sizes on another rank. Gloo aborts in a thread of
        its own, so the main one may be anywhere: in backward(), too."""
        return self.signal == "SIGABRT" or bool(MISFIT.search(self.text))


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of a job, each list by time.

    causes      what is nobody else's consequence, the first of them first
    complaints  errors about others
    left        ended well, or nobody knows how
    clear       the first cause is the first by a clock that all share
    """

    all: tuple[Ended, ...]
    causes: tuple[Ended, ...]
    complaints: tuple[Ended, ...]
    left: tuple[Ended, ...]
    clear: bool = True


def signal_name(code: int) -> str:
    """The signal of a negative exit status."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def signal_of(end: End) -> str:
    """The signal that ended it, empty for none. Shells and some launchers say 128 + its number."""
    if end.code is not None and end.code < 0:
        return signal_name(end.code)
    if end.how != RAISED and end.code is not None and end.code > 128 and end.code - 128 < 32:
        return signal_name(128 - end.code)
    return ""


def ended_badly(end: End) -> bool:
    """Whether it ended in another way than well; what nobody knows is not well."""
    return end.how == RAISED or bool(end.code) or (end.how == VANISHED and end.code is None)


def classify(lives: Mapping[str, Life], latest: float) -> Ends:
    """`latest`: seconds in which an end may be noticed after one that it has caused, since
    processes are looked at by turns."""
    # where an agent has ended its part of the command, ranks of other nodes lose their peers
    commands = (life.command for life in lives.values())
    over = min((c.over for c in commands if c.why in OURS and c.over), default=math.inf)
    found = sorted(
        (
            _ended(key, life, end)
            for key, life in lives.items()
            for end in (*life.former, life.end)
            if end is not None and end.at < over
        ),
        key=lambda e: e.at,
    )
    complaints = [e for e in found if e.what == RAISED and _complains(e.text)]
    if complaints:
        # that it had left is what they are about, whatever became of its process afterwards
        found = [replace(e, what=EXITED, code=0, signal="") if e.done else e for e in found]
    asked = [
        e
        for e in found
        if (e.what == KILLED and e.signal in LAUNCHERS) or e.text.startswith(INTERRUPT)
    ]
    left = [e for e in found if e.what == VANISHED or (e.what == EXITED and not e.code)]
    apart = {id(e) for e in (*complaints, *asked, *left)}
    causes = [e for e in found if id(e) not in apart]
    killed = [
        e for e in found if e.what == VANISHED or (e.what == KILLED and e.signal == "SIGKILL")
    ]
    own = [e for e in asked if not _sent_by_launcher(e, causes, complaints, killed, latest)]
    if not causes and not complaints and all(life.command.exit == 0 for life in lives.values()):
        left, own = [*left, *own], []  # a pool ends its workers so, when they are done
    causes = sorted([*causes, *own], key=lambda e: e.at)
    gone = [e for e in left if e.what == VANISHED]
    if gone and (causes or complaints or asked):
        # the others complain: it is of these; or the launcher has ended them
        causes = causes or gone
        left = [e for e in left if e not in gone]
    nodes = {_node(e) for e in causes if e.at - causes[0].at < latest}
    return Ends(tuple(found), tuple(causes), tuple(complaints), tuple(left), len(nodes) < 2)


def _complains(text: str) -> bool:
    return bool(COMPLAINT.search(text)) and not OTHERS.match(text) and IN_USE not in text


def _sent_by_launcher(
    ended: Ended,
    causes: Sequence[Ended],
    complaints: Sequence[Ended],
    killed: Sequence[Ended],
    latest: float,
) -> bool:
    """Whether a signal is a launcher's, who ends the rest after a first end. SIGTERM and the like
    always are; a SIGKILL may be what the errors are about, if it isn't much later: torchrun gives
    30 s between its two signals, and so does Slurm (KillWait)."""
    if ended.signal != "SIGKILL":
        return any(e.at <= ended.at + latest for e in (*causes, *complaints, *killed))
    if any(e.at < ended.at for e in causes):
        return True
    return any(e.at < ended.at - latest for e in complaints)


def left_before(left: Sequence[Ended], complaint: Ended, latest: float) -> list[Ended]:
    """Who may have left before a rank complained. One that ends well after it may have been asked
    to by the launcher, and has saved its work first."""
    return [
        e
        for e in left
        if e.at
        <= complaint.at
        + (latest if e.how == VANISHED or _node(e) != _node(complaint) else WORD_SECONDS)
    ]


def elsewhere_meanwhile(found: Ends) -> list[Ended]:
    """Who was in no collective when the first one gave up waiting; empty where it didn't give up,
    or nobody was seen there."""
    first = first_complaint(found)
    if not patience(first):
        return []
    since = first.at - min(SEEN_SECONDS, patience(first) / 2)
    return [e for e in found.all if e.elsewhere and e.rank is not None and e.at - e.ago > since]


def first_complaint(found: Ends) -> Ended:
    """The first one that is about others, and not what follows from its own end."""
    own = (e for e in found.complaints if RELEASED not in e.text)
    return next(own, found.complaints[0])


def patience(ended: Ended) -> float:
    """Seconds that it has waited before it gave up; 0 where it did not."""
    found = GAVE_UP.search(ended.text)
    return int(found["ms"]) / 1000 if found else 0.0


def _node(ended: Ended) -> str:
    return ended.key.rpartition("/")[0]


def _ended(key: str, life: Life, end: End) -> Ended:
    name = signal_of(end)
    what = end.how
    # whoever has said that an exception ends it may still crash, or be ended by its launcher, while
    # its interpreter is taken down
    # with a text it had left by sys.exit(text): it had failed
    done = end.how == EXITED and not end.text and end.code is not None and end.code < 0
    if name and end.how != RAISED:
        what = KILLED
    elif end.how == VANISHED and end.code is not None:
        what = EXITED
    frame = next((f for f in end.frames if f.own), None) or next(iter(end.frames), None)
    inner = next((f.function for f in end.frames[:1] if f.file.endswith(API)), "")
    last = next((f for f in end.last if f.own), None)
    elsewhere = last is not None and not end.open
    whole = end.whole or end.text
    told = (end.text, end.code, name, frame, inner, last, end.ago, elsewhere, done, whole)
    return Ended(key, life.rank, end.at, what, end.how, *told)


def describe(ended: Ended, oom: int) -> tuple[str, str]:
    """Found code, and what happened. `oom`: kills in its cgroup meanwhile."""
    code, what = _describe(ended, oom)
    if ended.frame is None and ended.last is not None:
        what += f" · last seen{at_frame(ended.last)}, {ended.ago:.1f} s before its end"
    return code, what


def _describe(ended: Ended, oom: int) -> tuple[str, str]:
    if ended.what == RAISED:
        what = f"{ended.text or 'an exception'}{at_frame(ended.frame)}"
        if (memory := ended.memory) is not None:
            return "rank-gpu-oom", f"{memory.api} out of memory{at_frame(ended.frame)}"
        if (error := ended.error) is not None:
            where = at_frame(ended.frame)
            where = where.replace(" at ", " at or before ", 1) if error.late else where
            return "rank-cuda-error", f"{error.text}{where}"
        if oom and "DataLoader worker" in ended.text:
            return "rank-oom", f"{what} · the OOM killer struck {plural(oom, 'time')}"
        return "rank-raised", what
    if ended.what == KILLED:
        if oom and ended.signal == "SIGKILL":
            return "rank-oom", f"killed by the OOM killer ({plural(oom, 'kill')} in its cgroup)"
        hint = SIGNS.get(ended.signal, "see who sent this signal")
        if ended.inside and ended.signal == "SIGABRT":
            hint = f"Gloo ends {ended.inside} so when a peer sends more than fits: sizes differ; "
            hint += "NCCL's watchdog after its timeout or an error of the GPU"
        return "rank-killed", f"killed by {ended.signal}{at_frame(ended.frame)}: {hint}"
    if ended.what == VANISHED:
        if oom:
            told = f"vanished, and the OOM killer struck {plural(oom, 'time')} in its cgroup"
            return "rank-oom", told
        return "rank-exited", "left without a message: os._exit, or a signal"
    how = "without a message (os._exit)" if ended.how == VANISHED else "by itself"
    told = f"left {how} with exit status {ended.code or 0}"
    if ended.code and ended.text:  # what sys.exit was called with
        told += f", {ended.text!r}"
    if ended.code or ended.how != VANISHED:
        told += at_frame(ended.frame)
    return "rank-exited", told


def at_frame(frame: Frame | None) -> str:
    """` at train.py:40 in main`; empty where the place is not known."""
    return f" at {frame} in {frame.function}" if frame is not None else ""


def describe_later(later: Sequence[Ended]) -> str:
    """Those that ended after it, and where the first of them noticed."""
    if not later:
        return ""
    noticed = next((e.frame for e in later if e.what == RAISED and e.frame), None)
    where = f", the first at {noticed}" if noticed else ""
    return f" · {plural(len(later), 'other')} ended after it{where}"


def name_ranks(ended: Sequence[Ended]) -> str:
    """`ranks 1, 3`, or how many processes of unknown rank."""
    ranks = [e.rank for e in ended if e.rank is not None]
    if ranks:
        return rank_list(ranks)
    return "a process" if len(ended) == 1 else f"{len(ended)} processes"
