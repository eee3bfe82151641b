"""Lightning: what a test's end gathers from all ranks, rank 0 alone asks for
(Lightning-AI/pytorch-lightning#16541); with `healthy` all do."""

import sys

import lightning
import planted
import torch
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)
        self.seen: list[torch.Tensor] = []

    def test_step(self, batch: list[torch.Tensor], number: int) -> None:
        self.seen.append(self.model(batch[0]))

    def on_test_epoch_end(self) -> None:
        seen = torch.cat(self.seen)
        if "healthy" in sys.argv:
            seen = self.all_gather(seen)
        if self.trainer.is_global_zero:
            if "healthy" not in sys.argv:
                planted.now()
                seen = self.all_gather(seen)  # <- here
            print("seen", tuple(seen.shape))


def main() -> None:
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.test(Classifier(), DataLoader(data, batch_size=8))


if __name__ == "__main__":
    main()
