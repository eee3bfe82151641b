import torch
from detectron2.engine import default_argument_parser, default_setup, launch
from detectron2.evaluation import inference_on_dataset, print_csv_format
from detectron2.utils import comm
from torch.nn.parallel import DistributedDataParallel


def do_test(cfg, model, loaders, evaluators):
    results = {}
    for name, loader in loaders.items():
        found = inference_on_dataset(model, loader, evaluators[name])
        results[name] = found
        if comm.is_main_process():
            print_csv_format(found)
    return results


def do_train(cfg, model, loader, optimizer):
    model.train()
    for iteration, data in enumerate(loader):
        losses = sum(model(data).values())
        reduced = {k: v.item() for k, v in comm.reduce_dict(model(data)).items()}
        if comm.is_main_process():
            print(iteration, reduced)
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
        if iteration % 5000 == 0:
            do_test(cfg, model, {}, {})
            comm.synchronize()


def main(args, cfg, model):
    default_setup(cfg, args)
    if comm.get_world_size() > 1:
        model = DistributedDataParallel(
            model, device_ids=[comm.get_local_rank()], broadcast_buffers=False
        )
    do_train(cfg, model, torch.load("loader.pt"), torch.optim.SGD(model.parameters(), 0.1))
    return do_test(cfg, model, {}, {})


if __name__ == "__main__":
    args = default_argument_parser().parse_args()
    launch(main, args.num_gpus, num_machines=args.num_machines, dist_url="auto", args=(args,))
