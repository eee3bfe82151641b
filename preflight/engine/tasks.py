"""What workers run for the parent: observe() of a check, and files that may be slow to answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from preflight.check import Context, Preloaded
from preflight.host import Host
from preflight.model import Fact, Node, Topology
from preflight.process.worker import Channel
from preflight.registry import imported
from preflight.serde import decode, encode


def perform(args: Mapping[str, Any], channel: Channel, preloaded: Mapping[str, Any]) -> Any:
    """`args` as request() made them; the encoded answer of the check's observe()."""
    values = dict(args["context"])
    if values.get("roll") is not None:
        from preflight.roster import Roll

        values["roll"] = decode(Roll, values["roll"])
    context = Context(
        topology=decode(Topology, values.pop("topology")),
        mark=channel.mark,
        peers=channel,
        preloaded={name: Preloaded(**outcome) for name, outcome in preloaded.items()},
        **values,
    )
    return encode(imported(args["check"]).observe(Host(args["root"]), context))


def prepare() -> None:
    """Make, before workers are forked, what perform() would make again in each of them."""
    nowhere = Topology(nodes=(Node("", ()),), facts={"": Fact("", "")})
    unheard: Any = None
    Context(decode(Topology, encode(nowhere)), "", 0.0, lambda mark: None, unheard)


def request(check_id: str, root: str, topology: Any, **context: Any) -> dict[str, Any]:
    """The `args` of perform(). `topology` is encoded already: it is the same for every call;
    `context` holds the other fields of Context but mark, peers and preloaded."""
    return {"check": check_id, "root": root, "context": {"topology": topology, **context}}


def count_gpus(args: object, channel: Channel, preloaded: object) -> dict[str, Any]:
    """How many GPUs NVML counts, or KFD where they are AMD's, less those that a mask of AMD's
    hides; 0 without a driver, without even importing its bindings."""
    if not os.path.exists("/dev/nvidiactl"):
        gpus = _amd_gpus(Host(), channel) if os.path.exists("/dev/kfd") else 0
        return {"gpus": gpus, "by": "KFD" if gpus else "NVML"}
    channel.mark("nvmlInit")
    with Host().nvml() as nvml:
        return {"gpus": int(nvml.nvmlDeviceGetCount()), "by": "NVML"}


def _amd_gpus(host: Host, channel: Channel) -> int:
    from preflight.domains.gpu import kfd, vendor

    channel.mark("/sys/class/kfd")
    if vendor.detect(host).NAME != vendor.AMD:
        return 0  # the display of a machine without other GPUs
    uuids = [node.uuid for node in kfd.openable_nodes(host)]
    return len(vendor.visible_devices(kfd.masks(host.environ), uuids).indexes)
