"""What runs inside of a process of the rehearsed command, from its import of torch.distributed on.

It answers over a Unix socket where the main thread is, what the flight recorder has, how many steps
and batches there were, and leaves a word when the process joins a process group and when it ends. A
child by fork does the same for itself once it is to be a rank. It changes nothing that the program
computes, and an error here is swallowed: the user's program goes on as without us.

Loaded from its text by sitecustomize.py into the user's Python, any from 3.8 on: the standard
library only.
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
DISPATCHED = os.sep + "preflight_dispatched_calls.py"
TEXT = 300
DEVICES = 32
PASSES = 32
DEPTH = 4
"""Lists and dicts in each other in which tensors are looked for."""

LIBRARY = os.path.dirname(os.__file__) + os.sep
INSTALLED = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)


class Responder:
    """What is known in this process. There is one: its attributes are set on the class."""

    left = None  # what sys.exit was called with, and the stack then
    recorder = {}  # what is in preflight_flight_recorder.py
    rendezvous = {}  # and in preflight_rendezvous.py
    caught = {}  # and in preflight_caught.py
    warned = {}  # and in preflight_warned.py
    model = {}  # and in preflight_model.py
    optimized = {}  # and in preflight_optimized.py
    settings = {}  # and in preflight_settings.py
    resets = {}  # and in preflight_resets.py
    shards = {}  # and in preflight_shards.py
    ties = {}  # and in preflight_ties.py
    clips = {}  # and in preflight_clips.py
    copies = {}  # and in preflight_copies.py
    phases = {}  # and in preflight_phases.py
    draws = {}  # and in preflight_draws.py
    needless = {}  # and in preflight_needless.py
    strided = {}  # and in preflight_strided.py
    blocked = {}  # and in preflight_blocked.py
    store_waits = {}  # and in preflight_store_waits.py
    sleeps = {}  # and in preflight_sleeps.py
    threads = {}  # and in preflight_threads.py
    answers = {}  # and in preflight_answers.py
    folder = here = ""
    pid = main = thread = inode = 0
    listener = fault = c10d = binding = None
    scripted = False  # is_scripted()
    gpus = {}  # number -> what torch knows of it


def begin():
    """What is of one process: what its parent has done before a fork is not its own, and the locks
    of the parent's threads may be held forever."""
    Responder.batches, Responder.passes, Responder.steps, Responder.last = 0, 0, {}, {}
    Responder.durations, Responder.waits = deque(maxlen=512), deque(maxlen=512)
    Responder.loader = Responder.store = Responder.joins = None
    Responder.dealt, Responder.shares, Responder.passing = {}, {}, []
    Responder.adding, Responder.added, Responder.stand = False, [0, 0], [0, 0]
    Responder.ended = False
    if Responder.caught:
        Responder.caught["begin"]()
        Responder.warned["begin"]()
        Responder.model["begin"]()
        Responder.optimized["begin"]()
        Responder.settings["begin"]()
        Responder.resets["begin"]()
        Responder.ties["begin"]()
        Responder.clips["begin"]()
        Responder.copies["begin"]()
        Responder.phases["begin"]()
        Responder.draws["begin"]()
        Responder.needless["begin"]()
        Responder.strided["begin"]()
    # held while a thread of ours is in native code: see TorchImports.settle in sitecustomize.py
    Responder.answering, Responder.calling = _thread.allocate_lock(), _thread.allocate_lock()


begin()


def imported(name, module, folder):
    """Called when a module that sitecustomize.py waits for has been loaded."""
    if name.endswith("distributed_c10d"):
        start(module, folder)
    elif name.endswith("optimizer"):
        module.register_optimizer_step_post_hook(unless_compiled(stepped))
        module.register_optimizer_step_pre_hook(unless_compiled(steps))
        Responder.optimized["follow_optimizers"](module, own_place)
        Responder.resets["follow_resets"](module.Optimizer, unless_compiled)
    elif name.endswith("lr_scheduler"):
        Responder.optimized["follow_schedulers"](module, own_place)
    elif name.endswith("clip_grad"):
        Responder.clips["follow_clipping"](module, unless_compiled)
    elif name.endswith("nn.parameter"):
        Responder.copies["follow_parameters"](module.Parameter)
    elif name.endswith("swa_utils"):
        Responder.copies["follow_averaged"](module.AveragedModel, unless_compiled)
    elif name.endswith("parallel.distributed"):
        Responder.caught["watch_forward"](module, unless_compiled)
        Responder.model["follow_ddp"](module, own_place)
        Responder.needless["follow_no_sync"](module, unless_compiled)
        Responder.phases["follow_ddp"](
            module, unless_compiled, Responder.draws["forwards"], forwarded
        )
    elif name.endswith("fully_sharded_data_parallel"):
        Responder.phases["follow_fsdp"](module, unless_compiled, Responder.draws["forwards"])
        Responder.needless["follow_fsdp"](module, unless_compiled)
    elif name == "torch.autograd":
        Responder.phases["follow_backward"](module, unless_compiled)
    elif name.endswith("autograd.profiler"):
        Responder.needless["follow_profiler"](module)
    elif name in ("torch.distributed.tensor._api", "torch.distributed._tensor.api"):
        Responder.needless["follow_shards"](module, unless_compiled)
    elif name.endswith("_fsdp_state"):
        Responder.phases["follow_fully_shard"](module, unless_compiled, Responder.draws["forwards"])
    elif name.endswith("modules.module"):
        Responder.model["follow_loads"](module, own_place)
        Responder.copies["follow_loads"](module.Module)
        Responder.resets["follow_resets"](module.Module, unless_compiled)
        Responder.ties["follow_parameters"](module, unless_compiled)
    else:
        watch_loader(module._BaseDataLoaderIter)
        Responder.needless["follow_workers"](module._MultiProcessingDataLoaderIter)


def start(module, folder):
    Responder.folder, Responder.c10d = folder, module
    Responder.scripted = is_scripted(sys._getframe())
    # now, in the thread that imports: what answers later must not wait for an import of anybody's
    Responder.binding = sys.modules["torch._C._distributed_c10d"]
    Responder.recorder["follow_groups"](module, Responder.binding, is_own, never_compiled)
    Responder.store_waits["follow"](Responder.binding, never_compiled)
    Responder.strided["follow"](Responder.binding, never_compiled, own_place)
    Responder.answers["follow"](socket.socket, "recv", "recv_into")
    try:
        Responder.here = os.getcwd()
    except OSError:
        pass
    atexit.register(write_end)
    sys.exit = note_exit(sys.exit)
    Responder.caught["follow"](module, is_own, frame_of)
    Responder.warned["follow"](own_place)
    Responder.optimized["follow"](Responder.model, frame_of, is_own)
    Responder.settings["follow"](Responder.model, Responder.optimized, Responder.phases)
    Responder.resets["follow"](Responder.model, own_place)
    Responder.ties["follow"](Responder.model, Responder.optimized, own_place, is_own)
    Responder.model["Models"].owned_as = Responder.ties["owned_as"]
    Responder.model["Models"].variable_of = Responder.optimized["variable_of"]
    Responder.model["Models"].restarted = Responder.phases["restart"]
    Responder.clips["follow"](Responder.model, own_place)
    Responder.phases["follow"](own_place, Responder.model["due"])
    Responder.draws["follow"](Responder.phases)
    draws, phases = Responder.draws, Responder.phases
    never_compiled(draws["batch"], draws["forwards"], phases["batch"], within=True)
    unseen_by_dynamo(draws["states"], phases["look_at_batch"])  # where there is no `within`
    Responder.needless["follow"](Responder.model, own_place, display_path)
    Responder.copies["follow"](Responder.model, Responder.optimized, own_place)
    Responder.rendezvous["follow_environment"](os, own_place)
    module.init_process_group = announce(module.init_process_group)
    enlist()
    follow_multiprocessing()


def enlist():
    """From now on this process answers."""
    if Responder.pid:
        begin()
        Responder.recorder["forget"]()
        if is_file(Responder.listener, Responder.inode):
            Responder.listener.close()
        elif Responder.listener.fileno() >= 0:
            Responder.listener.detach()
    Responder.pid, Responder.main = os.getpid(), _thread.get_ident()
    Responder.thread = _thread.get_native_id()
    Responder.listener = socket.socket(socket.AF_UNIX)
    Responder.listener.bind(os.path.join(Responder.folder, f"{Responder.pid}.sock"))
    Responder.listener.listen(8)
    Responder.inode = os.fstat(Responder.listener.fileno()).st_ino
    report_crashes(Responder.folder)
    _thread.start_new_thread(serve, (Responder.listener,))
    write_hello()


def write_hello():
    environ = {name: os.environ[name][:20] for name in VARIABLES if name in os.environ}
    word = {"pid": os.getpid(), "ppid": os.getppid(), "at": time.time(), "env": environ}
    word["child"] = os.getpid() != Responder.pid or is_child()
    write_word("hello", word)


VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


def report_crashes(folder):
    """Of a crash (SIGSEGV, SIGABRT …) the Python stacks go to the watch. A program that wants them
    elsewhere has said so, or says so later."""
    import faulthandler

    try:
        if Responder.fault is not None:  # the parent's, wherever else it may report by now
            line = line_to_watch(folder)
            os.dup2(line.fileno(), Responder.fault.fileno(), False)
            line.close()
        elif not faulthandler.is_enabled():
            Responder.fault = line_to_watch(folder)
            faulthandler.enable(Responder.fault)
    except OSError:
        pass


def line_to_watch(folder):
    """Its buffer takes a few words: a crash waits until the watch reads them, see crashes.py."""
    line = socket.socket(socket.AF_UNIX)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    line.settimeout(2.0)
    line.connect(os.path.join(folder, "crashes"))
    line.sendall(b"%d\n" % Responder.pid)
    line.settimeout(None)
    return line


# --- ranks, however they are made ---


def announce(original):
    """Before a process joins, it says where it does: the others may never come there."""

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        try:
            if Responder.pid != os.getpid():
                enlist()
            joins = Responder.rendezvous["read_call"](original, args, kwargs)
            frames = stack(sys._getframe(1))
            joins["frame"] = next((frame for frame in frames if frame[3]), None)
            Responder.joins = joins
            write_word("joins", joins)
        except Exception:
            pass
        return original(*args, **kwargs)

    return init_process_group


def follow_multiprocessing():
    """Its children end by os._exit, so that atexit does not reach them."""
    from multiprocessing import util

    util.register_after_fork(Responder, begun)
    if is_child():
        util.Finalize(None, write_end, exitpriority=0)


def begun(responder):
    """In a child of multiprocessing, before what it is for. One that the user's own code is for may
    become a rank, unless its parent is one: then it is a helper."""
    from multiprocessing import process, util

    util.Finalize(None, write_end, exitpriority=0)
    child = process.current_process()
    made_for = getattr(child, "_target", None) or type(child)
    helper = str(getattr(made_for, "__module__", "")).startswith(HELPERS)
    if helper or responder.c10d.is_initialized():
        return
    if responder.pid == os.getpid():  # it has imported the program again, and was not known as one
        write_word("child", {})
    else:
        enlist()


HELPERS = ("multiprocessing.", "concurrent.", "torch.utils.data.")
"""Modules whose functions run in workers of a pool, of a DataLoader and the like."""


def is_child():
    """Whether multiprocessing has made this process. One that it has spawned imports the program
    before it is told so."""
    from multiprocessing import process  # torch 2.4 has not imported it yet

    spawned = any("spawn_main" in word for word in getattr(sys, "orig_argv", ()))
    return spawned or process.parent_process() is not None


# --- what the program does ---


def unless_compiled(ours, original=None):
    """`ours`, called by the program. Where Dynamo makes a graph of the program it sees what stands
    there without us instead: `original`, or nothing. Of ours it could trace nothing, since it would
    import the modules, and fullgraph=True forbids what it can't trace."""
    torch = sys.modules["torch"]

    def called(*args, **kwargs):
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)
        if compiling is None or not compiling():
            return ours(*args, **kwargs)
        if original is not None:
            return original(*args, **kwargs)

    unseen_by_dynamo(called, ours)  # nor may it make graphs of them alone
    return called if original is None else functools.wraps(original)(called)


def unseen_by_dynamo(*functions):
    """Of what stands around a function of the program. From torch 2.8 on Dynamo goes through these
    as if they were not there, and would give up the function as well if it had to skip them."""
    for function in functions:
        try:
            sys.modules["torch"]._C._dynamo.eval_frame.skip_code(function.__code__)
        except AttributeError:
            pass


def never_compiled(*functions, within=False):
    """Of what torch calls from C++, also in the midst of a compiled program. within: nor is what
    they call."""
    unseen_by_dynamo(*functions)
    try:
        frames = sys.modules["torch"]._C._dynamo.eval_frame
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        for function in functions:
            strategy = frames._FrameExecStrategy(skip, skip if within else default)
            frames.set_code_exec_strategy(function.__code__, strategy)
    except AttributeError:
        pass


def forwarded(ddp, given):
    """After every forward of a model in DDP that may have a backward; `given`: what it got."""
    Responder.model["forwarded"](ddp)
    Responder.needless["forwarded"](ddp)

    def asks():
        tensors = Responder.phases["tensors_in"](given, sys.modules["torch"].Tensor, DEPTH)
        return any(tensor.requires_grad for tensor in tensors)

    if Responder.resets["Resets"].windows:
        Responder.resets["forwarded"](ddp, asks)


def steps(optimizer, args, kwargs):
    """Before every step of every optimizer."""
    try:
        done = Responder.model["steps"](optimizer)
        Responder.optimized["steps"](optimizer, done)
        Responder.phases["before_step"]()
        if done is not None:
            Responder.ties["steps"](done)
            Responder.clips["steps"](done)
            Responder.copies["steps"](done)
            Responder.needless["steps"](optimizer, done)
        Responder.settings["steps"](optimizer)
        Responder.resets["stepping"](optimizer)
    except Exception:
        pass


def stepped(optimizer, args, kwargs):
    """After every step of every optimizer: with two of them, as for a GAN, a step of the program is
    one of the first."""
    Responder.phases["after_step"]()
    try:
        Responder.resets["stepped"](optimizer)
    except Exception:
        pass
    now = time.monotonic()
    key = id(optimizer)
    Responder.steps[key] = Responder.steps.get(key, 0) + 1
    if len(Responder.steps) == 1 or key == next(iter(Responder.steps)):
        before = Responder.last.get(key)
        if before is not None:
            Responder.durations.append((now, now - before))
        Responder.last[key] = now
    if len(Responder.steps) > 64:  # a new optimizer every step is not the program's clock
        Responder.steps.clear()


def watch_loader(iterator):
    """How long the program waits for its batches. The wrapper is a plain call away from the
    original, for iterators of both kinds."""
    original = iterator.__next__

    def __next__(self):
        if os.getpid() != Responder.pid:
            return original(self)
        # the next pass may get the address of the one before, or its very object
        before = Responder.loader
        other = before is None or before["id"] != id(self) or before["exhausted"]
        begins = getattr(self, "_num_yielded", 1) == 0
        fresh = other or begins
        Responder.passes += begins
        if fresh:
            Responder.loader = describe_loader(self)
            Responder.passing = [one for one in (note_sampler(self), note_sharers(self)) if one]
        for passing in Responder.passing:
            if not fresh and not passing["trains"]:
                made = max(Responder.steps.values(), default=0)
                passing["trains"] = made > passing["steps"]
        loader = Responder.loader
        began = time.monotonic()
        Responder.phases["leave_backward"](began)
        try:
            batch = original(self)
        except StopIteration:
            loader["exhausted"] = True
            raise
        except Exception as error:
            Responder.caught["note"](error)
            raise
        now = time.monotonic()
        Responder.waits.append((now, now - began))
        Responder.batches += 1
        loader["given"] += 1
        try:
            Responder.phases["batch"](batch, fresh, began, now)
            Responder.draws["batch"]()
            Responder.resets["batch"](fresh)
            Responder.needless["came"](self, began, now)
        except Exception:
            pass
        return batch

    iterator.__next__ = unless_compiled(__next__, original)


def describe_loader(iterator):
    known = {"id": id(iterator), "given": 0, "exhausted": False, "length": None, "workers": 0}
    try:
        known["passes"], known["frame"] = Responder.passes, own_place()
        known["workers"] = int(getattr(iterator, "_num_workers", 0))
        sampler = getattr(iterator, "_index_sampler", None)
        known["sampler"] = type(getattr(sampler, "sampler", sampler)).__name__[:60]
        if sampler is not None and str(getattr(iterator, "_dataset_kind", "")) != "1":
            known["length"] = len(sampler)
    except Exception:
        pass
    return known


def note_sampler(iterator):
    """At the begin of a pass, how torch's DistributedSampler deals the samples out: of passes that
    were begun after the same number of steps the last one, over data of the same length. What a
    class of the program's makes of seed and rank is its own. Returns what is kept of this pass."""
    try:
        found = getattr(iterator, "_index_sampler", None)
        sampler = getattr(found, "sampler", found)
        module = sys.modules.get("torch.utils.data.distributed")
        kind = getattr(module, "DistributedSampler", ())
        if not isinstance(sampler, kind) or type(sampler).__iter__ is not kind.__iter__:
            return
        if getattr(iterator, "_num_yielded", 1):
            return  # two loaders that take turns
        steps = max(Responder.steps.values(), default=0)
        key = (steps, int(sampler.num_replicas), len(sampler.dataset))
        if key in Responder.dealt or len(Responder.dealt) < PASSES:
            Responder.dealt[key] = {
                "steps": steps,
                "replicas": key[1],
                "rank": int(sampler.rank),
                "seed": int(sampler.seed),
                "epoch": int(sampler.epoch),
                "shuffle": bool(sampler.shuffle),
                "length": key[2],
                "frame": own_place(),
                "trains": False,
            }
            return Responder.dealt[key]
    except Exception:
        pass
    return None


def note_sharers(iterator):
    """At the begin of a pass, who divides the samples among the ranks; of the passes of a loop over
    one dataset the first one that trains is kept."""
    try:
        if getattr(iterator, "_num_yielded", 1):
            return None  # two loaders that take turns
        steps = max(Responder.steps.values(), default=0)
        dataset = iterator._dataset
        key = type(dataset).__name__, id(dataset)
        known = Responder.shares.get(key)
        if known is not None:
            if not known["trains"]:
                known["steps"] = steps
            return known
        if len(Responder.shares) < Responder.shards["LOADERS"]:
            found = Responder.shards["look"](iterator, own_place, steps)
            if found is not None:
                Responder.shares[key] = found
            return found
    except Exception:
        pass
    return None


# --- the answers ---


def serve(listener):
    """Answer one question after the other, in a thread of its own. A program that closes all files
    may have its own under this number since."""
    inode = os.fstat(listener.fileno()).st_ino
    while True:
        if not is_file(listener, inode):
            listener.detach()
            return
        try:
            line, _ = listener.accept()
        except OSError:
            return
        try:
            line.settimeout(2.0)
            asked = line.recv(64).split()
            with Responder.answering:
                try:
                    told = ANSWERS[asked[0]](*asked[1:])
                except Exception as error:
                    told = {"error": f"{type(error).__name__}: {error}"[:TEXT]}
                line.sendall(json.dumps(told).encode("utf-8", "replace"))
        except OSError:
            pass
        finally:
            line.close()


def is_file(listener, inode):
    try:
        return os.fstat(listener.fileno()).st_ino == inode
    except OSError:
        return False


def pulse():
    """What is requested at every look: counts and the stack of the main thread."""
    frame, leaving, thread = main_frame()
    told = {
        "leaving": leaving,
        "store": Responder.store_waits["told"](Responder.main),
        "sleeps": sleep_ends(frame, thread),
        "answers": Responder.answers["told"](Responder.main),
        "steps": max(Responder.steps.values()) if Responder.steps else 0,
        "batches": Responder.batches,
        "loader": Responder.loader,
        "stack": stack(frame),
        "calls": Responder.blocked["method_called"](frame, Responder.thread),
    }
    frame = None  # what the program leaves from now on is freed at once
    told["threads"] = Responder.threads["told"](Responder.main, first_own_of)
    told["groups"] = Responder.recorder["counts"](Responder.c10d, Responder.binding)
    told.update(rank_and_world())
    if Responder.joins:
        told["meets"] = [Responder.joins["port"], Responder.joins["path"]]
    told["unrecorded"] = Responder.recorder["unrecorded"](
        Responder.c10d, Responder.binding, told["groups"]
    )
    told["raised"] = uncaught_exception() is not None
    told["failure"] = failure() if leaving else None
    told["profiled"] = Responder.needless["longest"]()
    told["between"] = bool(Responder.phases["Phases"].stepped)
    told["after"] = Responder.phases["is_past_backward"]()
    if (used := gpu_in_use()) is not None:
        told["gpu"] = [used.pop("allocated"), used.pop("total")]
        told["device"] = used
    return told


def sleep_ends(frame, thread):
    """When a thread wakes by itself, or, where it waits for a DataLoader, one of its
    workers; None: not that it were known."""
    while frame is not None and not is_own(frame.f_code.co_filename):
        if "/torch/utils/data/" in frame.f_code.co_filename:
            process = sys.modules.get("multiprocessing.process")
            workers = [getattr(one, "_popen", None) for one in getattr(process, "_children", ())]
            pids = [getattr(one, "pid", None) for one in workers[:WORKERS]]
            return Responder.sleeps["first_to_wake"]([pid for pid in pids if pid])
        frame = frame.f_back
    return Responder.sleeps["ends"](thread)


WORKERS = 16
"""Of a DataLoader that are looked at."""


def main_frame():
    """Where the main thread is, whether it is on its way out, and its number, as the kernel has it.
    At the end of the program it waits for threads that are no daemons: then the same of one of
    these."""
    frames = sys._current_frames()
    try:
        return main_frame_of(frames)
    finally:
        # in there is this very frame, which refers to it: what the program has left meanwhile would
        # live until the garbage is collected, maybe in a fork, which must free no tensor of a GPU
        frames.clear()


def main_frame_of(frames):
    frame = outer = frames.get(Responder.main)
    leaving = Responder.ended
    while outer is not None:
        last = code = outer.f_code
        if code.co_name == "_shutdown" and code.co_filename.endswith("threading.py"):
            known = list(getattr(sys.modules.get("threading"), "_active", {}).items())
            rest = [n for n, t in known if n != Responder.main and not t.daemon and n in frames]
            number = rest[0] if rest else Responder.main
            thread = getattr(dict(known).get(number), "native_id", None) or Responder.thread
            return frames[number], True, thread
        leaving = leaving or code.co_name in LEAVING
        outer = outer.f_back
    # what atexit calls, and __del__ at the end, is called by no module; nor is what a greenlet runs
    whole = frame is not None and Responder.scripted and "greenlet" not in sys.modules
    return frame, leaving or (whole and last.co_name not in OUTERMOST), Responder.thread


def is_scripted(frame):
    """Whether a module of Python's is the outermost thing here, which it is not where a program in
    C++ calls functions."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name in OUTERMOST


LEAVING = ("destroy_process_group", "_exit_function", "_run_exitfuncs")
"""Functions of torch's and of multiprocessing's in which a rank has nothing to do any more."""
OUTERMOST = ("<module>", "_run_module_as_main", "_run_code")
"""How a program begins."""


def gpu_in_use():
    """The GPU on which torch has the most memory, as it knows that one. Not the current one: each
    thread has its own, and this one's is 0. To ask CUDA anything of that would make a context
    there, of half a GiB, beside the rank whose GPU it is."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return None
    if getattr(cuda, "get_allocator_backend", lambda: "native")() != "native":
        return None  # cudaMallocAsync's statistics are the driver's
    most = None
    for number in range(min(cuda.device_count(), DEVICES)):
        stats = cuda.memory_stats_as_nested_dict(number)
        reserved, allocated = (
            int(stats.get(name, {}).get("all", {}).get("current", 0))
            for name in ("reserved_bytes", "allocated_bytes")
        )
        if most is None or reserved > most["reserved"]:
            most = {"number": number, "reserved": reserved, "allocated": allocated}
    if most is None or not most["reserved"]:
        return None
    if most["number"] not in Responder.gpus:
        Responder.gpus[most["number"]] = describe_gpu(
            cuda.get_device_properties(most["number"]), os.environ.get("CUDA_VISIBLE_DEVICES")
        )
    return dict(most, **Responder.gpus[most["number"]])


def describe_gpu(properties, mask):
    """torch before 2.5 knows neither a UUID nor a place on the bus."""
    known = {"total": int(properties.total_memory), "mask": mask and mask[:4096]}
    if hasattr(properties, "uuid"):
        known["uuid"] = str(properties.uuid)[:80]
    places = [getattr(properties, f"pci_{name}_id", None) for name in ("domain", "bus", "device")]
    if all(isinstance(place, int) for place in places):
        known["bus"] = "%04x:%02x:%02x.0" % tuple(places)
    return known


def rank_and_world():
    """Rank and world: the process group's, else what the launcher says. Lightning gives those that
    it starts no RANK; on the first node it is the rank there, also of the one that starts them."""
    c10d, joins = Responder.c10d, Responder.joins
    if c10d.is_initialized():
        return {"rank": c10d.get_rank(), "world": c10d.get_world_size(), "joined": True}
    if joins and joins["rank"] is not None:
        return {"rank": joins["rank"], "world": joins["world"], "joined": False}
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if joins and not rank:  # no launcher of ranks: that has called init_process_group
        names = next((names for names in OTHERS if names[0] in os.environ), ("", ""))
        rank, world = (os.environ.get(name, "") for name in names)
    by_node = not rank and os.environ.get("NODE_RANK") == "0"
    if by_node:
        rank = os.environ.get("LOCAL_RANK", "")
    return {
        "rank": int(rank) if rank.isdigit() else None,
        "world": int(world) if world.isdigit() else 0,
        "joined": False,
        "by_node": by_node,
    }


OTHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""How mpirun and srun number ranks, which torch does not read; its backend mpi asks MPI itself."""


LIBRARIES = ("horovod", "byteps", "mpi4py", "hivemind", "smdistributed")
"""What may carry gradients without torch.distributed."""


def dump():
    """Everything that is requested once, at the end of the watch."""
    Responder.recorder["ask_all"]()
    told = pulse()
    told["recorded"] = Responder.recorder["recorded"](Responder.c10d, Responder.binding, first_own)
    told["members"] = Responder.recorder["members"](Responder.c10d)
    told["made"] = Responder.recorder["makers"](first_own)
    told["making"] = Responder.recorder["Recorder"].making[0]
    told["caught"] = Responder.caught["told"](Responder.main)
    told["warned"] = Responder.warned["told"]()
    told["models"] = Responder.model["told"]()
    told["optimized"] = Responder.optimized["told"]()
    told["loads"] = list(Responder.model["Models"].loads.values())
    told["needless"] = Responder.needless["told"]()
    told["strided"] = Responder.strided["told"]()
    told["parts"] = Responder.phases["told"]()
    told["draws"] = Responder.draws["told"]()
    told["settings"] = Responder.settings["told"]()
    told["resets"] = Responder.resets["told"]()
    told["ties"] = Responder.ties["told"]()
    told["clips"] = Responder.clips["told"]()
    told["copies"] = Responder.copies["told"]()
    told["dealt"] = list(Responder.dealt.values())
    told["shares"] = list(Responder.shares.values())
    told["libraries"] = [name for name in LIBRARIES if name in sys.modules]
    told["backends"] = Responder.recorder["backends"](Responder.c10d)
    told["labels"] = Responder.recorder["labels"](Responder.c10d)
    waits, durations = list(Responder.waits), list(Responder.durations)
    between = [(now, now - before) for (before, _), (now, _) in zip(waits, waits[1:])]
    told["waits"] = rounded(waits)
    told["durations"] = rounded(durations or between)
    return told


def rounded(times):
    """When each ended, and how long it took: rounded here, not in each step."""
    return [(round(at, 4), round(took, 6)) for at, took in times]


def own_place():
    """The user's line that is being carried out."""
    return next((frame for frame in stack(sys._getframe(1)) if frame[3]), None)


def first_own_of(frame):
    """The user's line of a thread, the innermost first."""
    return next((one for one in stack(frame) if one[3]), None)


def first_own(frames):
    """The user's line among the recorder's frames, the innermost first."""
    found = ((f["filename"], f["line"], f["name"]) for f in frames if is_own(f["filename"]))
    path, line, name = next(found, ("", 0, ""))
    return [display_path(path), line, name[:80], True] if path else None


def is_own(path):
    return not (
        path.startswith((LIBRARY, "<", Responder.folder)) or any(part in path for part in INSTALLED)
    )


def display_path(path):
    """As the user would type it, where he has started the command."""
    here = Responder.here + os.sep
    beside = Responder.here and path.startswith(here) and is_own(path)
    return path[len(here) :] if beside else path[-TEXT:]


def frame_of(code, line):
    path = code.co_filename
    return [display_path(path), line, code.co_name[:80], is_own(path)]


def stack(frame):
    """The innermost first."""
    found = []
    while frame is not None and len(found) < FRAMES:
        code = frame.f_code
        path = code.co_filename
        if path.endswith(DISPATCHED):
            found.clear()  # what is within is torch's dispatcher, on our behalf
        if not path.startswith(Responder.folder):
            found.append([display_path(path), frame.f_lineno or 0, code.co_name[:80], is_own(path)])
        frame = frame.f_back
    return found


# --- ranks on other machines ---


CONNECT_SECONDS = 2.0
KEYS = "preflight/%s/" % os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")[:20]


def stand(*counts):
    """How many ranks of all machines make no progress, and how many machines have one that waits,
    as far as known. `counts` are those of this machine: added to two numbers in the job's own
    store, over a connection of ours, by a thread: this one goes on answering."""
    if not Responder.adding:
        Responder.adding = True
        _thread.start_new_thread(add_counts, ([int(count) for count in counts],))
    return {"stand": Responder.stand, "added": Responder.added}


def add_counts(counts):
    try:
        with Responder.calling:
            if Responder.store is None:
                Responder.store = connect_to_store()
            for number, name in enumerate(("idle", "waits")):
                change = counts[number] - Responder.added[number]
                Responder.added[number] += change
                Responder.stand[number] = Responder.store.add(KEYS + name, change)
        Responder.adding = False
    except Exception:
        Responder.stand = None  # and never again: what has arrived there is not known


def connect_to_store():
    host, port = store_address()
    # the store's own client would complain to the user's terminal
    socket.create_connection((host, port), CONNECT_SECONDS).close()
    seconds = Responder.c10d.timedelta(seconds=CONNECT_SECONDS)
    return Responder.binding.TCPStore(host, port, None, False, seconds, wait_for_workers=False)


def store_address():
    if Responder.c10d.is_initialized():
        store = Responder.c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        return store.host, store.port
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


ANSWERS = {b"pulse": pulse, b"dump": dump, b"stand": stand}


# --- the end ---


def note_exit(leave):
    """sys.exit, which keeps who called it and with what: of SystemExit nothing tells that later."""

    @functools.wraps(leave)
    def exit(status=None, /):
        try:  # its == and str() are the program's, and may raise
            silent = status is None or isinstance(status, int)
            Responder.left = "" if silent else str(status)[: 10 * TEXT], stack(sys._getframe(1))
        except Exception:
            pass
        return leave(status)

    return exit


def uncaught_exception():
    """The exception that ends the program: set before any hook for it is called. In a child of
    multiprocessing it is on its way when the last things are done; torch.multiprocessing.spawn's
    leave by sys.exit() where they have caught it."""
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    error = error or getattr(Responder.caught.get("Caught"), "ended", None)
    if isinstance(error, SystemExit):
        return error.__context__ if error.code else None
    return error


def failure():
    """That exception in one line and its innermost place in the user's code; None without one."""
    error = uncaught_exception()
    if error is None or not Responder.caught:
        return None
    return [Responder.caught["describe"](error)[:TEXT], Responder.caught["place_of"](error)]


def write_end():
    """Leave the last word of this process: how it ended, and all that is known. Of a child that was
    nothing to us only that an exception ended it, unless it has been a helper of a rank."""
    if Responder.ended:
        return
    Responder.ended = True
    if os.getpid() != Responder.pid:
        if uncaught_exception() is None or Responder.c10d.is_initialized():
            return
        write_hello()
    error = uncaught_exception()
    word = {"at": time.time(), "how": "exited" if error is None else "raised"}
    word["index"] = spawn_index()
    if error is not None:
        word["text"] = f"{type(error).__name__}: {error}"[: 10 * TEXT]
        frames, trace = [], getattr(error, "__traceback__", None)
        while trace is not None and len(frames) < 1000:
            code = trace.tb_frame.f_code
            path = code.co_filename
            frames.append([display_path(path), trace.tb_lineno, code.co_name[:80], is_own(path)])
            trace = trace.tb_next
        word["frames"] = frames[::-1][:FRAMES]
        # torch.multiprocessing.spawn's; up to torch 2.8 its name is pid
        of = getattr(error, "error_pid", getattr(error, "pid", None))
        if isinstance(of, int) and hasattr(error, "error_index"):
            word["of"], word["trace"] = of, str(error)[-20 * TEXT :]
    elif Responder.left is not None:
        word["text"], word["frames"] = Responder.left
    try:
        if os.getpid() == Responder.pid:
            word["dump"] = dump()
    except Exception:
        pass
    write_word("end", word)


def spawn_index():
    """The number that torch.multiprocessing.spawn has given this process; None: it has not."""
    from multiprocessing import process

    child = process.current_process()
    target, args = getattr(child, "_target", None), getattr(child, "_args", ())
    spawned = getattr(target, "__module__", "") == "torch.multiprocessing.spawn"
    return args[1] if spawned and len(args) > 1 and isinstance(args[1], int) else None


def write_word(kind, word):
    """Put a file into the folder of the rehearsal, whole or not at all."""
    path = os.path.join(Responder.folder, f"{os.getpid()}.{kind}")
    with open(path + "~", "w", encoding="utf-8", errors="replace") as file:
        json.dump(word, file)
    os.rename(path + "~", path)
