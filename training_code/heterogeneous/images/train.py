"""Train a ResNet-50 on a folder of JPEGs in ImageNet's layout, which other machines decode where the job has some.

On a laptop:                  python make_images.py data; python train.py --train data/train --validation data/val
Two processes, by torchrun:   torchrun --nproc-per-node 2 train.py --train data/train
On SageMaker:                 a HeterogeneousJob with the channels ``train``, of the data group, and ``validation``

For ImageNet the command is the same, with its folders. Every host of a job starts this file. Those of the group ``--data-group``
decode, crop and serve images until the training is over; the others train, and need no files but those of ``validation``.

It resumes from the last checkpoint, in the middle of an epoch too; on a laptop, remove ``./output`` to start over. SIGTERM ends
it with a checkpoint after the current step.
"""

# ran: ResNet on JPEGs; ResNet-50 on 2,000 files by soak | test_images | no | bf16 and fp16, one H200 | no

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from common.checkpoints import Checkpointer, Progress
from common.job import Job
from common.loss import MeanLoss, batch_loss, counted, token_loss
from common.optimization import parameter_groups, set_learning_rate
from common.order import check_batch
from common.precision import Precision
from common.process_group import freeze_objects, process_group, to_device
from common.schedule import add_schedule, positive, scheduled_rate
from common.seeding import seed_step
from common.stopping import Stop
from common.training_log import TrainingLog
from data_service import Batches, read_batches
from image_folder import ImageFolder
from resnet import DEPTHS, ResNet
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

# -- Config -----------------------------------------------------------------------------------------------------------

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels, as torchvision's weights expect


def config() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--train", type=Path, help="a folder CLASS/NAME.JPEG, by default the channel train")
    add("--validation", type=Path, help="by default the channel validation; without it the model is not evaluated")
    add("--validation-workers", type=int, default=0, help="processes of each rank that decode its images; 0: this one")
    add("--classes", type=int, default=1000, help="at least as many as there are folders")
    add("--depth", type=int, choices=tuple(DEPTHS), default=50)
    add("--width", type=int, default=64, help="channels of the first convolution")
    add("--size", type=int, default=224, help="pixels of an image's side in training")
    add("--epochs", type=positive, default=90)
    add("--batch-size", type=positive, default=64, help="of each process that trains")
    add_schedule(parser, peak=0.1)
    parser.set_defaults(base_batch_size=256, least_rate=0.0)
    add("--warm-up-epochs", type=int, default=5, help="until the peak, at most half of all, in place of --warm-up")
    add("--weight-decay", type=float, default=1e-4)
    add("--smoothing", type=float, default=0.1, help="of the labels")
    add("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto")
    add("--seed", type=int, default=0)
    add("--workers", type=int, help="processes of each data host that decode, by default one for each CPU")
    add("--data-group", default="data_group", help="the instance group that serves images")
    add("--port", type=int, default=6000, help="of each data host")
    add("--log-every", type=int, default=10, help="steps")
    add("--checkpoint-every", type=int, default=0, help="steps, besides the end of each epoch; 0: only there")
    add("--compiler", choices=("none", "inductor"), default=os.environ.get("TRAINING_COMPILER") or "none")
    return parser.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def batches_of(job: Job, options: argparse.Namespace) -> Batches:
    """This process's batches of each epoch. On a data host it serves them until the training is over, and ends the process."""
    folder = options.train or job.channels.get("train")
    return read_batches(
        ImageFolder(folder, options.size) if folder else None,
        batch_size=options.batch_size,
        seed=options.seed,
        workers=options.workers,
        data_group=options.data_group,
        port=options.port,
        epochs=options.epochs,
    )


def on_device(batch: Mapping[str, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
    """Images, float32 [n, 3, size, size] in ``channels_last``, and labels. They travel as bytes, a fourth as many."""
    images = to_device(batch["image"], device).permute(0, 3, 1, 2).float() / 255
    mean, deviation = statistics_of_pixels(device)
    return (images - mean) / deviation, to_device(batch["label"], device)


@cache
def statistics_of_pixels(device: torch.device) -> tuple[Tensor, Tensor]:
    """On the device, so that no step copies them: a copy from memory that is not pinned waits for the device."""
    return torch.tensor(MEAN, device=device).view(3, 1, 1), torch.tensor(DEVIATION, device=device).view(3, 1, 1)


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace, device: torch.device) -> nn.Module:
    torch.manual_seed(options.seed)
    model = ResNet(DEPTHS[options.depth], options.classes, options.width)
    return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def forward_of(model: nn.Module, job: Job, device: torch.device, options: argparse.Namespace) -> nn.Module:
    """What a step calls: the model with its gradients averaged over the ranks, compiled where that is wanted."""
    if job.ranks > 1:
        model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    return torch.compile(model) if options.compiler == "inductor" else model  # type: ignore[return-value]


# -- Step -------------------------------------------------------------------------------------------------------------


def step(
    forward: nn.Module,
    optimizer: torch.optim.Optimizer,
    precision: Precision,
    images: Tensor,
    labels: Tensor,
    count: Tensor,
    ranks: int,
    smoothing: float,
) -> Tensor:
    """One step on ``count`` images over all ranks. Returns this rank's part of the loss."""
    with precision.autocast():
        loss = token_loss(forward(images), labels, count, ranks, smoothing)
    optimizer.zero_grad()
    precision.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    precision.scaler.step(optimizer)
    precision.scaler.update()
    return loss.detach()


@torch.no_grad()
def evaluate(job: Job, options: argparse.Namespace, model: nn.Module, device: torch.device) -> float:
    """The share of the validation's images whose class is found, over all ranks; each reads every ranks-th image."""
    images = ImageFolder(options.validation, options.size, training=False)
    mine = range(job.rank, len(images), job.ranks)
    workers = options.validation_workers
    context = "forkserver" if workers else None
    loader = DataLoader(images, options.batch_size, sampler=mine, num_workers=workers, multiprocessing_context=context)
    right = torch.zeros((), device=device)
    model.eval()
    for batch in loader:
        pixels, labels = on_device(batch, device)
        right += (model(pixels).argmax(dim=1) == labels).sum()
    model.train()
    dist.all_reduce(right)
    return right.item() / len(images)


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, batches: Batches, device: torch.device, stop: Stop) -> None:
    model = build(options, device)
    forward, precision = forward_of(model, job, device, options), Precision(options.precision, device)
    optimizer = torch.optim.SGD(parameter_groups(model, options.weight_decay), 0.1, momentum=0.9, nesterov=True)
    assert batches.plan is not None
    files, batch_size = batches.plan.length or 0, options.batch_size * job.ranks
    check_batch(files, batch_size)
    loss_of_epoch = MeanLoss(device, job.ranks)
    fixed, free = {"seed": options.seed, "files": files}, {"batch_size": options.batch_size}
    states = {"data": batches, "scaler": precision.scaler, "loss": loss_of_epoch}
    checkpointer = Checkpointer(job, [model], [optimizer], fixed=fixed, free=free, states=states)
    progress = checkpointer.restore()
    position, total = batches.state_dict(), options.epochs * len(batches)
    first = position["epoch"]
    options.warm_up = options.warm_up or min(options.warm_up_epochs, options.epochs // 2) * len(batches)
    if job.local_rank == 0:
        where = f"host {job.host} trains on {device.type} in {precision.name}, {job.local_ranks} of {job.ranks}"
        print(f"{where} processes, from step {progress.steps} in epoch {first}", flush=True)
    log = TrainingLog(job, device, unit="images")
    freeze_objects()

    def report(epoch: int) -> None:
        with log.paused():
            loss = f"loss {loss_of_epoch.read():.6f}"
            accuracy = f" accuracy {evaluate(job, options, model, device):.4f}" if options.validation else ""
        if job.rank == 0:
            print(f"epoch {epoch} {loss}{accuracy}", flush=True)

    if not position["samples"] and loss_of_epoch.state_dict()["targets"]:
        report(first - 1)  # the checkpoint's, of which this process does not know whether it was reported
    for epoch in range(first, options.epochs):
        for batch in batches.epoch(epoch):
            at = epoch * len(batches) + (progress.samples - epoch * files) / batch_size + 1
            rate = scheduled_rate(options, at, total, batch_size)
            set_learning_rate([optimizer], rate)
            seed_step(options.seed, progress.samples, job.rank)
            images, labels = on_device(batch, device)
            count = counted(labels)
            loss = step(forward, optimizer, precision, images, labels, count, job.ranks, options.smoothing)
            loss_of_epoch.add(loss, count)
            before, progress = progress.samples, Progress(progress.steps + 1, batches.samples_read)
            log.count(progress.samples - before)
            if progress.steps % options.log_every == 0:
                log.write(progress.steps, loss=batch_loss(loss), learning_rate=rate)
            if options.checkpoint_every and progress.steps % options.checkpoint_every == 0:
                checkpointer.save(progress)
            if stop.check():
                break
        # Before the evaluation: whoever goes on from there evaluates and reports the epoch.
        checkpointer.save(progress)
        if stop.agreed:
            break
        report(epoch)
        progress.samples = batches.samples_read
    checkpointer.wait()
    if job.rank == 0 and stop.agreed:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
    elif job.rank == 0:
        job.model.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), job.model / "model.pt")


def main() -> None:
    options, job = config(), Job.here()
    options.validation = options.validation or job.channels.get("validation")
    with batches_of(job, options) as batches, process_group(job, groups=True) as device:
        train(job, options, batches, device, Stop())


if __name__ == "__main__":
    main()
