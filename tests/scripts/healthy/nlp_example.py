import evaluate
import torch
from accelerate import Accelerator
from torch.optim import AdamW
from transformers import AutoModelForSequenceClassification


def training_function(config, args):
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)
    metric = evaluate.load("glue", "mrpc")
    train_dataloader, eval_dataloader = torch.load("loaders.pt")
    model = AutoModelForSequenceClassification.from_pretrained("bert-base-cased")
    model = model.to(accelerator.device)
    optimizer = AdamW(params=model.parameters(), lr=config["lr"])
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader
    )
    for epoch in range(config["num_epochs"]):
        model.train()
        for batch in train_dataloader:
            batch.to(accelerator.device)
            outputs = model(**batch)
            accelerator.backward(outputs.loss)
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        for batch in eval_dataloader:
            batch.to(accelerator.device)
            with torch.no_grad():
                outputs = model(**batch)
            predictions = outputs.logits.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
            metric.add_batch(predictions=predictions, references=references)
        accelerator.print(f"epoch {epoch}:", metric.compute())
    accelerator.end_training()
