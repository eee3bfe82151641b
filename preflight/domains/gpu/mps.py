"""Whether the control daemon of CUDA MPS serves where the job's CUDA would look for it.

CUDA connects to `control` in CUDA_MPS_PIPE_DIRECTORY, else in /tmp/nvidia-mps. Where that fails it
goes on without MPS and says nothing (nvidia-cuda-mps-control(1)): on a GPU in exclusive mode the
second process then finds it busy.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from preflight.domains.gpu import nvml
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.sanitize import clip

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
DEFAULT = "/tmp/nvidia-mps"
SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
KEPT = 200


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """The folder of its pipes, and what is wrong there: empty where it serves, or may be started
    later; `died`: its socket is there and nobody listens."""

    folder: str
    problem: str = ""
    died: bool = False


def daemon(host: Host) -> MpsDaemon | None:
    """None where nothing speaks of MPS: no variable, and no socket in the usual place."""
    named = nvml.env_text(host.environ, VARIABLE)
    folder = (named or DEFAULT).rstrip("/") or "/"
    socket = f"{folder}/control"
    shown = clip(folder, KEPT)
    if not host.exists(socket):
        if not named:
            return None
        # a script may well name the folder, run preflight and start the daemon then
        return MpsDaemon(shown, "has no socket 'control'" if host.exists(folder) else "")
    answer = host.refuses(socket) if host.live else 0
    died = answer == errno.ECONNREFUSED
    return MpsDaemon(shown, "nobody listens on its socket 'control'" if died else "", died)


def share(environ: Mapping[str, str]) -> float:
    """The percentage of each GPU's multiprocessors that a program of this environment may use under
    MPS; 100 where nothing sensible is set."""
    try:
        percent = float(environ.get(SHARE, "")[:20])
    except ValueError:
        return 100.0
    return percent if 0 < percent < 100 else 100.0
