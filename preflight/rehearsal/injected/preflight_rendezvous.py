"""Reads from a call of init_process_group where the ranks are to meet, and as whom this one comes;
where torchrun holds the store for them, whether the script has put another address there.

Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the
standard library only.
"""

import functools
import inspect
import os
import time
from urllib.parse import parse_qs, urlsplit

TEXT = 300
LIBRARIES = ("NCCL_", "TORCH_NCCL_", "TORCH_DIST", "TORCH_GLOO_", "GLOO_")
"""How the names of variables begin that all ranks may have to agree on."""
DEBUG = "TORCH_DISTRIBUTED_DEBUG"
SETTINGS, LENGTH = 64, 1 << 20
"""Of these variables, that are told; letters of an environment."""
ADDRESS = ("MASTER_ADDR", "MASTER_PORT")
HELD = "TORCHELASTIC_USE_AGENT_STORE"
"""Whether a process of torchrun's listens there already, so that no rank does."""


class Address:
    """What is known in this process. There is one. set: variable -> the user's line that has set
    it last."""

    set = {}


def follow_environment(module, place):
    """From now on note where an address is set; `module` is os, whose environ calls putenv."""
    original = module.putenv

    @functools.wraps(original)
    def putenv(name, value):
        try:
            key = module.fsdecode(name)
            if key in ADDRESS:
                Address.set[key] = place()
        except Exception:
            pass
        return original(name, value)

    module.putenv = putenv


def replaced_address(now, before):
    """What the launcher has given, and the line that has set another one; none where this is that
    one, or the launcher leaves it to rank 0 to listen. `before`: the environment that the process
    was started with."""
    told = {name: before.get(name, "") for name in ADDRESS}
    changed = [name for name in ADDRESS if now.get(name) != told[name]]
    held = before.get(HELD) == "True" == now.get(HELD)
    if not held or not all(told.values()) or not changed:
        return None
    frames = [Address.set.get(name) for name in reversed(changed)]
    return {
        **text(told["MASTER_ADDR"]),
        "port": number(told["MASTER_PORT"]) or 0,
        "frame": next((frame for frame in frames if frame is not None), None),
    }


def started_with():
    """The environment of this process when it was started, or its parent's at a fork."""
    try:
        with open("/proc/self/environ", "rb") as file:
            pairs = file.read(LENGTH).split(b"\0")
    except OSError:
        return {}
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)


def read_call(function, args, kwargs):
    """How: env, tcp, file, store or what the URL begins with; the address or the path; rank and
    world size, None and 0 where nothing says so; the settings that NCCL and Gloo will read."""
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    told = {"how": "env", "host": "", "port": 0, "path": "", "at": time.time()}
    asked = {}
    store, method = given.get("store"), given.get("init_method")
    if store is not None:
        told["how"] = "store"
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        told.update(text(getattr(store, "host", "")), port=number(getattr(store, "port", 0)) or 0)
        told["path"] = str(getattr(store, "path", ""))[:TEXT]
    elif method is not None and not str(method).startswith("env:"):
        url = urlsplit(str(method))
        asked = parse_qs(url.query)
        told["how"] = url.scheme[:20]
        told.update(text(url.hostname or ""), port=url.port or 0, path=url.path[:TEXT])
    else:
        asked = parse_qs(urlsplit(str(method or "")).query)
        host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        told.update(text(host), port=number(port) or 0)
        told["held"] = replaced_address(os.environ, started_with())
    if told["how"] == "file":
        told["file"] = file_facts(told["path"])
    for name, key, variable in (("rank", "rank", "RANK"), ("world", "world_size", "WORLD_SIZE")):
        found = number(given.get(key))
        if found is None:
            found = number(asked.get(key, [None])[0])
        if found is None and told["how"] == "env":
            found = number(os.environ.get(variable))
        told[name] = found
    told["world"] = told["world"] or 0
    backend = given.get("backend")
    told["backend"] = str(backend).lower()[:40] if backend is not None else ""
    told["settings"] = settings(function)
    return told


def settings(function):
    """Also those that the script has set itself, which no launcher and no login shell shows. torch
    has read one when it was imported."""
    names = sorted(name for name in os.environ if name.startswith(LIBRARIES))
    found = {name[:TEXT]: os.environ[name][:TEXT] for name in names[:SETTINGS]}
    level = getattr(inspect.unwrap(function), "__globals__", {}).get("get_debug_level")
    if level is not None:
        found[DEBUG] = level().name
    return found


def text(host):
    return {"host": str(host)[:TEXT]}


def number(given):
    """None for what is none, and for -1, which says nothing."""
    try:
        found = int(given)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < 1 << 24 else None


def file_facts(path):
    """What is there before this rank comes: bytes, seconds since they were written; None where
    there is no such file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_size, round(time.time() - found.st_mtime, 1)]
