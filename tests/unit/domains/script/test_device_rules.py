"""What a script says of devices and backends."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.script_files import looked_at, write_script

SCRIPTS = Path(__file__).parents[3] / "scripts"


GLOO = "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel\n"


WRAP = "model = DistributedDataParallel(model)\n"


@pytest.mark.parametrize(
    ("start", "gpu", "found"),
    [
        ("dist.init_process_group('gloo')", True, True),
        ("dist.init_process_group('nccl')", False, False),
        ("dist.init_process_group('nccl' if there() else 'gloo')", False, True),
        ("dist.init_process_group('nccl' if there() else 'gloo')", True, False),
        ("dist.init_process_group(args.backend)", False, False),
    ],
)
def test_detail_from_the_environment(tmp_path: Path, start: str, gpu: bool, found: bool) -> None:
    path = write_script(tmp_path, "train.py", f"{GLOO}{start}\n{WRAP}")
    for value, expected in (("DETAIL", found), ("detail", found), ("INFO", False)):
        hits = looked_at(path, {"TORCH_DISTRIBUTED_DEBUG": value}, gpu)
        assert ("detail-ddp" in {h.rule for h in hits}) is expected


def test_a_rank_that_sees_one_gpu_needs_no_set_device() -> None:
    path = SCRIPTS / "faulty/no_device.py"
    assert "set-device-missing" in {h.rule for h in looked_at(path, gpu=True)}
    for one in ({"CUDA_VISIBLE_DEVICES": "3"}, {"ROCR_VISIBLE_DEVICES": "GPU-1"}):
        assert "set-device-missing" not in {h.rule for h in looked_at(path, one, gpu=True)}
    several = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert "set-device-missing" in {h.rule for h in looked_at(path, several, gpu=True)}
