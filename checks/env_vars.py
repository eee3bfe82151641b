"""Are the NCCL_*, TORCH_* and GLOO_* settings valid, and parsed as intended?

Looks at     NCCL_*, TORCH_*, TORCHELASTIC_*, GLOO_*, OMP_NUM_THREADS, CUDA_LAUNCH_BLOCKING,
             CUDA_DEVICE_ORDER, PYTORCH_ALLOC_CONF and the flags of PET_* in the environment;
             /etc/nccl.conf, ~/.nccl.conf, NCCL_CONF_FILE; whether there are GPUs, active InfiniBand
             or RoCE ports, and the plugin of the network that NCCL_NET names; with NCCL_ALGO the
             version of NCCL; UCX_*, FI_* and proxies are only recorded
Fails if     torch, NCCL or CUDA stops, hangs or can't be imported with a value; GLOO_SOCKET_IFNAME
             is written in NCCL's syntax; there are GPUs, and NCCL_GRAPH_FILE can't be read or
             speaks of more GPUs, it or NCCL_TOPO_FILE is no XML that NCCL knows, NCCL_NET=IB has no
             RDMA port, no plugin is found for another NCCL_NET, NCCL_COMM_BLOCKING=0 lets NCCL
             return before torch expects it, or rank 0's node lacks the address of NCCL_COMM_ID
Warns if     a name has no effect; a value is silently misread or out of range; a name is
             deprecated; a line of nccl.conf does not set what it seems to; a watchdog or a fast
             path is disabled on hardware that has it; torch's heartbeat is below 30 s; on several
             nodes, no plugin is found for NCCL_NET_PLUGIN; the folder of NCCL_DEBUG_FILE, or a file
             of LD_PRELOAD, is not there; NCCL_TOPO_FILE can't be read; NCCL_ALGO leaves a
             collective without an algorithm, unless NCCL is known to be older than 2.24; NCCL_ALGO
             or NCCL_PROTO is unknown, but there is one rank; ACCELERATE_USE_CPU is on where there
             are GPUs
Undecided    never: the environment is always there
Not covered  whether interfaces exist (net.interface) and HCAs match (net.rdma); whether nodes agree
             (agree.env); whether a plugin works; proxies: c10d, NCCL, Gloo and torchrun's etcd
             client ignore them
Seen as      "Invalid value for environment variable", "The value of TORCH_DISTRIBUTED_DEBUG must",
             "Unable to find address for", "unsupported gloo device", "Failed to initialize any NET
             plugin", "Could not open XML graph file", "Attempt to use communicator before the
             previous operation returned ncclSuccess", "Unrecognized key … in CUDA allocator
             config", "invalid device ordinal", "no algorithm/protocol available for function", a
             hang in init_process_group, a setting without any effect
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from preflight.check import Check, Context, Scope, Stage
from preflight.domains.gpu.nccl_library import absent_preloads, expected_version
from preflight.domains.gpu.nccl_plugins import NONE, no_plugin_because
from preflight.domains.net.nccl_root import comm_id_problem
from preflight.domains.net.rdma import rdma_ports
from preflight.domains.params import c10d_bool, strtoll, switched_on
from preflight.domains.settings.algorithms import (
    collectives_without_algorithm,
    falls_back,
    with_ring,
)
from preflight.domains.settings.collect import (
    Settings,
    collect_settings,
    fast_paths_off,
    of_plugin,
    watchdogs_off,
)
from preflight.domains.settings.nccl_conf import Variable, nccl_setting
from preflight.domains.settings.parsers import ValueEffect, find_bad_value
from preflight.domains.settings.variables import (
    RENAMED,
    known_variables,
    unknown_name,
    unread_names,
)
from preflight.expect import Expect
from preflight.host import Host
from preflight.humanize import parties, plural
from preflight.model import (
    Blame,
    Command,
    Confidence,
    FindingType,
    Found,
    Kind,
    Measured,
    Status,
    Subject,
    Topology,
    World,
)
from preflight.redact import HIDDEN
from preflight.sanitize import clip, quoted, shell_word

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=2.0,
    blame=Blame.JOB,
    explains=("world.nccl", "world.bandwidth"),
)

SHOWN = 8
"""Findings of one kind for one node; the rest are counted in the last of them."""

WARN = Status.WARN
LOGS = ("WARN", "INFO", "TRACE")
"""Values of NCCL_DEBUG with which NCCL opens NCCL_DEBUG_FILE."""
SOCKETS_MOST = 64
"""MAX_SOCKETS of NCCL: threads times sockets of each."""
ACCELERATE_TRUE = ("y", "yes", "t", "true", "on", "1")
"""What its str_to_bool() takes for True (accelerate/utils/environment.py)."""
MONITORING = "TORCH_NCCL_ENABLE_MONITORING"
HEARTBEAT_LEAST = 30
"""Seconds; torch's own value is 480. The watchdog beats whenever it has looked at all collectives,
and waits for CUDA where another thread holds its lock."""
# src/graph/xml.cc: from how many GPUs on, what NCCL does then; one GPU has no topology
AFTER_MISSING_FILE = {
    "NCCL_TOPO_FILE": (
        2,
        "NCCL goes on with what the machine says of itself: in a virtual machine a wrong topology, "
        "and slow",
        Status.WARN,
    ),
    "NCCL_GRAPH_FILE": (
        1,
        "'Could not open XML graph file' and ncclSystemError on every rank",
        Status.FAIL,
    ),
}
JOB = ("rdzv.*", "world.*")
CUDA_STARTS = ("host.software", "gpu.compute", "gpu.p2p")
"""What fails first where torch refuses a setting of its allocator; some values end its import."""

FINDINGS = {
    "name-unknown": FindingType(
        headline="{name} is not a variable of NCCL, torch or Gloo",
        who="job author",
        cause="a typo, or a variable of another release or fork",
        means="{name} has no effect: neither NCCL, torch nor Gloo reads it",
        now="{now!r}",
        text="correct the name or remove it; NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=ENV shows what "
        "NCCL has read",
        status=WARN,
        explains=(),
    ),
    "name-unread": FindingType(
        headline="{name} has no effect: neither NCCL nor torch reads it",
        who="job author",
        cause="advice found on the web that never worked",
        means="{name} has no effect unless the script itself reads it",
        text="use {wants!s}",
        status=WARN,
        explains=(),
    ),
    "name-deprecated": FindingType(
        headline="{name} is deprecated; its new name is {wants}",
        who="job author",
        cause="a script written for torch before 2.2",
        means='"Environment variable {name} is deprecated; use {wants} instead"; a later torch '
        "won't read it",
        text="set {wants} in place of {name}",
        status=WARN,
        explains=(),
    ),
    "value-misread": FindingType(
        headline="{name} is misread: {means}",
        who="job author",
        cause="a word, a unit or quotes where a number is expected, or a word in lower case",
        means="{name} silently has another effect: {means}",
        text="set {name} to {wants!s}, or remove it",
        status=WARN,
    ),
    "value-range": FindingType(
        headline="{name} is out of range: {means}",
        who="job author",
        cause="a wrong unit (seconds instead of an exponent, bytes instead of KiB), or a typo",
        means="{name} is clamped, ignored or used as it is, depending on the release",
        text="set {name} to {wants!s}, or remove it",
        status=WARN,
    ),
    "value-refused": FindingType(
        headline="{name} has an invalid value: {means}",
        who="job author",
        cause="a word that is not understood, such as on or off",
        means='"Invalid value for environment variable: {name}" or an error like it, at start',
        now="unset {name}",
        text="set {name} to {wants!s}",
        status=(Status.FAIL, Status.WARN),
        explains=JOB,
    ),
    "algorithm-unavailable": FindingType(
        headline="{name} leaves NCCL no algorithm for {missing}: NCCL {since} and later fail",
        who="job author",
        cause="an algorithm forced to tune all-reduce, or advice for NCCL before 2.24, which fell "
        "back to Ring",
        means="'no algorithm/protocol available for function {first}' and ncclInvalidUsage: DDP "
        "starts with Broadcast, FSDP needs AllGather and ReduceScatter",
        now="{now!r}",
        text="remove it, or allow Ring for the rest: NCCL_ALGO={wants}",
        status=WARN,
        explains=("world.*",),
    ),
    "value-hangs": FindingType(
        headline="{name} has a value that makes the job hang: {means}",
        who="job author",
        cause="an empty value, or a size with a word instead of a number",
        means="init_process_group never returns, whatever its timeout, and prints nothing",
        now="unset {name}",
        text="set {name} to {wants!s}",
        explains=JOB,
    ),
    "import-fails": FindingType(
        headline="{name} has a value with which import torch fails: {means}",
        who="job author",
        cause="a level that does not exist, such as 1, DEBUG or an empty value",
        means='"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL." when torch is '
        "imported",
        now="unset {name}",
        text="set {name} to {wants!s}",
        explains=("host.software", *JOB),
    ),
    "interface-syntax": FindingType(
        headline="{name} has the wrong syntax: {means}",
        who="job author",
        cause="NCCL's ^ and = used for Gloo or repeated in a list, spaces after commas, quotes",
        means='"Unable to find address for: …" from Gloo, "no socket interface found" from NCCL, '
        "or a different interface than intended",
        now="unset {name}",
        text="write it as {wants!s}",
        status=(Status.WARN, Status.FAIL),
        explains=("net.interface", *JOB),
    ),
    "debug-detail": FindingType(
        headline="TORCH_DISTRIBUTED_DEBUG=DETAIL slows every collective down",
        who="job author",
        cause="left over from debugging",
        means="every collective is checked over Gloo first, which is slow; torch 2.13 dies with "
        "SIGSEGV (139) when DDP is built on Gloo",
        now="export TORCH_DISTRIBUTED_DEBUG=INFO",
        text="remove it when debugging is over",
        status=WARN,
        explains=("world.ddp",),
    ),
    "watchdog-off": FindingType(
        headline="{name} disables torch's hang detection",
        who="job author",
        cause="left over from debugging, or from a false alarm of the watchdog",
        means="a collective that hangs is never aborted: the job burns its whole time limit",
        now="unset {name}",
        text="raise the timeout (init_process_group, TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) instead",
        status=WARN,
        explains=(),
    ),
    "heartbeat-short": FindingType(
        headline="{name} is so short that torch may end healthy ranks: {seen}",
        who="job author",
        cause="a value meant for the timeout of collectives, or one for tests",
        means="'ProcessGroupNCCL's watchdog got stuck for {seconds} seconds without making "
        "progress', and SIGABRT: at the start of CUDA, in a large allocation or a checkpoint",
        now="unset {name}",
        text="remove it: torch's own value is 480; init_process_group(timeout=…) is what "
        "collectives go by",
        status=WARN,
        explains=(),
    ),
    "fast-path-off": FindingType(
        headline="{name} disables a fast path",
        who="job author",
        cause="left over from debugging, or copied from a machine without it",
        means="no error, but collectives 2 to 50 times slower; NCCL_DEBUG=INFO shows NET/Socket or "
        "SHM where NET/IB or P2P could be",
        now="unset {name}",
        text="keep it only where this path is known to be broken on this hardware",
        status=WARN,
    ),
    "launch-blocking": FindingType(
        headline="CUDA_LAUNCH_BLOCKING makes every kernel launch wait",
        who="job author",
        cause="left over from debugging a CUDA error",
        means="every kernel launch blocks: slow, and NCCL can deadlock with several GPUs per "
        "process",
        now="unset CUDA_LAUNCH_BLOCKING",
        text="set it for a debugging run only",
        status=WARN,
        explains=(),
    ),
    "conf-syntax": FindingType(
        headline="an nccl.conf line is ignored: {seen}",
        cause="a line written for a shell",
        means="NCCL reads lines as NAME=value literally, so this one sets nothing that NCCL reads",
        text="write it as {wants}, without export, spaces or quotes",
        status=WARN,
        explains=(),
    ),
    "file-missing": FindingType(
        headline="{name} names a file that NCCL can't read: {seen}",
        who="job author",
        cause="a path from another image or cluster",
        means="{then}",
        now="{now!r}",
        text="set it to a file that every node has; without {name} NCCL detects this itself",
        status=(Status.WARN, Status.FAIL),
    ),
    "graph-differs": FindingType(
        headline="NCCL_GRAPH_FILE is for {graph} GPUs, {at} has {gpus}",
        who="whoever made the image",
        cause="an image for another type of machine, with a fixed graph in /etc/nccl.conf",
        means="'XML Import Channel : dev {first} not found' and ncclSystemError on every rank",
        now="{now!r}",
        text="remove NCCL_GRAPH_FILE: NCCL finds the paths itself; or set it to a graph of this "
        "type of machine",
        commands=(Command("grep -n GRAPH_FILE /etc/nccl.conf ~/.nccl.conf", "the node"),),
    ),
    "accelerate-on-cpu": FindingType(
        headline="ACCELERATE_USE_CPU has Accelerate train on the CPU, {at} has {gpus}",
        who="job author",
        cause="an accelerate config with use_cpu, or a variable left over from a test",
        means="no error at all: the GPUs stay idle, with Accelerate and transformers' Trainer",
        now="unset ACCELERATE_USE_CPU",
        text="unset it, or set use_cpu: false in the accelerate config",
        status=WARN,
        explains=(),
    ),
    "file-malformed": FindingType(
        headline="{name} names a file that NCCL can't parse: {seen}",
        who="job author",
        cause="a download that failed and left an error page, or an XML declaration that an editor "
        "has added",
        means="'XML Parse error : expecting '<'' or 'XML Parse : expected >', and "
        "ncclInternalError on every rank",
        now="{now!r}",
        text="replace the file; NCCL reads neither <?xml …?> nor a tab before its first element",
    ),
    "network-absent": FindingType(
        headline="NCCL_NET asks for a network that {at} does not have: {seen}",
        who="job author",
        cause="settings of another cluster, or a container that lacks the network's devices or "
        "plugin",
        means="'Error: network … not found' or 'Failed to initialize any NET plugin' on every "
        "rank, even on a single node",
        now="{now!r}",
        text="let NCCL choose, or give the container what the network needs: /dev/infiniband or "
        "its plugin",
        status=Status.FAIL,
    ),
    "comm-nonblocking": FindingType(
        headline="NCCL_COMM_BLOCKING=0 makes NCCL return early, and torch does not wait",
        who="job author",
        cause="a setting for programs that poll NCCL themselves",
        means="'Attempt to use communicator before the previous operation returned ncclSuccess', "
        "ncclInvalidArgument, on every rank",
        now="{now!r}",
        text="remove it; for non-blocking communicators set TORCH_NCCL_USE_COMM_NONBLOCKING=1",
        explains=JOB,
    ),
    "plugin-absent": FindingType(
        headline="NCCL finds no plugin for NCCL_NET_PLUGIN on {at}: {seen}",
        who="job author",
        cause="settings of another cluster, a container without the plugin, or a path that is not "
        "in LD_LIBRARY_PATH",
        means="NCCL goes on with InfiniBand or TCP in place of the plugin's network: slow, or cut "
        "off from nodes that have it; it says so with NCCL_DEBUG=INFO only",
        now="{now!r}",
        text="install the plugin, or add its folder to LD_LIBRARY_PATH on every node",
        status=WARN,
    ),
    "comm-id-elsewhere": FindingType(
        headline="NCCL can't start at NCCL_COMM_ID on {at}: {seen}",
        who="job author",
        cause="a value of another job, or of a program without torch; torch brings NCCL's ranks "
        "together itself",
        means="rank 0 can't listen there ('Call to bind failed', 'no usable listening interface' "
        "or 'Invalid NCCL_COMM_ID'), and the others wait for an address that is nobody's",
        now="{now!r}",
        text="remove it: torch needs no NCCL_COMM_ID",
        explains=JOB,
    ),
    "log-folder-missing": FindingType(
        headline="NCCL can't write its log: the folder of NCCL_DEBUG_FILE is not on {at}",
        who="job author",
        cause="a path from another machine, or a folder that nobody has made",
        means="NCCL writes no such file and does not say so: its log is among the ranks' output",
        now="mkdir -p {folder}",
        text="create the folder on every node before the ranks start",
        status=WARN,
        explains=(),
    ),
    "preload-missing": FindingType(
        headline="LD_PRELOAD names a file that is not on {at}: {seen}",
        who="job author",
        cause="a path from another image or node",
        means="'ERROR: ld.so: object … from LD_PRELOAD cannot be preloaded: ignored', and programs "
        "start without it: another NCCL or allocator than is meant",
        now="unset LD_PRELOAD",
        text="set it to files that every node has",
        status=WARN,
        explains=(),
    ),
    "conf-missing": FindingType(
        headline="NCCL_CONF_FILE is not read: {seen}",
        who="job author",
        cause="a path from another machine, or one that only a shell would expand",
        means="NCCL silently continues without the file",
        now="unset NCCL_CONF_FILE",
        text="set it to the full path of a file that every node has",
        status=WARN,
        explains=(),
    ),
}


def observe(host: Host, ctx: Context) -> Settings:
    settings = replace(
        collect_settings(host, ctx.mark, rdma_ports(host)),
        comm_id=comm_id_problem(host),
        preloads=absent_preloads(host),
    )
    if nccl_setting(host, "NCCL_ALGO"):
        ctx.mark("version of NCCL")
        settings = replace(settings, nccl=expected_version(host))
    plugin = nccl_setting(host, "NCCL_NET_PLUGIN")
    if not of_plugin(nccl_setting(host, "NCCL_NET")) and plugin.lower() in ("", NONE):
        return settings
    ctx.mark("network plugins of NCCL")
    missing = no_plugin_because(host, plugin)
    return replace(settings, no_plugin=missing)


def judge(world: World[Settings], expect: Expect) -> Iterator[Found]:
    for here, settings in world.each():
        yield from _bounded(_judge(here, settings, world.topology))


def _bounded(findings: Iterator[Found]) -> Iterator[Found]:
    by_code: dict[str, list[Found]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    for group in by_code.values():
        yield from group[: SHOWN - 1]
        if last := group[SHOWN - 1 : SHOWN]:
            more = len(group) - SHOWN
            saw = last[0].saw + (f" · and {more} more like it" if more else "")
            yield last[0].with_(saw=saw)


def _judge(here: Subject, settings: Settings, topology: Topology) -> Iterator[Found]:
    counts: dict[str, Variable] = {}
    for variable in settings.variables:
        if variable.file and (wants := _conf_flaw(variable)):
            saw = f"{variable.place} sets no variable: {quoted(variable.name)}"
            if variable.assigned:
                saw = f"{variable.place} sets a variable called {quoted(variable.name)}"
            yield _finding(here, "conf-syntax", variable, saw, wants)
        else:
            counts.setdefault(variable.name, variable)
    for variable in counts.values():
        # NCCL reads its files long after torch has read its own variables
        if not variable.file or variable.name.startswith("NCCL_"):
            yield from _judge_name(here, variable, settings)
            yield from _judge_value(here, variable, settings, topology.size)
    named = counts.get("NCCL_CONF_FILE")
    if settings.conf_problem and named:
        saw = f"{_assignment(named)}: {settings.conf_problem}"
        yield _finding(here, "conf-missing", named, saw, "a file that can be read")
    for name, why in settings.file_problems.items():
        of_file = counts.get(name)
        least, then, status = AFTER_MISSING_FILE[name]
        if of_file and settings.gpus >= least:
            saw = f"{_assignment(of_file)}: {why}"
            fields = {"then": then}
            found = _finding(here, "file-missing", of_file, saw, "a file that can be read", fields)
            yield found.with_(status=status)
    yield from _judge_places(here, counts, settings, topology.several_nodes)
    for name, begins in settings.file_flaws.items():
        of_file = counts.get(name)
        if of_file and settings.gpus:
            saw = f"{_assignment(of_file)}: it begins with {begins}"
            sure = Confidence.LIKELY
            goal = "a file that begins with an element"
            yield _finding(here, "file-malformed", of_file, saw, goal, confidence=sure)
    graph = counts.get("NCCL_GRAPH_FILE")
    if graph and 0 < settings.gpus < settings.graph_gpus:
        saw = f"{_assignment(graph)} has channels over GPUs 0-{settings.graph_gpus - 1}"
        counted = {"graph": str(settings.graph_gpus), "gpus": str(settings.gpus)}
        fields = counted | {"first": str(settings.gpus)}
        goal, sure = "not set, or a graph of these GPUs", Confidence.LIKELY
        yield _finding(here, "graph-differs", graph, saw, goal, fields, sure)
    yield from _judge_algorithm(here, counts, settings, topology.size)
    yield from _judge_switches(here, counts, settings, topology.several_nodes)


def _judge_algorithm(
    here: Subject, counts: Mapping[str, Variable], settings: Settings, ranks: int
) -> Iterator[Found]:
    """Collectives that have none of the algorithms which NCCL_ALGO allows. With one rank NCCL asks
    for none; whether the job calls such a collective nobody knows before."""
    algo = counts.get("NCCL_ALGO")
    if not algo or ranks == 1 or not settings.gpus or settings.amd or falls_back(settings.nccl):
        return
    if algo.value == HIDDEN or find_bad_value(known_variables()[algo.name], algo.value):
        return
    proto = counts.get("NCCL_PROTO")
    set_to = proto.value if proto and proto.value != HIDDEN else ""
    of = algo.value, set_to, settings.nccl
    if not (missing := collectives_without_algorithm(*of)):
        return
    listed = parties(missing, len(missing))
    saw = f"{_assignment(algo)}: no algorithm for {listed}"
    alone = collectives_without_algorithm(algo.value)
    saw += f" · {_assignment(proto)}" if proto and not alone else ""
    saw += f" · NCCL {settings.nccl}" if settings.nccl else ""
    fields = {
        "missing": listed,
        "first": missing[0],
        "since": "2.24" if alone else "2.31",
        "wants": with_ring(*of),
    }
    goal = "not set, or Ring among the algorithms of every collective"
    found = _finding(here, "algorithm-unavailable", algo, saw, goal, fields, Confidence.LIKELY)
    older = () if settings.nccl else ("NCCL before 2.24, which falls back to Ring",)
    yield found.with_(alternatives=older)


def _judge_places(
    here: Subject, counts: Mapping[str, Variable], settings: Settings, several: bool
) -> Iterator[Found]:
    """Files, folders and addresses that are named, but are not here."""
    sure = Confidence.LIKELY
    log, debug = counts.get("NCCL_DEBUG_FILE"), counts.get("NCCL_DEBUG")
    if log and settings.log_folder and settings.gpus and debug and debug.value.upper() in LOGS:
        saw, goal = f"{_assignment(log)}: {settings.log_folder}", "a folder that is there"
        fields = {"folder": settings.log_folder}
        found = _finding(here, "log-folder-missing", log, saw, goal, fields, sure)
        yield found.with_(alternatives=("the job makes the folder first",))
    root = counts.get("NCCL_COMM_ID")
    if root and settings.comm_id and settings.gpus and 0 in here.ranks:
        saw = f"{_assignment(root)}: {settings.comm_id}"
        goal = "not set, or an address of rank 0's node"
        yield _finding(here, "comm-id-elsewhere", root, saw, goal, confidence=sure)
    plugin, net = counts.get("NCCL_NET_PLUGIN"), counts.get("NCCL_NET")
    ours = plugin and plugin.value.lower() not in ("", NONE) and settings.gpus
    if plugin and ours and settings.no_plugin and several and not (net and of_plugin(net.value)):
        saw = f"{_assignment(plugin)} · {settings.no_plugin}"
        goal = "a plugin that NCCL can load, or not set"
        yield _finding(here, "plugin-absent", plugin, saw, goal, confidence=sure)
    if settings.preloads:
        saw = ", ".join(settings.preloads[:SHOWN])
        preload = Variable("LD_PRELOAD", saw)
        yield _finding(here, "preload-missing", preload, saw, "files that are there")


def _conf_flaw(variable: Variable) -> str:
    """What the line should be when NCCL doesn't take it for what it seems."""
    name = _bare(variable)
    return f"{name}=…" if name != variable.name or not variable.assigned else ""


def _bare(variable: Variable) -> str:
    """The name without what a line of a file has around it."""
    name = variable.name.strip().removeprefix("export ").strip()
    return name if variable.assigned else name.partition(" ")[0]


def _judge_name(here: Subject, variable: Variable, settings: Settings) -> Iterator[Found]:
    name = variable.name
    if name in unread_names():
        saw = f"{_assignment(variable)}: neither NCCL nor torch reads it"
        yield _finding(here, "name-unread", variable, saw, unread_names()[name])
    elif name in RENAMED:
        saw = f"{_assignment(variable)}: an old name"
        yield _finding(here, "name-deprecated", variable, saw, RENAMED[name])
    # AMD's RCCL reads names of its own
    elif (near := unknown_name(name)) is not None and not (settings.amd and not near):
        saw = f"{_assignment(variable)}: no such variable"
        value = "" if variable.value == HIDDEN else shell_word(variable.value)
        now = f"export {near}={value}   in place of {quoted(name)}" if near and value else ""
        sure = Confidence.CERTAIN if near else Confidence.POSSIBLE
        yield _finding(here, "name-unknown", variable, saw, near, {"now": now}, confidence=sure)


CODES = {
    ValueEffect.MISREAD: "value-misread",
    ValueEffect.RANGE: "value-range",
    ValueEffect.SYNTAX: "interface-syntax",
    ValueEffect.REFUSED: "value-refused",
    ValueEffect.HANGS: "value-hangs",
    ValueEffect.IMPORT: "import-fails",
}


def _judge_value(
    here: Subject, variable: Variable, settings: Settings, ranks: int
) -> Iterator[Found]:
    entry = known_variables().get(variable.name)
    found = find_bad_value(entry, variable.value) if entry and variable.value != HIDDEN else None
    if not entry or not found:
        return
    nccl = entry.name.startswith("NCCL_") or entry.kind.startswith("nccl-")
    if settings.amd and nccl and found.effect is not ValueEffect.MISREAD:
        return  # RCCL's ranges and algorithms are its own
    saw, means = f"{_assignment(variable)}: {found.means}", {"means": found.means}
    finding = _finding(here, CODES[found.effect], variable, saw, found.wants, means)
    if entry.kind == "gloo-interfaces" and len(variable.value) > 1:
        finding = finding.with_(status=Status.FAIL)
    if found.effect is ValueEffect.REFUSED:
        # only NCCL's part of torch and CUDA's read it, and without a GPU nobody starts those
        of_cuda = entry.kind in ("allocator", "device-order")
        if (nccl or of_cuda) and not (settings.gpus or settings.amd):
            finding = finding.with_(status=WARN)
        # NCCL chooses among them for several ranks only (src/graph/tuning.cc)
        if entry.kind in ("algorithms", "protocols") and ranks == 1:
            finding = finding.with_(status=WARN)
        if of_cuda:
            finding = finding.with_(explains=(*CUDA_STARTS, *JOB))
        if nccl or entry.name.startswith("PET_") or entry.kind == "transport":
            finding = finding.with_(confidence=Confidence.LIKELY)
    yield finding


def _judge_switches(
    here: Subject, counts: Mapping[str, Variable], settings: Settings, several: bool
) -> Iterator[Found]:
    """Debugging aids that are left on, and paths and watchdogs that are off."""
    debug = counts.get("TORCH_DISTRIBUTED_DEBUG")
    if debug and not debug.file and debug.value.upper() == "DETAIL":
        yield _finding(here, "debug-detail", debug, _assignment(debug), "OFF or INFO")
    blocking = counts.get("CUDA_LAUNCH_BLOCKING")
    if blocking and settings.gpus and switched_on(blocking.value):
        saw = f"{_assignment(blocking)} · {plural(settings.gpus, 'GPU')}"
        yield _finding(here, "launch-blocking", blocking, saw, "not set")
    cpu = counts.get("ACCELERATE_USE_CPU")
    if cpu and not cpu.file and settings.gpus and cpu.value.lower() in ACCELERATE_TRUE:
        gpus = plural(settings.gpus, "GPU")
        saw, sure = f"{_assignment(cpu)} · {gpus}", Confidence.LIKELY
        found = _finding(here, "accelerate-on-cpu", cpu, saw, "not set", {"gpus": gpus}, sure)
        yield found.with_(
            alternatives=("the job does not use Accelerate, or is to train on the CPU",)
        )
    if settings.gpus or settings.amd:
        for variable in watchdogs_off(counts):
            yield _finding(here, "watchdog-off", variable, _assignment(variable), "not set")
        yield from _judge_heartbeat(here, counts)
    least, most = counts.get("NCCL_MIN_NCHANNELS"), counts.get("NCCL_MAX_NCHANNELS")
    # src/graph/connect.cc: max(least, min(channels, most)); -2 counts as not set
    if least and most and not settings.amd and HIDDEN not in (least.value, most.value):
        low, high = strtoll(least.value)[0], strtoll(most.value)[0]
        if 0 < high < low:
            means = f"NCCL_MIN_NCHANNELS={low} is above it, and NCCL takes the larger of them"
            saw = f"{_assignment(most)} · {_assignment(least)}"
            wants = f"{low} or more, or NCCL_MIN_NCHANNELS to {high} or less"
            yield _finding(here, "value-range", most, saw, wants, {"means": means})
    threads, each = counts.get("NCCL_SOCKET_NTHREADS"), counts.get("NCCL_NSOCKS_PERTHREAD")
    # src/transport/net_socket.cc
    if threads and each and not settings.amd:
        product = strtoll(threads.value)[0] * strtoll(each.value)[0]
        if product > SOCKETS_MOST and strtoll(threads.value)[0] > 0:
            left = SOCKETS_MOST // strtoll(threads.value)[0]
            means = f"with NCCL_SOCKET_NTHREADS={threads.value} NCCL takes {left} at most"
            saw = f"{_assignment(each)} · {_assignment(threads)}: {product} sockets"
            yield _finding(here, "value-range", each, saw, f"{left} or less", {"means": means})
    # torch hands NCCL no configuration of its own, and then waits for nothing
    polled = counts.get("NCCL_COMM_BLOCKING")
    waits = counts.get("TORCH_NCCL_USE_COMM_NONBLOCKING")
    ready = waits and not waits.file and waits.value == "1"
    if polled and polled.value and settings.gpus and strtoll(polled.value)[0] == 0 and not ready:
        saw = f"{_assignment(polled)} · TORCH_NCCL_USE_COMM_NONBLOCKING is not 1"
        sure = Confidence.LIKELY
        yield _finding(here, "comm-nonblocking", polled, saw, "not set", confidence=sure)
    net = counts.get("NCCL_NET")
    if net and settings.gpus and net.value.upper() == "IB" and not settings.rdma:
        saw = f"{_assignment(net)} · no active RDMA port here"
        yield _finding(here, "network-absent", net, saw, "not set, or a network that is there")
    elif net and settings.gpus and not net.value and not net.file:
        saw = f"{_assignment(net)} is set, to nothing: no network has the empty name"
        yield _finding(here, "network-absent", net, saw, "not set, or a network that is there")
    elif net and settings.gpus and of_plugin(net.value) and settings.no_plugin:
        plugin = counts.get("NCCL_NET_PLUGIN")
        saw = f"{_assignment(net)} · {settings.no_plugin}"
        saw += f" · {_assignment(plugin)}" if plugin else ""
        goal, sure = "not set, or a network whose plugin is there", Confidence.LIKELY
        yield _finding(here, "network-absent", net, saw, goal, confidence=sure)
    for variable, hardware in fast_paths_off(counts, settings, several):
        saw = f"{_assignment(variable)} · {hardware}"
        likely = Confidence.LIKELY
        yield _finding(here, "fast-path-off", variable, saw, "not set", confidence=likely)


def _judge_heartbeat(here: Subject, counts: Mapping[str, Variable]) -> Iterator[Found]:
    beat, monitor = counts.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"), counts.get(MONITORING)
    if not beat or beat.file or (monitor and c10d_bool(monitor.value) is False):
        return
    seconds = strtoll(beat.value)[0]
    if 0 < seconds < HEARTBEAT_LEAST:
        found = _finding(
            here,
            "heartbeat-short",
            beat,
            _assignment(beat),
            f"at least {HEARTBEAT_LEAST} s, or not set",
            {"seconds": str(seconds)},
            Confidence.POSSIBLE,
        )
        yield found.with_(alternatives=("the watchdog of this job never waits that long",))


def _assignment(variable: Variable) -> str:
    """`NCCL_IB_DISABLE='true' (environment)`."""
    return f"{clip(variable.name, 80)}={quoted(variable.value)} ({variable.place})"


def _finding(
    here: Subject,
    code: str,
    variable: Variable,
    saw: str,
    expected: str,
    fields: Mapping[str, str] | None = None,
    confidence: Confidence = Confidence.CERTAIN,
) -> Found:
    name = _bare(variable)
    # what stands in a file is not in the environment
    now = "" if variable.file else f"unset {shell_word(name)}"
    return Found(
        code,
        (Subject(Kind.NODE, here.node, name, here.ranks),),
        saw=saw,
        expected=expected,
        confidence=confidence,
        fields={"name": name, "wants": expected, "now": now, **(fields or {})},
    )


def measured(world: World[Settings]) -> Measured:
    if not world.seen:
        return Measured()
    settings = next(iter(world.seen.values()))
    names = [v.name for v in settings.variables]
    ours = [n for n in names if not n.startswith(("UCX_", "FI_"))]
    interface = next((v for v in settings.variables if v.name == "NCCL_SOCKET_IFNAME"), None)
    text = f"{plural(len(ours), 'setting')} of NCCL, torch and Gloo" if ours else "all defaults"
    if interface:
        text += f" · NCCL_SOCKET_IFNAME={clip(interface.value.replace(chr(10), ' '), 40)}"
    files = sorted({v.file for v in settings.variables if v.file})
    text += "".join(f" · {path}" for path in files)
    values = {v.name: v.value for v in settings.variables}
    return Measured(text, {"variables": values, "files": files, "proxies": settings.proxies})
