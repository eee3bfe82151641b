"""Two pinned buffers in turn, and an event for each."""

import torch


class Batches:
    def __init__(self, table: torch.Tensor, size: int) -> None:
        self.table, self.turn = table, 0
        self.stages = [torch.empty(size, table.shape[1], pin_memory=True) for _ in range(2)]
        self.copied = [torch.cuda.Event() for _ in range(2)]

    def draw(self, rows: torch.Tensor) -> torch.Tensor:
        self.turn = 1 - self.turn
        self.copied[self.turn].synchronize()
        torch.index_select(self.table, 0, rows, out=self.stages[self.turn])
        found = self.stages[self.turn].to("cuda", non_blocking=True)
        self.copied[self.turn].record()
        return found
