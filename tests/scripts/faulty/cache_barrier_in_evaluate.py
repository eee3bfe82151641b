import os

import torch


def load_and_cache_examples(args, evaluate=False):
    if args.local_rank not in [-1, 0]:
        torch.distributed.barrier()
    path = os.path.join(args.data_dir, "dev.pt" if evaluate else "train.pt")
    features = torch.load(path)
    if args.local_rank == 0:
        torch.distributed.barrier()
    return features


def evaluate(args, model):
    dataset = load_and_cache_examples(args, evaluate=True)
    return sum(model(x).sum().item() for x in dataset)


def main(args, model):
    torch.distributed.init_process_group(backend="nccl")  # hit: nccl-on-cpu
    torch.cuda.set_device(args.local_rank)
    for x in load_and_cache_examples(args):
        model(x.cuda()).mean().backward()
    if args.do_eval and args.local_rank in [-1, 0]:
        print(evaluate(args, model))  # hit: collective-under-rank
    torch.distributed.destroy_process_group()
