"""Whether a scaler is needed is a setting."""

import torch


def by_flag(model, batch, args) -> None:
    scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
    dtype = torch.float16 if args.precision == "fp16" else torch.bfloat16
    with torch.autocast("cuda", dtype=dtype):
        loss = model(batch)
    scaler.scale(loss).backward()


def by_branch(model, batch, args) -> None:
    scaler = None
    if args.fp16:
        scaler = torch.amp.GradScaler("cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch)
    else:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch)
    if scaler:
        loss = scaler.scale(loss)
    loss.backward()
