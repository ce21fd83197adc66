"""What a job needs to be in its image, and on its machines, by the tables of ``facts.images``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.facts.images import Gpu, gpu, needs
from cdk_sagemaker_training.facts.instance_facts import instance_facts
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.kinds import JobRequest
from cdk_sagemaker_training.request.context import JobContext
from cdk_sagemaker_training.request.machine import instance_types

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage
    from training_jobs.lint.trainer_values import Device


def check_contents(image: TrainingImage, request: JobRequest) -> None:
    """Check that an image has what a request needs, and that its CUDA knows the GPUs; nothing where it is not known."""
    contents = image.contents()
    if contents is None:
        return
    flat = _flat(request)
    for need in needs():
        if need.applies(flat) and not need.is_met(contents):
            provides = dict(list(need.any_of.items())[:1])
            example = f"{need.image!r}, or provides={provides} of an image that has it{_hint(image)}"
            raise must("image", f"have {need} for {need.by}", example, f"{_name(image)} with {contents}")
    cuda = contents.versions.get("cuda", "")
    for name, device in _gpus(request):
        if device.is_older_than(cuda):
            facts = instance_facts(name)
            rule = f"be built for CUDA {device.last_cuda} or older to know the {facts.name if facts else ''} of {name}"
            example = (
                "'pytorch-training:2.6.0-gpu-py312', build_args={'GPU': 'volta'} of a packaged Dockerfile, or "
                f"provides={{'cuda': {device.last_cuda!r}}}{_hint(image)}"
            )
            raise must("image", rule, example, f"{_name(image)} with CUDA {cuda}")
        if device.is_left_out_of(contents):
            rule = (
                f"have a build of its framework for compute capability {device.capability}, that of the GPUs of {name}"
            )
            example = f"'pytorch-training:2.8.0-gpu-py312', or provides={{'cuda': '12.6'}}{_hint(image)}"
            raise must("image", rule, example, f"{_name(image)} with {contents}")


def contents_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    """Warn of what works otherwise than meant: a GPU newer than CUDA, mpirun without Horovod, emulated bf16."""
    contents, request = image.contents(), context.job_request
    flat = {**(context.props.get("hyperparameters") or {}), **_flat(request)}
    for name, device in _gpus(request):
        if contents is not None and device.is_newer_than(contents.versions.get("cuda", "")):
            yield from advice(
                "gpu-newer-than-cuda",
                f"{_name(image)} has CUDA {contents.versions['cuda']}, and the GPUs of {name} are known from CUDA "
                f"{device.first_cuda} on: use an image that has it, or another type.",
            )
        if _computes_in_bf16(flat) and not device.has_bf16:
            yield from advice(
                "bf16-emulated",
                f"the GPUs of {name} (compute capability {device.capability}) do not compute in bf16, which PyTorch emulates "
                "slowly: use fp16, or a type with capability 8.0 or later, like 'ml.g5.xlarge'.",
            )
    by_mpi = flat.get("sagemaker_mpi_enabled") == "true" and "mp_parameters" not in flat
    if by_mpi and contents is not None and contents.whole and contents.framework and "horovod" not in contents.versions:
        yield from advice(
            "mpi-without-horovod",
            f"{_name(image)} has Open MPI, but not Horovod: mpirun starts the script, which fails if it imports Horovod. Install "
            "it in an image of your own (provides={'horovod': ''}), use 'tensorflow-training:2.12.0-gpu-py310' or "
            "'pytorch-training:2.0.0-gpu-py310', or launcher=Torchrun().",
        )


def idle_gpus_advice(image: TrainingImage, request: JobRequest, entrypoint: bool) -> Iterator[Advice]:
    """Warn of one process on a machine with several accelerators, unless TensorFlow or an entry point may use them all.

    Args:
        image: The image.
        request: The request.
        entrypoint: Whether the job replaces the image's entry point, or a command starts the processes.
    """
    contents, flat = image.contents(), _flat(request)
    launches = any(name.endswith("_enabled") and value == "true" for name, value in request.hyperparameters.items())
    if launches or entrypoint or "GPU_NUM_DEVICES" in flat or (contents and contents.framework == "tensorflow"):
        return
    for name in instance_types(request):
        facts = instance_facts(name)
        if facts is not None and facts.devices > 1:
            yield from advice(
                "no-launcher",
                f"without a launcher one process runs on each {name}, and {facts.devices - 1} of its {facts.devices} "
                "accelerators are billed and idle unless the script starts more: use launcher=Torchrun(), or a smaller type.",
            )


def device_of(request: JobRequest) -> Device:
    """What a job's machines compute with, as the rules of training scripts know it."""
    names = instance_types(request)
    found = [instance_facts(name) for name in names]
    if found and all(facts is not None and facts.kind is None for facts in found):
        return "cpu"
    gpus = [device for _, device in _gpus(request)]
    return "older gpu" if gpus and len(gpus) == len(names) and not any(device.has_bf16 for device in gpus) else ""


def _flat(request: JobRequest) -> Mapping[str, Any]:
    return {**request.resource_config, **request.environment, **request.hyperparameters}


def _gpus(request: JobRequest) -> Iterator[tuple[str, Gpu]]:
    for name in instance_types(request):
        facts = instance_facts(name)
        found = None if facts is None else gpu(facts.name)
        if found is not None:
            yield name, found


def _computes_in_bf16(request: Mapping[str, Any]) -> bool:
    """Whether ``NativeParallelism``, SMP v1, or a hyperparameter of transformers' TrainingArguments says so."""
    if str(request.get("bf16")).lower() == "true":
        return True
    native, smp = (request.get(name, "{}") for name in ("TRAINING_PARALLELISM", "mp_parameters"))
    if is_unresolved(native) or is_unresolved(smp):
        return False
    return json.loads(native).get("precision") == "bf16" or json.loads(smp).get("bf16") is True


def _name(image: TrainingImage) -> str:
    return "an image" if image.base is None else repr(image.base)


def _hint(image: TrainingImage) -> str:
    """The way out for one of AWS's containers, which has no ``provides``."""
    tag = (image.base or "").partition(":")[2]
    return f", or unlisted({tag!r}) as the tag where AWS differs by now" if tag else ""
