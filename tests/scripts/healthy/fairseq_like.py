import logging

import torch
from fairseq import checkpoint_utils, distributed_utils, options, tasks
from fairseq.logging import metrics
from fairseq.trainer import Trainer

logger = logging.getLogger("train")


def should_stop_early(cfg, valid_loss):
    if valid_loss is None or cfg.patience <= 0:
        return False
    best = getattr(should_stop_early, "best", None)
    if best is None or valid_loss < best:
        should_stop_early.best, should_stop_early.num_runs = valid_loss, 0
        return False
    should_stop_early.num_runs += 1
    return should_stop_early.num_runs >= cfg.patience


def validate(cfg, trainer, task, epoch_itr):
    with metrics.aggregate(new_root=True) as agg:
        for sample in trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False):
            trainer.valid_step(sample)
    return agg.get_smoothed_values()["loss"]


def main(cfg):
    if distributed_utils.is_master(cfg.distributed_training):
        checkpoint_utils.verify_checkpoint_directory(cfg.save_dir)
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    _extra_state, epoch_itr = checkpoint_utils.load_checkpoint(cfg.checkpoint, trainer)
    while epoch_itr.next_epoch_idx <= cfg.max_epoch:
        for samples in epoch_itr.next_epoch_itr():
            trainer.train_step(samples)
        valid_loss = validate(cfg, trainer, task, epoch_itr)
        if should_stop_early(cfg, valid_loss):
            logger.info("early stop")
            break
        torch.cuda.empty_cache()


def cli_main():
    args = options.parse_args_and_arch(options.get_training_parser())
    distributed_utils.call_main(args, main)


if __name__ == "__main__":
    cli_main()
