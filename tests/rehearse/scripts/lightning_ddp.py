"""Lightning, which starts rank 1 itself: training, validation with sync_dist, a checkpoint."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)

    def _loss(self, batch: list[torch.Tensor]) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        return self._loss(batch)

    def validation_step(self, batch: list[torch.Tensor], number: int) -> None:
        self.log("val_loss", self._loss(batch), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(
        Regression(),
        DataLoader(data, batch_size=8, shuffle=True),
        DataLoader(data, batch_size=8),
    )


if __name__ == "__main__":
    main()
