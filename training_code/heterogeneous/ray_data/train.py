"""Train a small network on handwritten digits that Ray Data preprocesses on other machines.

On a laptop, with a cluster of its own:     PYTHONPATH=training_code:training_code/heterogeneous python \
                                                training_code/heterogeneous/ray_data/train.py
On SageMaker:                               a HeterogeneousJob with launcher=Ray() (docs/ray.md)

The launcher starts this file once, on the first host of the group that trains, where Ray's head is. Ray Data's tasks run on hosts
whose label ``group`` is ``--data-group``, and stream their batches to this process; in a cluster without that group, anywhere.

It resumes from its last checkpoint; on a laptop, remove ``./output`` to begin anew. SIGTERM ends it with a checkpoint after the
current step. The batches before it in the epoch are then preprocessed again, and skipped.
"""

# ran: `heterogeneous/ray_data/train.py` | no | test_training_code | no | no

from __future__ import annotations

import argparse
import itertools
import logging
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import ray
import ray.data
import torch
from common.checkpoints import Checkpointer
from common.job import Job
from common.loss import MeanLoss, token_loss
from common.process_group import process_group
from common.schedule import positive
from common.seeding import seed_step
from model import accuracy, held_out, network
from preprocess import digits, prepared
from torch import Tensor, nn
from torch.optim import Optimizer

# -- Config -----------------------------------------------------------------------------------------------------------


def config() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--epochs", type=positive, default=8)
    arguments.add_argument("--batch-size", type=positive, default=64)
    arguments.add_argument("--learning-rate", type=float, default=3e-3)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--data-group", default="data_group", help="the instance group that preprocesses")
    arguments.add_argument("--data-tasks", type=int, help="how many run at once at most; one for each CPU by default")
    return arguments.parse_args()


# -- Data -------------------------------------------------------------------------------------------------------------


def dataset(options: argparse.Namespace) -> ray.data.Dataset:
    """All digits to train on, preprocessed anew whenever it is read."""
    there = any(node["Labels"].get("group") == options.data_group for node in ray.nodes())
    count = len(digits(options.seed))
    numbers = ray.data.range(count, override_num_blocks=-(-count // options.batch_size))
    return numbers.map_batches(
        prepared,
        fn_kwargs={"seed": options.seed},
        batch_size=options.batch_size,
        compute=ray.data.TaskPoolStrategy(size=options.data_tasks),
        num_cpus=1,
        label_selector={"group": options.data_group} if there else None,
    )


def batches_of(
    dataset: ray.data.Dataset, epoch: int, first: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """An epoch's batches after the ``first`` ones, shuffled within eight batches at a time."""
    batches = dataset.iter_batches(
        batch_size=options.batch_size,
        local_shuffle_buffer_size=8 * options.batch_size,
        local_shuffle_seed=options.seed + epoch,
    )
    return itertools.islice(iter(batches), first, None)


# -- Model ------------------------------------------------------------------------------------------------------------


def build(options: argparse.Namespace, device: torch.device) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(options.seed)
    model = network().to(device)
    return model, torch.optim.Adam(model.parameters(), lr=options.learning_rate)


# -- Step -------------------------------------------------------------------------------------------------------------


def step(model: nn.Module, optimizer: Optimizer, batch: dict[str, Any], device: torch.device) -> Tensor:
    images, labels = (torch.tensor(batch[name]).to(device, non_blocking=True) for name in ("image", "label"))
    loss = token_loss(model(images), labels, len(labels))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


# -- Run --------------------------------------------------------------------------------------------------------------


def train(job: Job, options: argparse.Namespace, device: torch.device) -> None:
    model, optimizer = build(options, device)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))  # in place of the handler of ray.init()
    count, epoch_loss = len(digits(options.seed)), MeanLoss(device)
    # Ray's blocks, and the buffer in which they are shuffled, are of whole batches.
    fixed = {"seed": options.seed, "digits": count, "batch_size": options.batch_size}
    checkpointer = Checkpointer(job, [model], [optimizer], fixed=fixed, states={"epoch_loss": epoch_loss})
    progress, data = checkpointer.restore(), dataset(options)
    while progress.samples < options.epochs * count and not stopped:
        epoch, read = divmod(progress.samples, count)
        hosts, began = Counter[str](), time.perf_counter()
        for batch in batches_of(data, epoch, read // options.batch_size, options):
            seed_step(options.seed, progress.samples, rank=0)
            loss = step(model, optimizer, batch, device)
            epoch_loss.add(loss, len(batch["label"]))
            hosts.update(batch["host"].tolist())
            progress.steps, progress.samples = progress.steps + 1, progress.samples + len(batch["label"])
            if progress.steps % 10 == 0:
                rate = hosts.total() / (time.perf_counter() - began)
                print(f"step {progress.steps} loss {loss.item():.6f} samples/s {rate:.0f}", flush=True)
            if stopped:
                break
        if progress.samples == (epoch + 1) * count:
            by_host = ", ".join(f"{host} {number}" for host, number in sorted(hosts.items()))
            print(f"epoch {epoch} loss {epoch_loss.read():.6f}, samples by host: {by_host}", flush=True)
        elif not stopped:
            raise RuntimeError(f"Ray Data must deliver the {count} samples of epoch {epoch}, got {hosts.total()}")
        checkpointer.save(progress)
    checkpointer.wait()
    if stopped:
        print(f"stopped by SIGTERM with the checkpoint of step {progress.steps}", flush=True)
        return
    job.model.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), job.model / "model.pt")
    images, labels = held_out()
    print(f"accuracy {accuracy(model, images.to(device), labels.to(device)):.4f}", flush=True)


def main() -> None:
    options = config()
    ray.init(logging_level=logging.WARNING)  # RAY_ADDRESS names the job's cluster
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True  # an epoch's batches are the same each time
    job = Job.here()
    with process_group(job, groups=True) as device:
        train(job, options, device)


if __name__ == "__main__":
    main()
