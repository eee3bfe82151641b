"""transformers' Trainer does all of it."""

from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModel, Trainer, TrainingArguments


def main(x) -> None:
    arguments = TrainingArguments("out", gradient_accumulation_steps=4, bf16=True)
    trainer = Trainer(AutoModel.from_pretrained("x"), arguments, train_dataset=TensorDataset(x))
    trainer.train()
    if trainer.is_world_process_zero():
        trainer.save_model()
    print(DataLoader(TensorDataset(x)))
