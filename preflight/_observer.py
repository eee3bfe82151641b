"""What workers run for the parent: observe() of a check, and files that may be slow to answer."""

from __future__ import annotations

import os
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


def count_gpus(args: object, channel: Channel, preloaded: object) -> int:
    """How many GPUs NVML counts; 0 without a driver, without even importing its bindings."""
    if not os.path.exists("/dev/nvidiactl"):
        return 0
    channel.mark("nvmlInit")
    with Host().nvml() as nvml:
        return int(nvml.nvmlDeviceGetCount())


def write_file(args: Mapping[str, str], channel: Channel, preloaded: object) -> str:
    """Write a report: a temporary file beside it, then a rename, so that nobody reads half of it.
    What is no regular file (a FIFO, /dev/stderr) is written to directly. Why not, or empty."""
    path = args["path"]
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(args["text"])
            return ""
        target = os.path.realpath(path)
        import tempfile

        handle, temporary = tempfile.mkstemp(
            prefix=".preflight-", dir=os.path.dirname(target) or "."
        )
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(args["text"])
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def read_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, str]:
    """A report's text, at most `limit` bytes; {"error": why} when it can't be had."""
    try:
        with open(args["path"], "rb") as file:
            data = file.read(args["limit"] + 1)
    except OSError as error:
        return {"error": f"{args['path']}: {error.strerror}"}
    if len(data) > args["limit"]:
        return {"error": f"{args['path']}: larger than {args['limit'] >> 20} MiB"}
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"error": f"{args['path']}: not a report: it is no UTF-8 text"}
