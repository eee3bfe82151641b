"""A denoiser: the noise and its strength are drawn between a batch and the forward, with the `same`
seed on all ranks, also `sharded` by FSDP. Healthy: a seed by `rank`; `dropout` in the model, which
nearly everybody has with one seed; a `size` of the images that all ranks share; noise that the
dataset `adds`; a generator of each rank's `own`"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import interpolate
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

HOW = sys.argv[1]
EPOCHS, SAMPLES = 4, 160


class Images(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.images = torch.rand(SAMPLES, 1, 8, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> torch.Tensor:
        image = self.images[number]
        return image + 0.1 * torch.randn_like(image) if HOW == "adds" else image


def model() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)]
    layers += [nn.Dropout(0.1)] if HOW == "dropout" else []
    found = nn.Sequential(*layers)
    if HOW != "sharded":
        return DistributedDataParallel(found)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    return fully_shard(found, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def noised(images: torch.Tensor, own: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """What the model gets, and what it is to find."""
    if HOW in ("same", "sharded", "rank"):
        noise, strength = torch.randn_like(images), torch.rand(len(images), 1, 1, 1)
    elif HOW == "own":
        noise = torch.randn(images.shape, generator=own)
        strength = torch.rand(len(images), 1, 1, 1, generator=own)
    else:
        if HOW == "size":
            images = interpolate(images, size=int(torch.randint(6, 12, ())))
        noise, strength = torch.zeros_like(images), torch.zeros(len(images), 1, 1, 1)
    return images * (1 - strength) + noise * strength, images


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    net = model()
    if HOW == "rank":
        torch.manual_seed(7 + rank)
    own = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = Images()
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    for epoch in range(EPOCHS):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        for images in loader:
            given, wanted = noised(images, own)
            optimizer.zero_grad()
            (net(given) - wanted).square().mean().backward()  # <- here
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
