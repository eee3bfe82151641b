"""How a script starts and ends its process group, beside what its launcher does: addresses and
numbers that hold for one machine only, devices that contradict the launcher's, no end."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from preflight.domains.script.placement import places
from preflight.domains.script.rank_values import by_rank, truth
from preflight.domains.script.rules import (
    INIT,
    Mentions,
    calls_of,
    constant,
    is_main,
    keyword,
    open_ended,
    under_a_test,
)
from preflight.domains.script.source import Hit, Module, NameScope, Program, last_part, name_set
from preflight.frozen import dataclass

LOOPBACK = ("localhost", "127.", "[::1]", "::1", "0.0.0.0")
TRAINERS = name_set(
    "lightning.Trainer lightning.pytorch.Trainer pytorch_lightning.Trainer "
    "lightning.pytorch.trainer.Trainer pytorch_lightning.trainer.Trainer"
)
SPAWNS = name_set(
    "torch.multiprocessing.spawn torch.multiprocessing.start_processes "
    "torch.multiprocessing.spawn.spawn"
)
OWN_PROCESSES = name_set("spawn start_processes Process Popen fork ProcessPoolExecutor Pool")
"""Who starts ranks itself knows how many there are."""
PARALLEL = name_set(
    "distributed is_distributed ddp is_ddp use_ddp multi_gpu multiprocessing_distributed"
)
"""Settings that a job of several ranks has on."""
ENDS = ("destroy_process_group", "destroy", "cleanup", "shutdown", "teardown", "dist_cleanup")
IDENTITY = ("WORLD_SIZE", "RANK", "LOCAL_RANK")
VISIBLE = "CUDA_VISIBLE_DEVICES"
ASKED = name_set("RANK LOCAL_RANK is_torchelastic_launched TORCHELASTIC_RUN_ID")
AVAILABLE = "is_nccl_available"
DEFAULT_PORT = "29500"
"""Of torchrun's static rendezvous."""
AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
TORCHRUN = ("torch.distributed.run", "torch.distributed.launch", "torchrun")


@dataclass(frozen=True, slots=True)
class Started:
    """What the command line says of a launcher of torch's: ranks per node and nodes; 0 where it
    says nothing, or where there is no such launcher. `port`: of its store, empty where it takes a
    free one or the command line leaves it open."""

    ranks: int = 0
    nodes: int = 0
    port: str = ""

    @property
    def world(self) -> int:
        return self.ranks * self.nodes


def launch_of(argv: Sequence[str]) -> Started:
    """Reads `torchrun --nproc-per-node=4 --nnodes 2 train.py`, and torch.distributed.run's."""
    start = next((i for i, word in enumerate(argv) if _is_torchrun(argv, i)), None)
    if start is None:
        return Started()
    told = {"nproc-per-node": "1", "nnodes": "1", "master-port": "", "rdzv-endpoint": ""}
    free = False
    words = list(argv[start + 1 :])
    for number, word in enumerate(words):
        if word.endswith(".py"):
            break
        name, given, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        free = free or name in ("standalone", "rdzv-backend")
        if word.startswith("--") and name in told:
            told[name] = value if given else (words[number + 1 : number + 2] or [""])[0]
    ranks, nodes, port, endpoint = told.values()
    count, most = (int(v) if v.isdecimal() and len(v) < 6 else 0 for v in (ranks, nodes))
    if endpoint:
        port = endpoint.rpartition(":")[2]
    return Started(count, most, port or ("" if free else DEFAULT_PORT))


def _is_torchrun(argv: Sequence[str], number: int) -> bool:
    word = argv[number]
    module = number > 0 and argv[number - 1] == "-m" and word in TORCHRUN[:2]
    return module or word.rpartition("/")[2] == TORCHRUN[2]


# --- fixed in the text ---


def hardcoded(program: Program, seen: Mentions, launch: Started) -> Iterator[Hit]:
    """An address, a number of ranks or a rank that is written into the script."""
    if seen.framework:
        return
    own = bool(seen.names & OWN_PROCESSES)
    meets = not own and _meets_at_torchruns(program)
    for module in program.modules:
        for scope, call in calls_of(module, INIT):
            if open_ended(call) or _may_be_left_out(module, call):
                continue
            yield from _address(module, scope, call, launch)
            yield from _size(module, scope, call, launch, own)
        for scope, node, name, value in _variables(module):
            if not _may_be_left_out(module, node):
                yield from _variable(module, scope, node, (name, value), launch, own)
                if name == "MASTER_PORT" and meets and not _parameter(scope):
                    yield from _port(module, scope, node, value, launch)


def _may_be_left_out(module: Module, node: ast.AST) -> bool:
    """Whether a statement may not be reached when a launcher has started the ranks: what stands
    under `if args.distributed:` or `if LOCAL_RANK != -1:` is."""
    if not under_a_test(module, [node]):
        return False
    for scope in module.scopes:
        for place in places(scope):
            if place.node is not node:
                continue
            if place.tries or place.handler or any(isinstance(n, ast.While) for n in place.loops):
                return True
            return not all(_is_taken(test, body, scope, module) for test, body in place.branches)
    return True


def _is_taken(test: ast.If, body: bool, scope: NameScope, module: Module) -> bool:
    """Whether all ranks of a job take this way."""
    if is_main(test):
        return True
    if body and last_part(ast.unparse(test.test)).lower() in PARALLEL:
        return True
    return {truth(value) for value in by_rank(test.test, scope, module)} == {body}


def _address(module: Module, scope: NameScope, call: ast.Call, launch: Started) -> Iterator[Hit]:
    given = keyword(call, "init_method") or (call.args[1] if len(call.args) > 1 else None)
    url = constant(given, scope)
    if not isinstance(url, str) or not url.startswith("tcp://"):
        return
    host = url.removeprefix("tcp://").rpartition(":")[0]
    if host and (not host.startswith(LOOPBACK) or launch.nodes > 1):
        yield from module.hit("rendezvous-hardcoded", call, scope, f"init_method is {url[:40]}")


def _size(
    module: Module, scope: NameScope, call: ast.Call, launch: Started, own: bool
) -> Iterator[Hit]:
    size = constant(keyword(call, "world_size"), scope)
    if not isinstance(size, int) or isinstance(size, bool) or own or size < 1:
        return
    if size != launch.world and max(size, launch.world) > 1:
        said = f", the launcher starts {launch.world}" if launch.world else ""
        yield from module.hit("rendezvous-hardcoded", call, scope, f"world_size is {size}{said}")


def _variables(module: Module) -> Iterator[tuple[NameScope, ast.AST, str, str]]:
    """`os.environ["…"] = "…"`, setdefault(), update() and putenv(), with texts."""
    for scope in module.scopes:
        for node in scope.nodes:
            match node:
                case ast.Assign(
                    targets=[ast.Subscript(value=holder, slice=ast.Constant(value=str(name)))],
                    value=ast.Constant(value=str(text)),
                ) if last_part(module.full(holder)) == "environ":
                    yield scope, node, name, text
                case ast.Call(
                    func=ast.Attribute(attr="setdefault", value=holder),
                    args=[ast.Constant(value=str(name)), ast.Constant(value=str(text))],
                ) if last_part(module.full(holder)) == "environ" and name == VISIBLE:
                    yield scope, node, name, text
                case ast.Call(func=ast.Attribute(attr="update", value=holder)) if (
                    last_part(module.full(holder)) == "environ"
                ):
                    yield from ((scope, node, name, text) for name, text in _updated(node))


def _updated(call: ast.Call) -> Iterator[tuple[str, str]]:
    """What `environ.update({"A": "1"}, B="2")` sets, as far as it is text."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = [
        (ast.Constant(k.arg), k.value) for k in call.keywords if k.arg
    ]
    for given in call.args:
        if isinstance(given, ast.Dict):
            pairs += zip(given.keys, given.values, strict=True)
    for key, value in pairs:
        match key, value:
            case ast.Constant(value=str(name)), ast.Constant(value=str(text)):
                yield name, text


def _variable(
    module: Module,
    scope: NameScope,
    node: ast.AST,
    setting: tuple[str, str],
    launch: Started,
    own: bool,
) -> Iterator[Hit]:
    name, value = setting
    other = f"{name} is {value[:40]}"
    if name == "MASTER_ADDR" and not _parameter(scope):
        here = value.startswith(LOOPBACK)
        if value and (not here or (launch.nodes > 1 and not own)):
            yield from module.hit("rendezvous-hardcoded", node, scope, other)
    elif name in IDENTITY and launch.world > 1 and not own:
        other += f", the launcher starts {launch.world} ranks"
        if (name, value) != ("WORLD_SIZE", str(launch.world)):
            yield from module.hit("rendezvous-hardcoded", node, scope, other)


def _meets_at_torchruns(program: Program) -> bool:
    """Whether the ranks look for torchrun's store where the variables say it is."""
    inits = [call for module in program.modules for _, call in calls_of(module, INIT)]
    spoken = any(
        isinstance(node, ast.Constant) and node.value == AGENT_STORE
        for module in program.modules
        for scope in module.scopes
        for node in scope.nodes
    )
    here = [c for c in inits if not (open_ended(c) or len(c.args) > 1)]
    plain = all(not (keyword(c, "init_method") or keyword(c, "store")) for c in here)
    return bool(inits) and plain and len(here) == len(inits) and not spoken


def _port(
    module: Module, scope: NameScope, node: ast.AST, value: str, launch: Started
) -> Iterator[Hit]:
    """Torchrun holds the store itself: at another port no rank listens, and all wait in vain."""
    if launch.ranks and value.isdecimal() and value != launch.port:
        where = f"torchrun holds the store at {launch.port or 'a port of its own'}"
        other = f"MASTER_PORT is {value[:40]}, {where}"
        yield from module.hit("rendezvous-hardcoded", node, scope, other)


def _parameter(scope: NameScope) -> bool:
    """In a function of a class, which may be another launcher's."""
    return scope.parent is not None and isinstance(scope.parent.node, ast.ClassDef)


# --- against the launcher ---


def contradicts_launcher(program: Program, seen: Mentions, launch: Started) -> Iterator[Hit]:
    """Devices or processes that the script asks for, beside as many that torchrun has started."""
    if launch.ranks < 1:
        return
    for module in program.modules:
        for scope, call in calls_of(module, *TRAINERS):
            devices = _count(keyword(call, "devices"), scope)
            nodes = _count(keyword(call, "num_nodes"), scope) if _has(call, "num_nodes") else 1
            known = devices and nodes and launch.world and not open_ended(call)
            if known and devices * nodes != launch.world:
                other = f"{devices} x {nodes} devices, torchrun starts {launch.world} ranks"
                yield from module.hit("launcher-contradicted", call, scope, other)
        for scope, call in calls_of(module, *SPAWNS):
            count = keyword(call, "nprocs") or (call.args[2] if len(call.args) > 2 else None)
            several = launch.ranks > 1 and count is not None and constant(count, scope) != 1
            if several and not (under_a_test(module, [call]) or _asks(program)):
                other = f"each of {launch.ranks} ranks of torchrun starts its own"
                yield from module.hit("launcher-contradicted", call, scope, other)
        for scope, node, name, value in _variables(module):
            gpus = len([one for one in value.split(",") if one.strip()])
            if name == VISIBLE and 0 < gpus < launch.ranks and not under_a_test(module, [node]):
                other = f"{gpus} GPUs for {launch.ranks} ranks"
                yield from module.hit("launcher-contradicted", node, scope, other)


def _asks(program: Program) -> bool:
    """Whether a script looks whether a launcher has started it: more than to read its rank."""
    return any(
        (isinstance(node, ast.Constant) and node.value in ASKED and id(node) not in read)
        or (isinstance(node, ast.Attribute) and node.attr in ASKED)
        for module in program.modules
        for read in [_read_only(module) if _is_run(module) else set()]
        for scope in module.scopes
        for node in scope.nodes
    )


def _read_only(module: Module) -> set[int]:
    """The names in `os.environ["RANK"]`, which would end a script that no launcher has started."""
    return {
        id(node.slice)
        for scope in module.scopes
        for node in scope.nodes
        if isinstance(node, ast.Subscript) and last_part(module.full(node.value)) == "environ"
    }


def _has(call: ast.Call, name: str) -> bool:
    return any(k.arg == name for k in call.keywords)


def _count(node: ast.expr | None, scope: NameScope) -> int:
    """A literal number of devices, or a list of them; 0 where it is not known."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return len(node.elts)
    value = constant(node, scope)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# --- the end ---


def destroy_missing(program: Program, seen: Mentions, gpu: bool) -> Iterator[Hit]:
    """A process group of NCCL that the script makes and nobody ends: only of the script itself,
    whose end is that of the process."""
    if seen.framework or any(word in name.lower() for name in seen.names for word in ENDS):
        return
    if "_exit" in seen.names or not program.modules or not _is_run(program.modules[0]):
        return
    starts = [(m, s, c) for m in program.modules for s, c in calls_of(m, INIT)]
    if any(open_ended(call) for *_, call in starts):
        return
    named = [_backend(program, scope, call, gpu) for _, scope, call in starts]
    named = ["nccl" if "cuda:nccl" in name else name for name in named]
    if named.count("nccl") == 1 and set(named) <= {"nccl", "gloo"}:
        module, scope, call = starts[named.index("nccl")]
        yield from module.hit("destroy-missing", call, scope)


def _backend(program: Program, scope: NameScope, call: ast.Call, gpu: bool) -> str:
    """The backend by name, by a choice that falls on it where there is a GPU, or by a setting that
    has no other value in these files; empty where it is not known."""
    given = call.args[0] if call.args else keyword(call, "backend")
    if isinstance(given, ast.Name):
        given = scope.value(given.id)
    match given:
        case ast.IfExp(body=ast.Constant(value="nccl"), test=ast.Call() as asked):
            chosen = last_part(ast.unparse(asked.func)) in ("is_available", AVAILABLE)
            return "nccl" if gpu and chosen else ""
        case ast.Attribute(value=ast.Name(), attr=name):
            return _setting(program, name)
        case ast.Call(func=ast.Attribute(attr="get" | "getenv"), args=[ast.Constant(), default]):
            given = default  # os.environ.get("BACKEND", "nccl")
    named = constant(given, scope)
    return named if isinstance(named, str) else ""


def _setting(program: Program, name: str) -> str:
    """The text that `args.name` is: the default of the option, or what is assigned to it."""
    values: set[object] = set()
    for module in program.modules:
        for scope in module.scopes:
            for node in scope.nodes:
                match node:
                    case ast.Assign(targets=[ast.Attribute(attr=attr)]) if attr == name:
                        values.add(constant(node.value, scope))
                    case ast.Call(func=ast.Attribute(attr="add_argument")) if any(
                        isinstance(a, ast.Constant)
                        and str(a.value).lstrip("-").replace("-", "_") == name
                        for a in node.args
                    ):
                        values.add(constant(keyword(node, "default"), scope))
    known = values.pop() if len(values) == 1 else None
    return known if isinstance(known, str) else ""


def _is_run(module: Module) -> bool:
    """Whether the file does something when it is run: more than to define and import."""
    quiet = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
    imports = (ast.Import, ast.ImportFrom)
    doc = (
        n
        for n in module.tree.body
        if not isinstance(n, quiet)
        and not (isinstance(n, ast.Try) and all(isinstance(one, imports) for one in n.body))
    )
    return any(not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)) for n in doc)
