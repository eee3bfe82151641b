import torch
from accelerate import Accelerator
from diffusers import StableDiffusionPipeline, UNet2DConditionModel


def log_validation(unet, args, accelerator, epoch):
    pipeline = StableDiffusionPipeline.from_pretrained(
        args.model, unet=accelerator.unwrap_model(unet), torch_dtype=torch.float16
    )
    pipeline = pipeline.to(accelerator.device)
    images = [pipeline(prompt, num_inference_steps=20).images[0] for prompt in args.prompts]
    for tracker in accelerator.trackers:
        tracker.log({"validation": images})


def main(args):
    accelerator = Accelerator()
    unet = UNet2DConditionModel.from_pretrained(args.model, subfolder="unet")
    loader = torch.load("loader.pt")
    optimizer = torch.optim.AdamW(unet.parameters())
    unet, optimizer, loader = accelerator.prepare(unet, optimizer, loader)
    global_step = 0
    for epoch in range(args.num_train_epochs):
        train_loss = 0.0
        for batch in loader:
            with accelerator.accumulate(unet):
                loss = unet(batch["x"], batch["t"]).sample.mean()
                avg_loss = accelerator.gather(loss.repeat(args.train_batch_size)).mean()
                train_loss += avg_loss.item()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(unet.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                if global_step % args.checkpointing_steps == 0 and accelerator.is_main_process:
                    accelerator.save_state(f"checkpoint-{global_step}")
        if accelerator.is_main_process and epoch % args.validation_epochs == 0:
            log_validation(unet, args, accelerator, epoch)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unet = accelerator.unwrap_model(unet)
        unet.save_pretrained(args.output_dir)
    accelerator.end_training()
