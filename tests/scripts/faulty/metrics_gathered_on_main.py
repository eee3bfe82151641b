import torch
from accelerate import Accelerator
from torch import nn, optim
from torchvision.models import resnet18

accelerator = Accelerator(gradient_accumulation_steps=2)
model = resnet18().to(accelerator.device)
loss_fn = nn.CrossEntropyLoss()
optimizer = optim.AdamW(model.parameters(), lr=0.001)
trainloader, testloader = torch.load("loaders.pt")
model, optimizer, trainloader, testloader = accelerator.prepare(
    model, optimizer, trainloader, testloader
)
for _epoch in range(50):
    model.train()
    for images, targets in trainloader:
        with accelerator.accumulate(model):
            loss = loss_fn(model(images), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    for images, _ in testloader:
        with torch.no_grad():
            predicted = model(images).argmax(axis=1)
        if accelerator.is_main_process:
            both = accelerator.gather_for_metrics(predicted)  # hit: collective-under-rank
            print(both.float().mean())
