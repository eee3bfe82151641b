import json
import os

import torch
from accelerate import Accelerator
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def main(args):
    accelerator = Accelerator(log_with=args.report_to, project_dir=args.output_dir)
    if accelerator.is_main_process and args.output_dir is not None:
        os.makedirs(args.output_dir, exist_ok=True)
    accelerator.wait_for_everyone()
    tokenizer = AutoTokenizer.from_pretrained("bert-base-cased")
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    with accelerator.main_process_first():
        train_loader, eval_loader = torch.load("loaders.pt")
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, train_loader, eval_loader = accelerator.prepare(
        model, optimizer, train_loader, eval_loader
    )
    for epoch in range(args.num_train_epochs):
        for step, batch in enumerate(train_loader):
            loss = model(**batch).loss / args.gradient_accumulation_steps
            accelerator.backward(loss)
            if step % args.gradient_accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
        samples_seen = 0
        for batch in eval_loader:
            with torch.no_grad():
                outputs = model(**batch)
            _predictions, references = accelerator.gather(
                (outputs.logits.argmax(dim=-1), batch["labels"])
            )
            samples_seen += references.shape[0]
        if args.checkpointing_steps == "epoch":
            accelerator.save_state(f"epoch_{epoch}")
    accelerator.wait_for_everyone()
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(
        args.output_dir,
        is_main_process=accelerator.is_main_process,
        save_function=accelerator.save,
    )
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.output_dir)
        with open("all_results.json", "w") as f:
            json.dump({"eval": samples_seen}, f)
