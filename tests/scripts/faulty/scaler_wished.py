"""Mixed precision by a setting, in bfloat16, with a scaler."""

import torch


def train(model, loader, optimizer, args) -> None:
    scaler = torch.cuda.amp.GradScaler() if args.amp else None  # hit: scaler-bf16
    for batch in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.amp):
            loss = model(batch).mean()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
