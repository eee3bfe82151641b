"""What workers run for the parent: observe() of a check, and files that may be slow to answer."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from typing import Any

from preflight._worker import Channel
from preflight.check import Context, Preloaded, imported
from preflight.document import decode, encode
from preflight.host import Host
from preflight.model import Topology

TARGET = "preflight._observer:perform"

LOOK_AGAIN = 0.5
"""Seconds between two look-ups of a name that there is not yet."""
OWN_MOST = 16
STORE_MOST = 4096
"""Addresses and bytes that are taken from a store that anybody may have written to."""


def perform(args: Mapping[str, Any], channel: Channel, preloaded: Mapping[str, Any]) -> Any:
    """`args` as request() made them; the encoded answer of the check's observe()."""
    values = dict(args["context"])
    if values.get("roll") is not None:
        from preflight.roll import Roll

        values["roll"] = decode(Roll, values["roll"])
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
    from preflight.knowledge import amd, vendor

    channel.mark("/sys/class/kfd")
    if vendor.found(host) is not vendor.AMD:
        return 0  # the display of a machine without other GPUs
    uuids = [node.uuid for node in amd.visible(host)]
    return len(vendor.shown(amd.masks(host.environ), uuids).indexes)


def scout(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """What an agent has to know before it goes to the meeting: who it is, what MASTER_ADDR is here,
    and whether that is this machine. A name that there is not may come yet (a pod's), so it is
    asked for until `seconds` are over."""
    from preflight.knowledge.lookup import (
        NO_ANSWER,
        addresses,
        c10d_order,
        is_local,
        look_up,
        loops,
        source_of,
    )

    host = Host()
    until = time.monotonic() + args["seconds"]
    name = args["name"]
    while True:
        channel.mark(f"look-up of {name[:80]!r}")
        left = max(0.1, until - time.monotonic())
        found = look_up(name, lambda: addresses(host, name), left)
        if found.found or time.monotonic() + LOOK_AGAIN >= until:
            break
        time.sleep(LOOK_AGAIN)
    ips = c10d_order(found.found)
    own = [a.ip for i in host.interfaces if i.up for a in i.addresses if not loops(a.ip)]
    sources = [source_of(host, ip) for ip in ips]
    return {
        "host": host.hostname()[:64],
        "identity": _identity(host),
        "ips": list(ips),
        "error": "SILENT" if found.error == NO_ANSWER else found.error,
        "mine": any(is_local(host, ip) for ip in ips),
        "own": list(dict.fromkeys(ip for ip in (*sources, *own) if ip))[:OWN_MOST],
    }


def _identity(host: Host) -> str:
    """Two agents with the same one share a machine and its network. Hashed: nobody needs the boot
    id itself."""
    import hashlib

    boot = (host.read_or_none("/proc/sys/kernel/random/boot_id") or "").strip()
    network = host.readlink("/proc/self/ns/net")
    return hashlib.sha256(f"{boot} {network} {host.hostname()}".encode()).hexdigest()[:16]


def announce_meeting(args: Mapping[str, Any], channel: Channel, preloaded: object) -> Any:
    """Write into the store that a launcher keeps at MASTER_ADDR where the meeting is."""
    where = {"ips": args["own"], "port": args["port"]}
    _launchers_store(args, channel).set(args["key"], json.dumps(where))
    return where


def find_meeting(args: Mapping[str, Any], channel: Channel, preloaded: object) -> dict[str, Any]:
    """Read there where it is; waits until somebody has written it."""
    told = json.loads(_launchers_store(args, channel).get(args["key"])[:STORE_MOST])
    ips = [str(ip)[:64] for ip in told["ips"][:OWN_MOST]]
    return {"ips": ips, "port": int(told["port"])}


def _launchers_store(args: Mapping[str, Any], channel: Channel) -> Any:
    """A client of torchrun's own store. Its prefix is ours: the job's keys stay untouched."""
    from datetime import timedelta

    import torch.distributed as dist

    channel.mark("TCPStore")
    timeout = timedelta(seconds=args["seconds"])
    store = dist.TCPStore(args["addr"], args["port_of_store"], is_master=False, timeout=timeout)
    channel.mark("key of the meeting")
    return store


def write_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Write a report: a temporary file beside it, then a rename, so that nobody reads half of it.
    What is no regular file (a FIFO, /dev/stderr) is written to directly. `mode`: of the file; None:
    as the umask has it; `new`: a file that is there stays as it is. Why not, or empty."""
    path = args["path"]
    try:
        if args.get("new") and os.path.isfile(path):
            return f"{path}: is there already"
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
                file.flush()
                os.fsync(file.fileno())  # a full disk or quota is told here, if not before
            umask = os.umask(0)
            os.umask(umask)
            mode = args.get("mode")
            os.chmod(temporary, 0o666 & ~umask if mode is None else mode)
            os.replace(temporary, target)
        except OSError:
            os.unlink(temporary)
            raise
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def append_file(args: Mapping[str, Any], channel: Channel, preloaded: object) -> str:
    """Append to a file that others write to as well: the first of `texts` with which it has no more
    than `limit` bytes. Why not, or empty."""
    path = args["path"]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        # a FIFO would be waited for
        with open(os.open(path, flags | os.O_NONBLOCK, 0o666), "ab") as file:
            there = os.fstat(file.fileno())
            if not stat.S_ISREG(there.st_mode):
                return f"{path}: not a regular file"
            for text in args["texts"]:
                data = text.encode()
                if there.st_size + len(data) <= args["limit"]:
                    file.write(data)
                    return ""
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"{path}: full, {there.st_size} of {args['limit']} bytes"


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
