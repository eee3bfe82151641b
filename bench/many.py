"""The host of a meeting of thousands of nodes: a real agent, which meets light clients over real
sockets, takes what they have seen, judges it and writes the report.

    make scale SIMULATED=12500           nodes with 8 ranks each
    python bench/many.py 1024 12500      several sizes
    python bench/many.py --world odd     one of the worlds: odd, absent, double

Each world has a process of its own, of which the host is a fork: the memory of one that has read
the report of another world would count as its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import member
from member import ADDRESS, import_everything
from place import children, kill, listening, reap, seclude
from simulated import Simulated

PROCESSES = 2
UP_SECONDS = 30.0
MET_SECONDS, JUDGED_SECONDS, PEAK_MIB, DISK_MB, PACKED_MB = 20.0, 10.0, 500.0, 25.0, 5.0
ODD = 20


class Clients:
    """Our end of a process of light clients."""

    def __init__(self, of: Simulated, places: list[int], limit: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("light.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = {"of": asdict(of), "places": places, "limit": limit, "parent": os.getpid()}
        self.say(json.dumps(told))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


def hold(of: Simulated, limit: float) -> dict[str, Any]:
    """One meeting; what its host measured of itself, its report, and how the clients ended."""
    with tempfile.TemporaryDirectory(prefix="preflight-scale-") as folder:
        world = member.World(of.nodes, 0, each=of.ranks)
        guests = [place for place in of.places if place]
        clients = [Clients(of, guests[n::PROCESSES], limit) for n in range(PROCESSES)]
        host = 0
        try:
            for one in clients:
                one.hear()
            began = time.monotonic()
            host = member.fork(world, 0, of.name(0), folder)
            while not listening(member.PORT) and time.monotonic() < began + UP_SECONDS:
                time.sleep(0.01)
            for one in clients:
                one.say("go")
            told = [json.loads(one.hear() or "{}") for one in clients]
            until = time.monotonic() + limit
            while host in children() and time.monotonic() < until:
                for pid, _ in reap():
                    host = 0 if pid == host else host
                time.sleep(0.05)
        finally:
            for pid in (host, *(one.process.pid for one in clients)):
                if pid and pid in children():
                    kill(pid)
        said = Path(folder, "said").read_text(errors="replace")
        try:
            figures = json.loads(Path(folder, "leader").read_text())
            text = Path(folder, "report").read_bytes()
        except OSError as error:
            raise SystemExit(f"no report of the host: {error}\n{said[-4000:]}\n{told}") from None
    last = max(one["last"] for one in told)
    ends, counts = Counter[str](), Counter[str]()
    for one in told:
        ends.update(one["ends"])
        counts.update(one["counts"])
    return {
        **figures,
        "last": last - began,
        "met": figures["met"] - last,
        "named": figures["named"] - figures["judged"],
        "all": figures["named"] - began,
        "disk": len(text) / 1e6,
        "packed": len(gzip.compress(text, 6)) / 1e6,
        "report": json.loads(text),
        "ends": ends,
        "counts": counts,
        "said": said,
    }


def _names(report: dict[str, Any], code: str) -> set[str]:
    found = [s for f in report["findings"] if f["code"] == code for s in f["subjects"]]
    return {name for s in found for name in ([s["node"]] if s["node"] else map(str, s["ranks"]))}


def _line(what: str, value: float, unit: str, bar: float = 0.0) -> str:
    met = f"   (<= {bar:g} {unit}{'' if value <= bar else ', NOT MET'})" if bar else ""
    return f"  {what:<26} {value:10.2f} {unit}{met}"


CODES = {"odd": "remap-pending", "absent": "absent", "double": "rank-duplicate"}


def _planted(nodes: int) -> Iterator[tuple[str, Simulated, set[str]]]:
    """What is planted, and the nodes or ranks that have to be named, no others."""
    odd = tuple(range(nodes // 40 or 3, nodes, max(1, nodes // ODD)))[:ODD]
    of = Simulated(nodes, odd=odd)
    yield "odd", of, {of.name(place) for place in odd}
    of = Simulated(nodes, absent=nodes * 2 // 3)
    yield "absent", of, {str(rank) for rank in of.ranks_of(nodes * 2 // 3)}
    of = Simulated(nodes, twin=nodes // 2)
    yield "double", of, {of.name(nodes // 2), of.name(nodes)}


def measure(nodes: int, what: str, of: Simulated, wanted: set[str]) -> bool:
    """One world; whether all bars are met, and who was planted is named."""
    held = hold(of, 120.0 + nodes / 20)
    report, counts = held["report"], held["counts"]
    print(f"{nodes} nodes x {of.ranks} ranks, {what}: {report['verdict']}")
    lines = [
        _line("last arrival", held["last"], "s"),
        _line("met, after it", held["met"], "s", MET_SECONDS if what != "absent" else 0.0),
        _line("report, after the first", held["all"], "s"),
        _line("judged, CPU", held["cpu_judged"], "s", JUDGED_SECONDS),
        _line("host's CPU in all", held["cpu"], "s"),
        _line("host's memory", held["peak"], "MiB", PEAK_MIB),
        _line("received per node", held["received"] / nodes / 1e3, "kB"),
        _line("messages per node", (counts["seen"] + counts["values"]) / nodes, ""),
        _line("on disk", held["disk"], "MB", DISK_MB),
        _line("compressed", held["packed"], "MB", PACKED_MB),
    ]
    print("\n".join(lines))
    heavy = [f for f in report["findings"] if f["status"] in ("fail", "missing")]
    others = [f"{f['check']}:{f['code']}" for f in heavy if f["code"] != CODES[what]]
    named = _names(report, CODES[what])
    right = named == wanted and not others
    told = ", ".join(sorted(named)[:4]) + f" … ({len(named)} of {len(wanted)})"
    print(f"  {'named' if right else 'NOT named'}: {told} {' '.join(others[:4])}")
    print(f"  clients ended with {dict(held['ends'])}\n", flush=True)
    return right and not any("NOT MET" in line for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("nodes", type=int, nargs="*", default=[12500])
    parser.add_argument("--world", choices=CODES)
    asked = parser.parse_args()
    if asked.world is None:
        worlds = [(str(nodes), what) for nodes in asked.nodes for what in CODES]
        me = [sys.executable, __file__]
        ended = [subprocess.run([*me, nodes, "--world", what]).returncode for nodes, what in worlds]
        raise SystemExit(1 if any(ended) else 0)
    for name in [n for n in os.environ if n.startswith(("PREFLIGHT_", "MASTER_", "NCCL_"))]:
        del os.environ[name]  # they would be everybody's
    load = os.getloadavg()[0]
    try:
        seclude(ADDRESS)
    except OSError as error:
        raise SystemExit(f"scale: {error}; it takes root or user namespaces") from None
    import_everything()
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {load:.1f} before and without us\n")
    (nodes,) = asked.nodes
    planted = next(rest for what, *rest in _planted(nodes) if what == asked.world)
    raise SystemExit(0 if measure(nodes, asked.world, *planted) else 1)


if __name__ == "__main__":
    main()
