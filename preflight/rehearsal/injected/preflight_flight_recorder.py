"""Reads torch's flight recorder inside a process of the rehearsed command.

Loaded from its text beside preflight_responder.py into the user's Python, any from 3.8 on: the
standard library only.
"""

import _thread
import json
import math
import pickle
import sys
from collections import deque

TEXT = 300
RECORDED = 200
"""Calls kept of every process group."""


def counts(binding):
    """Group -> collectives enqueued and completed, as the flight recorder counts them."""
    read = getattr(binding, "_dump_nccl_trace_json", None) or binding._dump_fr_trace_json
    status = json.loads(read(False, False)).get("pg_status", {})
    return {
        group: [int(s["last_enqueued_collective"]), int(s["last_completed_collective"])]
        for group, s in list(status.items())[:64]
    }


def members(c10d):
    """Group -> the ranks in it."""
    world = getattr(c10d, "_world", None)
    names, ranks = getattr(world, "pg_names", {}), getattr(world, "pg_group_ranks", {})
    return {str(name): sorted(ranks.get(group, ()))[:4096] for group, name in names.items()}


def recorded(binding, first_own):
    """Group -> its latest calls. The recorder's frames come as a pickle of torch's own making, read
    here, where it was made: it crosses no border."""
    read = getattr(binding, "_dump_nccl_trace", None) or binding._dump_fr_trace
    with InductorUnasked():
        raw = read(True, True, False)
    found = {}
    for entry in pickle.loads(raw).get("entries", ()):
        group = str(next(iter(entry.get("process_group", ())), "?"))
        calls = found.setdefault(group, deque(maxlen=RECORDED))
        p2p = bool(entry.get("is_p2p"))
        calls.append(
            {
                "seq": entry.get("p2p_seq_id" if p2p else "collective_seq_id", 0),
                "op": str(entry.get("profiling_name", "")).rpartition(":")[2][:60],
                "shape": shape(entry),
                "bytes": size(entry),
                "frame": first_own(entry.get("frames", ())),
                "p2p": p2p,
                "done": bool(entry.get("retired")) or entry.get("state") == "completed",
                "timeout": entry.get("timeout_ms", 0) / 1e3,
            }
        )
    return {group: list(calls) for group, calls in list(found.items())[:64]}


class InductorUnasked:
    """While the recorder's frames are read, torch asks torch._inductor for those of compiled code,
    and imports it for that, which takes seconds. So this stands in its place meanwhile, where it
    has not been imported yet; for all other threads it is the real one."""

    def __enter__(self):
        self._reader = _thread.get_ident()
        self._known = vars(sys.modules["torch"])
        self._known.setdefault("_inductor", self)

    def __exit__(self, *error):
        if self._known.get("_inductor") is self:
            del self._known["_inductor"]

    def __getattr__(self, name):
        if _thread.get_ident() == self._reader:
            raise AttributeError(name)
        __import__("torch._inductor")
        return getattr(sys.modules["torch._inductor"], name)


def shape(entry):
    parts = zip(entry.get("input_sizes", ()), entry.get("input_dtypes", ()))
    return "; ".join(f"{list(sizes)} {dtype}" for sizes, dtype in parts)[:TEXT]


ITEM = {"Double": 8, "Long": 8, "Half": 2, "BFloat16": 2, "Short": 2}
ITEM.update({"Byte": 1, "Char": 1, "Bool": 1})  # bytes of an element, 4 of all others


def size(entry):
    parts = zip(entry.get("input_sizes", ()), entry.get("input_dtypes", ()))
    return sum(math.prod(sizes) * ITEM.get(dtype, 4) for sizes, dtype in parts)
