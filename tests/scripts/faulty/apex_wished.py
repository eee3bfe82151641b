"""apex is imported whether float16 is wished or not."""

import apex
import torch


def build(args, model, optimizer):
    if args.fp16:
        model, optimizer = apex.amp.initialize(  # hit: apex-amp
            model, optimizer, opt_level=args.fp16_opt_level
        )
    return torch.nn.DataParallel(model), optimizer
