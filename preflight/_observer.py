"""What a worker runs for one (check, subject): build the Host and the Context, call observe()."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._worker import Channel
from preflight.check import Context, Preloaded, imported
from preflight.document import decode, encode
from preflight.host import Host
from preflight.model import Topology

TARGET = "preflight._observer:perform"


def perform(args: Mapping[str, Any], channel: Channel, preloaded: Mapping[str, Any]) -> Any:
    """`args` as request() made them; the encoded answer of the check's observe()."""
    values = dict(args["context"])
    context = Context(
        topology=decode(Topology, values.pop("topology")),
        mark=channel.mark,
        peers=channel,
        preloaded={name: Preloaded(**outcome) for name, outcome in preloaded.items()},
        **values,
    )
    return encode(imported(args["check"]).observe(Host(args["root"]), context))


def request(check_id: str, root: str, topology: Any, **context: Any) -> dict[str, Any]:
    """The `args` of perform(). `topology` is encoded already: it is the same for every call;
    `context` holds the other fields of Context but mark, peers and preloaded."""
    return {"check": check_id, "root": root, "context": {"topology": topology, **context}}
