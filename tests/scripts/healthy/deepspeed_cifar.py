import argparse

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from torch import nn


def test(model_engine, testset, local_device):
    loader = torch.utils.data.DataLoader(testset, batch_size=4)
    model_engine.eval()
    right = 0
    with torch.no_grad():
        for images, labels in loader:
            outputs = model_engine(images.to(local_device))
            right += (outputs.argmax(1) == labels.to(local_device)).sum().item()
    if model_engine.local_rank == 0:
        print(right)


def main(args):
    deepspeed.init_distributed()
    get_accelerator().set_device(int(args.local_rank))
    if torch.distributed.get_rank() != 0:
        torch.distributed.barrier()
    trainset, testset = torch.load("sets.pt")
    if torch.distributed.get_rank() == 0:
        torch.distributed.barrier()
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    model_engine, _optimizer, trainloader, _ = deepspeed.initialize(
        args=args, model=net, model_parameters=net.parameters(), training_data=trainset
    )
    for epoch in range(args.epochs):
        for inputs, labels in trainloader:
            inputs = inputs.to(model_engine.local_rank)
            labels = labels.to(model_engine.local_rank)
            loss = nn.functional.cross_entropy(model_engine(inputs), labels)
            model_engine.backward(loss)
            model_engine.step()
        model_engine.save_checkpoint("ckpt", tag=f"epoch{epoch}")
        if model_engine.global_rank == 0:
            print(epoch, loss.item())
    test(model_engine, testset, model_engine.local_rank)


if __name__ == "__main__":
    parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
    main(parser.parse_args())
