"""Tokens are routed to experts in parts of other sizes in each step, as their senders and receivers
know. With `sizes` rank 1 sends more once, and nobody was told."""

import sys

import planted
import torch
import torch.distributed as dist

WIDE = 64


def main() -> None:
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for step in range(60):
        torch.manual_seed(step)
        table = torch.randint(1, 9, (ranks, ranks)).tolist()  # who sends how much to whom
        sent = list(table[rank])
        if "sizes" in sys.argv and rank == 1 and step == 30:
            planted.now()
            sent[-1] += 4096
        room = [row[rank] for row in table]
        got = torch.empty(sum(room), WIDE)
        dist.all_to_all_single(got, torch.ones(sum(sent), WIDE), room, sent)  # <- here
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
