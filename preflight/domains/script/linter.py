"""All rules over a script, and what each of them is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight.domains.script import (
    agreement_rules,
    async_copies,
    batch_rules,
    data_rules,
    decorated,
    device_rules,
    elsewhere,
    gathered,
    own_clock,
    own_rate,
    rules,
    shuffled,
    skipped,
    start_rules,
    step_rules,
    stop_rules,
    summed,
    wrapped_rules,
)
from preflight.domains.script.divergence import divergences
from preflight.domains.script.source import Hit, Program

KEPT_MAX = 20
"""Places of one rule that are kept."""


def hits(
    program: Program, environ: Mapping[str, str], gpu: bool, argv: Sequence[str] = ()
) -> tuple[Hit, ...]:
    """What all rules find, by rule and place; `argv` starts the script. A script nested so deeply
    that a rule can't follow it keeps only that rule silent."""
    seen = rules.mentions(program.modules)
    launch = start_rules.launch_of(argv)
    found: list[Hit] = list(program.broken[:KEPT_MAX])
    for rule in (
        divergences(program.modules),
        elsewhere.collective_elsewhere(program),
        decorated.collective_decorated(program),
        rules.not_waited(program),
        data_rules.sampler_missing(program, seen),
        data_rules.set_epoch_missing(program, seen),
        shuffled.order_per_rank(program, seen),
        rules.no_sync_missing(program, seen),
        rules.scaler_with_bf16(program),
        device_rules.set_device_missing(program, seen, environ),
        device_rules.nccl_literal(program, seen),
        device_rules.detail_with_ddp(program, environ, gpu),
        step_rules.accumulation_reset(program, seen),
        step_rules.clip_scaled(program, seen),
        step_rules.unscaled_each_batch(program, seen),
        batch_rules.batch_not_moved(program, seen),
        async_copies.copy_not_awaited(program, seen),
        step_rules.apex_amp(program),
        step_rules.waits_each_step(program, seen),
        agreement_rules.collective_swallowed(program, seen),
        skipped.batch_skipped(program, seen),
        wrapped_rules.wrapped_under_rank(program, seen),
        stop_rules.early_stop_per_rank(program, seen),
        own_clock.stops_by_own_clock(program, seen),
        own_rate.rate_per_rank(program, seen),
        summed.gradients_summed(program, seen),
        summed.mean_of_a_mean(program, seen),
        gathered.gathered_without_gradient(program, seen),
        agreement_rules.random_branch(program, seen),
        agreement_rules.set_order(program, environ),
        start_rules.hardcoded(program, seen, launch),
        start_rules.contradicts_launcher(program, seen, launch),
        start_rules.destroy_missing(program, seen, gpu),
    ):
        found += _bounded(rule)
    # what collects in a function under a test of the rank calls the model there as well: told once
    told = {(hit.file, hit.line) for hit in found if hit.rule == "collective-under-rank"}
    return tuple(h for h in found if h.rule != "wrapped-under-rank" or (h.file, h.line) not in told)


def _bounded(rule: Iterable[Hit]) -> Iterator[Hit]:
    told: dict[tuple[str, int], Hit] = {}
    try:
        for hit in rule:
            told.setdefault((hit.file, hit.line), hit)
            if len(told) >= KEPT_MAX:
                break
    except RecursionError:
        pass
    yield from sorted(told.values(), key=lambda h: (h.file, h.line))
