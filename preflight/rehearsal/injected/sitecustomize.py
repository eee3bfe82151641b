"""What the rehearsed command's interpreters load as `sitecustomize`, by PYTHONPATH alone.

It waits for torch.distributed and does nothing until that is imported; a sitecustomize that would
have been loaded without it is loaded all the same. Runs in the user's Python, any from 3.8 on:
imports nothing of ours, and nothing at all that the interpreter has not already.
"""

import atexit
import os
import sys

QUIET_SECONDS = 3.0
NAMES = (
    "torch.distributed.distributed_c10d",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
    "torch.nn.parallel.distributed",
)


class TorchImports:
    """A finder that finds nothing itself: it has the other finders find the modules above, and is
    called when one of them has been loaded."""

    def __init__(self, folder):
        self.folder = folder
        self.responder = None

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                break
        else:
            return None
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
                responder["Responder"].rendezvous = self.load("preflight_rendezvous")
                self.responder = responder
            self.responder["imported"](name, module, self.folder)
        except Exception:
            pass

    def load(self, name):
        """What is in a file of ours."""
        path = os.path.join(self.folder, name + ".py")
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        known = {"__name__": name, "__file__": path}
        exec(code, known)
        return known


def _load_next():
    """The sitecustomize that this one stands before, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec("sitecustomize", rest)
            if spec is not None and spec.loader is not None:
                module = type(sys)("sitecustomize")
                module.__spec__, module.__loader__ = spec, spec.loader
                module.__file__, module.__package__ = spec.origin, ""
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


_FOLDER = os.environ.get("PREFLIGHT_WATCHED", "")
if _FOLDER and os.path.isdir(_FOLDER):
    _FINDER = TorchImports(_FOLDER)
    sys.meta_path.insert(0, _FINDER)
    atexit.register(_FINDER.settle)  # before all others, which makes it the last of them
_load_next()
