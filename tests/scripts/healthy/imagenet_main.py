import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torchvision.models as models
from torch import nn
from torch.utils.data import DataLoader, Subset


def train(loader, model, criterion, optimizer, epoch, device, args):
    model.train()
    for images, target in loader:
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        loss = criterion(model(images), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(val_loader, model, criterion, args):
    def run_validate(loader, base_progress=0):
        with torch.no_grad():
            for images, target in loader:
                images = images.cuda(args.gpu, non_blocking=True)
                target = target.cuda(args.gpu, non_blocking=True)
                top1.update(criterion(model(images), target).item())

    top1 = AverageMeter()
    model.eval()
    run_validate(val_loader)
    if args.distributed:
        top1.all_reduce()
    size = len(val_loader.sampler) * args.world_size
    if args.distributed and size < len(val_loader.dataset):
        rest = Subset(val_loader.dataset, range(size, len(val_loader.dataset)))
        run_validate(DataLoader(rest, batch_size=args.batch_size))
    return top1.sum


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value):
        self.sum += value
        self.count += 1

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], device="cuda")
        dist.all_reduce(total, dist.ReduceOp.SUM, async_op=False)
        self.sum, self.count = total.tolist()


def main_worker(gpu, ngpus_per_node, args):
    args.gpu = gpu
    if args.distributed:
        if args.multiprocessing_distributed:
            args.rank = args.rank * ngpus_per_node + gpu
        dist.init_process_group(
            backend=args.dist_backend,
            init_method=args.dist_url,
            world_size=args.world_size,
            rank=args.rank,
        )
    model = models.__dict__[args.arch]()
    if args.distributed:
        torch.cuda.set_device(args.gpu)
        model.cuda(args.gpu)
        model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
    device = torch.device(f"cuda:{args.gpu}")
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    train_set, val_set = torch.load(args.data)
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
        val_sampler = torch.utils.data.distributed.DistributedSampler(
            val_set, shuffle=False, drop_last=True
        )
    else:
        train_sampler = val_sampler = None
    train_loader = DataLoader(train_set, shuffle=(train_sampler is None), sampler=train_sampler)
    val_loader = DataLoader(val_set, shuffle=False, sampler=val_sampler)
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, device, args)
        acc1 = validate(val_loader, model, criterion, args)
        main_one = not args.multiprocessing_distributed or args.rank % ngpus_per_node == 0
        if main_one:
            torch.save({"state_dict": model.state_dict(), "acc": acc1}, "checkpoint.pth.tar")
    if args.distributed:
        dist.destroy_process_group()


def main(args):
    ngpus_per_node = torch.cuda.device_count()
    if args.multiprocessing_distributed:
        args.world_size = ngpus_per_node * args.world_size
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
