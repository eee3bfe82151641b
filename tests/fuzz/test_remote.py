"""What comes back from agents that were started elsewhere, and the orders that such an agent gets:
anything may stand there."""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from support.fuzzing import EXAMPLES, in_one_line
from support.hostile import DEEP, changed, damaged, text_of

from preflight.config.resolve import Flags
from preflight.model import Observations, PreflightError, Topology
from preflight.remote import protocol
from preflight.remote.collect import Gathering, RemoteNode, merge_gathered
from preflight.remote.protocol import Orders
from preflight.serde import encode

PARCEL: dict[str, Any] = {"place": "n1", "host": "n1", "pid": 7, "exit": 0, "whole": False}
PROGRESS = {"done": 1, "total": 9, "seconds": 1.5, "check": "net.mesh", "waiting_for": "n2"}
MEETING = "rdzv.reach"


def nothing() -> Observations:
    return Observations({}, "", 0.0, {}, Topology(), {})


@given(st.sampled_from([PARCEL]).flatmap(changed).map(text_of) | st.binary(max_size=60))
@example(b'{"place":"n1","report":' + DEEP.encode() + b"}")
@example(b'{"place":"n1","report":{"seconds":1e999}}')
@EXAMPLES
def test_a_parcel(content: bytes) -> None:
    gathering = Gathering("ssh", False, {"n1": RemoteNode("n1", 0)})
    data = zlib.compress(content)
    name = protocol._name(data)
    piece = base64.b64encode(data).decode()
    gathering.hear("line", ["n1", f"preflight-parcel 1 {name} 1/1 {piece}"])
    gathering.hear("over", ["n1", 0, ""])
    merge_gathered(gathering, nothing(), None, MEETING)


@given(st.sampled_from([PROGRESS]).flatmap(changed).map(text_of).flatmap(damaged))
@example(b'{"done":1,"total":2,"seconds":"nan"}')
@EXAMPLES
def test_progress(line: bytes) -> None:
    gathering = Gathering("ssh", False, {"n1": RemoteNode("n1", 0)})
    gathering.hear("line", ["n1", f"preflight-progress 1 {line.decode(errors='replace')}"])
    if (told := gathering.progress) is not None:
        assert all(map(math.isfinite, (told.seconds, told.running_for, told.limit)))


ORDERS = Orders("1", Flags(), token="x")


@given(st.sampled_from([encode(ORDERS)]).flatmap(changed).map(text_of).flatmap(damaged))
@example(b"NaN")
@example(json.dumps({"version": "\ud800", "flags": {}}).encode())
@EXAMPLES
def test_orders(line: bytes) -> None:
    try:
        orders = protocol.parse_orders(line)
    except PreflightError as error:
        in_one_line(error)
        return
    json.dumps(encode(orders), allow_nan=False, ensure_ascii=False).encode()
