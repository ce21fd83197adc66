"""The process group of all ranks, and this rank's device and threads."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from common.job import Job, use_the_jobs_network


def device_of(job: Job) -> torch.device:
    """This rank's GPU, or the CPU; called before anything uses CUDA, which would create a context on each rank's first GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", job.local_rank)
    torch.cuda.set_device(device)
    torch.set_float32_matmul_precision("high")  # TF32: float32 matrices on tensor cores
    return device


@contextmanager
def process_group(
    job: Job, timeout: float = 300.0, smddp: bool = False, groups: bool = False
) -> Iterator[torch.device]:
    """The process group of all ranks; without torchrun, of this process alone. Yields this rank's device.

    A collective fails after ``timeout`` seconds. It is not bound to the device (``device_id``), since groups of gloo beside it,
    as for checkpoints, then fail with some releases (https://github.com/deepspeedai/DeepSpeed/pull/7542).

    ``groups`` says that the script has something to do for the hosts of other instance groups, which start it too.

    ``smddp`` takes the backend of SageMaker's data parallel library, which is in AWS's containers only, for tensors on GPUs.
    See https://docs.aws.amazon.com/sagemaker/latest/dg/model-parallel-core-features-v2-smddp-allgather.html.
    """
    if len(job.groups) > 1 and not groups:
        raise ValueError(
            "groups must be one, since the hosts of each would train by themselves; heterogeneous/train.py has data hosts, "
            f"got {sorted(job.groups)}"
        )
    use_the_jobs_network()
    device = device_of(job)
    torch.set_num_threads(1)  # the other cores are those of the other ranks and of the workers that read data
    alone = {} if job.ranks > 1 else {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"  # gloo for control messages
    if smddp:
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401  # registers the backend

        backend = "smddp"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **alone)
    try:
        yield device
    finally:
        leave_process_group()


def freeze_objects() -> None:
    """Exclude all objects of now from Python's garbage collection; to be called before the first step.

    A full collection of the 300,000 that PyTorch and a model have takes 0.15 s, in which the other ranks wait for this one.
    nanochat does it in scripts/base_train.py; torchtitan has all ranks collect after the same steps (tools/utils.py).
    """
    gc.collect()
    gc.freeze()


def leave_process_group() -> None:
    """Destroy the process group, if there is one, once the function that made the model has returned.

    ``DistributedDataParallel`` shares the group. As its last owner it joins gloo's threads while it holds the interpreter's lock,
    for which a thread that drops a finished collective's tensor waits: a rank then never exits.
    See https://github.com/pytorch/pytorch/issues/56297 and https://github.com/pytorch/pytorch/pull/154976.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy on the device; to a GPU from pinned memory and asynchronously, so that the host does not wait for it."""
    if device.type != "cuda":
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)
