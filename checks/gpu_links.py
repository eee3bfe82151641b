"""Do the GPUs of a node have the same NVLink and P2P as their peers, and can NCCL use it?

Looks at     NVLink lanes of every GPU (state, version, speed, remote end), P2P status and topology
             level of every pair by NVML; PCI bridges with their ACS settings, IOMMU groups, whether
             this is a virtual machine; NvLinkDisable and RegistryDwords of the driver;
             NCCL_P2P_DISABLE, NCCL_P2P_LEVEL, NCCL_IGNORE_DISABLED_P2P; of AMD's GPUs the XGMI of
             every pair, as KFD has it in /sys
Fails if     GPUs with NVLink between them are not allowed to copy to each other, with which NCCL
             gives up; a GPU has no lane to its switch, where most of its model have; the driver
             hangs when its links are queried
Warns if     a GPU has fewer lanes than most of its model here and on the other nodes, a pair fewer
             than on the other nodes; a lane is slower than most lanes of its model in this node; no
             GPU has a lane that is up, where their board joins them by NVLink, or another node has
             lanes up and the driver here was loaded with NvLinkDisable or RMNvLinkEnable=0; a pair
             has no P2P where most such pairs have; a translating IOMMU or ACS obstructs copies
             over PCIe on bare metal; a GeForce claims P2P with a driver known to fail at it, or
             NCCL is set to use P2P that the driver does not offer; a pair of AMD GPUs has no XGMI
             where most of its model have it, here or between the same GPUs of the other nodes
Undecided    nvidia-ml-py is not installed; NVML could not start or does not permit queries of links
Not covered  whether data arrives, and how fast; lanes where no other node has GPUs of the model, or
             there are at most two; lanes that are all slow alike, and speeds that the driver does
             not tell; ACS settings without root; P2P, IOMMU and ACS of virtual machines, where the
             host decides; GPUs partitioned into instances; AMD's P2P over PCIe, and slow XGMI
             (tested with copied file trees only)
Seen as      "P2P is disabled between NVLINK connected GPUs", "peer access is not supported between
             these two devices", the first all-reduce hangs while the GPUs show 100 % utilisation,
             it works with NCCL_P2P_DISABLE=1, half of the usual bandwidth
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from preflight.check import Check, Context, Scope, Stage
from preflight.domains import pci
from preflight.domains.gpu import link_outliers, nvlink, nvml, vendor
from preflight.domains.gpu.link_outliers import by_nvlink
from preflight.domains.gpu.nvlink import GpuTopology, LinkedGpu, Pair
from preflight.domains.params import strtoll
from preflight.domains.settings.nccl_conf import nccl_setting
from preflight.expect import Expect
from preflight.frozen import dataclass
from preflight.host import Host
from preflight.humanize import duration, parties, plural
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Cell,
    Command,
    Confidence,
    FindingType,
    Found,
    Grid,
    Kind,
    Measured,
    NotApplicable,
    Status,
    Subject,
    World,
)
from preflight.sanitize import clip

CHECK = Check(
    scope=Scope.NODE,
    stage=Stage.MACHINE,
    budget=30.0,
    quick_budget=6.0,
    needs=("gpu.visible",),
    drains=True,
    blame=Blame.NODE,
    explains=("gpu.p2p", "world.nccl", "world.bandwidth"),
)

# the rest of the budget is for one call that takes long, and for the way back
ASKING = 0.6
TEXT = 64
SHOWN = 6
NODES_DRAWN = 64

GEFORCE = re.compile("GeForce")
# GeForce of the Ada generation have no P2P. Drivers of the branches 525 and 535 could tell NCCL
# otherwise, and it hung: NVIDIA/nccl-tests#117, NVIDIA/nccl#1127. The first patched modules that
# bring it are of branch 550 (tinygrad/open-gpu-kernel-modules): there the claim is meant.
ADA = re.compile(r"GeForce RTX 40[0-9]{2}")
MEANT = 550
# fixed in 535.183.06, issue 4547730 of its release notes: GPUs of an H100 system that NVML says
# have no P2P, though the fabric manager runs
FORGETFUL = re.compile(r"535\.")

FAIL, WARN = Status.FAIL, Status.WARN
NOTHING = "no NVIDIA GPU or driver here"
OFF = "NVLink is off on purpose: NVreg_NvLinkDisable=1"
GUEST = "the host of this virtual machine keeps NVLink from it"
AMD = vendor.AMD

FINDINGS = {
    "links-hang": FindingType(
        headline="{seen}",
        cause="a damaged NVLink bridge, a faulty GPU or a driver that is stuck",
        means="NCCL makes the same query when it starts and hangs there; so does nvidia-smi topo "
        "-m",
        text="drain the node and reboot it; check for NVLink errors (Xid 74) and check the bridges",
        commands=(
            Command("dmesg -T | grep -E 'NVRM|Xid'; nvidia-smi nvlink -s", "the node, as root"),
        ),
    ),
    "nvlink-down": FindingType(
        headline="NVLink of {at} is down: {seen}",
        cause="a lane that failed link training or was disabled after errors, a badly seated "
        "bridge or board, a fabric manager that did not finish",
        means="no error: NCCL uses the lanes that are left, or PCIe, and every all-reduce waits "
        "for this GPU",
        text="exclude this node or accept its speed; reset the GPUs or reboot; if the lane stays "
        "down, reseat or replace the card or bridge",
        commands=(
            Command("nvidia-smi nvlink -s; nvidia-smi nvlink -e; dmesg | grep 'Xid.*74'", "{node}"),
        ),
        status=(Status.WARN, Status.FAIL),
    ),
    "nvlink-disabled": FindingType(
        headline="NVLink of {at} is switched off in the NVIDIA driver: {seen}",
        who="cluster administrator",
        cause="NVreg_NvLinkDisable=1 or RMNvLinkEnable=0 in NVreg_RegistryDwords, in "
        "/etc/modprobe.d or on the kernel command line, once set to debug, or for other GPUs",
        means="no error: NCCL copies over PCIe, and collectives are several times slower",
        text="remove the option, rebuild the initramfs, reboot",
        commands=(
            Command(
                "grep -rsiE 'NvLink(Disable|Enable|Control)' /etc/modprobe.d /usr/lib/modprobe.d "
                "/proc/cmdline",
                "{node}",
            ),
        ),
        status=Status.WARN,
    ),
    "nvlink-slow": FindingType(
        headline="NVLink of {at} is slow: {seen}",
        cause="a lane that fell back to a lower speed in link training, a badly seated bridge or "
        "board, another firmware or setting of this GPU",
        means="no error: copies over this GPU's NVLink are slower, and every all-reduce waits for "
        "it",
        text="reset the GPUs or reboot; if the lane stays slow, compare the GPUs' VBIOS versions, "
        "then reseat or replace the card or bridge",
        commands=(
            Command(
                "nvidia-smi nvlink -s; nvidia-smi nvlink -e; dmesg | grep 'Xid.*74'; nvidia-smi "
                "--query-gpu=index,vbios_version --format=csv",
                "{node}",
            ),
        ),
        status=Status.WARN,
    ),
    "nvlink-differs": FindingType(
        headline="{at} has fewer NVLinks than the other nodes: {seen}",
        cause="an NVLink bridge that is missing, broken or in different slots",
        means="this pair copies over PCIe, the others over NVLink: every all-reduce waits for "
        "this node",
        text="install the bridge as on the other nodes, or use nodes of one kind",
        commands=(Command("nvidia-smi nvlink -s; nvidia-smi topo -m", "{node}"),),
        status=Status.WARN,
    ),
    "nvlink-p2p-off": FindingType(
        headline="{seen}",
        cause="an NVLink fault, a fabric manager that is not running, or P2P that was disabled",
        means="NCCL stops: 'P2P is disabled between NVLINK connected GPUs'",
        now="export NCCL_IGNORE_DISABLED_P2P=1   slow, without P2P",
        text="exclude this node; check the fabric manager and NVLink errors, reset the GPUs or "
        "reboot",
        commands=(
            Command("nvidia-smi topo -p2p r; systemctl status nvidia-fabricmanager", "{node}"),
        ),
        status=(Status.FAIL, Status.WARN),
    ),
    "p2p-differs": FindingType(
        headline="{at} lacks P2P that other GPUs have: {seen}",
        cause="a different BIOS or driver setting, or a different slot",
        means="this pair copies through host memory, and all ranks wait for it",
        text="compare BIOS, /etc/modprobe.d and slots with a node on which P2P works",
        commands=(Command("nvidia-smi topo -p2p r; nvidia-smi topo -m", "{node}"),),
        status=Status.WARN,
    ),
    "p2p-misreported": FindingType(
        headline="the driver claims P2P that these GPUs do not have: {seen}",
        cause="a driver that reports P2P for cards without it",
        means="the first all-reduce hangs at 100 % utilisation, or its sum is wrong",
        now="export NCCL_P2P_DISABLE=1",
        text="install a driver of branch 550 or later",
        status=Status.WARN,
        was=("p2p-claimed",),
    ),
    "p2p-unsupported": FindingType(
        headline="NCCL_P2P_LEVEL asks for P2P that {at} does not have",
        who="job author",
        cause="an NCCL_P2P_LEVEL meant for another machine",
        means="nothing: NCCL asks the driver too and copies through host memory",
        now="unset NCCL_P2P_LEVEL",
        text="remove it from the job; GeForce cards without NVLink have no P2P",
        status=Status.WARN,
        blame=Blame.JOB,
        was=("p2p-asked",),
    ),
    "p2p-iommu": FindingType(
        headline="{seen}",
        cause="an IOMMU that translates the GPUs' PCIe traffic",
        means="the first all-reduce may hang at 100 % utilisation, or its sum be wrong: CUDA does "
        "not support this on bare metal",
        now="export NCCL_P2P_DISABLE=1",
        text="boot with iommu=pt, or disable the IOMMU; disable ACS on the bridges above the GPUs",
        commands=(
            Command("cat /proc/cmdline /sys/kernel/iommu_groups/*/type | sort -u", "{node}"),
        ),
        status=Status.WARN,
    ),
    "p2p-acs": FindingType(
        headline="P2P copies on {at} go through the CPU: {seen}",
        cause="ACS, which routes all PCIe traffic between GPUs through the CPU",
        means="copies over PCIe are slow, or the first all-reduce hangs at 100 % utilisation",
        now="export NCCL_P2P_DISABLE=1   if it hangs",
        text="disable ACS in the BIOS, or on these bridges after each boot",
        commands=(Command("setpci -v -s {bridge} ECAP_ACS+6.w=0000", "{node}, as root", "nobody"),),
        status=Status.WARN,
    ),
    "xgmi-missing": FindingType(
        headline="{at}: {seen}",
        cause="XGMI that failed link training, a GPU that has not joined its hive, a missing or "
        "badly seated bridge",
        means="no error: RCCL copies over PCIe for this pair, and every all-reduce waits for it",
        text="exclude this node or accept its speed; reboot; if that does not help, have the "
        "board or the bridge examined",
        commands=(Command("amd-smi topology; dmesg | grep -iE 'xgmi|hive'", "{node}, as root"),),
        status=Status.WARN,
    ),
}


@dataclass(frozen=True, slots=True)
class GpuLinks:
    """How the GPUs of a node are joined, and what the job wants of it.

    virtual   whether this is a virtual machine; None: nothing tells. amd: an AMD processor
    mask      CUDA_VISIBLE_DEVICES; disable, level, ignore: NCCL_P2P_DISABLE, NCCL_P2P_LEVEL and
              NCCL_IGNORE_DISABLED_P2P, empty when not set
    disabled  the NVIDIA driver was loaded with NVLink off; None: nothing tells. option: by which
              setting, as /proc shows it
    make      the vendor; of AMD's GPUs a lane is a GPU that XGMI leads to, and there are no pairs
    """

    joined: GpuTopology
    virtual: bool | None = None
    amd: bool = False
    mask: str | None = None
    disable: str = ""
    level: str = ""
    ignore: str = ""
    make: str = vendor.NVIDIA
    disabled: bool | None = None
    option: str = ""


def observe(host: Host, ctx: Context) -> GpuLinks:
    if vendor.detect(host).NAME == vendor.AMD:
        from preflight.domains.gpu import xgmi

        joined = xgmi.read_topology(host, ctx.mark)
        if not joined.count:
            raise NotApplicable("no GPU is given to this job")
        return GpuLinks(joined, virtual=pci.virtual_machine(host), make=AMD)
    answer = nvlink.read_topology(host, ctx.mark, ASKING * ctx.seconds)
    if answer.code in (nvml.NOT_LOADED, nvml.NO_LIBRARY):
        raise NotApplicable(NOTHING)
    if answer.code:
        raise CannotObserve(f"nvmlInit: {answer.text} ({answer.code})")
    if not answer.count:
        raise NotApplicable("no GPU is given to this job")
    if not answer.gpus:
        raise CannotObserve(f"NVML took too long to start: none of {answer.count} GPUs was asked")
    if {nvlink.STATE, nvlink.P2P} <= {*answer.refused} | (
        {nvlink.P2P} if answer.count == 1 else set()
    ):
        raise CannotObserve(f"NVML does not tell: {', '.join(answer.refused)}")
    mask = host.environ.get("CUDA_VISIBLE_DEVICES")
    ctx.mark(nvlink.PARAMETERS)
    off = nvlink.switched_off(host)
    return GpuLinks(
        joined=answer,
        virtual=pci.virtual_machine(host),
        amd=nvlink.amd_cpu(host),
        mask=None if mask is None else clip(mask, 4096),
        disable=nccl_setting(host, "NCCL_P2P_DISABLE")[:TEXT],
        level=nccl_setting(host, "NCCL_P2P_LEVEL")[:TEXT],
        ignore=nccl_setting(host, "NCCL_IGNORE_DISABLED_P2P")[:TEXT],
        disabled=None if off is None else bool(off),
        option=off or "",
    )


def judge(world: World[GpuLinks], expect: Expect) -> Iterator[Found]:
    yield from _hangs(world)
    yield from _unlike_peers(world)
    sound: set[tuple[int, int | None]] = set()
    for here, seen in world.each():
        # by hand and alone it is the node that is looked at, not a job
        alone = world.topology.ranks_on(here.node) == 1 and world.topology.launcher == "local"
        ranks = None if alone else len(here.ranks)
        if (id(seen), ranks) not in sound:  # most of ten thousand nodes are alike
            found = [
                *_slow_lanes(here, seen.joined),
                *_pairs(here, seen, _job_gpus(seen, ranks)),
            ]
            yield from found
            if not found:
                sound.add((id(seen), ranks))


def _unlike_peers(world: World[GpuLinks]) -> Iterator[Found]:
    yield from _without_xgmi(world)
    nodes = {key: seen.joined for key, seen in world.seen.items() if seen.make != AMD}
    virtual = frozenset(key for key, seen in world.seen.items() if seen.virtual)
    fewer = link_outliers.missing_lanes(nodes, virtual)
    without = link_outliers.boards_without_lanes(nodes)
    off = _switched_off(world, nodes, without)
    for key, gpus in fewer.items():
        if key in off:
            continue
        here = world.subject(key)
        none = any(not found.gpu.active for found in gpus)
        yield _finding(
            "nvlink-down",
            [_gpu(here, found.gpu.index) for found in gpus],
            " · ".join(found.text for found in gpus[:SHOWN]),
            f"{gpus[0].usual} lanes, as on {parties(gpus[0].holders)}",
            status=FAIL if none else WARN,
            sure=not none,
        )
    for key, board in (without | off).items():
        if key in fewer and key not in off:
            continue
        gpus_here = [_gpu(world.subject(key), gpu.index) for gpu in board]
        lanes, model = len(board[0].lanes), f"{len(board)} {board[0].name}"
        has = (
            f"0 of {lanes} lanes up on each of {model}" if lanes else f"none of {model} has a link"
        )
        goal = "lanes that are up: the board of this model joins all its GPUs by NVLink"
        if key in off:
            known = key in without
            goal = goal if known else "lanes that are up, as on other nodes with this model"
            option = world.seen[key].option or "NvLinkDisable: 1"
            saw = f"{option} in {nvlink.PARAMETERS} · {has}"
            yield _finding("nvlink-disabled", gpus_here, saw, goal, sure=known)
        else:
            others = (OFF,) * (world.seen[key].disabled is None) + (GUEST,) * (key in virtual)
            found = _finding("nvlink-down", gpus_here, has, goal, status=WARN)
            yield found.with_(alternatives=others)
    for key, pairs in link_outliers.missing_lanes_between(nodes).items():
        if key not in fewer and key not in off:
            saw = f"NVLink lanes between {' · '.join(pairs[:SHOWN])}"
            usual = "as many as on most nodes with these GPUs"
            yield _finding("nvlink-differs", [world.subject(key)], saw, usual)
    for key, odd in link_outliers.pairs_without_p2p(nodes, virtual).items():
        saw = f"{_pair_names(odd)}: {odd[0].reason}"
        usual = "P2P, as between most pairs of this model"
        yield _finding("p2p-differs", _gpus(world.subject(key), odd), saw, usual)


def _switched_off(
    world: World[GpuLinks],
    nodes: Mapping[str, GpuTopology],
    without: Mapping[str, list[LinkedGpu]],
) -> dict[str, list[LinkedGpu]]:
    """The GPUs of nodes whose driver was loaded with NVLink off, where they would have it: by their
    model, or as the same model has it on another node."""
    off = {key for key, seen in world.seen.items() if seen.disabled}
    if not off:
        return {}
    candidates = link_outliers.cards_without_lanes(nodes) | {**without}
    return {key: gpus for key, gpus in candidates.items() if key in off}


def _slow_lanes(here: Subject, joined: GpuTopology) -> Iterator[Found]:
    """Lanes that are slower than the others of their model in this node, one finding per model."""
    models: dict[str, list[link_outliers.SlowLanes]] = {}
    for found in link_outliers.slow_lanes(joined):
        models.setdefault(found.gpu.name, []).append(found)
    for name, slow in models.items():
        first = slow[0]
        yield _finding(
            "nvlink-slow",
            [_gpu(here, found.gpu.index) for found in slow],
            " · ".join(found.text for found in slow[:SHOWN]),
            f"{first.usual} MB/s, as on {first.agreed} of {first.compared} lanes of {name} here",
        )


def _without_xgmi(world: World[GpuLinks]) -> Iterator[Found]:
    nodes = {key: seen.joined for key, seen in world.seen.items() if seen.make == AMD}
    apart = link_outliers.pairs_without_xgmi(nodes)
    for key, pairs in apart.items():
        named = [f"{one.index}/{other.index}" for one, other in pairs]
        saw = f"no XGMI between GPUs {parties(named, SHOWN)}"
        ends = sorted({gpu.index for pair in pairs for gpu in pair})
        # the GPU that all of these pairs have in common is the one at fault
        shared = [i for i in ends if all(i in (one.index, other.index) for one, other in pairs)]
        subjects = [_gpu(world.subject(key), i) for i in (shared if len(shared) == 1 else ends)]
        usual = f"XGMI, as between most {pairs[0][0].name} here"
        yield _finding("xgmi-missing", subjects, saw, usual)
    for key, words in link_outliers.missing_lanes_between(nodes).items():
        if key not in apart:
            saw = f"XGMI between {' · '.join(words[:SHOWN])}"
            usual = "as on most nodes with these GPUs"
            yield _finding("xgmi-missing", [world.subject(key)], saw, usual)


def _hangs(world: World[GpuLinks]) -> Iterator[Found]:
    for key, missing in world.missing(Cause.TIMED_OUT, Cause.UNKILLABLE).items():
        last = missing.marks[-1] if missing.marks else None
        if last and last.name.startswith(("NVLink of ", "P2P of ")):
            took = duration(max(0, missing.seconds - last.at))
            gpu = Subject(Kind.GPU, world.subject(key).node, last.name.partition(" of ")[2])
            saw = f"the driver was asked for {last.name} and did not answer in {took}"
            yield _finding("links-hang", [gpu], saw, "an answer in less than 1 s")


def _finding(
    code: str,
    subjects: Iterable[Subject],
    saw: str,
    expected: str,
    *,
    status: Status | None = None,
    sure: bool = False,
    bridge: str = "",
) -> Found:
    """A finding with the fields that its advice takes."""
    of = tuple(subjects)
    return Found(
        code,
        of,
        saw,
        expected,
        status=status,
        confidence=Confidence.CERTAIN if sure else Confidence.LIKELY,
        fields={"node": of[0].node} | ({"bridge": bridge} if bridge else {}),
    )


def _gpu(here: Subject, index: int) -> Subject:
    return Subject(Kind.GPU, here.node, f"GPU {index}")


def _gpus(here: Subject, pairs: Iterable[Pair]) -> list[Subject]:
    return [_gpu(here, i) for i in sorted({i for pair in pairs for i in pair.ends})]


def _pair_names(pairs: list[Pair]) -> str:
    return f"GPU pair{'s' * (len(pairs) > 1)} {parties([pair.name for pair in pairs], SHOWN)}"


def _job_gpus(seen: GpuLinks, ranks: int | None) -> set[int]:
    """The GPUs that this many ranks use: the first of those that the mask leaves them."""
    gpus = seen.joined.gpus
    shown = nvml.visible_devices(seen.mask, [gpu.uuid for gpu in gpus]).indexes
    # fewer than ranks: each may have a mask of its own
    return set(shown[:ranks]) if len(shown) >= (ranks or 1) else set(range(len(gpus)))


def _pairs(here: Subject, seen: GpuLinks, used: set[int]) -> Iterator[Found]:
    """What NCCL meets between the GPUs that it uses."""
    joined = seen.joined
    asked = nvlink.p2p_level_setting(seen.disable, seen.level)
    far = nvlink.p2p_reach(asked, seen.amd, len(used))
    linked, wired = [], []
    for pair in joined.pairs:
        one, other = joined.ends(pair)
        if one.whole and other.whole and by_nvlink(one, other):
            linked.append(pair)
        elif one.whole and other.whole and pair.level is not None and pair.level <= far:
            wired += [pair] if pair.ends <= used else []
    if far >= nvlink.ONLY_NVLINK and any(pair.reason for pair in linked):
        yield _nvlink_without_p2p(here, seen, linked, used)
    may = [pair for pair in wired if pair.reason == ""]
    refused = [pair for pair in wired if pair.reason and _has_model(joined, pair, GEFORCE)]
    if asked is not None and refused:
        yield _finding(
            "p2p-unsupported",
            [here],
            f"NCCL_P2P_LEVEL={seen.level!r} · {_pair_names(refused)}: {refused[0].reason}",
            "no such setting for cards without P2P",
            sure=True,
        )
    branch = int(found[0]) if (found := re.match("[0-9]{1,5}", joined.driver)) else MEANT
    claimed = [pair for pair in may if _has_model(joined, pair, ADA)] if branch < MEANT else []
    if claimed:
        yield _finding(
            "p2p-misreported",
            _gpus(here, claimed),
            f"driver {joined.driver} says that {joined.gpus[claimed[0].one].name} have P2P",
            "no P2P, or a driver of branch 550 or later",
        )
    else:
        yield from _iommu_or_acs(here, seen, may)


def _has_model(joined: GpuTopology, pair: Pair, model: re.Pattern[str]) -> bool:
    return any(model.search(gpu.name) for gpu in joined.ends(pair))


def _nvlink_without_p2p(here: Subject, seen: GpuLinks, linked: list[Pair], used: set[int]) -> Found:
    """NVLink without P2P. The GPUs at fault are those of which no pair is right. A warning where
    the job doesn't meet it."""
    bad = [pair for pair in linked if pair.reason]
    good = {i for pair in linked if not pair.reason for i in pair.ends}
    guilty = [_gpu(here, i) for i in sorted({i for p in bad for i in p.ends} - good)]
    ignored = strtoll(seen.ignore)[0] != 0
    forgetful = "a driver that is wrong about it: 535 before 535.183.06 on NVSwitch systems"
    doubt = bool(FORGETFUL.match(seen.joined.driver))
    found = _finding(
        "nvlink-p2p-off",
        guilty if good and guilty else [here],
        f"NVLink connects them, but there is no P2P: {_pair_names(bad)}: {bad[0].reason}"
        + f" · NCCL_IGNORE_DISABLED_P2P={seen.ignore!r}" * ignored,
        "P2P between GPUs with NVLink",
        status=FAIL if any(p.ends <= used for p in bad) and not ignored else WARN,
        sure=not doubt,
    )
    return found.with_(alternatives=(forgetful,)) if doubt else found


def _iommu_or_acs(here: Subject, seen: GpuLinks, may: list[Pair]) -> Iterator[Found]:
    """P2P over PCIe with an IOMMU or ACS in its way. In a virtual machine these are the host's
    business. CUDA Programming Guide, "IOMMU on Linux"; NCCL user guide, "PCI Access Control
    Services (ACS)"."""
    joined = seen.joined
    modes = {gpu.virtual for pair in may for gpu in joined.ends(pair)}
    if seen.virtual is not False or modes - {0, None}:
        return
    acs = {
        bridge: None
        for pair in may
        for bridge in nvlink.bridges_between(*joined.ends(pair))
        if joined.redirects.get(bridge, 0) & pci.REDIRECT
    }
    translated = [p for p in may if any(g.iommu.startswith("DMA") for g in joined.ends(p))]
    by_acs = f"ACS redirects at {parties(list(acs))}"
    if translated:
        kind = next(g.iommu for g in joined.ends(translated[0]) if g.iommu.startswith("DMA"))
        yield _finding(
            "p2p-iommu",
            [here],
            f"{_pair_names(translated)} copy over PCIe through an IOMMU in mode {kind}"
            + f" · {by_acs}" * bool(acs),
            "mode identity (iommu=pt), or no IOMMU",
        )
    elif acs:
        through = [p for p in may if set(nvlink.bridges_between(*joined.ends(p))) & set(acs)]
        yield _finding(
            "p2p-acs",
            [here],
            f"{by_acs} · {_pair_names(through)} copy over PCIe",
            "no redirection on bridges above GPUs",
            bridge=next(iter(acs)),
        )


def measured(world: World[GpuLinks]) -> Measured:
    seen = list(world.seen.values())
    gpus = [gpu for of in world.distinct for gpu in of.joined.gpus]
    pairs = [pair for of in world.distinct for pair in of.joined.pairs]
    if not gpus:
        return Measured()
    up = sorted({gpu.active for gpu in gpus})
    versions = sorted({n.version for gpu in gpus for n in gpu.lanes if n.version is not None})
    count_of = {id(of): sum(p.reason == "" for p in of.joined.pairs) for of in world.distinct}
    may, asked = sum(count_of[id(of)] for of in seen), sum(len(of.joined.pairs) for of in seen)
    reasons = sorted({pair.reason for pair in pairs if pair.reason})
    levels = sorted({pair.level for pair in pairs if pair.level is not None})
    hidden = sum(len(of.joined.hidden) for of in seen)
    count = " / ".join(map(str, up[:SHOWN]))
    told = not any(nvlink.STATE in of.joined.refused for of in seen)
    of_amd = all(of.make == AMD for of in seen)
    wire, lane = ("XGMI", "links") if of_amd else ("NVLink", "lanes")
    none = f"no {wire}" if told else f"{wire} not told"
    parts = [f"{count} {wire} {lane} per GPU" if up[-1] else none]
    if pairs:
        why = f" ({', '.join(reasons[:2])})" if reasons else ""
        parts.append(f"P2P {may} of {plural(asked, 'pair')}{why}")
        parts.append("/".join(nvlink.NEAR.get(level, str(level)) for level in levels))
    modes = sorted({gpu.iommu for gpu in gpus if gpu.iommu})
    parts += [f"IOMMU {', '.join(modes[:2])}"] if modes else []
    left = sum(s.joined.count * (s.joined.count - 1) // 2 for s in seen) - asked
    parts += [f"{plural(left, 'pair')} not asked"] if left > 0 and not of_amd else []
    # only root may read it, and it matters where GPUs copy over PCIe
    matters = hidden and may and not up[-1] and not any(s.virtual for s in seen)
    parts += ["ACS not readable"] if matters else []
    values = {
        "lanes": up,
        "nvlink_versions": versions,
        "pairs": asked,
        "p2p_pairs": may,
        "p2p_reasons": reasons,
        "levels": levels,
        "iommu": modes,
        "acs_hidden": hidden,
    }
    return Measured(" · ".join(part for part in parts if part), values, _grid(world))


def _grid(world: World[GpuLinks]) -> Grid | None:
    """How many lanes lead from each GPU to each other one directly; those to a switch lead to all
    of its node."""
    rows: list[str] = []
    cells: list[Cell] = []
    most = max((of.joined.count for of in world.seen.values()), default=0)
    for node, of in list(world.seen.items())[:NODES_DRAWN]:
        for gpu in of.joined.gpus:
            for other in of.joined.gpus:
                if other.index != gpu.index and other.index < most:
                    lanes = gpu.active if gpu.switched else gpu.lanes_to(other)
                    cells.append(Cell(len(rows), other.index, float(lanes)))
            rows.append(f"{node} GPU {gpu.index}")
    usual = max((cell.value for cell in cells), default=0.0)
    if not usual:
        return None
    columns = tuple(f"GPU {number}" for number in range(most))
    title = f"active lanes from the row to the column, as parts of {usual:.0f}"
    return Grid(title, tuple(rows), columns, tuple(cells), usual, "lanes")
