"""job.memory: what fills up is named with the time that is left; what healthy jobs do is not."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import Case, assert_case, context, judged, round_trips, world

from preflight.check import conforms
from preflight.checks import job_memory
from preflight.domains.job.record import Growth, Life, RehearsalRecord, Rehearsed, WatchedCommand
from preflight.host import Host
from preflight.model import (
    Blame,
    CannotObserve,
    Cause,
    Confidence,
    Kind,
    Missing,
    NotApplicable,
    Status,
)
from preflight.serde import encode

conforms(job_memory)

MIB, GIB = 1 << 20, 1 << 30
Shape = Callable[[int], float]


def flat(step: int) -> float:
    return 0.0


def leak(mib: float) -> Shape:
    return lambda step: mib * step


def memory(
    shape: Shape = flat,
    *,
    gpu: Shape | None = None,
    left: int = 200 * GIB,
    base: int = 1200,
    seconds: int = 120,
    rate: float = 2.0,
    **changes: Any,
) -> Growth:
    """Looked at once a second at `rate` steps per second; all shapes in MiB."""
    steps = [int(at * rate) + 1 for at in range(seconds)]
    samples = tuple(
        (float(at), n, int((base + shape(n)) * MIB), int((2000 + gpu(n)) * MIB) if gpu else 0)
        for at, n in enumerate(steps)
    )
    made = Growth(
        rank=0, samples=samples, limit=256 * GIB, available=left, gpu_limit=80 * GIB if gpu else 0
    )
    return dataclasses.replace(made, **changes)


def shm(shape: Shape, own: Shape = flat, free: int = 32 * GIB) -> Growth:
    samples = tuple((float(at), 2 * at + 1, int((5 + shape(2 * at)) * MIB)) for at in range(120))
    return memory(own, shm_samples=samples, shm_free=free)


def ranks(*seen: Growth, node: str = "n1", first: int = 0) -> dict[str, Growth]:
    return {
        f"{node}/{first + i}": dataclasses.replace(of, rank=first + i, here=len(seen))
        for i, of in enumerate(seen)
    }


def noise(width: float, seed: int = 1) -> Shape:
    made = random.Random(seed)
    return lambda step: made.uniform(-width, width)


MEMORY, GPU, SHM = "memory-growth", "gpu-memory-growth", "shm-growth"
WARN, FAIL = Status.WARN, Status.FAIL

HEALTHY = (
    Case("flat", memory()),
    Case("flat on four", ranks(*[memory()] * 4)),
    Case("shrinks", memory(leak(-2))),
    Case("warm-up", memory(lambda n: min(n, 60) * 20)),
    Case("the heap finds its size", memory(lambda n: 800 * (1 - math.exp(-n / 40)))),
    Case("slower and slower", memory(lambda n: 300 * math.log(n))),
    Case("teeth", memory(lambda n: n % 30 * 20)),
    Case("long teeth", memory(lambda n: n % 100 * 20)),
    Case("an evaluation", memory(lambda n: 2000.0 * (n > 150))),
    Case("two", memory(lambda n: 2000.0 * ((n > 120) + (n > 200)))),
    Case("data cached once", memory(lambda n: min(n, 170) * 20.0)),
    Case("noise", memory(noise(300))),
    Case("a checkpoint that comes and goes", memory(lambda n: 3000.0 * (n % 80 < 10))),
    Case("4 KiB a step", memory(leak(0.004))),
    Case("50 KiB a step: 8 MiB in the watch", memory(leak(0.05), left=2 * GIB)),
    Case("little that is left elsewhere", memory(left=20 * MIB)),
    Case("it is days away", memory(leak(1), left=1000 * GIB)),
    Case("nobody knows what is left", memory(leak(100), limit=0, left=0)),
    Case("8 seconds", memory(leak(100), seconds=8)),
    Case("10 steps", memory(leak(100), rate=0.09)),
    Case("nothing seen", Growth()),
    Case("no step", memory(leak(100), rate=0.0)),
    Case("GPU flat", memory(gpu=flat)),
    Case("GPU: activations come and go", memory(gpu=noise(900))),
    Case("GPU: longer sequences now and then", memory(gpu=lambda n: 500.0 * (n % 17 == 3))),
    Case("GPU: the cache after an evaluation", memory(gpu=lambda n: 9000.0 * (n > 160))),
    Case("GPU: the optimizer's state", memory(gpu=lambda n: 9000.0 * (n > 1))),
    Case("GPU: days away", memory(gpu=leak(0.3))),
    Case("GPU: some looks without an answer", memory(gpu=lambda n: -2000.0 * (n % 3 == 0))),
    Case("GPU: how large it is, nobody knows", memory(gpu=leak(30), gpu_limit=0)),
    Case("/dev/shm: batches in flight", shm(noise(4))),
    Case("/dev/shm: new workers", shm(lambda n: 64.0 * (n > 130))),
    Case("/dev/shm: how large it is, nobody knows", shm(leak(5), free=0)),
    Case("blocked", Missing(Cause.BLOCKED, by="job.ranks")),
    Case("one was not seen", {"n1/0": memory(), "n1/1": Missing(Cause.NOT_APPLICABLE, "few")}),
)

CASES = (
    *HEALTHY,
    Case("20 MiB per step", memory(leak(20)), MEMORY, WARN, subject="n1 · rank 0"),
    Case("soon", memory(leak(20), left=3 * GIB), MEMORY, FAIL),
    Case("in 4 min", memory(leak(2), rate=20.0, left=9 * GIB), MEMORY, FAIL),
    Case("in 199 steps of a minute", memory(leak(9), rate=0.2, left=1700 * MIB), MEMORY, FAIL),
    Case("full already", memory(leak(2), left=0), MEMORY, FAIL),
    Case("of one of four", ranks(*[memory()] * 3, memory(leak(9))), MEMORY, subject="n1 · rank 3"),
    Case("in noise", memory(lambda n: 4 * n + noise(20, n)(n)), MEMORY, WARN),
    Case("with an evaluation", memory(lambda n: 4 * n + 500 * (n > 170)), MEMORY, WARN),
    Case("5 % of a small process", memory(leak(0.3), base=300, left=9 * GIB), MEMORY, WARN),
    Case("not distributed", memory(leak(20), rank=None), MEMORY, WARN, subject="n1"),
    Case("GPU", memory(gpu=leak(30)), GPU, WARN, subject="n1 · rank 0"),
    Case("GPU soon", memory(gpu=leak(300)), GPU, FAIL),
    Case("/dev/shm", shm(leak(5)), SHM, WARN, subject="n1"),
    Case("/dev/shm soon", shm(leak(5), free=GIB // 2), SHM, FAIL),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_judge(case: Case) -> None:
    assert_case(job_memory, case)


def findings(saw: Any) -> list[Any]:
    return judged(job_memory, Case("", saw))


def test_what_is_said() -> None:
    (finding,) = findings(memory(leak(20), left=40 * GIB))
    assert finding.saw == (
        "memory of rank 0 grows by 20 MiB per step, 3.0 GiB in 152 steps · 40 GiB left: "
        "full after about 2,000 steps, in 17 min"
    )
    assert (finding.blame, finding.confidence) == (Blame.JOB, Confidence.LIKELY)
    assert finding.alternatives


def test_ranks_of_a_node_fill_it_together() -> None:
    def left(*seen: Growth) -> str:
        (finding,) = findings(ranks(*seen))
        return str(finding.saw).rpartition("full after ")[2]

    one = memory(leak(20), left=40 * GIB)
    assert left(one, memory(left=40 * GIB)) == "about 2,000 steps, in 17 min"
    assert left(one, one) == "about 1,000 steps, in 8 min 32 s"
    (finding,) = findings(ranks(one, one))
    assert [s.name for s in finding.subjects] == ["0", "1"]
    assert "memory of rank 0 grows by 20 MiB per step" in finding.saw
    assert "and that of 1 more" in finding.saw


def test_ranks_that_nobody_saw_are_taken_to_grow_as_the_others() -> None:
    (finding,) = findings(memory(leak(20), left=40 * GIB, here=4))
    assert "about 510 steps, in 4 min 16 s" in finding.saw
    assert finding.status is FAIL


def test_of_many_nodes_that_is_told_which_is_full_first() -> None:
    top = ranks(memory(leak(5), left=90 * GIB), node="n1")
    top |= ranks(memory(leak(5), left=9 * GIB), node="n2", first=1)
    (finding,) = findings(top)
    assert [str(s) for s in finding.subjects] == ["n2 · rank 1", "n1 · rank 0"]
    assert "memory of rank 1 grows" in finding.saw
    assert "9 GiB left" in finding.saw


def test_every_gpu_is_full_by_itself() -> None:
    (finding,) = findings(ranks(memory(gpu=leak(30)), memory(gpu=leak(90)), memory(gpu=flat)))
    assert [s.name for s in finding.subjects] == ["1", "0"]
    assert finding.saw.startswith("GPU memory of rank 1 grows by 90 MiB per step")
    assert "· 58 GiB left: full after about 660 steps" in finding.saw


def test_what_is_in_dev_shm_is_not_told_twice() -> None:
    (finding,) = findings(shm(leak(5), own=leak(5)))
    assert (finding.code, finding.subjects[0].kind) == (SHM, Kind.NODE)
    both = findings(shm(leak(5), own=leak(50)))
    assert {f.code for f in both} == {MEMORY, SHM}
    # all ranks of a node see the same /dev/shm
    (finding,) = findings(ranks(*[shm(leak(5))] * 4))
    assert finding.subjects[0].ranks == (0, 1, 2, 3)
    assert "/dev/shm of n1 grows by 5 MiB per step" in finding.saw


@given(st.integers(0, 1 << 32), st.floats(0, 0.9), st.integers(20, 200), st.floats(0.3, 20))
@settings(max_examples=200, deadline=None)
def test_noise_never_warns(seed: int, part: float, seconds: int, rate: float) -> None:
    made = random.Random(seed)

    def scatter(step: int) -> float:
        return 1200 * part * made.uniform(-1, 1)

    seen = memory(scatter, gpu=scatter, seconds=seconds, rate=rate, left=GIB)
    assert findings(ranks(seen, seen)) == []


def test_what_is_measured() -> None:
    def text(saw: Any) -> str:
        return job_memory.measured(world("job.memory", saw)).text

    assert text(memory()) == "1.2 GiB, steady"
    assert text(memory(leak(20), base=900)) == "5.4 GiB, 20 MiB more per step"
    assert text(ranks(memory(), memory(base=1000))) == "1.2 GiB per rank, steady"
    assert text(memory(gpu=leak(30))) == "1.2 GiB, steady · GPU 8.8 GiB, 30 MiB more per step"
    assert text(Growth()) == ""
    values = job_memory.measured(world("job.memory", memory(leak(2)))).values
    assert values["grows_bytes_a_step"] == pytest.approx(2 * MIB, rel=0.02)


def test_numbers_that_are_none() -> None:
    strange = ((math.nan, 3, 5, 5), (math.inf, 3, 5, 5), (1.0, -3, 5, 5), (2.0, 1, 10**400, -4))
    seen = memory(leak(20))
    assert len(findings(dataclasses.replace(seen, samples=strange + seen.samples))) == 1
    assert findings(memory(samples=strange)) == []
    (finding,) = findings(memory(leak(20), left=-5))
    assert "0 B left: full after about 0 steps, in 0 ms" in finding.saw


# --- observed from a record ---


def test_a_record_is_read(tmp_path: Path) -> None:
    life = Life(WatchedCommand(("python", "train.py"), 0, "ended", 12.0))
    seen = (memory(leak(2)), memory(seconds=8), memory(gpu=flat, seconds=30))
    path = tmp_path / "record.json"
    made = RehearsalRecord(tuple(Rehearsed(life, growth=growth) for growth in seen))
    path.write_text(json.dumps(encode(made)))
    options = {"record": str(path)}
    for number in (0, 2):
        found = job_memory.observe(Host(), context(local_rank=number, options=options))
        assert found == seen[number]
        round_trips(found)
    with pytest.raises(NotApplicable, match="too few steps and seconds"):
        job_memory.observe(Host(), context(local_rank=1, options=options))
    with pytest.raises(NotApplicable, match="rehearse"):
        job_memory.observe(Host(), context())
    with pytest.raises(CannotObserve):
        job_memory.observe(Host(), context(local_rank=3, options=options))
