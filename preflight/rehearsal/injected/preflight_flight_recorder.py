"""What the process groups of a process of the rehearsed command have called: read out of torch's
flight recorders, of which each backend has its own, or recorded here where torch has none.

Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the
standard library only.
"""

import _thread
import functools
import json
import math
import os
import pickle
import sys
import time
from collections import deque

TEXT = 300
RECORDED = 200
"""Calls kept of every process group."""
GROUPS = 64
"""Groups that are kept: the first, which all ranks are in, and the latest others."""
SELDOM, STALE = 100, 2.0
"""Reads that only serve names or counts are repeated after SELDOM times the time that the last one
took; those of counts after STALE seconds at the latest."""

OURS = "preflight_dispatched_calls"
READERS = {"nccl": ("_dump_nccl_trace", "_dump_nccl_trace_json")}
READERS["gloo"] = ("_dump_fr_trace", "_dump_fr_trace_json")
"""Backend -> what reads its records, of all calls and of their counts alone."""


class Recorder:
    """What is known of the recording in this process. There is one."""

    calls = {}  # what is in preflight_dispatched_calls.py, once it is needed
    backends = {}  # of each group by its name, also when it is there no more; up to GROUPS of them
    members = {}  # ranks of each of these
    making = ("", ())  # the group that is being made, and its ranks
    labels = {}  # what each group is called by who made it, such as mesh_tp
    made = {}  # the user's line that made it, as torch's recorder has frames
    numbered = {}  # of each backend: the number that its recorder has for a group -> its name
    order = []  # names of Gloo's groups, as they were made
    offset = None  # the number of the first of them, where all that were read agree on it
    presumed = set()  # numbers whose names follow from that alone
    asks_again = 0.0  # for such names, not before
    counted = {}  # of each backend: its counts, and until when they do
    problem = ""


def forget():
    """After a fork: the groups are the parent's."""
    Recorder.backends, Recorder.members, Recorder.labels, Recorder.numbered = {}, {}, {}, {}
    Recorder.making, Recorder.made, Recorder.counted = ("", ()), {}, {}
    Recorder.order, Recorder.offset, Recorder.presumed = [], None, set()
    Recorder.calls.get("GROUPS", {}).clear()


def follow_groups(c10d, binding, is_own, never_compiled):
    """From now on look at each process group that is made: whether torch keeps a record of it.
    Before 2.7 it has one for NCCL alone, that is off unless this variable says otherwise."""
    size = "TORCH_NCCL_TRACE_BUFFER_SIZE"
    if not hasattr(binding, "_dump_fr_trace") and os.environ.get(size, "0").strip() == "0":
        os.environ[size] = os.environ.get("TORCH_FR_BUFFER_SIZE", "2000")
    make, given = c10d._new_process_group_helper, (is_own, never_compiled)

    @functools.wraps(make)
    def _new_process_group_helper(*args, **kwargs):
        Recorder.making = in_the_making(args, kwargs)
        note_maker(sys._getframe(1), is_own)
        made = make(*args, **kwargs)
        Recorder.making = ("", ())
        try:
            if made[0] is not c10d.GroupMember.NON_GROUP_MEMBER:
                record(c10d, binding, made[0], kwargs.get("timeout"), given)
        except Exception as error:
            Recorder.problem = f"{type(error).__name__}: {error}"[:TEXT]
        return made

    c10d._new_process_group_helper = _new_process_group_helper


def in_the_making(args, kwargs):
    """Name and ranks of the group that this rank makes with others; none of one that it is not
    in, or that all are in."""
    try:
        _, rank, ranks = args[:3]
        name = kwargs.get("group_name") or args[5]
        return (str(name), sorted(ranks)[:4096]) if rank is not None and ranks else ("", ())
    except Exception:
        return "", ()


def note_maker(frame, is_own):
    """Keeps the user's line that makes the group of this name."""
    name = Recorder.making[0]
    while name and frame is not None:
        code = frame.f_code
        path = code.co_filename
        if path not in OWN:
            if len(OWN) > 4096:
                OWN.clear()
            OWN[path] = is_own(path)
        if OWN[path]:
            found = {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
            Recorder.made[name] = found
            return
        frame = frame.f_back


OWN = {}
"""File -> whether it is the user's."""


def record(c10d, binding, group, timeout, given):
    """Of a group that torch has no record of its calls are recorded here; where it keeps one, the
    roots, and what Gloo sends between two ranks."""
    backends = Recorder.backends[group.group_name] = backends_of(c10d, group)
    Recorder.labels[group.group_name] = label_of(group)
    Recorder.members.pop(group.group_name, None)  # of one before that had this name
    if "nccl" in backends.values():
        numbered = Recorder.numbered.setdefault("nccl", {})
        numbered[str(len(numbered))] = group.group_name
    if "gloo" in backends.values():
        Recorder.order.append(group.group_name)
    drop_oldest(c10d._world.pg_names.values())
    lacking = {backend for backend in backends.values() if not reader(binding, backend)}
    wanted = "ALL" if lacking else "P2P" if "gloo" in backends.values() else ""
    lacking = lacking or ({"gloo"} if wanted else set(backends.values()))
    if not lacking:
        return
    if not Recorder.calls:
        path = os.path.join(os.path.dirname(__file__), OURS + ".py")
        with open(path, encoding="utf-8") as file:
            known = {"__name__": OURS, "__file__": path}
            exec(compile(file.read(), path, "exec"), known)
        Recorder.calls = known
    known, whole = Recorder.calls, lacking == set(backends.values())
    names = known[wanted] if wanted else ()
    if names:
        known["install"](names, *given)
    known["follow_roots"](binding, given[1])
    devices = {device for device, backend in backends.items() if backend in lacking}
    seconds = timeout.total_seconds() if timeout is not None else 0.0
    name = known_as(group.group_name, min(lacking))
    known["GROUPS"][group.group_name] = (
        name,
        known["RecordedGroup"](group.rank(), seconds, () if whole else devices, names),
    )


def drop_oldest(there):
    """A program may make a group in every step. Those that are not `there` any more go first."""
    there = set(there)
    while len(Recorder.backends) > GROUPS:
        names = list(Recorder.backends)[1:]
        name = next((name for name in names if name not in there), names[0])
        known = Recorder.backends, Recorder.members, Recorder.labels, Recorder.made
        for one in (*known, Recorder.calls.get("GROUPS", {})):
            one.pop(name, None)


def is_kept(name):
    """torch's recorder has groups that c10d knows nothing of, too."""
    return name in Recorder.backends or len(Recorder.backends) < GROUPS


def reader(binding, backend, which=0):
    return getattr(binding, READERS[backend][which], None) if backend in READERS else None


def backends_of(c10d, group):
    """Kind of tensors -> the backend that carries them, as `cpu:gloo,cuda:nccl,xpu:xccl` says: the
    default has devices in it that this machine has not."""
    config = str(c10d._world.pg_backend_config.get(group, ""))
    pairs = (pair.partition(":") for pair in config.split(",") if ":" in pair)
    return {device: backend for device, _, backend in pairs if is_there(device)}


def is_there(device):
    """CUDA is not asked: that would forbid the program to fork."""
    available = getattr(getattr(sys.modules["torch"], device, None), "is_available", None)
    return device in ("cpu", "cuda") or (available is not None and available())


def known_as(name, backend):
    """A group with two backends has two histories, each with numbers of its own."""
    several = len(set(Recorder.backends.get(name, {}).values())) > 1
    return f"{name} {backend}" if several else name


def groups_of(c10d):
    """Name -> group, of those that there are: the first and the latest. Nothing here is there for
    sure a moment later, since the program goes on meanwhile."""
    world = getattr(c10d, "_world", None)
    named = list(getattr(world, "pg_names", {}).items())
    found = {str(name): group for group, name in (*named[:1], *named[1:][1 - GROUPS :])}
    ranks = getattr(world, "pg_group_ranks", {})
    for name, group in found.items():
        of = ranks.get(group, ())
        if len(Recorder.members.get(name, ())) != min(len(of), 4096):
            Recorder.members[name] = sorted(of)[:4096]
        Recorder.labels.setdefault(name, label_of(group))
        if name not in Recorder.backends:
            Recorder.backends[name] = backends_of(c10d, group)
    drop_oldest(found)
    return found


def counts(c10d, binding):
    """Group -> collectives enqueued and completed."""
    groups, found = groups_of(c10d), {}
    for backend in READERS:
        for group, two in counts_of(binding, backend, groups).items():
            if is_kept(group):
                found[known_as(group, backend)] = two
    for name, group in list(Recorder.calls.get("GROUPS", {}).values()):
        made, done = group.counts()
        if made or group.names is Recorder.calls["ALL"]:
            before = found.get(name, (0, 0))
            found[name] = [before[0] + made, before[1] + done]
    return found


def counts_of(binding, backend, groups):
    """As torch's recorder counts them: torch 2.4 has no counts, but lists the calls under way. It
    has them of every group that there ever was."""
    read = reader(binding, backend, 1)
    if read is not None:
        until, found = Recorder.counted.get(backend, (0.0, {}))
        if time.monotonic() < until:
            return found
        began = time.thread_time()
        status = json.loads(read(False, False)).get("pg_status", {})
        names = names_of(binding, backend, status)
        found = {
            names[number]: [int(s["last_enqueued_collective"]), int(s["last_completed_collective"])]
            for number, s in sorted(status.items(), key=lambda one: (len(one[0]), one[0]))
            if names.get(number)
        }
        pause = min(STALE, (time.thread_time() - began) * SELDOM)
        Recorder.counted[backend] = time.monotonic() + pause, found
        return found
    found = {}
    if reader(binding, backend) is not None:
        active = [group for group, _ in entries_of(binding, backend, active=True)]
        for name, group in groups.items():
            if backend in Recorder.backends.get(name, {}).values() and (made := number(group)):
                found[name] = [made, max(0, made - active.count(name))]
    return found


def names_of(binding, backend, numbers):
    """Number of a group -> its name, "" where that is not known. Its calls are counted under a
    number: how many groups of this backend the process had made before. That is the name only on a
    rank that is in all groups, and only of the first ones of that name.

    Gloo's calls tell it, also of groups that torch makes for itself. To read them all makes tens of
    thousands of objects, and Python may look through its memory for garbage: so once they have
    shown that the numbers follow the order in which the groups were made, that tells it until the
    end. To read NCCL's asks CUDA about events, which would end the capture of a graph; its groups
    are counted as they are made."""
    known = Recorder.numbered.setdefault(backend, {})
    if backend == "nccl":
        return known
    presume(known, numbers)
    if time.monotonic() >= Recorder.asks_again and any(number not in known for number in numbers):
        began = time.thread_time()
        found = {str(e.get("pg_id", name)): name for name, e in entries_of(binding, backend)}
        Recorder.presumed.clear()
        for number in numbers:
            known[number] = found.get(number) or known.get(number, "")
        Recorder.offset = offset_of(found, Recorder.order)
        presume(known, numbers)  # calls of long ago are not in there any more
        Recorder.asks_again = time.monotonic() + (time.thread_time() - began) * SELDOM
    return known


def presume(known, numbers):
    """Names of groups by the order in which they were made, as far as that holds."""
    if Recorder.offset is None:
        return
    new = [number for number in numbers if not known.get(number)]
    places = [int(number) - Recorder.offset if number.isdigit() else -1 for number in new]
    if all(0 <= place < len(Recorder.order) for place in places):
        known.update((number, Recorder.order[place]) for number, place in zip(new, places))
        Recorder.presumed.update(new)


def offset_of(found, order):
    """The number of the first group; None: the numbers are not those of the order."""
    places = {name: place for place, name in enumerate(order)}
    offsets = {
        int(number) - places[name] if number.isdigit() and name in places else None
        for number, name in found.items()
    }
    return offsets.pop() if len(offsets) == 1 else None


def ask_all():
    """For the record: counts and names are read, and nothing is presumed."""
    Recorder.asks_again, Recorder.offset, Recorder.counted = 0.0, None, {}
    for number in Recorder.presumed:
        Recorder.numbered.get("gloo", {}).pop(number, None)


def number(group):
    """How many calls a group has had, as it counts itself; None where it does not."""
    try:
        return int(group._get_sequence_number_for_group())
    except Exception:
        return None


def unrecorded(c10d, binding, found):
    """Why calls of this process are not known, though there were some; empty where all are."""
    for name, group in groups_of(c10d).items():
        backends = Recorder.backends.get(name, {})
        seen = any(known_as(name, backend) in found for backend in backends.values())
        if seen or group.size() < 2 or number(group) == 0:
            continue
        backend = ", ".join(sorted(set(backends.values()))) or "this backend"
        text = f"torch {sys.modules['torch'].__version__}: "
        if all(reader(binding, backend) for backend in backends.values()):
            return text + f"the flight recorder for {backend} is empty"
        text += f"no flight recorder for {backend}, and preflight could not record the calls"
        return text + (f" ({Recorder.problem})" if Recorder.problem else "")
    return ""


def backends(c10d):
    """Group -> kind of tensors -> the backend that carries them here, also of groups that have been
    destroyed."""
    groups_of(c10d)
    return dict(Recorder.backends)


def label_of(group):
    """What a group is called, as far as torch knows: from 2.4 on."""
    return str(getattr(group, "group_desc", ""))[:TEXT]


def labels(c10d):
    """Group -> what it is called, of those that were destroyed, too."""
    groups_of(c10d)
    return dict(Recorder.labels)


def members(c10d):
    """Group -> the ranks in it, of those that were destroyed, too."""
    groups_of(c10d)
    found = {}
    for name, here in list(Recorder.members.items()):
        names = {known_as(name, backend) for backend in Recorder.backends.get(name, {}).values()}
        found.update(dict.fromkeys(names or {name}, here))
    name, ranks = Recorder.making
    if name:
        found[name] = ranks
    return found


def makers(first_own):
    """Group -> the user's line that made it."""
    found = {}
    for name, frame in list(Recorder.made.items()):
        names = {known_as(name, backend) for backend in Recorder.backends.get(name, {}).values()}
        found.update(dict.fromkeys(names or {name}, first_own([frame])))
    return found


def recorded(c10d, binding, first_own):
    """Group -> its latest calls."""
    groups_of(c10d)
    found = {}
    for backend in READERS:
        for group, entry in entries_of(binding, backend, frames=True):
            if not is_kept(group):
                continue
            name = known_as(group, backend)
            found.setdefault(name, deque(maxlen=RECORDED)).append(call(entry, first_own))
    for raw, (name, group) in list(Recorder.calls.get("GROUPS", {}).items()):
        of = Recorder.backends.get(raw, {}).values()
        for one in {known_as(raw, backend) for backend in of}:
            tell_roots(found.get(one, ()), group.roots)
        ours = [call(entry, first_own) for entry in Recorder.calls["entries"](group)]
        known = found.get(name, ())
        # a group without a call is told, too; and a torch to come may record what is p2p
        if not any(one["p2p"] for one in known):
            found[name] = sorted((*known, *ours), key=at)[-2 * RECORDED :]
    return {group: list(calls) for group, calls in found.items()}


def at(call):
    return call["at"]


def tell_roots(calls, roots):
    """Which rank gives or gets in torch's records of these calls: one is entered there just after
    it was noted here, and before the next. In doubt none."""
    roots = list(roots)
    rooted = deque(sorted((one for one in calls if one["op"] in ROOTED), key=at))
    for (noted, op, root), (following, _, _) in zip(roots, [*roots[1:], (math.inf, "", 0)]):
        while rooted and rooted[0]["at"] < noted - TICK:
            rooted.popleft()
        until = min(following, noted + SOON)
        if rooted and rooted[0]["op"] == op and rooted[0]["at"] < until + TICK:
            rooted.popleft()["root"] = root


def entries_of(binding, backend, frames=False, active=False):
    """Group and entry, of all calls or of those under way. They come as a pickle of torch's own
    making, read here, where it was made: it crosses no border."""
    read = reader(binding, backend)
    if read is None:
        return
    with InductorUnasked():
        raw = read(True, frames, active)
    for entry in pickle.loads(raw).get("entries", ()):
        yield str(next(iter(entry.get("process_group", ())), "?")), entry


def call(entry, first_own):
    """As the record has it."""
    p2p = bool(entry.get("is_p2p"))
    op = str(entry.get("profiling_name", "")).rpartition(":")[2][:60]
    return {
        "seq": entry.get("p2p_seq_id" if p2p else "collective_seq_id", 0),
        "op": op,
        "shape": shape(entry),
        "output": shape(entry, "output") if op in EXCHANGES + GATHERS else "",
        "bytes": size(entry),
        "at": (entry.get("time_created_ns") or 0) / 1e9,
        "frame": first_own(entry.get("frames", ())),
        "p2p": p2p,
        "done": bool(entry.get("retired")) or entry.get("state") == "completed",
        "started": bool(entry.get("time_discovered_started_ns")),
        "timeout": entry.get("timeout_ms", 0) / 1e3,
        "root": entry.get("root"),
        "tag": entry.get("tag"),
        "thread": entry.get("thread", False) or in_thread(entry.get("frames", ())),
    }


def in_thread(frames):
    """Whether Python has started the thread of these frames, the innermost of which is first."""
    return bool(frames) and frames[-1]["filename"].endswith("threading.py")


class InductorUnasked:
    """While the recorder's frames are read, torch asks torch._inductor for those of compiled code,
    and imports it for that, which takes seconds. So this stands in its place meanwhile, where it
    has not been imported yet; for all other threads it is the real one."""

    def __enter__(self):
        self._reader = _thread.get_ident()
        self._known = vars(sys.modules["torch"])
        self._known.setdefault("_inductor", self)

    def __exit__(self, *error):
        if self._known.get("_inductor") is self:
            del self._known["_inductor"]

    def __getattr__(self, name):
        if _thread.get_ident() == self._reader:
            raise AttributeError(name)
        __import__("torch._inductor")
        return getattr(sys.modules["torch._inductor"], name)


ROOTED = ("broadcast", "reduce", "gather", "scatter")
SOON = 1.0  # seconds from the dispatcher to torch's record, at most
TICK = 1e-6  # what a time in seconds since 1970 is exact to
EXCHANGES = ("all_to_all", "alltoall", "alltoall_base")
GATHERS = ("all_gather", "_all_gather_base")
"""What a rank gets in these does not follow from what it gives."""


def shape(entry, which="input"):
    parts = zip(entry.get(which + "_sizes", ()), entry.get(which + "_dtypes", ()))
    return "; ".join(f"{list(sizes)} {dtype}" for sizes, dtype in parts)[:TEXT]


ITEM = {"Double": 8, "Long": 8, "Half": 2, "BFloat16": 2, "Short": 2}
ITEM.update({"Byte": 1, "Char": 1, "Bool": 1})  # bytes of an element, 4 of all others


def size(entry):
    parts = zip(entry.get("input_sizes", ()), entry.get("input_dtypes", ()))
    return sum(math.prod(sizes) * ITEM.get(dtype, 4) for sizes, dtype in parts)
