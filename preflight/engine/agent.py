"""One invocation of `run` or `gate`, an agent: it observes its ranks, judges once, and publishes.

The parent reads nothing but its own installation and the config file; what a file system, a name
or a driver might keep waiting is asked by workers.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from preflight import __version__, check, console, redact, registry
from preflight.config import file
from preflight.config import resolve as config
from preflight.config.resolve import Config, Flags, Output
from preflight.engine import setup
from preflight.engine.plan import Outcome, Plan, Watch
from preflight.engine.scheduler import Run
from preflight.engine.tasks import prepare
from preflight.frozen import dataclass
from preflight.identity.addresses import every_address, flaw, loopback
from preflight.identity.discover import never_meets, torchruns_nodes, torchruns_number
from preflight.identity.launchers import is_host
from preflight.judge import verdict
from preflight.model import (
    DRAWN_NODES,
    Node,
    Observation,
    Observations,
    Report,
    Seen,
    Setting,
    Standing,
    Topology,
    Verdict,
    place_of,
)
from preflight.packed import plain
from preflight.process.pool import Workers
from preflight.process.servers import TORCH, open_light, open_torch
from preflight.process.signals import Interrupt
from preflight.sanitize import one_line
from preflight.serde import encode

if TYPE_CHECKING:
    from preflight.meeting.session import Company


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for, beside the flags that a config file could also set."""

    flags: Flags
    config_file: str | None = None
    root: str = "/"
    config: tuple[str, str] | None = None
    """Name and text of the config file where another place has read it already; the name is empty
    where there is none."""
    adjust: Callable[[Config], Config] = lambda chosen: chosen
    """What a rehearsal has learnt of the command that it ran."""
    before: float = 0.0
    """Seconds that it took."""
    interrupted: str = ""
    """The signal that ended it: what was seen of it until then is judged all the same."""
    verbose: bool = False
    """-v: with all heat maps."""


@contextlib.contextmanager
def session(interrupt: Interrupt) -> Iterator[Workers]:
    """Workers whose waits a signal ends, and nothing of them left afterwards."""
    workers = Workers()
    wakeup = signal.set_wakeup_fd(workers.wake_fd, warn_on_full_buffer=False)
    try:
        yield workers
    finally:
        signal.set_wakeup_fd(wakeup)
        told = len(workers.left_behind)  # these are in the report
        for left in workers.close()[told:]:
            where = f", in {left.wchan}" if left.wchan else ""
            console.say(f"preflight: left behind: pid {left.pid}, state {left.state}{where}")


def configured(
    wish: Wish,
    before_loading: Callable[[Mapping[str, Any], str], None] = lambda table, name: None,
    *,
    to_run: bool = False,
) -> tuple[Config, registry.Catalogue]:
    """Flags and config file as one, and the checks that there are; `to_run`: at least those that a
    run of this level may do."""
    name, text = wish.config or found_config(wish)
    table = file.parsed(name, text) if name else {}
    before_loading(table, name)
    level = check.Level.DEEP
    if to_run:
        level = config.level_needed(wish.flags, table, registry.declared())
    catalogue = registry.load(level=level)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    return config.resolve(wish.flags, table, name, catalogue, today), catalogue


def found_config(wish: Wish) -> tuple[str, str]:
    """Name and text of the config file; both empty where there is none."""
    path = file.find(wish.config_file, os.environ, root=os.geteuid() == 0)
    return (path, file.text(path)) if path else ("", "")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended for this agent. `report` is None where the host of the meeting has it: then
    this agent prints `line` only. `own_code` is the exit code under `--exit node`; `part` the name
    of this agent where it did not meet the others and has a part of the report only; `hosted_part`
    that of the host of the meeting where some never came or were lost, and may have parts too."""

    verdict: Verdict
    exit_code: int
    own_code: int
    report: Report | None
    outputs: tuple[Output, ...]
    part: str = ""
    hosted_part: str = ""
    line: str = ""


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """While a million objects are made that all stay, Python's collector of cycles would look
    through them again and again, for half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class NotJudged(Exception):
    """A bug of ours in the judgement: what was observed is not lost for it."""

    def __init__(self, observations: Observations) -> None:
        super().__init__("the observations could not be judged")
        self.observations = observations


def ending_of(wish: Wish, workers: Workers, interrupt: Interrupt, watch: Watch) -> Ending:
    """Everything between the flags and the report."""

    def begin(table: Mapping[str, Any], name: str) -> None:
        if config.wants_torch(wish.flags, table):
            # before the checks themselves are loaded: its import takes longest
            open_torch(workers, config.job_python(wish.flags, table, name).value)

    chosen, catalogue = configured(wish, begin, to_run=True)
    chosen = wish.adjust(chosen)
    prepare()
    standing = passes(catalogue, chosen)  # with patterns that several workers would compile again
    open_light(workers)
    here = setup.world(workers, chosen, lambda: bool(interrupt.name))
    if setup.meets(chosen, here):
        chosen = chosen.among(here.size)
    company = _company(workers, chosen, here, catalogue)
    selected = setup.selected(catalogue, chosen, company is not None)
    plan = Plan(
        catalogue=catalogue,
        selected=selected,
        topology=here,
        deadline=chosen.deadline,
        root=wish.root,
        patience=min(chosen.arrive, chosen.deadline),
        budgets=chosen.budgets,
        options=chosen.options,
        launchers_store=company is not None and company.agent.store,
        python=chosen.python,
    )
    started = datetime.datetime.now(datetime.timezone.utc)
    run = Run(plan, workers, standing, watch, lambda: interrupt.name, company)
    outcome = run.observe()
    outcome.seconds += wish.before
    outcome.interrupted = outcome.interrupted or wish.interrupted
    if company is not None:
        company.tell_neighbours()
        _last_roll(outcome.checks.get(catalogue.of_meeting, {}), company, run.node.name)
    if company is not None and (told := _told(company.over, chosen)) is not None:
        return told
    hosted_part = ""
    if company is not None:
        if company.incomplete and len(company.nodes) <= DRAWN_NODES:
            hosted_part = _part(company, run.node)
        company.forget()
    report = report_of(run, outcome, chosen, started, verbose=wish.verbose)
    own = verdict.code_of_node(report, run.node.name)
    if company is not None:
        ends = {"verdict": report.verdict, "exit": report.exit_code}
        company.tell_end(ends, _last_words(report, run.node.name))
        company.close(interrupt.name and f"interrupted by {interrupt.name}")
    part = _part(company, run.node) if company is not None and not company.decides else ""
    return Ending(report.verdict, report.exit_code, own, report, chosen.outputs, part, hosted_part)


def passes(
    catalogue: registry.Catalogue, chosen: Config
) -> Callable[[str, Mapping[str, Observation], Topology], Standing]:
    """By what a run knows whether the needs of a check are met, and what it says meanwhile."""
    hidden = redact.secrets(os.environ, sys.argv)

    def standing(check_id: str, seen: Mapping[str, Observation], top: Topology) -> Standing:
        found = verdict.passed(check_id, seen, catalogue, top, chosen.expect, chosen.policy)
        if not (found.headline and hidden):
            return found
        # of what was seen, since a headline may have cut a secret in two
        seen, top = redact.without((seen, top), hidden)
        return verdict.passed(check_id, seen, catalogue, top, chosen.expect, chosen.policy)

    return standing


def tool() -> dict[str, str]:
    """Who made a report."""
    return {"name": "preflight", "version": __version__, "python": sys.version.split()[0]}


def report_of(
    run: Run,
    outcome: Outcome,
    chosen: Config,
    started: datetime.datetime,
    *,
    verbose: bool = False,
) -> Report:
    """What a run has seen, without secrets, and its judgement."""
    plan, workers = run.plan, run.workers
    made_by = tool()
    if torch := (workers.preloaded(TORCH) or {}).get("torch", {}).get("version"):
        made_by["torch"] = torch
    nproc = Setting(plan.topology.met, plan.topology.facts["nproc"].source)
    observations = Observations(
        tool=made_by,
        started=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(outcome.seconds, 3),
        settings={"nproc": nproc, **chosen.shown},
        topology=run.topology,
        checks=in_order(outcome.checks, run.topology),  # which takes them apart
        interrupted=outcome.interrupted,
        left_behind=workers.left_behind,
    )
    run.forget()
    drawn = draws(chosen.outputs, observations, verbose)
    with without_collector():
        observations = redact.without(observations, redact.secrets(os.environ, sys.argv))
        try:
            report = verdict.judge(
                observations, plan.catalogue, chosen.expect, chosen.policy, drawn=drawn
            )
        except Exception as error:
            raise NotJudged(observations) from error
        if len(run.topology.nodes) > DRAWN_NODES:
            gc.freeze()  # or the collector looks at once through a million objects, which all stay
        return report


def draws(outputs: Iterable[Output], observations: Observations, verbose: bool) -> bool:
    """Whether what is only drawn is to be made: of more nodes it takes more than all that is said
    of them, and nothing but a page and -v shows it."""
    pages = any(output.format == "html" for output in outputs)
    return pages or verbose or len(observations.topology.nodes) <= DRAWN_NODES


HOPELESS = 3.0
"""Seconds for which an agent looks for others that can't get together with it."""


ALONE = 6.0
"""Seconds for which the node of rank 0 waits for others that may have another name for it, where
MASTER_ADDR is its own loopback: mostly it is that everywhere, and nobody comes."""


def _company(
    workers: Workers, chosen: Config, here: Topology, catalogue: registry.Catalogue
) -> Company | None:
    """The other agents of this job, where there are any and this level asks them."""
    if not setup.meets(chosen, here):
        return None
    store = os.environ.get(setup.STORE) == "True"
    if store:
        open_torch(workers, chosen.python)
    from preflight.meeting.discovery import Agent
    from preflight.meeting.session import Company

    local = here.facts.get("local_rank")
    local_rank = int(local.value) if local is not None else None
    agent = Agent(
        topology=here,
        version=__version__,
        token=os.environ.get("PREFLIGHT_TOKEN", ""),
        patience=min(chosen.arrive, chosen.deadline, _longest_wait(here)),
        store=store,
        local_rank=local_rank,
        loopback=here.several_nodes
        and loopback(here.master_addr)
        and not _on_first_node(here.nodes[0].ranks, local_rank),
        may_come=not flaw(here.master_addr),
        nodes=torchruns_nodes(here),
        node=torchruns_number(here),
        is_host=is_host(os.environ.get("PET_RDZV_CONF", "")),
    )
    workers.relaying = True
    pairs = {c.id for c in catalogue if c.check.scope is check.Scope.PAIR}
    company = Company(agent, workers, voice=local_rank in (None, 0), pairs=pairs)
    company.claim_ranks()
    return company


def _on_first_node(ranks: Sequence[int], local_rank: int | None) -> bool:
    """Whether rank 0 is on this node, where torch listens at all addresses, and so do we."""
    return 0 in ranks or ranks[:1] == (local_rank,)


def _longest_wait(here: Topology) -> float:
    """Seconds. An operator of Kubernetes gives rank 0's pod localhost and the others its service's
    name, and somebody writes 0.0.0.0: these may well come as late as in any job."""
    if never_meets(here):
        return HOPELESS
    known = "KUBERNETES_SERVICE_HOST" in os.environ or every_address(here.master_addr)
    return ALONE if here.several_nodes and loopback(here.master_addr) and not known else math.inf


def _part(company: Company, node: Node) -> str:
    """What an agent's own part of the report is called after: its node, and its rank where every
    rank has an agent. As letters that a file may have in its name."""
    by_rank = company.agent.local_rank is not None
    name = f"{node.name}-{node.ranks[0]}" if by_rank else node.name
    return re.sub(r"[^\w.#-]", "_", name)[:80]


def _last_roll(seen_of_meeting: dict[str, Observation], company: Company, node: str) -> None:
    """Its check looked when everybody had come; who was lost since belongs into the roll, too.
    What a guest says of its own roll is not believed to be a host's."""
    for key, seen in seen_of_meeting.items():
        value = plain(seen.value) if isinstance(seen, Seen) else None
        if isinstance(seen, Seen) and isinstance(value, dict):
            roll = encode(company.roll) if key == node else value.get("roll")
            if key != node and isinstance(roll, dict):  # else its judge says that it does not fit
                if roll.get("hosts") is False:
                    continue
                roll = {**roll, "hosts": False}
            seen_of_meeting[key] = replace(seen, value={**value, "roll": roll})


def _told(over: Mapping[str, Any] | None, chosen: Config) -> Ending | None:
    """How the host says that it ended; None when it has not."""
    if over is None:
        return None
    line = one_line(over.get("line", ""), 2 * verdict.LINE)  # whatever the host says
    return Ending(over["verdict"], over["exit"], over["own"], None, chosen.outputs, line=line)


def _last_words(report: Report, host: str) -> dict[str, dict[str, Any]]:
    """What each node is told at the end: its exit code, and the line that it ends with."""
    words: dict[str, dict[str, Any]] = {}
    for node, (code, line) in verdict.last_words(report).items():
        words[node] = {"own": code}
        if line:
            words[node]["line"] = f"{line} · the report is on {host}"
    return words


def in_order(
    checks: dict[str, dict[str, Observation]], top: Topology
) -> dict[str, dict[str, Observation]]:
    """The observations of each check in the order of the nodes and ranks, whoever came first. They
    are taken out of `checks`: a hundred thousand ranks need not be there twice."""
    numbers = {node.name: number for number, node in enumerate(top.nodes)}

    def place(key: str) -> tuple[int, int]:
        node, rank = place_of(key)
        return numbers.get(node, len(numbers)), -1 if rank is None else rank

    orders: list[dict[str, None]] = []

    def ordered(keys: Set[str]) -> Iterable[str]:
        # all checks of ranks have the same keys: a hundred thousand are sorted once
        order = next((o for o in orders if o.keys() == keys), None)
        if order is None:
            order = dict.fromkeys(sorted(keys, key=place))
            orders.append(order)
        return order

    made = {}
    for check_id in list(checks):
        seen = checks.pop(check_id)
        if seen:
            made[check_id] = {key: seen[key] for key in ordered(seen.keys())}
    return made
