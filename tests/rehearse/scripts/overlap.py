"""Asynchronous all-reduces that are waited for at the end of the step."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
layers = [torch.nn.Linear(64, 64) for _ in range(6)]
for _ in range(60):
    values = torch.randn(8, 64)
    for layer in layers:
        values = layer(values)
    values.mean().backward()
    works = [
        dist.all_reduce(parameter.grad, async_op=True)
        for layer in layers
        for parameter in layer.parameters()
    ]
    for work in works:
        work.wait()
dist.destroy_process_group()
