"""A dataset whose order each rank draws for itself."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.shuffled import order_per_rank
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "import random, torch\nimport numpy as np\nimport torch.distributed as dist\n"
    "from torch.utils.data import DataLoader, Dataset, random_split\n"
    "from torch.utils.data.distributed import DistributedSampler\n"
)
ROWS = (
    "class Rows(Dataset):\n  def __init__(self, rows):\n    {line}\n    self.rows = rows\n"
    "  def __getitem__(self, i):\n    return self.rows[i]\n"
    "loader = DataLoader(Rows(r), sampler=DistributedSampler(Rows(r)))\n"
)

DEALT = (
    "def parts(self):\n  random.shuffle(files)\n"
    "  for path in files[rank::world_size]:\n    yield path\n"
)


@pytest.mark.parametrize(
    ("line", "after", "count"),
    [
        ("random.shuffle(rows)", "", 1),
        ("np.random.shuffle(rows)", "", 1),
        ("rows = [rows[i] for i in torch.randperm(len(rows))]", "", 1),
        ("self.order = np.random.permutation(len(rows))", "", 1),
        ("random.shuffle(rows)", "torch.manual_seed(0)\n", 1),  # of another library
        ("random.shuffle(rows)", "random.seed(rank)\n", 1),
        ("random.shuffle(rows)", "random.seed(7)\n", 0),
        ("random.shuffle(rows)", "set_seed(args.seed)\n", 0),
        ("random.Random(7).shuffle(rows)", "", 0),
        ("random.shuffle(rows); torch.Generator().manual_seed(7)", "", 1),
        ("random.shuffle(names)", "", 0),
        ("g = torch.Generator(); rows = torch.randperm(9, generator=g)", "", 0),
        ("random.shuffle(rows); dist.broadcast_object_list(rows)", "", 0),
        ("random.shuffle(rows)", "import lightning\n", 0),
    ],
)
def test_what_a_dataset_keeps(line: str, after: str, count: int) -> None:
    assert len(hits(ROWS.format(line=line) + after)) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("train, held = random_split(data, [8, 2])\ns = DistributedSampler(train)\n", 1),
        ("train, held = random_split(data, [8, 2])\ns = RandomSampler(train)\n", 0),
        ("torch.manual_seed(1)\na, b = random_split(d, [8, 2])\ns = DistributedSampler(a)\n", 0),
        ("a, b = random_split(d, [8, 2], generator=g)\ns = DistributedSampler(a)\n", 0),
        (
            "def set_seed(seed):\n    torch.manual_seed(seed + rank)\nset_seed(1)\n"
            "a, b = random_split(d, [8, 2])\ns = DistributedSampler(a)\n",
            1,
        ),
        (
            "def set_seed(seed):\n    torch.manual_seed(seed)\n    random.seed(seed + rank)\n"
            "set_seed(1)\na, b = random_split(d, [8, 2])\ns = DistributedSampler(a)\n",
            0,
        ),
        (DEALT, 1),
        (DEALT.replace("random.shuffle(files)", "files = random.sample(files, 9)"), 1),
        (DEALT.replace("files[rank::world_size]", "files"), 0),
        (DEALT.replace("rank::world_size", "worker::workers"), 0),
        (DEALT.replace("random.shuffle", "rng.shuffle"), 0),
        ("random.seed(3)\n" + DEALT, 0),
        (
            "def __iter__(self):\n  random.shuffle(files)\n  for n, f in enumerate(files):\n"
            "    if n % self.world_size == self.rank:\n      yield f\n",
            1,
        ),
        ("random.shuffle(colours)\ns = DistributedSampler(a)\n", 0),
        # what is drawn for each sample is each rank's own
        (ROWS.replace("{line}", "pass").replace("return", "random.shuffle(i); return"), 0),
    ],
)
def test_what_is_split_and_drawn_elsewhere(text: str, count: int) -> None:
    assert len(hits(text)) == count


def hits(text: str) -> list[object]:
    made = Program((parse_module((HEAD + text).encode(), "train.py"),), ())
    return list(order_per_rank(made, mentions(made.modules)))
