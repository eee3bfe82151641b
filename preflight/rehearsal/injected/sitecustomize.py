"""What the rehearsed command's interpreters load as `sitecustomize`, by PYTHONPATH alone.

It waits for torch.distributed and does nothing until that is imported; a sitecustomize that would
have been loaded without it is loaded all the same. Runs in the user's Python, any from 3.8 on:
imports nothing of ours, and nothing at all that the interpreter has not already.
"""

import atexit
import os
import sys

QUIET_SECONDS = 10.0
FRAMES, PATH, NAME, MESSAGE = 100, 400, 80, 2000
"""Frames of a traceback that are written, and letters of what is in it."""
NAMES = (
    "torch.distributed.distributed_c10d",
    "torch.optim.optimizer",
    "torch.optim.lr_scheduler",
    "torch.utils.data.dataloader",
    "torch.nn.parallel.distributed",
    "torch.nn.modules.module",
    "torch.nn.parameter",
    "torch.nn.utils.clip_grad",
    "torch.optim.swa_utils",
    "torch.autograd",
    "torch.autograd.profiler",
    "torch.distributed.tensor._api",
    "torch.distributed._tensor.api",  # before torch 2.5
    "torch.distributed.fsdp.fully_sharded_data_parallel",
    "torch.distributed.fsdp._fully_shard._fsdp_state",
    "torch.distributed._composable.fsdp._fsdp_state",  # before torch 2.6
)


class TorchImports:
    """A finder that finds nothing itself: it has the other finders find the modules above, and is
    called when one of them has been loaded."""

    def __init__(self, folder):
        self.folder = folder
        self.responder = None
        self.asking = set()

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES or name in self.asking:
            return None  # or another finder asks all of them, as this one does
        self.asking.add(name)
        try:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find is not None else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.asking.discard(name)
        load = getattr(spec.loader, "exec_module", None)
        if load is not None:

            def exec_module(module):
                load(module)
                self.loaded(name, module)

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass
        return spec

    def settle(self):
        """The last thing before the interpreter is taken down. A thread that came back to it out of
        native code would end the process with SIGABRT, so that ours may not be there any more."""
        try:
            if self.responder is None:
                self.write_uncaught()
            state = self.responder and self.responder["Responder"]
            if state and os.getpid() == state.pid:
                state.answering.acquire(True, QUIET_SECONDS)
                state.calling.acquire(True, QUIET_SECONDS)
        except Exception:
            pass

    def loaded(self, name, module):
        """Whatever goes wrong in what is ours: the user's program goes on as without us."""
        try:
            if self.responder is None:
                responder = self.load("preflight_responder")
                responder["Responder"].recorder = self.load("preflight_flight_recorder")
                responder["Responder"].caught = self.load("preflight_caught")
                responder["Responder"].warned = self.load("preflight_warned")
                responder["Responder"].model = self.load("preflight_model")
                responder["Responder"].optimized = self.load("preflight_optimized")
                responder["Responder"].settings = self.load("preflight_settings")
                responder["Responder"].resets = self.load("preflight_resets")
                responder["Responder"].shards = self.load("preflight_shards")
                responder["Responder"].ties = self.load("preflight_ties")
                responder["Responder"].clips = self.load("preflight_clips")
                responder["Responder"].copies = self.load("preflight_copies")
                responder["Responder"].phases = self.load("preflight_phases")
                responder["Responder"].draws = self.load("preflight_draws")
                responder["Responder"].needless = self.load("preflight_needless")
                responder["Responder"].strided = self.load("preflight_strided")
                responder["Responder"].rendezvous = self.load("preflight_rendezvous")
                responder["Responder"].blocked = self.load("preflight_blocked")
                responder["Responder"].store_waits = self.load("preflight_store_waits")
                responder["Responder"].sleeps = self.load("preflight_sleeps")
                responder["Responder"].threads = self.load("preflight_threads")
                responder["Responder"].answers = self.load("preflight_answers")
                self.responder = responder
            self.responder["imported"](name, module, self.folder)
        except Exception:
            pass

    def write_uncaught(self):
        """The exception that ends a program which never came to torch, as a traceback. Its module
        `json` may be anything, as that of the folder it was started in."""
        error = getattr(sys, "last_value", None)
        if not isinstance(error, Exception):
            return
        told, trace, here = [], error.__traceback__, os.path.join(os.getcwd(), "")
        while trace is not None:
            code = trace.tb_frame.f_code
            path = code.co_filename
            path = path[len(here) :] if path.startswith(here) else path[-PATH:]
            place = (path, trace.tb_lineno, code.co_name[:NAME])
            told.append('  File "%s", line %d, in %s' % place)
            del told[:-FRAMES]  # of a deep recursion the innermost tell
            trace = trace.tb_next
        told.append(
            type(error).__name__ + ": " + (str(error).strip().splitlines() or [""])[0][:MESSAGE]
        )
        path = os.path.join(self.folder, str(os.getpid()) + ".uncaught")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write("\n".join(told))

    def load(self, name):
        """What is in a file of ours."""
        path = os.path.join(self.folder, name + ".py")
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        known = {"__name__": name, "__file__": path}
        exec(code, known)
        return known


def _load_next(done):
    """The sitecustomize that this one stands before, if there is one. Tracers bring one that looks
    for the next as well, and finds this one again: `done` are the folders that had their turn."""
    done.append(os.path.dirname(os.path.abspath(__file__)))
    frame = sys._getframe(1)
    while frame is not None:  # of those that are having it now
        if frame.f_globals.get("__name__") == "sitecustomize":
            done.append(os.path.dirname(os.path.abspath(frame.f_code.co_filename)))
        frame = frame.f_back
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") not in done]
    if sys.version_info[0] < 3:
        return _load_next_of_python_2(rest, done)
    import _frozen_importlib as importlib

    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec("sitecustomize", rest)
            if spec is not None and spec.loader is not None:
                done.append(os.path.dirname(os.path.abspath(spec.origin or "")))
                module = importlib.module_from_spec(spec)
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


def _load_next_of_python_2(rest, done):
    import imp

    try:
        file, path, kind = imp.find_module("sitecustomize", rest)
    except ImportError:
        return
    done.append(os.path.dirname(os.path.abspath(path)))
    # else it would be loaded into this one, which would be cleared if nobody held it
    _this = sys.modules.pop("sitecustomize", None)
    imp.load_module("sitecustomize", file, path, kind)


_FOLDER = os.environ.get("PREFLIGHT_WATCHED", "")
_DONE = sys.__dict__.setdefault("_preflight_sitecustomized", [])
if not _DONE and sys.version_info[0] > 2 and _FOLDER and os.path.isdir(_FOLDER):
    _FINDER = TorchImports(_FOLDER)
    sys.meta_path.insert(0, _FINDER)
    atexit.register(_FINDER.settle)  # before all others, which makes it the last of them
if _FOLDER in sys.path:  # what is loaded from it later is loaded by its path
    sys.path.remove(_FOLDER)
_load_next(_DONE)
