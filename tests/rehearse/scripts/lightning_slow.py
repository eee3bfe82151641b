"""Lightning, which passes its steps to the optimizer as a closure: what makes a step long is
the `dataset`, which no worker reads ahead, a `hook` after each batch, or (healthy) the `model`"""

import sys
import time

import lightning
import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]


class Samples(Dataset):
    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> torch.Tensor:
        if HOW == "dataset":
            time.sleep(0.01)  # <- here
        return torch.ones(16)


class Regression(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        if HOW == "model":
            time.sleep(0.04)
        return self.model(batch).square().mean()

    def on_train_batch_end(self, *_: object) -> None:
        if HOW == "hook":
            time.sleep(0.04)  # <- here

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
    )
    trainer.fit(Regression(), DataLoader(Samples(), batch_size=4))


if __name__ == "__main__":
    main()
