"""Which tests of a script part the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.script_files import looked_at, write_script


@pytest.mark.parametrize(
    "test",
    [
        "rank == 0",
        "not rank",
        "rank != 0",
        "0 == int(os.environ['RANK'])",
        "os.getenv('LOCAL_RANK') == '0'",
        "rank in {0}",
        "args.local_rank in [-1, 0]",
        "self.is_main_process and step % 10 == 0",
        "utils.is_main_process()",
        "rank == world_size - 1",
        "rank % 2 == 1",
        "rank == 0 or rank == 1",
        "(me := dist.get_rank()) == 0",
    ],
)
def test_tests_that_part_the_ranks(tmp_path: Path, test: str) -> None:
    text = f"import os\nimport torch.distributed as dist\nif {test}:\n    dist.barrier()\n"
    (hit,) = looked_at(write_script(tmp_path, "train.py", text))
    assert (hit.rule, hit.line) == ("collective-under-rank", 4)


@pytest.mark.parametrize(
    "test",
    [
        "rank >= 0",
        "local_rank != -1",
        "rank is not None",
        "rank == 0 or args.everywhere",
        "world_size > 1",
        "dist.is_initialized()",
        "dist.get_rank(group) == 0",
        "tp_rank == 0",
        "rank < world_size",
        "epoch % 5 == 0",
        "ready[rank]",
        "rank % gpus == 0",
        "rank ** 99999 == 0",
        "rank // 0",
        "9 ** 9 ** 9",
        "1 << 99999999",
    ],
)
def test_tests_that_do_not(tmp_path: Path, test: str) -> None:
    text = f"import torch.distributed as dist\nif {test}:\n    dist.barrier()\n"
    assert looked_at(write_script(tmp_path, "train.py", text)) == ()
