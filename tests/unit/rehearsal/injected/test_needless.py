"""What a script pays for in each step, as the hooks count it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_needless as needless

LINE = ["train.py", 3, "main", True]


class Ddp:
    """As a model in DDP: its forward decides whether gradients are summed."""

    def __init__(self) -> None:
        self.require_backward_grad_sync = True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = True


class Profiler:
    def _start_trace(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        pass


class Job:
    def __init__(self) -> None:
        self.module = type("Ddp", (Ddp,), {})
        self.ddp = self.module()
        self.gradients = 0
        entry = SimpleNamespace(module=lambda: self.ddp, gradient=lambda: self.gradients)
        entry.kind = "optimizer"
        self.counts = SimpleNamespace(steps=0, entries=[entry])

    def forward(self) -> None:
        needless.forwarded(self.ddp)

    def backward(self) -> None:
        self.gradients += 1


class Grad:
    """A table's gradient in which the first `used` rows are not zero."""

    layout = "strided"

    def __init__(self, rows: int, used: int, columns: int = 64) -> None:
        self.shape, self.used, self.device = (rows, columns), used, "cpu"

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    def element_size(self) -> int:
        return 4

    def index_select(self, of: int, rows: list[int]) -> Rows:
        assert not of
        assert len(set(rows)) == len(rows)
        return Rows(sum(row < self.used for row in rows))


class Rows(int):
    def ne(self, number: int) -> Rows:
        assert not number
        return self

    def any(self, of: int) -> Rows:
        assert of == 1
        return self

    def sum(self) -> int:
        return int(self)


class Range(list[int]):
    def __mul__(self, number: Any) -> Range:
        return Range(one * number for one in self)

    def __mod__(self, number: int) -> Range:
        return Range(one % number for one in self)


@contextmanager
def switched() -> Iterator[None]:
    yield


class Torch:
    """As much of it as rows of gradients are counted with."""

    capturing = False
    Tensor, strided, no_grad = Grad, "strided", staticmethod(switched)
    utils = SimpleNamespace(_python_dispatch=SimpleNamespace())
    _C = SimpleNamespace(DisableTorchFunction=switched)
    optim = SimpleNamespace(Optimizer=type("Optimizer", (), {}))
    cuda = SimpleNamespace(
        is_initialized=lambda: Torch.capturing, is_current_stream_capturing=lambda: True
    )

    @staticmethod
    def arange(count: int, device: str) -> Range:
        assert device == "cpu"
        return Range(range(count))


def unless_compiled(ours: Callable[..., Any], original: object) -> Callable[..., Any]:
    return ours


@pytest.fixture
def job() -> Iterator[Job]:
    job = Job()
    needless.begin()
    before = list(gc.callbacks)
    needless.follow({"Models": job.counts}, lambda: LINE, lambda path: path)
    needless.follow_no_sync(SimpleNamespace(DistributedDataParallel=job.module), unless_compiled)
    yield job
    needless.begin()
    gc.callbacks[:] = before


def test_a_block_around_the_backward_alone(job: Job) -> None:
    for _ in range(3):
        job.forward()
        with job.ddp.no_sync():
            job.backward()
    assert needless.told()["no_sync"] == [3, 0, LINE]


def test_blocks_that_are_right(job: Job) -> None:
    with job.ddp.no_sync():
        job.forward()
        job.backward()
    with job.ddp.no_sync():
        job.forward()
    with job.ddp.no_sync():  # of a forward in a block
        job.backward()
    job.forward()
    with job.ddp.no_sync():  # nothing in it
        pass
    assert needless.told()["no_sync"][:2] == [0, 2]


def test_the_profiler_that_ran_longest(job: Job) -> None:
    module = SimpleNamespace(profile=type("Profiler", (Profiler,), {}))
    needless.follow_profiler(module)
    profiler = module.profile()
    for start, end in ((5, 9), (20, 60), (70, 75)):
        job.counts.steps = start
        profiler._start_trace()
        job.counts.steps = end
        profiler.__exit__(None, None, None)
    assert needless.told()["profiled"] == [20, 40, LINE]
    profiler._start_trace()
    job.counts.steps = 200
    assert needless.told()["profiled"] == [75, 125, LINE]


def test_workers_that_are_started_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(needless.time, "monotonic", lambda: now[0])

    class Iterating:
        def __init__(self, seconds: float) -> None:
            now[0] += seconds

    needless.follow_workers(Iterating)
    assert needless.told()["starts"] == [0, 0.0, None, 0.0, None]
    for _ in range(3):
        one = Iterating(1.0)
        needless.came(object(), now[0], now[0] + 9.0)  # a loader without workers
        began, now[0] = now[0], now[0] + 2.0
        needless.came(one, began, now[0])
        for _ in range(4):
            needless.came(one, now[0], now[0] + 0.5)
        now[0] += 7.0
    assert needless.told()["starts"] == [2, 6.0, 103.0, 123.0, LINE]


def test_code_that_is_compiled_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(line: int, seconds: float, why: str | None, path: str | None = "m.py") -> object:
        return SimpleNamespace(
            co_filename=path,
            co_firstlineno=line,
            co_name="forward",
            entire_frame_compile_time_s=seconds,
            start_time=1000.0 + seconds,
            recompile_reason=why,
        )

    assert needless.compiled() == []
    many = [one(9, 3.0, None), one(4, 1.0, None), one(4, 2.0, "0/0: x"), one(4, 9.0, None, None)]
    module = SimpleNamespace(get_compilation_metrics=lambda: many)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)  # type: ignore[arg-type]
    monkeypatch.setattr(needless.time, "time", lambda: 1041.0)
    assert needless.told()["compiled"] == [2, 3.0, 40.0, "0/0: x", ["m.py", 4, "forward", True]]
    many.append(SimpleNamespace())  # of a torch that has other fields
    assert needless.told()["compiled"] == []


def test_collections_that_take_long(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [50.0], [2.0]
    monkeypatch.setattr(needless.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(needless.time, "thread_time", lambda: used[0])
    assert needless.collected in gc.callbacks
    monkeypatch.setattr(gc, "callbacks", [])

    def collect(seconds: float) -> None:
        """On a CPU that it has half of the time."""
        needless.collected("start", {})
        now[0] += 2 * seconds
        used[0] += seconds
        needless.collected("stop", {})

    collect(3.0)  # before the first step
    assert needless.told()["garbage"] == []
    job.counts.steps = 1
    for seconds in (0.001, 0.25, 0.5):
        collect(seconds)
    found = needless.told()["garbage"]
    assert [round(n, 3) for n in found[:-1]] == [2, 0.75, 0.5, 1.5, 0.75]
    assert found[-1] == LINE
    for phase in ("start", "stop"):
        needless.collected(phase, {"generation": 0})
        used[0] += 9.0
    assert needless.told()["garbage"][:-1] == found[:-1]
    needless.begin()
    assert needless.told()["garbage"] == []


def test_parameters_that_are_gathered(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "torch.distributed.tensor"):
        monkeypatch.setitem(sys.modules, name, Torch)  # type: ignore[arg-type]

    class Fsdp:
        def __init__(self, root: bool) -> None:
            self._is_root = root

        @staticmethod
        def summon_full_params(module: object) -> str:
            return "all"

    class DTensor:
        def __init__(self, at: int, numbers: int = 8) -> None:
            self._local_tensor = SimpleNamespace(data_ptr=lambda: at)
            self.shape = (numbers,)

        def numel(self) -> int:
            return self.shape[0]

        def full_tensor(self) -> str:
            return "all"

    needless.follow_fsdp(SimpleNamespace(FullyShardedDataParallel=Fsdp), unless_compiled)
    needless.follow_shards(SimpleNamespace(DTensor=DTensor), unless_compiled)

    class Muon(Torch.optim.Optimizer):  # type: ignore[misc,name-defined]
        """It needs gradients whole. A parameter may be had there as it may anywhere."""

        def step(self) -> None:
            gradient.full_tensor()

    weight, gradient, norm = DTensor(1), DTensor(2), DTensor(3, 1)
    optimizer = SimpleNamespace(param_groups=[{"params": [weight]}])
    assert weight.full_tensor() == "all"
    assert needless.told()["gathered"] == []  # nobody has looked at an optimizer yet
    needless.steps(optimizer, 0)
    for step in (1, 2, 2):
        job.counts.steps = step
        assert (weight.full_tensor(), norm.full_tensor()) == ("all", "all")
        Muon().step()
    told = needless.told()
    assert (told["gathered"], told["whole"]) == ([[LINE, 1, 2, 2, 24]], 8)
    assert gradient.full_tensor() == "all"
    assert needless.told()["gathered"] == [[LINE, 1, 2, 2, 32]]
    assert Fsdp.summon_full_params(Fsdp(root=False)) == "all"
    job.counts.steps = 3
    assert Fsdp.summon_full_params(Fsdp(root=True)) == "all"
    assert needless.told()["gathered"] == [[LINE, 1, 3, 3, 32]]


def test_rows_of_large_tables(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch.distributed.tensor", raising=False)
    optimizer = SimpleNamespace(param_groups=[])

    def parameter(grad: Grad | None, dim: int = 2) -> SimpleNamespace:
        return SimpleNamespace(
            grad=grad, dim=lambda: dim, numel=lambda: grad.numel() if grad else 1 << 30
        )

    sparse = Grad(100_000, 8)
    sparse.layout = "sparse"
    found = {
        "table": parameter(Grad(150_000, 1_500)),
        "small": parameter(Grad(1_000, 10)),
        "frozen": parameter(None),
        "sparse": parameter(sparse),
        "filter": parameter(Grad(100_000, 8), 4),
    }
    (entry,) = job.counts.entries
    entry.kind, entry.names, entry.size = "ddp", list(found), 40_000_000
    entry.parameters = lambda: list(found.values())
    monkeypatch.setattr(Torch, "capturing", True)
    needless.steps(optimizer, 0)
    assert needless.told()["tables"] == []
    monkeypatch.setattr(Torch, "capturing", False)
    for step, used in ((0, 1_500), (1, 3_000), (2, 0), (32, 150_000)):
        found["table"].grad.used = used
        needless.steps(optimizer, step)
    ((name, shape, size, part, whole),) = needless.told()["tables"]
    assert (name, shape, size, whole) == ("table", [150_000, 64], 38_400_000, 40_000_000)
    assert part == pytest.approx(0.02, rel=0.2)
    needless.begin()
    assert needless.told()["tables"] == []
