"""What an agent is told by the place that starts it (`run --slurm`, `run --hosts`): one line of
JSON over stdin, so that nothing of it passes through a shell or is seen in a list of processes.
Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from preflight.config.resolve import Flags
from preflight.frozen import dataclass
from preflight.model import PreflightError
from preflight.serde import decode, encode, parsed, weight

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


def parse_orders(line: bytes) -> Orders:
    """The orders of a line; PreflightError for anything else."""
    try:
        orders = decode(Orders, parsed(line))
    except (ValueError, TypeError) as error:
        raise PreflightError(f"these are no orders for an agent: {error}"[:300]) from None
    assert isinstance(orders, Orders)
    return orders


LINE_MOST = 900
"""Characters of a line, whatever stands before it: srun cuts longer ones at 1024."""
PIECE = 600
"""Bytes of a piece: 800 letters of base64."""
PACKED_MOST = 16 << 20
"""Bytes of one parcel as it travels; the report of a thousand nodes has about one million."""
TOGETHER_MOST = 256 << 20
"""Bytes of all parcels of a stream that are kept."""
OPENED_MOST = 64 << 20
"""Bytes of JSON that come out of one."""
WEIGHT_MOST = 512 << 20
"""Bytes that it takes to hold what they say; some 25,000 for each node of a job."""

PIECE_LINE = re.compile(
    r"preflight-parcel 1 ([0-9a-f]{16}) ([1-9]\d{0,5})/([1-9]\d{0,5}) ([A-Za-z0-9+/]+={0,2})\s*$"
)
PROGRESS_LINE = re.compile(r"preflight-progress 1 (\{.*\})\s*$")
MARKS = ("preflight-parcel ", "preflight-progress ")
"""How a line of ours begins, perhaps behind what a launcher has put before it."""


def is_parcel_line(line: str) -> bool:
    """Whether a line might be one of these."""
    return any(mark in line for mark in MARKS)


def pack(content: Any) -> Iterator[str]:
    """JSON data as lines, each with its end. ValueError for more than a parcel may hold."""
    text = json.dumps(content, separators=(",", ":"))
    data = zlib.compress(text.encode())
    if len(data) > PACKED_MOST or len(text) > OPENED_MOST:
        raise ValueError(f"a parcel of {len(data)} bytes, {len(text)} when it is opened")
    name = _name(data)
    of = -(-len(data) // PIECE)
    for number in range(of):
        piece = base64.b64encode(data[number * PIECE : (number + 1) * PIECE]).decode()
        yield f"preflight-parcel 1 {name} {number + 1}/{of} {piece}\n"


def _name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def progress(content: Mapping[str, Any]) -> str:
    """How far an agent is, as a line; empty where that does not fit into one."""
    line = f"preflight-progress 1 {json.dumps(content)}\n"
    return line if len(line) <= LINE_MOST else ""


def progress_of(line: str) -> Any:
    """The JSON data of such a line; None when it is none."""
    found = PROGRESS_LINE.search(line[: 2 * LINE_MOST])
    try:
        return parsed(found[1]) if found else None
    except ValueError:
        return None


@dataclass(slots=True)
class Parcels:
    """What has come of the parcels of one stream. `spoilt` says why some were not opened."""

    spoilt: list[str] = field(default_factory=list)
    _pieces: dict[str, dict[int, bytes]] = field(default_factory=dict)
    _of: dict[str, int] = field(default_factory=dict)
    _opened: set[str] = field(default_factory=set)
    _bytes: int = 0

    def take(self, line: str) -> Any:
        """The content of a parcel whose last piece this line is; None for all other lines."""
        found = PIECE_LINE.search(line[: 2 * LINE_MOST])
        if found is None:
            return None
        name, number, of = found[1], int(found[2]), int(found[3])
        known = self._pieces.get(name, {})
        if name in self._opened or number in known:
            return None
        if number > of or of != self._of.get(name, of) or of * PIECE > PACKED_MOST + PIECE:
            return self._spoil(f"parcel {name}: piece {number} of {of}")
        try:
            piece = base64.b64decode(found[4], validate=True)
        except binascii.Error:
            return self._spoil(f"parcel {name}: piece {number} is no base64")
        if self._bytes + len(piece) > TOGETHER_MOST:
            return self._spoil(f"parcel {name}: more than {TOGETHER_MOST >> 20} MiB in all")
        self._bytes += len(piece)
        self._of[name] = of
        self._pieces.setdefault(name, {})[number] = piece
        if len(self._pieces[name]) < of:
            return None
        self._opened.add(name)
        pieces = self._pieces.pop(name)
        return self._open(name, b"".join(pieces[n] for n in range(1, of + 1)))

    @property
    def tried(self) -> int:
        """How many have come whole, whatever was in them."""
        return len(self._opened)

    def incomplete(self) -> list[str]:
        """Why some have not been opened by now: pieces are missing."""
        return [
            f"parcel {name}: {len(pieces)} of {self._of[name]} pieces came"
            for name, pieces in self._pieces.items()
        ]

    def _open(self, name: str, data: bytes) -> Any:
        if _name(data) != name:
            return self._spoil(f"parcel {name}: its pieces are not those that were sent")
        try:
            inflating = zlib.decompressobj()
            text = inflating.decompress(data, OPENED_MOST + 1)
            if len(text) > OPENED_MOST or not inflating.eof or inflating.unused_data:
                return self._spoil(f"parcel {name}: not what we pack, or too much of it")
            if weight(text) > WEIGHT_MOST:
                return self._spoil(f"parcel {name}: it says more than is kept of one")
            return parsed(text)
        except (zlib.error, ValueError) as error:
            return self._spoil(f"parcel {name}: {error}")

    def _spoil(self, why: str) -> None:
        if len(self.spoilt) < 16:
            self.spoilt.append(why[:200])
