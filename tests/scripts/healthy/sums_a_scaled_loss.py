"""Reinforcement learning without DDP: gradients are summed, and the loss is divided."""

import argparse

import torch
import torch.distributed as dist
from torch import nn


class Learner:
    def __init__(self, policy: nn.Module, rate: float) -> None:
        self.policy = policy
        self.optimizer = torch.optim.SGD(policy.parameters(), lr=rate)
        for parameter in policy.parameters():
            dist.broadcast(parameter.data, 0)

    def share(self) -> None:
        found = [p.grad.view(-1) for p in self.policy.parameters() if p.grad is not None]
        whole = torch.cat(found)
        dist.all_reduce(whole, op=dist.ReduceOp.SUM)
        start = 0
        for one in found:
            one.copy_(whole[start : start + one.numel()])
            start += one.numel()

    def learn(self, states: torch.Tensor, chosen: torch.Tensor, gains: torch.Tensor) -> float:
        logits = self.policy(states)
        picked = torch.distributions.Categorical(logits=logits).log_prob(chosen)
        error = -torch.dot(picked, gains)
        error = error / dist.get_world_size()
        self.optimizer.zero_grad()
        error.backward()
        self.share()
        self.optimizer.step()
        return error.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--games", type=int, default=1000)
    given = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    learner = Learner(nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2)), given.rate)
    for game in range(given.games):
        states = torch.randn(16, 4)
        error = learner.learn(states, torch.randint(2, (16,)), torch.randn(16))
        if game % 100 == 0:
            print(game, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
