"""How a script deals out its data to the ranks."""

from __future__ import annotations

import pytest

from preflight.domains.script.data_rules import sampler_missing, set_epoch_missing
from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module

HEAD = (
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "from torch.utils.data import DataLoader, TensorDataset\n"
    "from torch.utils.data.distributed import DistributedSampler\n"
    "model = DDP(model)\ndata = TensorDataset(x)\n"
)
LOADER = "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
SAMPLER = "sampler = DistributedSampler(data)\nloader = DataLoader(data, 8, sampler=sampler)\n"
EPOCHS = "for epoch in range(9):\n    pass\n"


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (LOADER, 0),  # a sampler is imported
        (LOADER.replace("loader", "val_loader"), 0),
        ("from torch.utils.data import IterableDataset\n" + LOADER, 0),
    ],
)
def test_whatever_may_deal_out_the_data_silences_it(text: str, count: int) -> None:
    made = program(text)
    assert len(list(sampler_missing(made, mentions(made.modules)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (LOADER, 1),
        (LOADER.replace("loader", "val_loader"), 0),
        (LOADER.replace("data, batch", "stream(), batch"), 0),
        (LOADER + "part = x[rank::world_size]\n", 0),
        (LOADER + "part = order[rank * share : (rank + 1) * share]\n", 0),
        (
            "me, all_of = dist.get_rank(), dist.get_world_size()\n"
            + LOADER
            + "part = x[me::all_of]\n",
            0,
        ),
        (LOADER + "part = x[me::all_of]\n", 1),
        (LOADER + "torch.manual_seed(rank)\n", 0),
        ("import lightning\n" + LOADER, 0),
        (LOADER + "net, opt, loader = engine.make_private(net, opt, loader)\n", 0),  # Opacus
    ],
)
def test_a_loader_of_all_data_under_ddp(text: str, count: int) -> None:
    plain = HEAD.replace("from torch.utils.data.distributed import DistributedSampler\n", "")
    made = Program((parse_module((plain + text).encode(), "train.py"),), ())
    assert len(list(sampler_missing(made, mentions(made.modules)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (SAMPLER + EPOCHS, 1),
        (SAMPLER, 0),
        (SAMPLER + EPOCHS.replace("9", "1"), 0),
        (SAMPLER + EPOCHS.replace("pass", "sampler.set_epoch(epoch)"), 0),
        (SAMPLER.replace("(data)", "(data, shuffle=False)") + EPOCHS, 0),
        (SAMPLER.replace("sampler =", "test_sampler =") + EPOCHS, 0),
        (SAMPLER.replace("(data)", "(data, seed=7)") + EPOCHS, 1),
        (SAMPLER.replace("(data)", "(data, seed=args.seed + epoch)") + EPOCHS, 0),
    ],
)
def test_a_sampler_must_be_told_the_epoch(text: str, count: int) -> None:
    made = program(text)
    assert len(list(set_epoch_missing(made, mentions(made.modules)))) == count
