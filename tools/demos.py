"""Writes preflight/demos/: the reports that `preflight demo` shows. Each is what preflight said of
a fault of tests/, injected here and now: on machines of the lab, or into a training script. And
shows one of them as it happens: `preflight demo --live NAME` ends here.

    python tools/demos.py [NAME…]         all of them, or these; some minutes
    python tools/demos.py --live NAME     only look, beside torchrun; nothing is written

Of a report the names of this machine's folders are replaced: /opt/venv, /opt/preflight, /usr. The
one of 512 nodes is put together of what one healthy and one broken machine of the lab saw.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "tools")]

import torchrun  # noqa: E402  they lie beside this file and in tests/
from faults import (  # noqa: E402
    accelerators,
    agreement,
    gpu_health,
    inject,
    job,
    naming,
    network,
    node,
    rails,
    world,
)
from faults.inject import Fault  # noqa: E402
from faults.world import WorldFault  # noqa: E402
from rehearse import catalogue  # noqa: E402
from rehearse.running import rehearse  # noqa: E402
from support import scenarios  # noqa: E402

from preflight.cli.demo import FOLDER, INDEX  # noqa: E402
from preflight.expect import Expect  # noqa: E402
from preflight.judge import verdict  # noqa: E402
from preflight.judge.policy import Policy  # noqa: E402
from preflight.model import Report  # noqa: E402
from preflight.registry import load  # noqa: E402
from preflight.render import human  # noqa: E402
from preflight.render import json as as_json  # noqa: E402

TARGET = REPOSITORY / "preflight" / FOLDER
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Demo:
    """What is shown: its name, one line about it, and where its report comes from. `fault` is what
    can also be looked at live."""

    name: str
    about: str
    made: Callable[[], Document]
    fault: WorldFault | None = None


def named(faults: Iterable[Any], name: str) -> Any:
    return next(fault for fault in faults if fault.name == name)


def on_nodes(name: str, about: str, faults: Iterable[WorldFault], fault: str) -> Demo:
    found: WorldFault = named(faults, fault)
    return Demo(name, about, lambda: world.run(found).report, found)


def on_a_node(name: str, about: str, faults: Iterable[Fault], fault: str) -> Demo:
    return Demo(name, about, lambda: inject.run(named(faults, fault)).report)


def script(name: str, about: str, row: str) -> Demo:
    return Demo(name, about, lambda: rehearse(named(catalogue.FAULTS, row)).report)


def judged_again(document: Document) -> Document:
    seen = as_json.parse(json.dumps({**document, **scenarios.UNJUDGED})).observations
    return as_json.document(verdict.judge(seen, load(), Expect({}), Policy()))


def many(nodes: int, broken: int) -> Document:
    """So many nodes, of which some have lost the file system of their checkpoints."""
    stalled = named(node.STORAGE, "the file system of the checkpoints never answers")
    sick = inject.run(stalled).report["observations"]["host.storage"]["n1"]
    whole = inject.run(HEALTHY).report
    fine = whole["observations"]
    names = [f"gpu{number:03d}" for number in range(1, nodes + 1)]
    lost = set(names[7 :: nodes // broken][:broken])
    world = [{"name": n, "ranks": [r], "addr": f"10.20.{r // 250}.{r % 250 + 1}", "size": 1}
             for r, n in enumerate(names)]  # fmt: skip
    alike = [check for check in fine if check.startswith(("host.", "net.interface"))]
    observations = {
        check: {
            name: sick
            if check == "host.storage" and name in lost
            else next(iter(fine[check].values()))
            for name in names
        }
        for check in alike
    }
    return judged_again(
        {
            **whole,
            "world": {**whole["world"], "nodes": world, "size": nodes, "met": nodes},
            "observations": observations,
        }
    )


HEALTHY = Fault("nothing", nproc=1, args=("--level", "quick", "--checkpoint-dir", "/tmp"), exit=0)

DEMOS = (
    on_a_node(
        "port-held",
        "another program listens on MASTER_PORT",
        job.PORTS,
        "MASTER_PORT is held by another user's server",
    ),
    on_nodes(
        "firewall",
        "a firewall on one node closes all ports but MASTER_PORT",
        network.PORTS,
        "n2 drops all but MASTER_PORT",
    ),
    on_nodes(
        "master-port-dropped",
        "a firewall drops one node's packets to MASTER_PORT",
        network.MASTER,
        "MASTER_PORT dropped for n2",
    ),
    on_nodes(
        "mtu-black-hole",
        "a switch port drops packets above 1400 bytes",
        network.WIRES,
        "the switch port of n2 has an MTU of 1400",
    ),
    on_nodes("slow-link", "one node's NIC runs at 20 Mbit/s", network.WIRES, "n2 has 20 Mbit/s"),
    on_nodes(
        "name-elsewhere",
        "MASTER_ADDR resolves to another machine on one node",
        naming.FAULTS,
        "MASTER_ADDR leads one node to another one",
    ),
    on_nodes(
        "world-size",
        "one node was started with another WORLD_SIZE",
        agreement.FAULTS,
        "one node has another WORLD_SIZE",
    ),
    on_nodes(
        "missing-node", "one node is down: its ranks never come", network.ROUTES, "n3 is dead"
    ),
    on_nodes(
        "nic-down",
        "one InfiniBand port is down that is up on the other nodes",
        rails.FAULTS,
        "a port that the other nodes have up",
    ),
    on_a_node(
        "sick-gpu",
        "one GPU waits for a row remap",
        gpu_health.HEALTH,
        "a row remap is pending",
    ),
    on_a_node(
        "driver-hangs",
        "the NVIDIA driver never answers",
        accelerators.GPUS,
        "the NVIDIA driver hangs",
    ),
    on_a_node(
        "mount-lost",
        "the file system of the checkpoints never answers",
        node.STORAGE,
        "the file system of the checkpoints never answers",
    ),
    script("uneven-data", "one rank has fewer batches than the others", "uneven_ddp"),
    script("rank-sleeps", "one rank sleeps in front of a barrier", "sleeps_before_barrier"),
    script("wrong-collective", "one rank calls another collective", "op_differs"),
    Demo("512-nodes", "512 nodes, of which 20 have lost a mount", partial(many, 512, 20)),
    Demo(
        "tcp-for-infiniband",
        "NCCL uses TCP although there is InfiniBand",
        lambda: as_json.document(scenarios.judged("tcp-for-infiniband")),
    ),
)
"""The last one is made of the observations of a golden: it takes GPUs with InfiniBand."""


def nameless(text: str) -> str:
    """Without this machine's folders."""
    for folder, name in (
        (str(Path(sys.prefix)), "/opt/venv"),
        (str(REPOSITORY), "/opt/preflight"),
        (sys.base_prefix, "/usr"),
        (os.path.expanduser("~"), "/home/user"),
    ):
        text = text.replace(folder, name)
    text = re.sub(rf"(?<![\w./-]){re.escape(socket.gethostname())}(?![\w.-])", "gpu1", text)
    text = text.replace("/opt/preflight/tests/rehearse/scripts", "/home/user/job")
    text = re.sub(r"/tmp/preflight-lab-\w+/\w+", "/scratch", text)
    return re.sub(r"/tmp/tmp\w+", "/tmp/job", text)


def write(demo: Demo) -> None:
    document = demo.made()
    if not document:
        raise SystemExit(f"{demo.name}: no report came of it")
    report: Report = as_json.parse(nameless(json.dumps(document)))
    text = json.dumps(as_json.document(report), separators=(",", ":"))
    path = TARGET / f"{demo.name}.json.gz"
    # without the time, so that the same report is the same file
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    first = human.first_headline(report) or [f.headline for f in report.findings[:1]]
    print(f"{demo.name:<20} {path.stat().st_size:>7} bytes  {report.verdict}  {' '.join(first)}")


def live(name: str) -> int:
    """Inject the fault, run preflight and torchrun on machines of their own at the same time."""
    demo = next((demo for demo in DEMOS if demo.name == name and demo.fault), None)
    if demo is None or demo.fault is None:
        known = ", ".join(demo.name for demo in DEMOS if demo.fault)
        print(f"preflight: demo --live knows {known}", file=sys.stderr)
        return 2
    if why := world.lacking(demo.fault):
        print(f"preflight: demo --live can't make hosts here: {why}", file=sys.stderr)
        return 2
    said: list[str] = []
    beside = threading.Thread(target=lambda: said.append(torchrun.says(demo.fault)))
    print(f"{demo.about}: {len(demo.fault.machines)} hosts made of namespaces", flush=True)
    beside.start()
    seen = world.run(demo.fault)
    print(human.render(as_json.parse(json.dumps(seen.report))), end="")
    print(f"\npreflight took {seen.seconds:.1f} s. torchrun, on the same hosts:", flush=True)
    beside.join()
    print(said[0].strip("`") if said else "could not be run")
    return seen.ended[next(iter(seen.ended))].code or 0


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--live"]:
        raise SystemExit(live(*words[1:2]))
    TARGET.mkdir(exist_ok=True)
    for demo in DEMOS:
        if not words or demo.name in words:
            write(demo)
    about = {demo.name: demo.about for demo in DEMOS}
    (TARGET / INDEX).write_text(f"{json.dumps(about, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
