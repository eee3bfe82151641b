"""Lightning without its sampler: rank 0 has one batch more."""

import lightning
import planted
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        if number == 31:
            planted.now()  # the other one has no such batch
        return torch.nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    data = TensorDataset(torch.randn(256, 16), torch.randn(256, 1))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        use_distributed_sampler=False,
    )
    share = TensorDataset(*data[: 256 - 8 * trainer.global_rank])
    trainer.fit(Regression(), DataLoader(share, batch_size=8))  # <- here


if __name__ == "__main__":
    main()
