import torch
from accelerate import Accelerator
from torch.optim import AdamW
from transformers import AutoModelForCausalLM


def evaluate(model, examples, accelerator):
    model.eval()
    losses = []
    for batch in examples:
        with torch.no_grad():
            outputs = model(**batch)
        losses.append(accelerator.gather(outputs.loss.repeat(8)))
    return torch.cat(losses).mean().item()


def main():
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    train_loader, eval_loader = torch.load("loaders.pt")
    optimizer = AdamW(model.parameters(), lr=1e-5)
    model, optimizer, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, train_loader, eval_loader
    )
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        print("initial", evaluate(model, eval_loader, accelerator))  # hit: collective-under-rank
    for batch in train_loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
