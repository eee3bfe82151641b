"""The observation that a call has come to."""

from __future__ import annotations

import signal

from preflight.calls import Call, Died, Raised, Returned, TimedOut
from preflight.model import Cause, Missing, Observation, Seen
from preflight.units import duration


def observation_of(call: Call) -> Observation:
    """The observation that an ended call amounts to."""
    result = call.result
    match result:
        case Returned():
            return Seen(result.value, round(result.seconds, 4), result.marks)
        case TimedOut():
            left = result.left_behind
            if left is not None:
                where = f", in {left.wchan}" if left.wchan else ""
                detail = f"pid {left.pid} can't be killed: state {left.state}{where}; left behind"
                return Missing(Cause.UNKILLABLE, detail, result.seconds, result.marks)
            stack = f"{result.stderr.strip()}\n" if result.stderr.strip() else ""
            detail = f"{stack}no answer in {duration(call.seconds)}, killed"
            return Missing(Cause.TIMED_OUT, detail, result.seconds, result.marks)
        case Raised(kind="CannotObserve"):
            return Missing(Cause.CANNOT_OBSERVE, result.message, result.seconds, result.marks)
        case Raised(kind="NotApplicable"):
            return Missing(Cause.NOT_APPLICABLE, result.message, result.seconds, result.marks)
        case Raised():
            detail = f"{result.traceback.strip()}\n{result.kind}: {result.message}".strip()
            return Missing(Cause.CRASHED, detail, result.seconds, result.marks)
        case Died():
            return Missing(Cause.CRASHED, _fate(result), result.seconds, result.marks)
    raise AssertionError(f"{call.label} has not ended")


def _fate(died: Died) -> str:
    if died.code is None:
        why = died.stderr.strip().partition("\n")[0]
        fate = "the process that should have started it is gone" + (f": {why}" if why else "")
    elif died.code < 0:
        try:
            fate = f"killed by {signal.Signals(-died.code).name}"
        except ValueError:
            fate = f"killed by signal {-died.code}"
    else:
        fate = f"ended with exit code {died.code} and no answer"
    return f"{died.stderr.strip()}\n{fate}".strip()
