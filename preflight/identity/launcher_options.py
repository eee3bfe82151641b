"""What the command line and the environment of a launcher say of its nodes: torchrun and those that
call it (`accelerate launch`). Pure; both are the user's, and anything may stand there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from preflight.frozen import dataclass
from preflight.identity.launchers import OPTIONS, leaves_port_open, meets_statically, standalone

MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
PROGRAMS = ("torchrun",)
FILES = ("torch/distributed/run.py", "torch/distributed/launch.py", "commands/launch.py")
SWITCHES = frozenset(
    {
        *("standalone", "module", "no-python", "run-path", "virtual-local-rank", "use-env"),
        *("multi-gpu", "cpu", "use-deepspeed", "use-fsdp", "use-megatron-lm", "quiet", "debug"),
        *("m", "q"),
    }
)
"""Options without a value."""
ALIASES = {
    "num-machines": "nnodes",
    "machine-rank": "node-rank",
    "main-process-ip": "master-addr",
    "main-process-port": "master-port",
}
"""How accelerate calls them."""
AS_VARIABLES = (
    *("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port", "local-addr"),
    *("rdzv-endpoint", "rdzv-backend", "rdzv-id", "rdzv-conf", "standalone"),
)
"""Options of torchrun that say who is in the job and where it meets."""
ELSEWHERE = ("srun", "mpirun", "mpiexec", "flux", "jsrun", "aprun", "ssh", "docker", "podman")
"""What starts a command on other machines, or as another one."""
WORDS, VALUE = 200, 4096
DEFAULT_PORTS = {"static": "29500", "c10d": "29400"}
DEFAULTS = {"nnodes": "1", "nproc-per-node": "1"}
STATIC = {"node-rank": "0"}
STATIC_ENDPOINT = {"master-addr": "127.0.0.1", "master-port": DEFAULT_PORTS["static"]}
"""What torchrun takes without these options; all four are of torch/distributed/run.py."""


@dataclass(frozen=True, slots=True)
class LauncherOptions:
    """least    nodes that must come (MIN of --nnodes MIN:MAX; static waits for MAX)
    rank     its --node-rank, which only a static rendezvous heeds
    alone    --standalone: its rendezvous is where no other node finds it, at a port of the kernel's
    words    the command as it was typed, without its interpreter
    """

    least: int
    backend: str
    host: str
    port: int
    run_id: str
    rank: int
    words: tuple[str, ...]
    alone: bool = False

    @property
    def place(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def started_as(self, rank: int | None) -> tuple[str, ...]:
        """The same command for another node: with that --node-rank, where it has one."""
        if rank is None:
            return self.words
        words, found = list(self.words), False
        for i, word in enumerate(words[1:], 1):
            name, equals, _ = word.partition("=")
            if name.replace("_", "-") in ("--node-rank", "--machine-rank"):
                found = True
                if equals:
                    words[i] = f"{name}={rank}"
                elif i + 1 < len(words):
                    words[i + 1] = str(rank)
                break
        if not found:
            words[1:1] = ["--node-rank", str(rank)]
        return tuple(words)


def launcher_options(argv: Sequence[str], environ: Mapping[str, str]) -> LauncherOptions | None:
    """None for what is no such launcher."""
    words = _without_interpreter(argv[:WORDS])
    if words is None:
        return None
    given = dict(_options(words[1:]))

    def option(name: str, default: str = "") -> str:
        return given.get(name) or environ.get(_variable(name), default)

    least, _, most = option("nnodes", DEFAULTS["nnodes"]).partition(":")
    alone = "standalone" in given or standalone(environ)
    backend = "c10d" if alone else option("rdzv-backend", "static")
    endpoint = "localhost:0" if alone else option("rdzv-endpoint")
    if not endpoint and backend == "static":
        endpoint = ":".join(option(name, value) for name, value in STATIC_ENDPOINT.items())
    host, port = _endpoint(endpoint or "localhost", DEFAULT_PORTS.get(backend, "29400"))
    nodes = most if backend == "static" and most else least
    return LauncherOptions(
        least=_number(nodes, 1),
        backend=backend[:20],
        host=host[:255],
        port=_number(port, 0),
        run_id="" if alone else option("rdzv-id", "none")[:255],
        rank=_number(option("node-rank", STATIC["node-rank"]), 0),
        words=words,
        alone=alone,
    )


def as_variables(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What a torchrun that is yet to be started goes by, in the variables that stand for its
    options (PET_NNODES …), and in OPTIONS how each of these was typed; the defaults of a static
    rendezvous, too, which MASTER_ADDR and MASTER_PORT do not change, but for the port of one node
    (leaves_port_open). Empty for another command (`accelerate launch` has its numbers from a file,
    too)."""
    words = _without_interpreter(argv[:WORDS])
    if words is None or words[0].startswith("accelerate"):
        return {}
    if os.path.basename(argv[0]) in ELSEWHERE:
        return {}
    typed: dict[str, str] = {}
    given: dict[str, str] = {}
    for word, name, value in _options_as_typed(words[1:]):
        if name in AS_VARIABLES:
            variable = _variable(name)
            typed[variable] = word
            given[variable] = "1" if name in SWITCHES else value[:VALUE]
    known = {name: value for name, value in environ.items() if name.startswith("PET_")} | given
    default = DEFAULTS
    if meets_statically(known):
        default = default | STATIC
        if not known.get("PET_RDZV_ENDPOINT"):
            default = default | STATIC_ENDPOINT
    for name, value in default.items():
        variable = _variable(name)
        if name == "master-port" and leaves_port_open(known | given):
            continue
        # torchrun stops at a number that is empty, as that of a shell variable which is not set
        if variable not in known or (name in STATIC_ENDPOINT and not known[variable]):
            given[variable] = value
            typed[variable] = f"--{name}"
    return given | {OPTIONS: " ".join(f"{name}={word}" for name, word in typed.items())}


def _variable(option: str) -> str:
    return f"PET_{option.upper().replace('-', '_')}"


def _without_interpreter(argv: Sequence[str]) -> tuple[str, ...] | None:
    """`torchrun …`, `python -m torch.distributed.run …`; None of another program."""
    for i, word in enumerate(argv[:8]):
        name = os.path.basename(word)
        if name in PROGRAMS:
            return (name, *argv[i + 1 :])
        if name == "accelerate" and argv[i + 1 : i + 2] == ["launch"]:
            return ("accelerate launch", *argv[i + 2 :])
        if i and argv[i - 1] == "-m" and word in MODULES:
            return (f"python -m {word}", *argv[i + 1 :])
        if i and word.endswith(FILES):
            return (f"python {word}", *argv[i + 1 :])
        if i and not word.startswith("-"):
            return None  # another script, which has such a word among its arguments
    return None


def _options(words: Sequence[str]) -> list[tuple[str, str]]:
    """Name and value of the options before the script."""
    return [(name, value) for _, name, value in _options_as_typed(words)]


def _options_as_typed(words: Sequence[str]) -> list[tuple[str, str, str]]:
    """The same, with the option as it was typed first."""
    found = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            break
        word, equals, value = word.partition("=")
        name = word.lstrip("-").replace("_", "-")
        if name not in SWITCHES and not equals:
            value = next(rest, "")
        found.append((word, ALIASES.get(name, name), value))
    return found


def _endpoint(text: str, port: str) -> tuple[str, str]:
    """As parse_rendezvous_endpoint takes it."""
    text = text.strip()
    head, colon, tail = text.rpartition(":")
    if colon and tail.isdecimal() and not head.endswith(":"):
        text, port = head, tail
    return text.strip("[]"), port


def _number(text: str, default: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 else default
