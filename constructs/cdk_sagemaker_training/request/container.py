"""The container of a job, and the input of its script: props, members, rules and warnings.

In the sources of rules "API" is the documentation of the members that comes with botocore's service model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Required, TypedDict

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.data.capacity import PrivateRegistry
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.facts.instance_facts import processor
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.jobs.hyperparameters import hyperparameters
from cdk_sagemaker_training.jobs.launchers import launchers_of
from cdk_sagemaker_training.props.prop import IN_INPUT, VALUES_IN_INPUT, Known, Member, Prop
from cdk_sagemaker_training.request.context import JobContext, RequestContext, optional
from cdk_sagemaker_training.request.image_contents import check_contents, contents_advice, idle_gpus_advice
from cdk_sagemaker_training.request.machine import instance_count, instance_types
from cdk_sagemaker_training.request.scripts.code import (
    check_command,
    check_options,
    check_requirements,
    code_advice,
    starts_processes,
)
from cdk_sagemaker_training.request.scripts.image import built_image_advice, check_built_image
from cdk_sagemaker_training.request.variables import environment_advice, hyperparameters_advice
from cdk_sagemaker_training.resources.image_advice import image_advice

# Without it gloo takes the address of the host's own name, which nothing resolves (docs/container.md); the toolkit sets
# NCCL's for some launchers. "eth0 is the default network interface defined by SageMaker" (environment.py of sagemaker-training).
_BETWEEN_HOSTS = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage


class ContainerProps(TypedDict, total=False):
    """The container of a job, and the input of its script."""

    image: Required[
        Annotated[
            TrainingImage,
            Prop(
                Member("AlgorithmSpecification.TrainingImage", optional(lambda image: image.image_uri), sync=True),
                Member(
                    "AlgorithmSpecification.TrainingInputMode",
                    optional(lambda image: "File"),
                    sync=True,
                    docs="always `File`; each channel sets its own",
                ),
                check=_check_image,
                advice=_image_advice,
            ),
        ]
    ]
    """The container image that the job's hosts run. Required."""

    code: Annotated[
        TrainingCode | None,
        Prop(
            check=_check_code,
            known=Known("synth"),
            example="TrainingCode('src', entry_point='train.py')",
            advice=code_advice,
        ),
    ]
    """The folder with the training script, which each host fetches from S3 when it starts. Default: the code is in the image."""

    metric_definitions: Annotated[
        Mapping[str, str | Sequence[str]] | None,
        Prop(
            Member(
                "AlgorithmSpecification.MetricDefinitions",
                _metric_definitions,
                sync=True,
                docs="`metric_definitions`, several expressions of one metric too",
            ),
            advice=lambda value, context: _metrics_advice(value, context),
            known=VALUES_IN_INPUT,
            example="{'loss': 'loss=([0-9.]+)'}",
        ),
    ]
    """Metrics read from the job's log: by name, a regular expression or several, each with a group around the value.

    Default: those of the image, if it is one of AWS's.
    """

    metrics_time_series: Annotated[
        bool | None, Prop(Member("AlgorithmSpecification.EnableSageMakerMetricsTimeSeries", sync=True))
    ]
    """Whether SageMaker keeps time series of the metrics. Default: SageMaker's, which depends on the image."""

    container_entrypoint: Annotated[
        Sequence[str] | None,
        Prop(
            Member("AlgorithmSpecification.ContainerEntrypoint", _command("container_entrypoint")),
            known=IN_INPUT,
            example="['python', 'train.py']",
            advice=_entrypoint_advice,
        ),
    ]
    """Replaces the image's own ``train``. Default: the image's."""

    container_arguments: Annotated[
        Sequence[str] | None,
        Prop(
            Member("AlgorithmSpecification.ContainerArguments", _command("container_arguments")),
            known=IN_INPUT,
            example="['--fast']",
        ),
    ]
    """Arguments of the container's entry point. Default: the image's."""

    private_registry: Annotated[
        PrivateRegistry | None,
        Prop(
            Member("AlgorithmSpecification.TrainingImageConfig", optional(PrivateRegistry.image_config)),
            check=_check_private_registry,
        ),
    ]
    """The registry that the image is in, where that is not ECR; it is reached through ``network``. Default: ECR."""

    environment: Annotated[
        Mapping[str, str] | None,
        Prop(
            Member(
                "Environment",
                _environment,
                sync=True,
                docs="`environment`, the job's compiler, and of several hosts their network interface",
            ),
            check=_check_environment,
            advice=environment_advice,
            known=VALUES_IN_INPUT,
            example="{'NCCL_DEBUG': 'INFO'}",
        ),
    ]
    """Environment variables of the container, at most 100 with those of the job (service model). Default: the job's.

    Hosts of a job with several find each other by ``GLOO_SOCKET_IFNAME`` and ``NCCL_SOCKET_IFNAME``, ``eth0`` unless given here.
    """

    hyperparameters: Annotated[
        Mapping[str, Any] | None,
        Prop(
            Member(
                "HyperParameters",
                _hyperparameters,
                sync=True,
                docs="`hyperparameters`, an `S3Prefix` (TensorFlow's `model_dir`) too, `code`, and the job's launcher",
            ),
            advice=hyperparameters_advice,
            known=Known("execution", "text of its own, not in a list or a dict"),
            example="{'epochs': 3}",
        ),
    ]
    """Hyperparameters of the script, by name, with values of JSON. At most 100 with those of the job, of 2,500 characters each.

    An ``S3Prefix``, such as TensorFlow's ``model_dir``, is its URI, below which the job may read and write. Default: the job's.
    """


def _check_image(image: TrainingImage, context: JobContext) -> None:
    """The image is in ECR or a private registry (API, TrainingImageConfig), and has the job's compiler and launcher."""
    uri = image.image_uri
    if image.repository is None and not is_unresolved(uri) and context.props.get("private_registry") is None:
        rule = "be set for an image in another registry than ECR"
        raise must("private_registry", rule, "PrivateRegistry()", f"None with {uri!r}")
    images = context.job_request.images
    if images and not is_unresolved(image.base):
        rule = "be a container with the job's compiler and launcher, or built from one"
        listed = image.base is not None and any(fnmatch(image.base, pattern) for pattern in images)
        example = f"{images[0]!r} of {list(images)}, or with image.base = unlisted('REPOSITORY:TAG')"
        check_listed("compiler-images", image.base, listed, "image", rule, example)
    _check_platform(image, context)
    check_contents(image, context.job_request)
    image.check_files(context.job_request.files)
    _check_script(image, context)
    _check_program(image, context)
    check_built_image(image, context)
    if context.job_request.environment.get("PJRT_DEVICE") == "CUDA":
        image.check_xla_has_cuda()


def _check_program(image: TrainingImage, context: JobContext) -> None:
    """The job's launcher can start what the image, or a variable, names for the toolkit (`_create_command`, as of code)."""
    variable = "SAGEMAKER_PROGRAM"
    launcher = _of_scripts(launchers_of(context.job_request.hyperparameters))
    if not launcher or context.props.get("container_entrypoint") is not None:
        return
    given = context.job_request.environment.get(variable) or (context.props.get("environment") or {}).get(variable)
    program = given or (image.dockerfile.image.program if image.dockerfile else None)
    if program and not is_unresolved(program) and not program.endswith(".py"):
        rule = f"end in .py for {launcher}, which starts Python scripts alone"
        raise must(variable if given is None else f"environment[{variable!r}]", rule, "'train.py'", repr(program))


def _check_script(image: TrainingImage, context: JobContext) -> None:
    """The toolkit starts what variables or hyperparameters name, or exits (environment.py of sagemaker-training)."""
    props, program = context.props, context.job_request.environment.get("SAGEMAKER_PROGRAM")
    if not getattr(image, "is_container", False) or props.get("container_entrypoint") is not None:
        return
    if program is not None:
        example = (
            "TrainingImage.from_asset(self, 'Image', training_code_path(), file='heterogeneous/ray_data/Dockerfile')"
        )
        raise must("image", f"have {program!r}, which the job's launcher starts", example, f"{image.base!r}")
    named = {*(props.get("environment") or ()), *(props.get("hyperparameters") or ())}
    if props.get("code") is None and not named & {"SAGEMAKER_SUBMIT_DIRECTORY", "sagemaker_submit_directory"}:
        rule = "be given with one of AWS's containers, in which there is no training script"
        raise must("code", rule, "TrainingCode('src', entry_point='train.py')", f"None with {image.base!r}")


def _check_platform(image: TrainingImage, context: JobContext) -> None:
    """The image is built for the machines' processors; a token passes, as does an existing image."""
    if image.platform is None or is_unresolved(image.platform):
        return
    for name in instance_types(context.job_request):
        needed = "linux/arm64" if processor(name) == "arm64" else "linux/amd64"
        if not is_unresolved(name) and not image.platform.startswith(needed):
            example = f"TrainingImage.from_asset(..., platform=Platform.custom({needed!r}))"
            raise must("image", f"be built for the processors of {name}", example, f"one for {image.platform!r}")


def _image_advice(image: TrainingImage, context: JobContext) -> Iterator[Advice]:
    entrypoint = context.props.get("container_entrypoint") is not None
    yield from image_advice(image.base, instance_types(context.job_request), entrypoint)
    yield from contents_advice(image, context)
    code = context.props.get("code")
    started = entrypoint or (code is not None and starts_processes(code))
    yield from idle_gpus_advice(image, context.job_request, started)
    yield from built_image_advice(image, context)
    if context.props.get("spot") is not None and getattr(image, "is_container", False) and not entrypoint:
        yield from advice(
            "spot-without-signal",
            "the SIGTERM of a spot interruption does not reach a script in AWS's container, whose process 1 ignores it "
            "(aws/sagemaker-training-toolkit 125; docs/container.md, 'Stopping with a checkpoint'): what it did since its last "
            "checkpoint is lost. Save one every few minutes, or build an image with entrypoint.py of training_code.",
        )


def _check_code(code: TrainingCode, context: JobContext) -> None:
    """The toolkit starts the code only where nothing names another script (environment.py of sagemaker-training)."""
    props, program = context.props, context.job_request.environment.get("SAGEMAKER_PROGRAM")
    if program is not None:
        _refuse_code(code, f"a launcher that starts {program!r} of the image")
    if "SAGEMAKER_PROGRAM" in (props.get("environment") or {}):
        _refuse_code(code, "environment['SAGEMAKER_PROGRAM'], which names another script")
    channels = props.get("channels") or {}
    if props.get("network_isolation") and "code" in channels:
        rule = "not contain 'code', by which a job with network isolation gets its code"
        raise must("channels", rule, "'sources'", repr(channels["code"]))
    dockerfile = props["image"].dockerfile
    if (script := dockerfile.script_line if dockerfile else None) is not None:
        _refuse_code(code, f"an image whose Dockerfile has a script of its own ({script})")
    _check_start(code, context)
    check_options(code, context)
    check_requirements(code, context)
    check_command(code, context)


# `_SAFE_ENTRY_POINT` there.
_NAME_OF_PROGRAM = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+-]*(?:/[A-Za-z0-9._+-]+)*")
# Those that start Python scripts alone (torch_distributed.py and pytorch_xla.py of sagemaker-training, `_create_command`).
_OF_SCRIPTS = {
    "sagemaker_torch_distributed_enabled": "Torchrun()",
    "sagemaker_pytorch_xla_multi_worker_enabled": "PyTorchXla()",
}


def _check_start(code: TrainingCode, context: JobContext) -> None:
    """The toolkit and the job's launcher can start the code (_entry_point_type.py and process.py of sagemaker-training)."""
    launchers = launchers_of(context.job_request.hyperparameters)
    launcher = _of_scripts(launchers)
    if code.command is not None and launchers:
        raise must(
            "launcher", "be left out beside code.command, which starts the processes", "None", repr(launchers[0])
        )
    if not _NAME_OF_PROGRAM.fullmatch(code.program):
        rule = "have letters, digits and . _ + - / alone, and not begin with -, since the toolkit starts no others"
        raise must("code.entry_point", rule, "'train.py'", repr(code.entry_point))
    package = code.has("setup.py") and not code.program.endswith(".sh")
    if launcher and code.is_shell_script:
        rule = f"end in .py for {launcher}, which starts Python scripts alone; a command of its own is command"
        raise must("code.entry_point", rule, "'train.py'", repr(code.entry_point))
    if launcher and package:
        rule = f"be a folder without setup.py for {launcher}, which starts no Python packages; leave it out by exclude"
        raise must("code.directory", rule, "exclude=['setup.py']", repr(code.directory))
    if package and "/" in code.program:
        rule = "be at the top of a folder with setup.py, which the toolkit starts by python -m"
        raise must("code.entry_point", rule, repr(Path(code.entry_point).name), repr(code.entry_point))


def _of_scripts(launchers: Sequence[str]) -> str:
    """The launcher that starts Python scripts alone, or ``""``."""
    return next((_OF_SCRIPTS[name] for name in launchers if name in _OF_SCRIPTS), "")


def _refuse_code(code: TrainingCode, because: str) -> None:
    raise must("code", "be left out", "code=None", f"{code!r} with {because}")


def _metric_definitions(
    definitions: Mapping[str, str | Sequence[str]] | None, context: RequestContext
) -> list[dict[str, Any]]:
    """MetricDefinitions, with the name of a metric once for each of its expressions."""
    found: list[dict[str, Any]] = []
    for name, value in (definitions or {}).items():
        of_name = [value] if isinstance(value, str) else value
        if not of_name:
            rule = "be a regular expression or several"
            raise must(f"metric_definitions[{name!r}]", rule, "'loss=([0-9.]+)'", repr(value))
        for regex in of_name:
            _check_regex(f"metric_definitions[{name!r}]", regex)
            found.append({"Name": name, "Regex": regex})
    return found


def _check_regex(prop: str, regex: str) -> None:
    try:
        if not is_unresolved(regex):
            re.compile(regex)
    except re.error as error:
        raise must(prop, "be a regular expression", "'loss=([0-9.]+)'", f"{regex!r}: {error}") from error


def _metrics_advice(metric_definitions: Mapping[str, str | Sequence[str]], context: JobContext) -> Iterator[Advice]:
    """Warn of an expression without a group around the value, which SageMaker takes: the service model has no rule for it."""
    for name, regexes in metric_definitions.items():
        for regex in [regexes] if isinstance(regexes, str) else regexes:
            _check_regex(f"metric_definitions[{name!r}]", regex)
            if not is_unresolved(regex) and not re.compile(regex).groups:
                text = (
                    f"metric_definitions[{name!r}] has no group around the value, like 'loss=([0-9.]+)', got {regex!r}"
                )
                yield from advice("metric-without-group", text)


def _command(prop: str) -> Callable[[Sequence[str] | None, RequestContext], list[str] | None]:
    """ContainerEntrypoint and ContainerArguments, of which the service takes no empty list (service model)."""

    def of(value: Sequence[str] | None, context: RequestContext) -> list[str] | None:
        if value is not None and not value:
            raise must(prop, "not be empty", "['python', 'train.py']", repr(value))
        return None if value is None else list(value)

    return of


def _entrypoint_advice(entrypoint: Sequence[str], context: JobContext) -> Iterator[Advice]:
    launcher = [name for name in context.job_request.hyperparameters if name.startswith("sagemaker_")]
    if launcher:
        yield from advice(
            "entrypoint-instead-of-toolkit",
            f"container_entrypoint replaces the toolkit of AWS's containers, the only reader of {launcher[0]!r}: the job's "
            "launcher has no effect unless the entry point implements it.",
        )
    if context.props.get("code") is not None:
        yield from advice(
            "entrypoint-instead-of-code",
            "container_entrypoint replaces the toolkit of AWS's containers, the only reader of 'sagemaker_submit_directory': no "
            "host fetches the folder of code unless the entry point does. Leave one of them out.",
        )


def _check_private_registry(private_registry: PrivateRegistry, context: JobContext) -> None:
    """A private registry is reached through a VPC (API, TrainingImageConfig)."""
    if context.props.get("network") is None:
        rule = "be set for an image in a private registry, which is reached through it"
        raise must("network", rule, "TrainingNetwork(self, 'Network')", "None with private_registry")


def _environment(variables: Mapping[str, str] | None, context: RequestContext) -> dict[str, str]:
    of_hosts = {} if instance_count(context.job_request) == 1 else _BETWEEN_HOSTS
    return {**of_hosts, **(variables or {}), **context.job_request.environment}


def _check_environment(environment: Mapping[str, str], context: JobContext) -> None:
    for name, value in context.job_request.environment.items():
        if environment.get(name, value) != value:
            rule = f"not contain {name!r}, which the job sets to {value!r}; set it there"
            raise must("environment", rule, "compiler=TorchCompile(mode='max-autotune')", repr(environment[name]))


def _hyperparameters(values: Mapping[str, Any] | None, context: RequestContext) -> Mapping[str, str]:
    """Those of the prop, of the job, and of code as the SageMaker Python SDK, version 2, sends ``source_dir``, as text."""
    of_code = {}
    if (code := context.code) is not None:
        of_code["sagemaker_program"] = json.dumps(code.program)
        of_code["sagemaker_submit_directory"] = json.dumps(code.submit_directory)
    return hyperparameters(values or {}, context.job_request, of_code)
