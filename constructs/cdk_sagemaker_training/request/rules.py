"""Rules of props, and between them, which the service model lacks; each with its source.

The records of `props.TrainingProps` name them, as functions of a prop's value and of the request's context; those of machines are
in `machine_rules`. "API" is the documentation of the members that comes with botocore's service model; "guide" SageMaker's
developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed
from cdk_sagemaker_training.data.capacity import PrivateRegistry
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.data.observability import Debugger, Profiler
from cdk_sagemaker_training.data.s3 import S3Channel
from cdk_sagemaker_training.facts.instance_facts import processor
from cdk_sagemaker_training.request.context import RequestContext
from cdk_sagemaker_training.request.machine_rules import instance_types

if TYPE_CHECKING:
    from cdk_sagemaker_training.resources.image import TrainingImage

# The key of the tag that identifies the execution of a job; the value is the execution's ARN.
EXECUTION_TAG = "StepFunctionsExecution"

_MOST_TAGS = 49  # TagList of the service model, less the one of the execution
# A job's name has 63 characters, of which a hyphen and a hash of the execution, the attempt and the index take the rest.
_LONGEST_JOB_NAME_PREFIX = 26


def check_channels(channels: Mapping[str, Any], context: RequestContext) -> None:
    """Check that the job can have its channels.

    File systems are mounted into a VPC (guide, "Configure data input channel to use Amazon FSx for Lustre", "... Amazon EFS").
    Either all channels name instance groups or none (the service's error "Some channels have assigned instance groups:
    [...] while others not"), and a file system's channel cannot name them.

    Raises:
        ValueError: For a file system without a network, for a group that the job lacks, and for groups beside a file system.
    """
    for name, channel in channels.items():
        if isinstance(channel, S3Channel):
            _check_groups(name, channel, context.job_request.group_names)
        elif context.props.get("network") is None:
            raise ValueError(
                f"network must be set for a channel on a file system, which is mounted in a VPC, "
                f"like TrainingNetwork(self, 'Network'), got None with channels[{name!r}]"
            )
    on_file_systems = [name for name, channel in channels.items() if not isinstance(channel, S3Channel)]
    with_groups = [name for name, channel in channels.items() if isinstance(channel, S3Channel) and channel.groups]
    if on_file_systems and with_groups:
        raise ValueError(
            f"channels[{with_groups[0]!r}].groups must be left out with a channel on a file system, which all groups mount, "
            f"like groups=None, got channels[{on_file_systems[0]!r}]"
        )


def _check_groups(name: str, channel: S3Channel, group_names: tuple[str, ...]) -> None:
    for group in channel.groups or ():
        if group in group_names:
            continue
        if not group_names:
            raise ValueError(
                f"channels[{name!r}].groups must be left out of a job without instance groups, "
                f"like S3Channel(bucket, 'images/'), got {group!r}"
            )
        raise ValueError(
            f"channels[{name!r}].groups must be instance groups of the job, like {group_names[0]!r} of {list(group_names)}, "
            f"got {group!r}"
        )


def check_remote_debug(remote_debug: bool, context: RequestContext) -> None:
    """Check that remote debugging is possible.

    "No inbound or outbound network calls can be made" (API, EnableNetworkIsolation); remote debugging is a session of Systems
    Manager, whose agent in the container calls out (guide, "Access a training container through AWS Systems Manager").

    Raises:
        ValueError: For remote debugging with network isolation.
    """
    if remote_debug and context.props.get("network_isolation"):
        raise ValueError(
            "remote_debug must be left out of a job with network isolation, whose hosts have no network, "
            "like network_isolation=False, got True with network_isolation=True"
        )


def check_private_registry(private_registry: PrivateRegistry, context: RequestContext) -> None:
    """Check that there is a VPC, through which a private registry is reached (API, TrainingImageConfig).

    Raises:
        ValueError: Without a network.
    """
    if context.props.get("network") is None:
        raise ValueError(
            "network must be set for an image in a private registry, which is reached through it, "
            "like TrainingNetwork(self, 'Network'), got None with private_registry"
        )


def check_image(image: TrainingImage, context: RequestContext) -> None:
    """Check that the image is in ECR or a private registry (API, TrainingImageConfig), and that it has the job's compiler.

    Raises:
        ValueError: For an image of another registry without ``private_registry``, and for one without the compiler, its
            CUDA, or the launcher.
    """
    uri = image.image_uri
    if image.repository is None and not is_unresolved(uri) and context.props.get("private_registry") is None:
        raise ValueError(
            "private_registry must be set for an image in another registry than ECR, like PrivateRegistry(), "
            f"got None with {uri!r}"
        )
    images = context.job_request.images
    if images and not is_unresolved(image.base):
        check_listed(
            "compiler-images",
            image.base,
            image.base is not None and any(fnmatch(image.base, pattern) for pattern in images),
            "image must be a container with the job's compiler and launcher, or built from one, "
            f"like {images[0]!r} of {list(images)}, or with image.base = unlisted('REPOSITORY:TAG')",
        )
    _check_platform(image, instance_types(context.job_request))
    image.check_files(context.job_request.files)
    if context.job_request.environment.get("PJRT_DEVICE") == "CUDA":
        image.check_xla_has_cuda()


def _check_platform(image: TrainingImage, machines: Iterable[str]) -> None:
    """Check that an image is built for the machines' processors; a token passes, as does an existing image."""
    if image.platform is None or is_unresolved(image.platform):
        return
    for name in machines:
        if is_unresolved(name):
            continue
        needed = "linux/arm64" if processor(name) == "arm64" else "linux/amd64"
        if not image.platform.startswith(needed):
            raise ValueError(
                f"image must be built for the processors of {name}, like TrainingImage.from_asset(..., "
                f"platform=Platform.custom({needed!r})), got one for {image.platform!r}"
            )


def check_code(code: TrainingCode, context: RequestContext) -> None:
    """Check that the toolkit starts the code: it takes SAGEMAKER_PROGRAM first (environment.py of sagemaker-training).

    Raises:
        ValueError: For a channel named ``code`` in a job without a network, and for what starts another script: the launcher, a
            variable, or the image.
    """
    props, program = context.props, context.job_request.environment.get("SAGEMAKER_PROGRAM")
    if program is not None:
        _refuse_code(code, f"a launcher that starts {program!r} of the image")
    if "SAGEMAKER_PROGRAM" in (props.get("environment") or {}):
        _refuse_code(code, "environment['SAGEMAKER_PROGRAM'], which names another script")
    channels = props.get("channels") or {}
    if props.get("network_isolation") and "code" in channels:
        raise ValueError(
            "channels must not contain 'code', by which a job with network isolation gets its code, like 'sources', "
            f"got {channels['code']!r}"
        )
    if (script := props["image"].own_script()) is not None:
        _refuse_code(code, f"an image whose Dockerfile has a script of its own ({script})")


def _refuse_code(code: TrainingCode, because: str) -> None:
    raise ValueError(f"code must be left out, like code=None, got {code!r} with {because}")


def check_profiler(profiler: Profiler, context: RequestContext) -> None:
    """Check that a profiler does not contradict the job's own, and that rules have distinct names.

    Raises:
        ValueError: For either.
    """
    of_job = context.job_request.profiler_config
    if of_job and profiler.disable != of_job.get("DisableProfiler"):
        raise ValueError(
            "profiler must agree with that of the job's compiler, like job=CompiledJob(..., TrainingCompiler(profiler=True)), "
            f"got {profiler!r}"
        )
    check_rule_names(profiler, context)


def check_rule_names(watcher: Debugger | Profiler, context: RequestContext) -> None:
    """Check that the rules of debugger and profiler have distinct names (API, DebugRuleConfiguration).

    Raises:
        ValueError: For a name that two rules have.
    """
    watchers = (context.props.get("debugger"), context.props.get("profiler"))
    names = [rule.name for one in watchers if one is not None for rule in one.rules]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"rules must have distinct names, like 'LossNotDecreasing', got {name!r} twice")


def check_tags(tags: Mapping[str, str], context: RequestContext) -> None:
    """Check that tags use no reserved key ("Tag naming limits and requirements" of AWS's tagging guide, and this library's).

    Raises:
        ValueError: For a key of AWS's or the library's, and for more tags than SageMaker takes beside the library's one.
    """
    if EXECUTION_TAG in tags:
        raise ValueError(
            f"tags must not contain {EXECUTION_TAG!r}, by which this library identifies a job's execution, "
            f"like {{'team': 'vision'}}, got {tags[EXECUTION_TAG]!r}"
        )
    if len(tags) > _MOST_TAGS:
        raise ValueError(
            f"tags must be at most {_MOST_TAGS}, since SageMaker allows {_MOST_TAGS + 1} and {EXECUTION_TAG!r} is one of them, "
            f"like {{'team': 'vision'}}, got {len(tags)}"
        )
    for key in tags:
        if key.lower().startswith("aws:"):
            raise ValueError(f"tags must not begin with 'aws:', which is reserved by AWS, like 'team', got {key!r}")


def check_environment(environment: Mapping[str, str], context: RequestContext) -> None:
    """Check that no variable is one that the job sets itself, which would override the user's value.

    Raises:
        ValueError: For another value of such a variable.
    """
    for name, value in context.job_request.environment.items():
        if environment.get(name, value) != value:
            raise ValueError(
                f"environment must not contain {name!r}, which the job sets to {value!r}; set it there, "
                f"like compiler=TorchCompile(mode='max-autotune'), got {environment[name]!r}"
            )


def check_job_name_prefix(prefix: str) -> None:
    """Check that the names of jobs can begin with a prefix.

    Args:
        prefix: The prefix; a token passes.

    Raises:
        ValueError: Unless it is letters, digits and inner hyphens (TrainingJobName of the service model), at most 26.
    """
    if is_unresolved(prefix):
        return
    text = prefix if isinstance(prefix, str) else ""
    if len(text) > _LONGEST_JOB_NAME_PREFIX or not re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", text):
        raise ValueError(
            f"job_name_prefix must be 1 to {_LONGEST_JOB_NAME_PREFIX} letters, digits and hyphens, a hyphen neither first nor "
            f"last, like 'digits', got {prefix!r}"
        )
