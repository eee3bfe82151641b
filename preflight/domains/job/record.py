"""What is known of one rank of a rehearsed command: the answers of the checks of the group job.

preflight/rehearsal fills them while the command runs, on the machine where it runs; the checks
judge them. Times `at` are the wall clock's, since ranks of several machines are compared; all texts
come out of the user's processes: bounded and printable before they get here.
"""

from __future__ import annotations

from preflight.domains.collectives.nccl_log import NcclLog
from preflight.domains.job.backends import Backends
from preflight.domains.job.clipping import Clipping
from preflight.domains.job.copies import ModelCopy
from preflight.domains.job.discarded import Discarded
from preflight.domains.job.frame import Frame as Frame
from preflight.domains.job.gpu_use import GpuUse
from preflight.domains.job.joining import Joining
from preflight.domains.job.nccl_ras import Ras
from preflight.domains.job.needless import Needless
from preflight.domains.job.optimized import Optimized
from preflight.domains.job.optimizer_settings import OptimizerSettings
from preflight.domains.job.replica import Load, Replica
from preflight.domains.job.shared_buffers import SharedBuffers
from preflight.domains.job.shared_data import Dealt, Shares
from preflight.domains.job.step_parts import StepParts
from preflight.domains.job.tied import Untied
from preflight.domains.job.torch_warnings import TorchWarning
from preflight.frozen import dataclass

ARGUMENTS = 64
"""Words of the command that are kept."""
TEXT = 300
"""Characters kept of any text that comes out of the user's processes."""
FRAMES = 12
"""Frames kept of a stack, the innermost first."""
NO_PYSPY = "py-spy is not installed"
NO_PTRACE = "the kernel does not let py-spy read the process (ptrace)"
"""How Life.problem begins where a stack can't be read."""
WENT = "it ended while preflight looked at it"
"""Life.problem of a process of a running job that was seen nowhere."""
NOT_IMPORTED = "nothing of it has imported torch.distributed"
NO_RANK = "it imports torch.distributed, but nothing makes a rank of it"
"""What may only be so until its processes have imported torch."""
CLOSING = "destroy_process_group"
"""A function in which a rank waits for its own threads: torch 2.6 may for ever, with Gloo."""
CALLS = 200
"""Collectives kept of every group, the latest."""


@dataclass(frozen=True, slots=True)
class Uncaught:
    """An exception that nobody caught: its type and message in one line, the user's line, and
    whether it ended the process that was started, and not one that this has started."""

    text: str
    frame: Frame | None = None
    own: bool = False


@dataclass(frozen=True, slots=True)
class WatchedCommand:
    """The command that was rehearsed, as it was started on this node.

    exit    its exit status, negative for a signal; None when it was still running and we ended it
    why     why the watch was over: ended, stuck, time, steps, interrupted, blind (nothing of it
            could be watched)
    seconds from its start until then
    over    the wall clock's time then; what ranks of other nodes do afterwards may be our doing
    raised  the last exception that ended a process of it which was no rank
    """

    argv: tuple[str, ...]
    exit: int | None
    why: str
    seconds: float
    over: float = 0.0
    raised: Uncaught | None = None


@dataclass(frozen=True, slots=True)
class End:
    """How a rank ended before the watch was over.

    how     raised (an exception that nobody caught), exited (it left by itself: the end of the
            script, sys.exit), vanished (no word from it: a signal, os._exit)
    code    its exit status, negative for a signal; None where the kernel had no time to tell us
    text    of an exception: its type and message in one line
    frames  where it was raised, or where it crashed
    last    of one that says nothing of that: where it was when it was looked at last, `ago` seconds
            before its end; of one that raised: where it was when it last was in no call for which
            it waits for other ranks
    open    it had called a collective then that was not done
    whole   more of a text that is longer, of an error that says what matters at its end
    """

    how: str
    at: float
    code: int | None = None
    text: str = ""
    frames: tuple[Frame, ...] = ()
    last: tuple[Frame, ...] = ()
    ago: float = 0.0
    open: bool = False
    whole: str = ""


@dataclass(frozen=True, slots=True)
class HeldStore:
    """Where the launcher listens for the ranks, which the script has replaced by another address.
    frame: the user's line that did so, where it was seen."""

    host: str
    port: int
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Joins:
    """A call of init_process_group: as whom, and where it meets the others.

    how      env (MASTER_ADDR and MASTER_PORT), tcp or file (the init_method), store (the argument)
    frame    the user's line that calls it
    stale    seconds by which a file is older than the command; 0 where it has no contents
    refused  why nobody could be reached there at the end of the watch; empty where somebody was,
             and where nobody tried
    held     another address, at which the launcher holds the store; None: the same, or it has none
    """

    pid: int
    how: str
    host: str = ""
    port: int = 0
    path: str = ""
    rank: int | None = None
    world: int = 0
    frame: Frame | None = None
    stale: float = 0.0
    refused: str = ""
    held: HeldStore | None = None


@dataclass(frozen=True, slots=True)
class Life:
    """Whether a rank came, and whether it stayed: job.ranks.

    rank       of the whole job; None where nothing said so (the command is no distributed one, or
               it ended before)
    world      ranks of the whole job, as this rank knows it; 0 where it does not
    here       how many ranks of this node are watched
    joined     it has a process group
    end        None while it lives
    watched    how it could be seen: "inside", "server" (by torch's own worker server in it),
               "py-spy" (its stack only), "outside" (only /proc), "" (there is no such process)
    starting   outside only: it exists since so many seconds and has not come to torch yet
    oom_kills  of the cgroup, while the command ran
    absent     ranks of this node that the launcher started or should have, and nobody saw
    former     how processes ended that had this rank before: the launcher started it again
    joins      what it said in init_process_group; None where it was not seen there
    twin      the same of other processes that were there as this rank at the same time
    """

    command: WatchedCommand
    rank: int | None = None
    world: int = 0
    here: int = 1
    pid: int = 0
    joined: bool = False
    end: End | None = None
    watched: str = "inside"
    starting: float = 0.0
    oom_kills: int = 0
    absent: tuple[int, ...] = ()
    former: tuple[End, ...] = ()
    joins: Joins | None = None
    twins: tuple[Joins, ...] = ()
    problem: str = ""
    """Why less could be seen than usual, in one sentence."""
    closing: bool = False
    """Its program is over (Calls.leaving), or it is in destroy_process_group: it waits for no other
    rank."""
    joining: Joining | None = None
    """Where it waits for the others; only of a job that already runs."""
    on_gpu: tuple[tuple[int, int], ...] = ()
    """Of some looks, evenly over the watch: steps done, bytes that tensors had on its GPU."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective or point-to-point call of a rank. seq counts within its group (those between
    two ranks apart; 0 where nothing tells it, as of a stack alone), op is without its backend
    ("all_reduce"), shape is the input's "[8, 3] Float", `frame` the user's line that called it."""

    seq: int
    op: str
    shape: str
    frame: Frame | None = None
    p2p: bool = False
    done: bool = True
    timeout: float = 0.0
    """Seconds after which torch gives it up."""
    output: str = ""
    """Of an all_to_all alone: what it has room for, as `shape`."""
    root: int | None = None
    """The rank of the whole job that gives (broadcast, scatter) or gets (reduce, gather); None
    where there is none, or it is not known."""
    tag: int | None = None
    """Of a send or recv over Gloo, which joins only those of one tag."""
    thread: bool = False
    """It was made in a thread that the program had started beside its main one."""
    started: bool = False
    """The GPU has reached it. Only known of NCCL with TORCH_NCCL_ENABLE_TIMING=1."""
    first: bool = False
    """The first one of its group, in which NCCL connects the ranks: nothing has recorded it yet."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one rank knows it. `ranks` are those of the whole job; enqueued and
    completed count its collectives; `calls` are the latest, in their order."""

    name: str
    ranks: tuple[int, ...] = ()
    enqueued: int = 0
    completed: int = 0
    calls: tuple[Collective, ...] = ()
    made: Frame | None = None
    """The user's line that made it; None where that was not seen."""

    @property
    def open(self) -> Collective | None:
        """The oldest call that is not done."""
        return next((call for call in self.calls if not call.done), None)


@dataclass(frozen=True, slots=True)
class Loader:
    """The DataLoader that a rank has iterated last. `length` is len(loader), `given` how many
    batches it gave in this pass, `exhausted` that the pass has ended; None: it has no length.
    `passes` were begun over all DataLoaders of the rank, this one at `frame`."""

    length: int | None = None
    given: int = 0
    exhausted: bool = False
    workers: int = 0
    sampler: str = ""
    passes: int = 0
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class ChildProcess:
    """A child of a rank: a DataLoader's worker, a compiler … `frame`: of a worker at a sample
    the line of the user's code, where py-spy tells it."""

    pid: int
    name: str
    state: str
    wchan: str = ""
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Caught:
    """An exception that a rank has caught since it joined, and went on.

    frame    where it was raised, handler where it was caught, as far as known
    now      it is being handled still: in an except, or in a finally that it passes
    """

    text: str
    frame: Frame | None = None
    handler: Frame | None = None
    times: int = 1
    now: bool = False


@dataclass(frozen=True, slots=True)
class Calls:
    """What a rank calls and where it is: job.collectives.

    at         where its main thread is: collective (in torch.distributed, or a call of it is open
               since long), loader (in a DataLoader), init (in init_process_group or a rendezvous),
               store (it waits for a key of a store), own (anywhere else), gone (it has ended),
               unknown (it does not answer)
    still      seconds since it did anything that shows: a collective, a step, a batch, another
               place in its stack, CPU unless it uses a GPU, for which a thread spins
    quiet      seconds since it has done a collective, a step, or got a batch
    cpu        part of one CPU that it and its children used in the last seconds
    stack      of its main thread
    state      of the process in the kernel (R, S, D, T, Z), wchan where it waits there
    steps      optimizer steps done; batches got from loaders
    ended      how the rank ended (End.how), empty while it lives
    lost       children that died while the rank went on: a loader's workers
    """

    rank: int | None = None
    world: int = 0
    why: str = ""
    """WatchedCommand.why"""
    at: str = "own"
    still: float = 0.0
    quiet: float = 0.0
    cpu: float = 0.0
    stack: tuple[Frame, ...] = ()
    state: str = ""
    wchan: str = ""
    steps: int = 0
    batches: int = 0
    loader: Loader | None = None
    groups: tuple[Group, ...] = ()
    children: tuple[ChildProcess, ...] = ()
    lost: int = 0
    ended: str = ""
    seconds: float = 0.0
    """Of the watch."""
    unrecorded: str = ""
    """Why the calls of one of its groups are not known, though it made some: torch's version, and
    what it has no recorder for."""
    moves: bool = False
    """Of one that is seen from outside: it was in a call while it was looked at, and went on."""
    works: str = ""
    """What it does at connections, files and in children, in words; empty: nothing of that."""
    asks: bool = False
    """Its main thread waits for an answer from another machine or service."""
    caught: tuple[Caught, ...] = ()
    libraries: tuple[str, ...] = ()
    """Imported ones that may carry gradients without torch.distributed, such as horovod."""
    ras: Ras | None = None
    """What NCCL itself says of the whole job; only in the first rank of a node."""
    leaving: bool = False
    """Its program is over: it is in destroy_process_group, in what atexit calls, or waits for its
    threads."""
    failure: Uncaught | None = None
    """The exception with which its program is over, where the process is still there."""
    keys: tuple[str, ...] = ()
    """Those of a store for which it waits, where it is at `store`."""
    pause: float = 0.0
    """Seconds of the sleep in which it is, where that ends by itself."""
    gpu_wait: str = ""
    """The call by which its main thread waits for its GPU: `.item()`, `.cuda()`; empty: it doesn't,
    or uses none."""
    gloo: bool = False
    """All its groups are Gloo's, which ends a rank to which a peer sends more than fits."""

    @property
    def own(self) -> Frame | None:
        """The innermost place in the user's own code."""
        return next((frame for frame in self.stack if frame.own), None)


@dataclass(frozen=True, slots=True)
class Volume:
    """What the calls of one line carry, in their order: `calls` of `op` with one kind of values.

    early, late  bytes, the median of the first quarter of the calls and of the last one
    rises        part of the calls that carry more than the one before
    all          how many calls of the line there were, about: the latest ones are kept
    kind         of the values, as torch's record has it: Byte, Long, Float
    """

    frame: Frame
    op: str
    calls: int
    early: float
    late: float
    rises: float
    all: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True)
class BusyThread:
    """A thread of a rank beside its main one. cpu: part of one CPU that it used, over the looks at
    the pace; at: the user's line at which it was most often."""

    name: str
    cpu: float
    at: Frame | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """Where the time of a rank's steps goes: job.pace.

    step       median seconds of a step, without the first ones; 0 where there were too few
    steps      how many of them it is the median of
    loader     part of that time in which it waited for the DataLoader
    waiting    part of the samples at which it was in a collective (in steps, not while starting)
    pending    part of them at which a call of it was not done, wherever its main thread was: DDP
               waits inside of backward()
    looks      how many samples these are
    own        the user's line at which it was most often otherwise, and in which part of the
               samples
    collectives  a step: calls, and their median size in bytes
    workers    of the DataLoader; cpus: those that the rank may use for itself, 0 where not known
    mean       seconds of a step over all looks, 0 where there were none: far more than `step` where
               a few took very long (an evaluation, a checkpoint), or all of them were over before
    """

    rank: int | None = None
    step: float = 0.0
    steps: int = 0
    loader: float = 0.0
    waiting: float = 0.0
    pending: float = 0.0
    looks: int = 0
    own: Frame | None = None
    own_part: float = 0.0
    collectives: float = 0.0
    size: float = 0.0
    workers: int = 0
    cuda: bool = False
    cpus: float = 0.0
    mean: float = 0.0
    mean_size: float = 0.0
    """Bytes of a collective, on average."""
    between: Frame | None = None
    """The user's line at which it was most often between the optimizer and the next forward."""
    after: Frame | None = None
    """The same between a backward and the optimizer."""
    loading: Frame | None = None
    """The user's line at which it was most often while its DataLoader made a batch, in the function
    of those that this calls in which it was most often then; only without workers, which are
    processes of their own."""
    loading_part: float = 0.0
    """Part of the samples at which it was in that function then."""
    outside: float = 0.0
    """Median seconds between these two, but for waiting for data."""
    nccl: bool = False
    """NCCL carries its collectives on GPUs: the host waits for none of them, and torch notices ten
    times a second which ones are done."""
    synced: float = 0.0
    """Part of the looks at which the main thread waited for its GPU: in `sync`, which is .item(),
    synchronize(), float(), a test or the print of a tensor, most often at `sync_at`."""
    sync: str = ""
    sync_at: Frame | None = None
    copied: float = 0.0
    """Part of the looks at which it stood in `.to()` or `.cuda()`: a copy to a GPU waits for all
    that this one still has to do."""
    busy: float | None = None
    """Part of the time in which its GPU computed, where the driver tells."""
    backward: float = 0.0
    """Seconds of a step from DDP's forward to the optimizer, on average: there it waits for others,
    where no GPU does."""
    payloads: tuple[Volume, ...] = ()
    """Of the lines that carried most at last."""
    thread: BusyThread | None = None
    """The one beside the main thread that used most of the CPU."""
    pinned: tuple[int, ...] = ()
    """The CPUs that its main thread may run on, where the command could use more."""
    threads: int = 0
    """With how many torch computes an operation on the CPU; 0: not known."""
    ran: float = 0.0
    unserved: float = 0.0
    """Parts of the time in which its main thread was on a CPU, and in which it was ready to run and
    had none; 0 where the kernel does not count them."""
    cpu: float = 0.0
    """Seconds of CPU per step, of all threads of the process."""
    pauses: tuple[int, ...] = ()
    """Which of its `steps` took several times as long as usual, counted from 0."""
    needless: Needless = Needless()
    buffers: SharedBuffers = SharedBuffers()


@dataclass(frozen=True, slots=True)
class Growth:
    """Memory of a rank over time: job.memory. samples are (seconds since the start, steps done,
    bytes of the process and its children, bytes allocated on the GPU); `limit` what the process may
    have in all (a cgroup's limit, else the machine's memory), `available` what is left of it now,
    both in bytes; gpu_limit the GPU's memory."""

    rank: int | None = None
    samples: tuple[tuple[float, int, int, int], ...] = ()
    limit: int = 0
    available: int = 0
    gpu_limit: int = 0
    here: int = 1
    """Ranks that share `available`."""
    shm: int = 0
    """Bytes in /dev/shm that came while the command ran."""
    shm_samples: tuple[tuple[float, int, int], ...] = ()
    """As samples: seconds, steps, bytes in use in /dev/shm, those of deleted files too."""
    shm_free: int = 0


EXCHANGES = ("all_gather", "all_to_all", "reduce_scatter", "gather", "scatter")
"""Begin of collectives with which ranks get parts of each other's."""


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """All that is known of one rank."""

    life: Life
    calls: Calls = Calls()
    pace: Pace = Pace()
    growth: Growth = Growth()
    backends: Backends = Backends()
    models: tuple[Replica, ...] = ()
    parts: StepParts = StepParts()
    nccl: NcclLog | None = None
    """What its NCCL logged; None where it logged nothing to us."""
    gpu: GpuUse = GpuUse()
    dealt: tuple[Dealt, ...] = ()
    loads: tuple[Load, ...] = ()
    warned: tuple[TorchWarning, ...] = ()
    optimized: Optimized = Optimized()
    settings: tuple[OptimizerSettings, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    shares: tuple[Shares, ...] = ()
    untied: tuple[Untied, ...] = ()
    clipping: Clipping = Clipping()
    copies: tuple[ModelCopy, ...] = ()
    needless: Needless = Needless()

    @property
    def exchanges(self) -> bool:
        """Whether it gathers, scatters or sends, as ranks do that have parts of one model or of one
        sequence; but for what DDP gathers where it is built, to compare shapes."""
        lines = {model.frame for model in self.models if model.kind == "ddp"}
        calls = [call for group in self.calls.groups for call in group.calls]
        return any(
            (call.p2p or call.op.startswith(EXCHANGES)) and call.frame not in lines
            for call in calls
        )


@dataclass(frozen=True, slots=True)
class RehearsalRecord:
    """All that is known of the ranks of one node, by their order there."""

    ranks: tuple[Rehearsed, ...]
