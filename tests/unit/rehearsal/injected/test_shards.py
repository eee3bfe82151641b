"""Who divides the samples of a DataLoader, with stand-ins for torch's classes."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from preflight.rehearsal.injected import preflight_shards as shards


class Sampler:
    def __init__(self, **known: object) -> None:
        vars(self).update(known)


class Dataset:
    def __init__(self, length: int, **known: object) -> None:
        vars(self).update(known)
        self._length = length

    def __len__(self) -> int:
        return self._length


class Tensor:
    is_meta, layout = False, "strided"

    def __init__(self, rows: int, width: int, whole: int, first: int, step: int) -> None:
        self.shape, self.whole, self.first, self.step = (rows, width), whole, first, step

    def dim(self) -> int:
        return 2

    def numel(self) -> int:
        return self.shape[0] * self.shape[1]

    def untyped_storage(self) -> Any:
        return SimpleNamespace(nbytes=lambda: 4 * self.whole)

    def element_size(self) -> int:
        return 4

    def storage_offset(self) -> int:
        return self.first

    def stride(self, dimension: int) -> int:
        return self.step if dimension == 0 else 1


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    data = SimpleNamespace(data=SimpleNamespace(Dataset=Dataset))
    fake = SimpleNamespace(Tensor=Tensor, utils=data, strided="strided")
    monkeypatch.setitem(sys.modules, "torch", fake)  # type: ignore[arg-type]
    sampler = SimpleNamespace(Sampler=Sampler)
    monkeypatch.setitem(sys.modules, "torch.utils.data.sampler", sampler)  # type: ignore[arg-type]


def iterator(sampler: object, dataset: object) -> Any:
    return SimpleNamespace(_index_sampler=sampler, _dataset=dataset)


BatchSamplerShard = type("BatchSamplerShard", (), {})
IterableDatasetShard = type("IterableDatasetShard", (), {})


def wrapper(kind: type, **known: object) -> Any:
    made = kind()
    vars(made).update(known)
    return made


def test_samplers_in_samplers() -> None:
    data = Dataset(8)
    inner = Sampler(num_replicas=2, rank=1, dataset=data)
    batches = Sampler(sampler=inner)
    outer = wrapper(BatchSamplerShard, num_processes=2, process_index=0, batch_sampler=batches)
    assert shards.sharers_of(iterator(outer, data)) == [
        ["BatchSamplerShard", 2, 0],
        ["Sampler", 2, 1],
    ]


def test_what_divides_nothing() -> None:
    own = Dataset(8, num_replicas=2, rank=1)
    for sampler in (Sampler(num_replicas=1, rank=0), Sampler(num_replicas="2", rank=0), Sampler()):
        assert shards.look(iterator(sampler, own), lambda: None, 0) is None


def test_streams() -> None:
    stream = Dataset(8, _distributed=SimpleNamespace(world_size=4, rank=3))
    shard = wrapper(IterableDatasetShard, num_processes=4, process_index=3, dataset=stream)
    assert [entry[1:] for entry in shards.sharers_of(iterator(None, shard))] == [[4, 3], [4, 3]]


def marks(dataset: object) -> list[list[int]]:
    return [layer["marks"] for layer in shards.layers_of(dataset)]


def test_indices_and_what_they_are_of() -> None:
    whole = Dataset(100)
    even, odd = (Dataset(50, indices=list(range(n, 100, 2)), dataset=whole) for n in (0, 1))
    (mine,), (theirs,) = marks(even), marks(odd)
    assert len(mine) == shards.MARKS
    assert not {*mine} & {*theirs}
    again = Dataset(50, indices=list(range(98, -1, -2)), dataset=whole)
    assert marks(again) == [mine]
    (layer,) = shards.layers_of(Dataset(50, indices=range(98, -1, -2), dataset=whole))
    assert (layer["of"], layer["span"], layer["marks"]) == (100, [0, 98, 2], [])


def test_names_of_files_wherever_they_are() -> None:
    one, other = (
        Dataset(9, root=f"/{n}", samples=[(f"/{n}/{i}.png", i) for i in range(9)]) for n in "ab"
    )
    assert marks(one) == marks(other)
    paths = Dataset(9, files=[Path(f"/c/{i}.png") for i in range(9)], labels=[0] * 9)
    assert marks(paths) == marks(one)
    rows = Dataset(9, rows=[{"label": 1, "audio": f"{i}.png"} for i in range(9)])
    assert marks(rows) == marks(one)


def test_the_order_of_samples() -> None:
    def order(*files: str) -> int:
        (layer,) = shards.layers_of(Dataset(len(files), files=list(files)))
        return layer["order"]

    assert order("a", "b", "c") == order("x/a", "x/b", "x/c") > 0
    assert len({order("a", "b", "c"), order("b", "a", "c"), order("a", "b")}) == 3


def test_numbers_of_a_dataset_of_the_programs_own_may_be_anything() -> None:
    assert marks(Dataset(9, seeds=list(range(9)), text=[None] * 9, few=["a"])) == []


def test_rows_of_a_larger_tensor() -> None:
    mine = Dataset(4, tensors=(Tensor(4, 3, 24, 3, 6),))
    (layer,) = shards.layers_of(mine)
    assert (layer["of"], layer["span"]) == (24, [3, 21, 6])
    assert list(shards.layers_of(Dataset(4, tensors=(Tensor(4, 3, 12, 0, 3),)))) == []
    assert list(shards.layers_of(Dataset(2, tensors=(Tensor(4, 3, 24, 0, 3),)))) == []


def test_a_dataset_within_another_one() -> None:
    inner = Dataset(3, names=["a", "b", "c"])
    assert marks(Dataset(3, transform=None, base=inner)) == marks(inner)
    assert marks(["x/a", "b", "c"]) == marks(inner)


def test_a_table_of_which_a_part_is_left() -> None:
    splits = {"train": SimpleNamespace(num_examples=100)}
    known = {"_data": 0, "_fingerprint": "7f", "info": SimpleNamespace(splits=splits)}
    (layer,) = shards.layers_of(Dataset(50, **known, split="train[:90%]"))
    assert (layer["kind"], layer["length"], layer["of"], len(layer["marks"])) == (
        "table",
        50,
        100,
        1,
    )
    assert list(shards.layers_of(Dataset(100, **known, split="train"))) == []
    assert list(shards.layers_of(Dataset(50, **{**known, "info": None}))) == []


def test_the_rows_of_a_table_that_was_shuffled() -> None:
    column = SimpleNamespace(to_pylist=lambda: [4, 1, 3])
    rows = SimpleNamespace(column=lambda number: column)
    known = {"_data": [0] * 5, "_fingerprint": "7f", "_indices": rows}
    (layer,) = shards.layers_of(Dataset(3, **known))
    assert (layer["length"], layer["of"], len(layer["marks"])) == (3, 5, 3)
    assert list(shards.layers_of(Dataset(3, **{**known, "_indices": None}))) == []


def test_a_stream_has_no_length() -> None:
    stream = SimpleNamespace(files=["a/1.tar", "a/2.tar"], few=[3, 4], numbers=range(1, 9, 2))
    shard = wrapper(IterableDatasetShard, dataset=stream)
    names, numbers = shards.layers_of(stream)
    assert (len(names["marks"]), names["length"]) == (2, 2)
    assert numbers["span"] == [1, 7, 2]
    assert list(shards.layers_of(shard)) == []
    data = Dataset(2)
    vars(data).update(dataset=Dataset(2, files=["1", "2"]))
    assert len(list(shards.layers_of(data))) == 1


def test_what_is_too_long_is_not_read() -> None:
    assert marks(Dataset(shards.READ + 1, files=["a"] * (shards.READ + 1))) == []
    assert marks(Dataset(0, files=[])) == []
