import os

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Trainer:
    def __init__(self, config, model, optimizer, train_dataset, test_dataset=None):
        self.config = config
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.train_loader = self._prepare_dataloader(train_dataset)
        self.test_loader = self._prepare_dataloader(test_dataset) if test_dataset else None
        self.epochs_run = 0
        self.model = model.to(self.local_rank)
        self.optimizer = optimizer
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def _prepare_dataloader(self, dataset):
        return DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))

    def _run_batch(self, source, targets, train=True):
        with torch.set_grad_enabled(train):
            _, loss = self.model(source, targets)
        if train:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch, loader, train=True):
        loader.sampler.set_epoch(epoch)
        for number, (source, targets) in enumerate(loader):
            source = source.to(self.local_rank)
            targets = targets.to(self.local_rank)
            batch_loss = self._run_batch(source, targets, train)
            if number % 100 == 0:
                print(f"[RANK{self.global_rank}] {epoch} {batch_loss:.5f}")

    def _save_snapshot(self, epoch):
        model = self.model
        raw_model = model.module if hasattr(model, "module") else model
        torch.save(raw_model.state_dict(), "snapshot.pt")

    def train(self):
        for epoch in range(self.epochs_run, self.config.max_epochs):
            self._run_epoch(epoch, self.train_loader, train=True)
            if self.local_rank == 0 and epoch % self.config.save_every == 0:
                self._save_snapshot(epoch)
            if self.test_loader:
                self._run_epoch(epoch, self.test_loader, train=False)


if __name__ == "__main__":
    init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    parts = torch.load("parts.pt")
    Trainer(*parts).train()
    destroy_process_group()
