"""`preflight` and `python -m preflight`."""

import _signal  # type: ignore[import-not-found]  # signal itself takes 10 ms, for its enums

# Until somebody listens Ctrl-C just ends us, without a traceback of what is being imported. These
# are the first lines of ours that a Python comes to, and not even __future__ is imported before.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import os
import sys

TYPE_CHECKING = False  # a script's folder may hold a typing.py, too
if TYPE_CHECKING:
    from preflight.process.signals import Interrupt

ALONE = "--alone"
"""The first word where we have begun anew."""

GARBAGE = 50_000
"""Objects between two looks for garbage. Imports make many objects, but none of it: with Python's
own 700 the looks until a run begins take as long as two checks."""


def main() -> None:
    """The entry point of both."""
    _forget_script_folder()
    _leave_injected_code()
    interrupt = _interrupt()
    _occupy_standard_streams()
    gc.set_threshold(GARBAGE)
    from preflight.cli.main import main as command_line

    gc.freeze()  # it is all there to stay: in forks of this process, too
    command_line(interrupt)


def _leave_injected_code() -> None:
    """Begin again without the sitecustomize of PYTHONPATH: our workers are forks, and must be what
    we made them. What it has added to sys.path stays; the environment is the command's."""
    if sys.argv[1:2] == [ALONE]:
        paths = sys.argv[2]
        del sys.argv[1:3]
        sys.path += paths.split(os.pathsep)[-1:]  # where we are
        from preflight.process.bootstrap import start_site

        start_site(paths)
        return
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.flags.ignore_environment or sys.flags.no_site:
        return
    from preflight.process.bootstrap import injected

    if injected(os.environ.get("PYTHONPATH", "")):
        import posix

        user = ["-s"] if sys.flags.no_user_site else []
        words = [sys.executable, *user, "-S", os.path.abspath(__file__), ALONE]
        paths = os.pathsep.join(path for path in (*sys.path, ours) if path)
        posix.execv(sys.executable, [*words, paths, *sys.argv[1:]])


def _interrupt() -> "Interrupt":
    """Ctrl-C and SIGTERM from here on: a run answers them with what it has seen, all else just
    ends."""
    from preflight.process.signals import Interrupt

    interrupt = Interrupt()
    if sys.argv[1:2] in (["run"], ["gate"], ["agent"], ["rehearse"], ["attach"]):
        interrupt.listen()
    return interrupt


def _occupy_standard_streams() -> None:
    """Where one of 0, 1 and 2 is closed (`>&-`), no socket of ours may come to lie there: workers
    put their own streams in that place."""
    try:
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(descriptor)
    except OSError:
        pass  # a machine without /dev/null: what follows will say so


def _forget_script_folder() -> None:
    """What `-P` does: no module is taken from the working directory or from beside the script,
    where a job may have a json.py of its own, unless it is from there that we run ourselves."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if not safe and sys.path and os.path.abspath(sys.path[0]) != ours:
        del sys.path[0]


if __name__ == "__main__":
    main()
