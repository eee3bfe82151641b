"""DeepSpeed's ZeRO-2 on the CPU; what goes wrong on one rank is given, "none" for nothing."""

import sys
import tempfile

import deepspeed
import planted
import torch
import torch.distributed as dist

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
}


def main(fault: str) -> None:
    ops = deepspeed.ops.__compatible_ops__
    ops.update(dict.fromkeys(ops, False))  # its all-reduce through /dev/shm is not to be compiled
    deepspeed.init_distributed("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    made = torch.optim.AdamW(model.parameters())
    engine, *_ = deepspeed.initialize(model=model, optimizer=made, config=CONFIG)
    rank = dist.get_rank()
    for step in range(40):
        loss = engine(torch.randn(4, 64)).square().mean()
        if step == 10 and (rank, fault) in ((1, "raises"), (1, "skips"), (0, "saves")):
            planted.now()
        if step == 10 and (rank, fault) == (1, "raises"):
            raise LookupError("token 50257 is not in the vocabulary")  # <- here
        if step == 10 and (rank, fault) == (1, "skips"):
            continue
        engine.backward(loss)
        engine.step()
        if step == 10 and (rank, fault) == (0, "saves"):
            with tempfile.TemporaryDirectory() as folder:
                engine.save_checkpoint(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[-1])
