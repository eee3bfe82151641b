import torch
from accelerate import Accelerator


def sample(unet, loader, device):
    unet.eval()
    with torch.no_grad():
        return [unet(one.to(device)) for one in loader]


def main(args, unet, train_loader, eval_loader):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(unet.parameters())
    unet, optimizer, train_loader = accelerator.prepare(unet, optimizer, train_loader)
    for epoch in range(args.epochs):
        for batch in train_loader:
            loss = unet(batch).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.is_main_process and (epoch + 1) % args.save_every == 0:
            accelerator.wait_for_everyone()  # hit: collective-under-rank
            plain = accelerator.unwrap_model(unet)
            accelerator.save(plain.state_dict(), f"{epoch}.pt")
        accelerator.wait_for_everyone()
