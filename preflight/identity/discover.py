"""Who is in this world: from flags and the launcher's environment, each number with its source.

Nothing is guessed silently: what a reading rests on is a Fact, what contradicts it is left for
env.identity to judge. Pure but for free_port().
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import field, replace

from preflight.frozen import dataclass
from preflight.identity.addresses import loopback
from preflight.identity.launchers import (
    ENV,
    FLUX,
    LOCAL,
    NODE_WORDS,
    PMIX,
    SIZELESS,
    SLURM,
    TORCHRUN_TO_COME,
    Launcher,
    detect,
    meets_statically,
    named,
    numbers_nodes,
)
from preflight.identity.slurm_hosts import first_host
from preflight.model import UNNUMBERED, Fact, Node, PreflightError, Topology
from preflight.nodeset import TEXT_MOST, tasks_on

DEFAULT_PORT = 29500
"""Where torch's launchers meet when nobody says a port (torch.distributed.run)."""

C10D_PORT = 29400
"""Where torchrun's c10d rendezvous meets, if its endpoint has no port. The static one, torchrun's
default, has no such number: there it ends with an error (torch/distributed/launcher/api.py)."""
ENDPOINT = "PET_RDZV_ENDPOINT"


NO_PORT = "not a port"
"""The source of a MASTER_PORT that is none."""

FLAG = "--nodes"
"""The source of a number of nodes that whoever started this run has typed."""

NONE_HERE = ", no GPU"
NO_GPU = f"=gpu{NONE_HERE}"
"""How the source ends of a number of ranks where torchrun would stop: there is nothing to count."""

RANKS_LIMIT = 1 << 20
"""More ranks than any job has: a number beyond it is a typing error."""

COMPONENTS_MOST = 128
"""Components of a heterogeneous job of SLURM (MAX_HET_JOB_COMPS)."""

HERE = ("", "localhost", "127.0.0.1", "::1")
"""Values of MASTER_ADDR that lead no other node to this one."""


@dataclass(slots=True)
class _Reading:
    """The environment of one launcher, read with care."""

    environ: Mapping[str, str]
    launcher: Launcher
    facts: dict[str, Fact] = field(default_factory=dict)

    def number(self, what: str, names: tuple[str, ...], least: int = 0) -> int | None:
        """The first of `names` that holds a sane number; noted as a fact."""
        for name in names:
            found = re.fullmatch(r"\d{1,7}", self.environ.get(name, "").strip())
            if found and least <= int(found[0]) <= RANKS_LIMIT:
                return self.noted(what, int(found[0]), self.source(name))
        return None

    def source(self, name: str) -> str:
        """What a number is from: a variable, or an option of the torchrun that is to come."""
        option = named(self.environ, name)
        return f"env {name}" if option == name else f"torchrun {option}"

    def noted(self, what: str, value: int, source: str) -> int:
        self.facts[what] = Fact(str(value), source)
        return value

    def text(self, what: str, names: tuple[str, ...]) -> str:
        for name in names:
            if value := self.environ.get(name, ""):
                self.facts[what] = Fact(value[:256], self.source(name))
                return value[:256]
        return ""

    def local_size(self) -> int | None:
        """How many ranks the launcher says there are on this node. SLURM says it of all nodes in
        one list, `4(x2),3`, in the order of their numbers."""
        for name in self.launcher.local_size:
            if self.environ.get(name, "").strip():
                node = self.number("node_rank", self.launcher.node_rank) or 0
                count = tasks_on(self.environ[name], node)
                if 0 < count <= RANKS_LIMIT:
                    return self.noted("nproc", count, self.source(name))
        return None

    def hosts(self) -> tuple[str, ...]:
        """All hosts of the job in the order of their numbers, where the launcher lists them."""
        text = self.environ.get(self.launcher.all_hosts, "").strip()[:TEXT_MOST]
        return tuple(host for host in re.split(r"[\s,\[\]\"']+", text) if host)

    def node_rank(self) -> int | None:
        """Which node this is: by its number, or by its name among all hosts."""
        found = self.number("node_rank", self.launcher.node_rank)
        own, hosts = self.environ.get(self.launcher.this_host, ""), self.hosts()
        if found is None and own in hosts:
            source = f"{self.launcher.this_host} in {self.launcher.all_hosts}"
            return self.noted("node_rank", hosts.index(own), source)
        return found

    def nodes(self) -> int | None:
        """How many nodes the launcher says there are. torchrun takes a range, too: how many of it
        will come nobody knows."""
        for name in self.launcher.nodes:
            least, colon, most = self.environ.get(name, "").strip().partition(":")
            if colon and least != most and self.launcher.to_come:
                return self.alone(f"{least}:{most}", self.source(name))
            if colon and least != most:
                raise PreflightError(
                    f"{name}={self.environ[name]!r:.40} is a range: "
                    "say with --nodes how many are to meet"
                )
            if re.fullmatch(r"\d{1,7}", least) and 0 < int(least) <= RANKS_LIMIT:
                return self.noted("nodes", int(least), self.source(name))
        if hosts := self.hosts():
            return self.noted("nodes", len(hosts), f"hosts in {self.launcher.all_hosts}")
        return None

    def alone(self, nodes: str, source: str) -> int:
        """This node by itself, though the torchrun that is to come is for several: which one it is,
        or where they meet, c10d and etcd find out themselves."""
        self.facts.pop("nodes", None)
        self.facts["job_nodes"] = Fact(nodes, source)
        return 1


@dataclass(frozen=True, slots=True)
class _Flags:
    nproc: int | None
    nproc_source: str
    nodes: int | None
    node_rank: int | None
    meet: str | None
    gpus: int
    gpus_source: str
    cpus: int


def discover(
    environ: Mapping[str, str],
    hostname: str,
    *,
    nproc: int | None = None,
    nproc_source: str = "--nproc",
    nodes: int | None = None,
    node_rank: int | None = None,
    meet: str | None = None,
    gpus: int = 0,
    gpus_source: str = "",
    cpus: int = 1,
    typed: bool = False,
) -> Topology:
    """The world as this agent sees it: its own node with the ranks that it owns, and how many
    ranks there are in all. `nproc`, `nodes`, `node_rank`, `meet` are the flags; `gpus` stands in
    for nproc where neither a flag nor a launcher says it, `cpus` where torchrun is to count them.
    `typed`: see detect(); --nodes says that others will type it, too.

    PreflightError for what contradicts itself so that no run makes sense.
    """
    launcher = detect(environ, typed and nodes is None)
    reading = _Reading(environ, launcher)
    flags = _Flags(nproc, nproc_source, nodes, node_rank, meet, gpus, gpus_source, cpus)
    reading.text("job", launcher.job)
    here = reading.local_size()
    local = reading.number("local_rank", launcher.local_rank)
    if local and here == 1:
        reading.facts.pop("local_rank")  # with this one nobody would speak for the node
    size = reading.number("size", launcher.size, least=1)
    rank = reading.number("rank", launcher.rank)
    if launcher.name == "Lightning":
        rank, here = _lightning_rank(reading, size or 1, flags)
    if rank is None or (nproc not in (None, 1) and _stands_for_node(reading, rank, here, flags)):
        return _of_a_node(reading, hostname, rank, size, here, flags)
    if size is None and launcher in SIZELESS:
        name = reading.facts["rank"].source.removeprefix("env ")
        raise PreflightError(
            f"{name}={rank} says that there is a process per rank, but nothing says how many: "
            f"set WORLD_SIZE, or unset {name} if another launch left it over"
        )
    # a rank beyond the size is env.identity's to judge
    size = size or rank + 1
    typed_size = nodes if node_rank is not None and nproc == 1 else None
    # where the names are those of env://, a wrong WORLD_SIZE is env.identity's to judge
    if launcher.rank != ENV.rank and "size" in reading.facts and typed_size not in (None, size):
        name = reading.facts["size"].source.removeprefix("env ")
        raise PreflightError(
            f"{nproc_source} 1 and {FLAG} {nodes} make {nodes} ranks, but {name}={size} says that "
            f"{launcher.name} has started {size}: leave --node-rank out, or unset {name} and its "
            "like if another launch left them over"
        )
    here = here or _ranks_beside(reading, rank, size)
    if local and here == 1:
        reading.facts.pop("local_rank", None)
    if nodes is not None:
        reading.noted("nodes", nodes, FLAG)
    reading.noted("nproc", 1, f"{reading.facts['rank'].source} (one process per rank)")
    if here != 1 or (reading.number("gpus", launcher.gpus) or 0) < 2:
        reading.facts.pop("gpus", None)
    return _with_meeting_point(reading, hostname, (rank,), size, meet, here or 1)


def _lightning_rank(reading: _Reading, size: int, flags: _Flags) -> tuple[int, int]:
    """The rank of a process of Lightning's, which has a node's number and one on that node, and
    how many ranks per node has."""
    node = reading.number("node_rank", reading.launcher.node_rank) or 0
    local = int(reading.facts["local_rank"].value) if "local_rank" in reading.facts else 0
    if flags.nodes is None and (node or local >= size):
        raise PreflightError(
            f"NODE_RANK={node} and LOCAL_RANK={local} of {size}: nothing says how many ranks a "
            "node has; give --nodes"
        )
    # of one node all that is known without a flag is that its ranks are the first ones
    here = size // flags.nodes if flags.nodes else local + 1
    source = "env NODE_RANK and LOCAL_RANK"
    return reading.noted("rank", node * here + local, source), here


def _ranks_beside(reading: _Reading, rank: int, size: int) -> int | None:
    """How many ranks this node has, where the launcher that gave this process its rank does not
    say so: what SLURM says of the step whose tasks they are; as many as Flux puts on each node; or
    all of them, where they meet at an address that leads no other node here, and nothing says that
    this process is on another one."""
    environ = reading.environ
    if reading.launcher is FLUX and (nodes := reading.number("nodes", FLUX.nodes, least=1)):
        return None if size % nodes else size // nodes
    if reading.launcher.rank != ENV.rank:
        return None
    tasks = _Reading(environ, SLURM)
    if detect(environ, of=(SLURM,)) is SLURM and tasks.number("size", SLURM.size) == size:
        return tasks.local_size()
    if not loopback(environ.get("MASTER_ADDR", "")) or "KUBERNETES_SERVICE_HOST" in environ:
        return None
    local = reading.facts.get("local_rank")
    return size if local is not None and local.value == str(rank) else None


def _stands_for_node(reading: _Reading, rank: int, here: int | None, flags: _Flags) -> bool:
    """Whether a process that has a rank, and --nproc, is the only one of its node: then what the
    launcher counts are nodes. Refused where it is not: --nproc ranks each would be too many.

    RANK and WORLD_SIZE mean two things: torchrun sets them for each process, PyTorchJob v1 for
    each pod. Without LOCAL_RANK and with an explicit --nproc it is the latter."""
    launcher, environ = reading.launcher, reading.environ
    if launcher.by_pod and here is None and "LOCAL_RANK" not in environ:
        return True
    nodes = reading.number("nodes", launcher.nodes, least=1)
    tasks = reading.facts.get("size")
    uneven = nodes is not None and tasks is not None and tasks.value != str(nodes)
    if here == 1 and launcher.local_size and not uneven:
        return True
    if tasks is not None and tasks.value == "1":  # a shell that was itself a job step of one task
        return True
    raise PreflightError(
        f"{flags.nproc_source} {flags.nproc} would start {flags.nproc} ranks in each process, but "
        f"{reading.facts['rank'].source.removeprefix('env ')}={rank} says that {launcher.name} "
        f"has already started one process per rank; leave {flags.nproc_source} out"
        + ", or unset PMIX_RANK if another launch left it over"
        * (launcher is PMIX)
    )


def _of_a_node(
    reading: _Reading,
    hostname: str,
    rank: int | None,
    size: int | None,
    here: int | None,
    flags: _Flags,
) -> Topology:
    """The world of an agent that owns the ranks of its node."""
    nproc = _ranks_here(reading, here, flags)
    nodes, node_rank = flags.nodes, flags.node_rank
    if nodes is not None:
        reading.noted("nodes", nodes, FLAG)
    else:
        nodes = reading.nodes() or _nodes_of(reading, rank, size, nproc)
    if node_rank is not None:
        reading.noted("node_rank", node_rank, "--node-rank")
    else:
        node_rank = reading.node_rank()
        if node_rank is None and rank is not None and nodes != 1:
            source = reading.facts["rank"].source
            node_rank = reading.noted("node_rank", rank, f"{source}, read as the node's")
    if reading.launcher.to_come and (nodes or 1) > 1 and flags.node_rank is None:
        nodes, node_rank = _among_torchruns(reading, flags, nodes or 1, node_rank)
    reading.facts.pop("rank", None)  # it was none
    nodes = nodes or _single_node(reading)
    if nodes == 1 and flags.nodes is None and "nodes" not in reading.facts:
        node_rank = 0  # whatever counts these processes, it is not the nodes of one job
        reading.facts.pop("node_rank", None)
    if node_rank is None and nodes > 1:
        names = (*reading.launcher.node_rank, *reading.launcher.rank)
        said = next((n for n in names if reading.environ.get(n)), "")
        why = (
            f"{said}={reading.environ[said]!r:.40} is no number"
            if said
            else ("nothing says which of them this is")
        )
        raise PreflightError(
            f"{nodes} nodes ({reading.facts['nodes'].source}), but {why}: give --node-rank, from 0"
        )
    node_rank = node_rank or 0
    if node_rank >= nodes:
        raise PreflightError(
            f"node rank {node_rank} ({reading.facts['node_rank'].source}) of {nodes} "
            f"node{'s'[: nodes != 1]}: ranks of nodes begin at 0"
        )
    size = nproc * nodes
    reading.noted("size", size, f"{nodes} nodes x {nproc}" if nodes > 1 else "nproc")
    ranks = tuple(range(node_rank * nproc, (node_rank + 1) * nproc))
    return _with_meeting_point(reading, hostname, ranks, size, flags.meet)


def _among_torchruns(
    reading: _Reading, flags: _Flags, nodes: int, node_rank: int | None
) -> tuple[int, int | None]:
    """How many nodes meet of a torchrun that is to come, and which of them this one is: the first
    for now, where torchrun itself will number them. This one alone where nothing says that."""
    static = meets_statically(reading.environ)
    place = flags.meet or (static and reading.environ.get("PET_MASTER_ADDR"))
    known = bool(place or flags.nodes or _torchruns_endpoint(reading))
    if known and numbers_nodes(reading.environ):
        reading.facts.pop("node_rank", None)
        reading.facts[UNNUMBERED] = reading.facts["nodes"]
        return nodes, 0
    if known and (node_rank is not None or flags.nodes):
        return nodes, node_rank
    count = reading.facts["nodes"]
    return reading.alone(count.value, count.source), 0


def _ranks_here(reading: _Reading, here: int | None, flags: _Flags) -> int:
    if flags.nproc is not None:
        return reading.noted("nproc", flags.nproc, flags.nproc_source)
    if here is not None:
        return here
    names = reading.launcher.local_size
    word, name = next(((reading.environ.get(n, "").strip(), n) for n in names), ("", ""))
    said = f"{reading.source(name)}={word}" if word in NODE_WORDS else ""
    if word == "cpu":
        return reading.noted("nproc", flags.cpus, f"{said}, CPUs of this node")
    if flags.gpus:
        source = f"{said}, {flags.gpus_source}" if said else flags.gpus_source
        return reading.noted("nproc", flags.gpus, source)
    default = "default: no launcher, no GPU"
    return reading.noted("nproc", 1, f"{said}{NONE_HERE}" if said else default)


def _nodes_of(reading: _Reading, rank: int | None, size: int | None, nproc: int) -> int | None:
    """How many nodes there are where the launcher counts processes: as many, where each stands for
    a node; else as many as it takes to hold them."""
    launcher, environ = reading.launcher, reading.environ
    if size is None:
        return None
    if rank is not None and launcher.by_pod and "LOCAL_WORLD_SIZE" not in environ:
        # a machine of its own that runs all ranks itself
        here = environ.get("MASTER_ADDR", "").strip() in HERE
        if here and size == nproc and "KUBERNETES_SERVICE_HOST" not in environ:
            return None
        source = "env WORLD_SIZE, read as nodes: LOCAL_WORLD_SIZE is not there"
        return reading.noted("nodes", size, source)
    said = reading.facts["size"].source
    if rank is not None:
        return reading.noted("nodes", size, f"{said}, one process a node")
    if size % nproc:
        raise PreflightError(
            f"{said.removeprefix('env ')}={size} is no multiple of {nproc} ranks a node: "
            "give --nproc, --nodes or both"
        )
    return reading.noted("nodes", size // nproc, f"{said}={size}, {nproc} on each")


def _single_node(reading: _Reading) -> int:
    """One node, where nothing says that there are others. In a batch script of several nodes that
    is worth a word: this run looks at one of them."""
    launcher, environ = reading.launcher, reading.environ
    addr = next((environ[name] for name in launcher.addr if environ.get(name)), "")
    if launcher.node_rank and addr.strip() not in HERE and "node_rank" in reading.facts:
        fact = reading.facts["node_rank"]
        raise PreflightError(
            f"{fact.source.removeprefix('env ')}={fact.value} and {launcher.addr[0]}, but nothing "
            "says how many nodes meet there: give --nodes"
        )
    if launcher is LOCAL and (_job_nodes(reading) or 1) < 2:
        reading.facts.pop("job_nodes", None)
    return 1


def _job_nodes(reading: _Reading) -> int | None:
    """How many nodes the job of SLURM has. Of a heterogeneous one each component has its own
    number; SLURM_JOB_NUM_NODES is of the first alone, or missing."""
    most = re.fullmatch(r"\d{1,3}", reading.environ.get("SLURM_HET_SIZE", "").strip())
    names = [
        f"SLURM_JOB_NUM_NODES_HET_GROUP_{number}"
        for number in range(min(int(most[0]) if most else 0, COMPONENTS_MOST))
    ]
    total = sum(reading.number("job_nodes", (name,)) or 0 for name in names)
    if found := reading.number("job_nodes", ("SLURM_JOB_NUM_NODES",)):
        total = max(total, found) if names else found
    source = names and f"env {names[0]} to _{len(names) - 1}"
    return reading.noted("job_nodes", total, source) if total and source else found


def _with_meeting_point(
    reading: _Reading,
    hostname: str,
    ranks: tuple[int, ...],
    size: int,
    meet: str | None,
    here: int = 0,
) -> Topology:
    """The topology with its meeting point. `here`: ranks that the launcher runs on this node."""
    launcher = reading.launcher
    if meet is not None:
        addr, port = split_address(meet)
        reading.facts["master_addr"] = reading.facts["master_port"] = Fact(meet, "--meet")
    else:
        addr = reading.text("master_addr", launcher.addr)
        port = reading.number("master_port", launcher.port) or 0
        raw_port = next((reading.environ[n] for n in launcher.port if reading.environ.get(n)), "")
        if port > 65535 or (raw_port and not port):
            reading.facts["master_port"] = Fact(raw_port[:80], NO_PORT)
            port = 0
    several = size > max(len(ranks), here)
    if several and meet is None and launcher.per_node and not meets_statically(reading.environ):
        addr, port = _torchruns_endpoint(reading) or (addr, port)
    # never SLURM_LAUNCH_NODE_IPADDR: where srun is typed, often the login node
    listed = next((name for name in launcher.hosts if reading.environ.get(name)), "")
    if not addr and listed and several:
        addr = first_host(reading.environ[listed])
        addr = addr.partition(":")[0]  # Azure's has a port, which is the scheduler's
        reading.facts["master_addr"] = Fact(addr, f"first of {listed}")
    if not addr and several and (hosts := reading.hosts()):
        addr = hosts[0]
        reading.facts["master_addr"] = Fact(addr, f"first of {launcher.all_hosts}")
    if not addr and several and launcher.per_node and meet is None:
        addr, port = _torchruns_endpoint(reading) or (addr, port)
    if not addr and several:
        raise PreflightError(
            f"{size} ranks on several nodes, but nothing says where they meet: "
            "set MASTER_ADDR and MASTER_PORT, or give --meet HOST:PORT"
        )
    if not addr:
        addr = "127.0.0.1"
        reading.facts["master_addr"] = Fact(addr, "default: one node")
    if not port and "master_port" not in reading.facts:
        port = DEFAULT_PORT if several else free_port()
        source = "torch's default" if several else "a free port"
        reading.facts["master_port"] = Fact(str(port), source)
    return Topology(
        launcher=launcher.name,
        job=reading.facts["job"].value if "job" in reading.facts else "",
        size=size,
        nodes=(Node(hostname, ranks, size=here),),
        master_addr=addr,
        master_port=port,
        facts=reading.facts,
    )


def never_meets(here: Topology) -> bool:
    """Whether a job with these numbers can't start, whoever comes: env.identity says so for sure.
    Those whose numbers are right wait as long as they always do."""
    port = here.facts.get("master_port")
    beyond = any(rank >= here.size for node in here.nodes for rank in node.ranks)
    return beyond or (port is not None and port.source == NO_PORT)


def nodes_by_flag(top: Topology) -> int:
    """For how many nodes this run was started, where somebody has typed it; else 0."""
    said = top.facts.get("nodes")
    typed = said is not None and said.source == FLAG and re.fullmatch(r"\d{1,7}", said.value)
    return int(said.value) if said is not None and typed else 0


def _torchruns_endpoint(reading: _Reading) -> tuple[str, int] | None:
    """Where the agents of a torchrun will meet that is yet to be started: it takes --rdzv-endpoint
    from PET_RDZV_ENDPOINT, as `host`, `host:port` or with an IPv6 address in brackets. With etcd a
    server of its own stands there. No port, 0, where nothing says that it is c10d: torchrun may be
    given --rdzv-backend as well, and env.identity speaks of it."""
    backend = reading.environ.get("PET_RDZV_BACKEND", "").strip()
    text = reading.environ.get(ENDPOINT, "").strip()[:256]
    found = re.fullmatch(r"(\[[0-9a-fA-F:.%\w]+\]|[^:\s\[\]]+)(?::(\d{1,5}))?", text)
    if not found or backend not in ("", "static", "c10d"):
        return None
    addr = found[1].strip("[]")
    said = reading.facts["master_addr"] = Fact(text, reading.source(ENDPOINT))
    if found[2] is None and backend != "c10d":
        reading.facts.pop("master_port", None)  # torchrun takes none of these beside an endpoint
        return addr, 0
    port = int(found[2] or C10D_PORT)
    if not 0 < port < 65536:
        del reading.facts["master_addr"]
        return None
    reading.facts["master_port"] = said
    return addr, port


def torchruns_nodes(here: Topology) -> int:
    """How many nodes the torchrun has that is to come, whose agents add up the ranks of all of
    them; 0 where there is none such, or it is for one node."""
    nodes = here.facts.get("nodes")
    to_come = here.launcher == TORCHRUN_TO_COME.name and nodes is not None
    return int(nodes.value) if to_come and nodes is not None and int(nodes.value) > 1 else 0


def torchruns_number(here: Topology) -> int:
    """Which of these this one is, by its own ranks; -1 where only the meeting says that."""
    if UNNUMBERED in here.facts or not torchruns_nodes(here):
        return -1
    own = here.nodes[0].ranks
    return own[0] // len(own)


def with_numbers(here: Topology) -> Topology:
    """The topology of an agent that has met the others, with the ranks that it was given there."""
    if not torchruns_nodes(here):
        return here
    facts = {name: fact for name, fact in here.facts.items() if name != UNNUMBERED}
    facts["size"] = Fact(str(here.size), "what the nodes that met add up to")
    return replace(here, facts=facts)


def split_address(text: str) -> tuple[str, int]:
    """HOST:PORT or [V6]:PORT; PreflightError when it is neither."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^:\s]+)):(\d{1,5})", text.strip())
    if not found or not 0 < int(found[3]) < 65536:
        raise PreflightError(f"--meet wants HOST:PORT, got {text!r:.80}")
    return found[1] or found[2], int(found[3])


def free_port() -> int:
    """A port of the loopback that nobody holds at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
