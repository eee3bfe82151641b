"""Lightning: a barrier that only rank 0 gets to, in a hook of the module."""

import lightning
import planted
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def on_train_batch_start(self, *of: object) -> None:
        if self.trainer.is_global_zero and of[-1] == 5:
            planted.now()
            self.trainer.strategy.barrier()  # <- here

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
