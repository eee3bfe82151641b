"""What a script fixes that is the launcher's to say."""

from __future__ import annotations

import pytest

from preflight.domains.script.rules import mentions
from preflight.domains.script.source import Program, parse_module
from preflight.domains.script.start_rules import (
    Started,
    contradicts_launcher,
    destroy_missing,
    hardcoded,
    launch_of,
)

HEAD = "import os\nimport torch.distributed as dist\n"


PORT_SET = "os.environ['MASTER_PORT'] = '12355'\n"


def program(text: str) -> Program:
    return Program((parse_module((HEAD + text).encode(), "train.py"),), ())


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        ("torchrun --nproc-per-node=4 train.py --nnodes 9", Started(4, 1, "29500")),
        ("/opt/bin/torchrun --nnodes 2 --nproc_per_node 8 train.py", Started(8, 2, "29500")),
        (
            "srun -N2 python -m torch.distributed.run --nproc-per-node=2 train.py",
            Started(2, 1, "29500"),
        ),
        ("torchrun --nnodes=1:4 --nproc-per-node=auto train.py", Started(0, 0, "29500")),
        ("torchrun train.py", Started(1, 1, "29500")),
        ("torchrun --standalone --nproc-per-node=2 train.py", Started(2, 1)),
        ("torchrun --master-port 12355 --nproc-per-node=2 train.py", Started(2, 1, "12355")),
        ("torchrun --rdzv-backend=c10d --rdzv-endpoint=n1:29400 train.py", Started(1, 1, "29400")),
        ("torchrun --nproc-per-node", Started(0, 1, "29500")),
        ("python train.py --nproc-per-node=4", Started()),
        ("", Started()),
    ],
)
def test_what_torchrun_is_told(argv: str, found: Started) -> None:
    assert launch_of(argv.split()) == found


@pytest.mark.parametrize(
    ("text", "launch", "count"),
    [
        (
            "dist.init_process_group('nccl', 'tcp://node01:23456', rank=r, world_size=n)\n",
            Started(),
            1,
        ),
        (
            "URL = 'tcp://172.16.0.4:1234'\ndist.init_process_group('nccl', init_method=URL)\n",
            Started(),
            1,
        ),
        ("dist.init_process_group('nccl', init_method=f'tcp://{host}:{port}')\n", Started(), 0),
        ("dist.init_process_group('nccl', init_method='tcp://localhost:1')\n", Started(4, 1), 0),
        ("dist.init_process_group('nccl', init_method='tcp://localhost:1')\n", Started(4, 2), 1),
        ("dist.init_process_group('nccl', init_method=args.dist_url)\n", Started(4, 2), 0),
        ("dist.init_process_group('nccl', world_size=8, rank=r)\n", Started(8, 1), 0),
        ("dist.init_process_group('nccl', world_size=8, rank=r)\n", Started(4, 1), 1),
        ("if debug:\n  dist.init_process_group('gloo', world_size=1, rank=0)\n", Started(4, 1), 0),
        ("os.environ['MASTER_ADDR'] = 'gpu-17'\n", Started(), 1),
        ("os.environ['MASTER_ADDR'] = '127.0.0.1'\n", Started(4, 1), 0),
        ("os.environ['MASTER_ADDR'] = args.host\n", Started(4, 2), 0),
        ("os.environ['MASTER_PORT'] = '29501'\n", Started(4, 2), 0),
        (f"{PORT_SET}dist.init_process_group('gloo')\n", Started(4, 1, "29500"), 1),
        (f"{PORT_SET}dist.init_process_group('gloo', rank=r, world_size=n)\n", Started(4, 1), 1),
        (f"{PORT_SET}dist.init_process_group('gloo')\n", Started(4, 1, "12355"), 0),
        (f"{PORT_SET}dist.init_process_group('gloo')\n", Started(), 0),
        (f"{PORT_SET}dist.init_process_group('gloo', init_method=url)\n", Started(4, 1), 0),
        (f"{PORT_SET}dist.init_process_group('gloo', store=s)\n", Started(4, 1), 0),
        (f"if alone:\n  {PORT_SET}dist.init_process_group('gloo')\n", Started(4, 1), 0),
        (
            f"{PORT_SET}del os.environ['TORCHELASTIC_USE_AGENT_STORE']\n"
            "dist.init_process_group('gloo')\n",
            Started(4, 1),
            0,
        ),
        (
            "def setup(rank, size):\n"
            f"  {PORT_SET}  dist.init_process_group('gloo', rank=rank, world_size=size)\n"
            "mp.spawn(setup, nprocs=4)\n",
            Started(1, 1),
            0,
        ),
        ("os.environ['LOCAL_RANK'] = '0'\n", Started(4, 1), 1),
        ("os.environ['LOCAL_RANK'] = '0'\n", Started(), 0),
        ("os.environ['RANK'] = str(i)\n", Started(4, 1), 0),
    ],
)
def test_what_is_fixed(text: str, launch: Started, count: int) -> None:
    made = program(text)
    assert len(list(hardcoded(made, mentions(made.modules), launch))) == count


@pytest.mark.parametrize(
    ("text", "launch", "count"),
    [
        ("import lightning.pytorch as pl\npl.Trainer(devices=[0, 1])\n", Started(4, 1), 1),
        ("import lightning.pytorch as pl\npl.Trainer(devices='2')\n", Started(2, 1), 0),
        ("import lightning.pytorch as pl\npl.Trainer(**config)\n", Started(2, 1), 0),
        ("import lightning.pytorch as pl\npl.Trainer(devices=2, num_nodes=n)\n", Started(4, 1), 0),
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=n)\n", Started(2, 1), 1),
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=1)\n", Started(2, 1), 0),
        ("import torch.multiprocessing as mp\nmp.spawn(f, nprocs=n)\n", Started(), 0),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'\n", Started(4, 1), 1),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = ''\n", Started(4, 1), 0),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']\n", Started(4, 1), 0),
    ],
)
def test_what_contradicts_torchrun(text: str, launch: Started, count: int) -> None:
    made = program(text)
    assert len(list(contradicts_launcher(made, mentions(made.modules), launch))) == count


OPTION = "p.add_argument('--dist-backend', default='{}')\n"
INITS = (
    "if cuda:\n  dist.init_process_group('{}')\nelse:\n  dist.init_process_group('{}')\nprint()\n"
)
NCCL = "dist.init_process_group('nccl')\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("dist.init_process_group('nccl')\nprint()\n", 1),
        ("dist.init_process_group('nccl')\ndist.destroy_process_group()\n", 0),
        ("from mine import Runner\ndist.init_process_group('nccl')\nRunner().teardown()\n", 0),
        ("dist.init_process_group(args.backend)\nprint()\n", 0),
        ("import deepspeed\ndist.init_process_group('nccl')\nprint()\n", 0),
        ("args.backend = 'nccl'\ndist.init_process_group(args.backend)\nprint()\n", 1),
        (OPTION.format("nccl") + "dist.init_process_group(args.dist_backend)\n", 1),
        (OPTION.format("gloo") + "dist.init_process_group(args.dist_backend)\n", 0),
        ("dist.init_process_group(os.environ.get('B', 'nccl'))\nprint()\n", 1),
        ("dist.init_process_group('cpu:gloo,cuda:nccl')\nprint()\n", 1),
        # one of two, and two that are alike
        (INITS.format("nccl", "gloo"), 1),
        (INITS.format("gloo", "gloo"), 0),
        (INITS.format("nccl", "nccl"), 0),
        # a module, which imports what may be there
        ("try:\n  import a\nexcept ImportError:\n  a = None\ndef f():\n  " + NCCL, 0),
        ("try:\n  f()\nexcept OSError:\n  pass\ndef f():\n  " + NCCL, 1),
    ],
)
def test_the_group_is_ended(text: str, count: int) -> None:
    made = program(text)
    assert len(list(destroy_missing(made, mentions(made.modules), True))) == count


@pytest.mark.parametrize(("gpu", "count"), [(True, 1), (False, 0)])
def test_a_choice_falls_on_nccl_where_there_is_a_gpu(gpu: bool, count: int) -> None:
    made = program(
        "dist.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')\nprint()\n"
    )
    assert len(list(destroy_missing(made, mentions(made.modules), gpu))) == count
