"""What runs inside of a process of the rehearsed command, from its import of torch.distributed on.

It answers over a Unix socket where the main thread is, what the flight recorder has, how many steps
and batches there were; leaves a word when the process ends; and opens torch's own worker server,
which answers without the interpreter's lock. It changes nothing that the program computes, and an
error here is swallowed: the user's program goes on as without us.

Loaded from its text by hook.py into the user's Python, any from 3.8 on: the standard library only.
"""

import _thread
import atexit
import functools
import json
import os
import socket
import sys
import time
from collections import deque

FRAMES = 40
TEXT = 300

LIBRARY = os.path.dirname(os.__file__) + os.sep
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class State:
    recorder = {}  # what is in recorder.py
    folder = here = ""
    pid = main = batches = 0
    server = fault = c10d = binding = loader = store = None
    steps, last = {}, {}
    durations, waits = deque(maxlen=512), deque(maxlen=512)
    adding, added, stand = False, [0, 0], [0, 0]
    # held while a thread of ours is in native code: see Waiting.over in hook.py
    answering, calling = _thread.allocate_lock(), _thread.allocate_lock()


def imported(name, module, folder):
    if name.endswith("distributed_c10d"):
        start(module, folder)
    elif name.endswith("optimizer"):
        module.register_optimizer_step_post_hook(stepped)
    else:
        watch_loader(module._BaseDataLoaderIter)


def start(module, folder):
    State.folder, State.pid, State.c10d = folder, os.getpid(), module
    # now, in the thread that imports: what answers later must not wait for an import of anybody's
    State.binding = sys.modules["torch._C._distributed_c10d"]
    State.main = _thread.get_ident()
    try:
        State.here = os.getcwd()
    except OSError:
        pass
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(folder, f"{State.pid}.sock"))
    listener.listen(8)
    atexit.register(leave)
    keep_last_place(folder)
    _thread.start_new_thread(serve, (listener,))
    open_torchs_server(folder)
    environ = {name: os.environ[name][:20] for name in VARIABLES if name in os.environ}
    leave_word("hello", {"pid": State.pid, "ppid": os.getppid(), "at": time.time(), "env": environ})


VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


def open_torchs_server(folder):
    """It says to stderr that it listens, which the user's terminal is not for."""
    try:
        from torch._C._distributed_c10d import _WorkerServer
    except ImportError:
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        State.server = _WorkerServer(os.path.join(folder, f"{State.pid}.torch"))
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def keep_last_place(folder):
    """Of a crash (SIGSEGV, SIGABRT …) the Python stacks go to the watch. A program that wants them
    elsewhere has said so, or says so later."""
    import faulthandler

    if not faulthandler.is_enabled():
        try:
            State.fault = line_to_watch(folder)
        except OSError:
            return
        faulthandler.enable(State.fault)


def line_to_watch(folder):
    """Its buffer takes a few words: a crash waits until the watch reads them, see crashes.py."""
    line = socket.socket(socket.AF_UNIX)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    line.settimeout(2.0)
    line.connect(os.path.join(folder, "crashes"))
    line.sendall(b"%d\n" % State.pid)
    line.settimeout(None)
    return line


# --- what the program does ---


def stepped(optimizer, args, kwargs):
    """After every step of every optimizer: with two of them, as for a GAN, a step of the program is
    one of the first."""
    now = time.monotonic()
    key = id(optimizer)
    State.steps[key] = State.steps.get(key, 0) + 1
    if len(State.steps) == 1 or key == next(iter(State.steps)):
        before = State.last.get(key)
        if before is not None:
            State.durations.append((round(now, 4), round(now - before, 6)))
        State.last[key] = now
    if len(State.steps) > 64:  # a new optimizer every step is not the program's clock
        State.steps.clear()


def watch_loader(iterator):
    """How long the program waits for its batches. The wrapper is a plain call away from the
    original, for iterators of both kinds."""
    original = iterator.__next__

    @functools.wraps(original)
    def __next__(self):
        if os.getpid() != State.pid:
            return original(self)
        if State.loader is None or State.loader["id"] != id(self):
            State.loader = described(self)
        loader = State.loader
        began = time.monotonic()
        try:
            batch = original(self)
        except StopIteration:
            loader["exhausted"] = True
            raise
        now = time.monotonic()
        State.waits.append((round(now, 4), round(now - began, 6)))
        State.batches += 1
        loader["given"] += 1
        return batch

    iterator.__next__ = __next__


def described(iterator):
    known = {"id": id(iterator), "given": 0, "exhausted": False, "length": None, "workers": 0}
    try:
        known["workers"] = int(getattr(iterator, "_num_workers", 0))
        sampler = getattr(iterator, "_index_sampler", None)
        known["sampler"] = type(getattr(sampler, "sampler", sampler)).__name__[:60]
        if sampler is not None and str(getattr(iterator, "_dataset_kind", "")) != "1":
            known["length"] = len(sampler)
    except Exception:
        pass
    return known


# --- what is told ---


def serve(listener):
    while True:
        try:
            line, _ = listener.accept()
        except OSError:
            return
        try:
            line.settimeout(2.0)
            asked = line.recv(64).split()
            with State.answering:
                try:
                    told = ANSWERS[asked[0]](*asked[1:])
                except Exception as error:
                    told = {"error": f"{type(error).__name__}: {error}"[:TEXT]}
                line.sendall(json.dumps(told).encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            line.close()


def pulse():
    told = {
        "steps": max(State.steps.values()) if State.steps else 0,
        "batches": State.batches,
        "loader": State.loader,
        "stack": stack(sys._current_frames().get(State.main)),
        "groups": State.recorder["counts"](State.binding),
    }
    told.update(place())
    told["raised"] = raised() is not None
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        told["gpu"] = [int(cuda.memory_allocated()), int(cuda.mem_get_info()[1])]
    return told


def place():
    """Rank and world: the process group's, else what the launcher says. Lightning gives those that
    it starts no RANK; on the first node it is the rank there, also of the one that starts them."""
    c10d = State.c10d
    if c10d.is_initialized():
        return {"rank": c10d.get_rank(), "world": c10d.get_world_size(), "joined": True}
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    by_node = not rank and os.environ.get("NODE_RANK") == "0"
    if by_node:
        rank = os.environ.get("LOCAL_RANK", "")
    return {
        "rank": int(rank) if rank.isdigit() else None,
        "world": int(world) if world.isdigit() else 0,
        "joined": False,
        "by_node": by_node,
    }


def dump():
    """Everything that is asked for once, at the end of the watch."""
    told = pulse()
    told["recorded"] = State.recorder["recorded"](State.binding, first_own)
    told["members"] = State.recorder["members"](State.c10d)
    told["waits"] = waits = list(State.waits)
    between = [(now, round(now - before, 6)) for (before, _), (now, _) in zip(waits, waits[1:])]
    told["durations"] = list(State.durations) or between
    return told


def first_own(frames):
    """The user's line among the recorder's frames, the innermost first."""
    found = ((f["filename"], f["line"], f["name"]) for f in frames if is_own(f["filename"]))
    path, line, name = next(found, ("", 0, ""))
    return [shown(path), line, name[:80], True] if path else None


def is_own(path):
    return not (
        path.startswith((LIBRARY, "<", State.folder)) or any(part in path for part in INSTALLED)
    )


def shown(path):
    """As the user would type it, where he has started the command."""
    here = State.here + os.sep
    beside = State.here and path.startswith(here) and is_own(path)
    return path[len(here) :] if beside else path[-TEXT:]


def stack(frame):
    """The innermost first."""
    found = []
    while frame is not None and len(found) < FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(State.folder):
            path = code.co_filename
            found.append([shown(path), frame.f_lineno or 0, code.co_name[:80], is_own(path)])
        frame = frame.f_back
    return found


# --- ranks on other machines ---


CONNECT_SECONDS = 2.0
KEYS = "preflight/%s/" % os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")[:20]


def stand(*counts):
    """How many ranks of all machines stand still, and how many machines have one that waits, as far
    as known. `counts` are those of this machine: added to two numbers in the job's own store, over
    a connection of ours, by a thread: this one goes on answering."""
    if not State.adding:
        State.adding = True
        _thread.start_new_thread(add, ([int(count) for count in counts],))
    return {"stand": State.stand, "added": State.added}


def add(counts):
    try:
        with State.calling:
            if State.store is None:
                State.store = connect()
            for number, name in enumerate(("idle", "waits")):
                change = counts[number] - State.added[number]
                State.added[number] += change
                State.stand[number] = State.store.add(KEYS + name, change)
        State.adding = False
    except Exception:
        State.stand = None  # and never again: what has arrived there is not known


def connect():
    host, port = address()
    # the store's own client would complain to the user's terminal
    socket.create_connection((host, port), CONNECT_SECONDS).close()
    seconds = State.c10d.timedelta(seconds=CONNECT_SECONDS)
    return State.binding.TCPStore(host, port, None, False, seconds, wait_for_workers=False)


def address():
    if State.c10d.is_initialized():
        store = State.c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return store.host, store.port
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


ANSWERS = {b"pulse": pulse, b"dump": dump, b"stand": stand}


# --- the end ---


def raised():
    """The exception that ends the program: set before any hook for it is called."""
    return getattr(sys, "last_value", None)


def leave():
    if os.getpid() != State.pid:
        return
    error = raised()
    word = {"at": time.time(), "how": "exited" if error is None else "raised"}
    if error is not None:
        word["text"] = f"{type(error).__name__}: {error}"[: 10 * TEXT]
        frames, trace = [], getattr(error, "__traceback__", None)
        while trace is not None and len(frames) < 1000:
            code = trace.tb_frame.f_code
            path = code.co_filename
            frames.append([shown(path), trace.tb_lineno, code.co_name[:80], is_own(path)])
            trace = trace.tb_next
        word["frames"] = frames[::-1][:FRAMES]
        if isinstance(getattr(error, "error_pid", None), int):  # torch.multiprocessing.spawn's
            word["of"], word["trace"] = error.error_pid, str(error)[-20 * TEXT :]
    try:
        word["dump"] = dump()
    except Exception:
        pass
    leave_word("end", word)


def leave_word(kind, word):
    path = os.path.join(State.folder, f"{State.pid}.{kind}")
    with open(path + "~", "w", encoding="utf-8", errors="replace") as file:
        json.dump(word, file)
    os.rename(path + "~", path)
