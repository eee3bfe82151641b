"""Lightning: rank 1 raises in training_step; rank 0, its parent, is the command."""

import lightning
import planted
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        if self.global_rank == 1 and number == 5:
            planted.now()
            raise ValueError("a bad sample")  # <- here
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(Regression(), DataLoader(data, batch_size=8, shuffle=True))


if __name__ == "__main__":
    main()
