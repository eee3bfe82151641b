import torch
from accelerate import Accelerator
from transformers import AutoModelForCausalLM


def evaluate(model, examples):
    model.eval()
    with torch.no_grad():
        return sum(model(**batch).loss.item() for batch in examples)


def main():
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    train_loader, eval_loader = torch.load("loaders.pt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for batch in train_loader:
        loss = model(**batch).loss
        accelerator.backward(loss)
        mean = accelerator.reduce(loss.detach(), reduction="mean")
        optimizer.step()
        optimizer.zero_grad()
        if accelerator.is_main_process:
            print(mean.item())
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        print(evaluate(accelerator.unwrap_model(model), eval_loader))


if __name__ == "__main__":
    main()
