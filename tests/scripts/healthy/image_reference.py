"""A reference training of pictures: helpers, a metric that is summed."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.utils.data
import torchvision


def is_dist_avail_and_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def get_rank() -> int:
    return dist.get_rank() if is_dist_avail_and_initialized() else 0


def is_main_process() -> bool:
    return get_rank() == 0


def save_on_master(*args) -> None:
    if is_main_process():
        torch.save(*args)


class Metric:
    def __init__(self) -> None:
        self.count, self.total = 0, 0.0

    def synchronize(self) -> None:
        if not is_dist_avail_and_initialized():
            return
        both = torch.tensor([self.count, self.total])
        dist.barrier()
        dist.all_reduce(both)
        self.count, self.total = both.tolist()


def init(args) -> None:
    if "RANK" in os.environ:
        args.rank, args.gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    else:
        args.distributed = False
        return
    torch.cuda.set_device(args.gpu)
    dist.init_process_group(backend="nccl", init_method="env://")
    dist.barrier()


def evaluate(model, loader, device) -> float:
    model.eval()
    metric = Metric()
    with torch.inference_mode():
        for image, _ in loader:
            metric.total += float(model(image.to(device, non_blocking=True)).sum())
    metric.synchronize()
    if hasattr(loader.dataset, "__len__") and dist.get_rank() == 0:
        print("samples", metric.count)
    return metric.total


def main(args) -> None:
    init(args)
    device = torch.device(args.device)
    train, test = torchvision.datasets.FakeData(), torchvision.datasets.FakeData()
    if args.distributed:
        sampler = torch.utils.data.distributed.DistributedSampler(train)
        test_sampler = torch.utils.data.distributed.DistributedSampler(test, shuffle=False)
    else:
        sampler = torch.utils.data.RandomSampler(train)
        test_sampler = torch.utils.data.SequentialSampler(test)
    loader = torch.utils.data.DataLoader(train, batch_size=2, sampler=sampler)
    test_loader = torch.utils.data.DataLoader(test, batch_size=1, sampler=test_sampler)
    model = torchvision.models.resnet18().to(device)
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        for image, _ in loader:
            model(image.to(device)).sum().backward()
        evaluate(model, test_loader, device)
        save_on_master({"epoch": epoch}, "model.pth")
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", default=90, type=int)
    main(parser.parse_args())
