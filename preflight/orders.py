"""What an agent is told by the place that starts it (`run --slurm`, `run --hosts`): one line of
JSON over stdin, so that nothing of it passes through a shell or is seen in a list of processes.
Pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from preflight.config import Flags
from preflight.document import decode, encode
from preflight.model import PreflightError

LIMIT = 8 << 20
"""Bytes of the line: a config file may have one million, which JSON can make six of."""


@dataclass(frozen=True, slots=True)
class Orders:
    """How to run.

    flags     of the command line and the environment there, each with its source
    config    the name of the config file there, and its text; both empty where there is none
    token     PREFLIGHT_TOKEN
    root      as --root
    place     how that place calls this node
    """

    version: str
    flags: Flags
    config: tuple[str, str] = ("", "")
    token: str = ""
    root: str = "/"
    place: str = ""

    @property
    def line(self) -> bytes:
        return json.dumps(encode(self)).encode() + b"\n"


def parsed(line: bytes) -> Orders:
    """The orders of a line; PreflightError for anything else."""
    try:
        orders = decode(Orders, json.loads(line))
    except (ValueError, RecursionError, TypeError) as error:
        raise PreflightError(f"these are no orders for an agent: {error}"[:300]) from None
    assert isinstance(orders, Orders)
    return orders
