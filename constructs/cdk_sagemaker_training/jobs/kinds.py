"""``DataParallelJob``, and the protocols of jobs, launchers and compilers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Protocol

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.jobs.advice import Advice as Advice
from cdk_sagemaker_training.jobs.advice import efa_advice, scale_up_advice
from cdk_sagemaker_training.jobs.instance_group import InstanceGroup as InstanceGroup
from cdk_sagemaker_training.jobs.instance_group import InstancePreference as InstancePreference
from cdk_sagemaker_training.props.prop import Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields


@dataclass(frozen=True)
class JobRequest(Value):
    """The part of a CreateTrainingJob request that a kind of job determines.

    Args:
        resource_config: Members of the request's ResourceConfig: ``InstanceType`` and ``InstanceCount``,
            ``InstancePreferences``, or ``InstanceGroups``.
        hyperparameters: The ``sagemaker_*`` hyperparameters for the toolkit in the container, encoded as it expects them.
        environment: Environment variables of the container.
        group_names: Names of the instance groups; empty for a homogeneous job.
        name_suffix: Distinguishes the requests of a kind that makes several, in the jobs' names; the values must have distinct
            first letters, because a name has room for one letter only.
        alone_because: Why the machines cannot be a group of a heterogeneous job; empty if they can.
        overrides: Values that replace those of the user's hyperparameters.
        profiler_config: The request's ProfilerConfig.
        images: fnmatch patterns of `repository:tag` of AWS's containers; the job's image must be, or be built from, a match.
            Empty for any image.
        files: Files of ``training_code_path()`` that an image which is built must copy.
        storage: Locations in S3 that the script itself reads and writes.
        kept: Directories on the hosts that must be below the checkpoints' path, so that a restarted job has them.
        checkpoints: Whether the job has checkpoints.
        advice: Warnings to add at synthesis.
    """

    resource_config: Mapping[str, Any]
    hyperparameters: Annotated[Mapping[str, str], Prop(example="{'epochs': '3'}")] = field(default_factory=dict)
    environment: Annotated[Mapping[str, str], Prop(example="{'NCCL_DEBUG': 'INFO'}")] = field(default_factory=dict)
    group_names: tuple[str, ...] = ()
    name_suffix: str = ""
    alone_because: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    profiler_config: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    storage: tuple[S3Prefix, ...] = ()
    kept: tuple[str, ...] = ()
    checkpoints: bool = True
    advice: tuple[Advice, ...] = ()


@kind("DataParallelJob(InstanceGroup('ml.g5.xlarge'))", "a kind of job")
class TrainingJob(Protocol):
    """The protocol of a kind of job."""

    def requests(self) -> Sequence[JobRequest]:
        """Return the job's requests in the order in which they run."""


@kind("Torchrun()", "a launcher")
class Launcher(Protocol):
    """The protocol of launchers, which start several processes of one script on each host of the training group.

    A launcher may have a ``program``, a path below /opt/ml/code, which the toolkit starts on every host instead of the script.
    """

    @property
    def alone_because(self) -> str:
        """Why it cannot launch in one of several instance groups; empty if it can."""

    def hyperparameters(self, group: InstanceGroup) -> Mapping[str, str]:
        """Return the hyperparameters that make the toolkit use this launcher.

        Args:
            group: The machines.

        Raises:
            ValueError: The launcher does not support the machines.
        """

    def advice(self, group: InstanceGroup) -> tuple[Advice, ...]:
        """Return warnings about the launcher on these machines.

        Args:
            group: The machines.
        """


@kind("TorchCompile()", "a compiler")
class Compiler(Protocol):
    """The protocol of compilers of the training step."""

    def compiled(self, request: JobRequest) -> Sequence[JobRequest]:
        """Return the requests of the compiled job, with the compiler's environment, hyperparameters and warnings.

        Args:
            request: The request of the job without a compiler.

        Returns:
            The requests in the order in which they run; the first may be one that compiles ahead.

        Raises:
            ValueError: The compiler does not support the job's machines or launcher.
        """


def compiled(request: JobRequest, compiler: Compiler | None) -> Sequence[JobRequest]:
    """Return the requests of a compiled job.

    Raises:
        ValueError: The compiler does not support the job's machines or launcher, or the launcher needs another compiler.
    """
    requests = [request] if compiler is None else compiler.compiled(request)
    for result in requests:
        if "sagemaker_pytorch_xla_multi_worker_enabled" in result.hyperparameters and (
            "sagemaker_training_compiler_enabled" not in result.hyperparameters
        ):
            rule = "be one that the job's containers have, as only those of compiler=TrainingCompiler() have PyTorchXla"
            raise must("launcher", rule, "Torchrun()", f"compiler={compiler!r}")
    return requests


@dataclass(frozen=True)
class DataParallelJob(Value):
    """A job whose processes each hold the whole model and train on their own share of the data.

    Synthesis warns of several machines where one larger machine of the family has as many accelerators, and of several machines
    without EFA.

    Args:
        group: The machines.
        launcher: What starts several processes on each host, like ``Torchrun()``. None runs the script once on each host: for
            a host with one accelerator, and for a script that starts its processes itself.
        compiler: The compiler of the training step, like ``TorchCompile()``; None for none.

    Raises:
        ValueError: The launcher or the compiler does not support the machines, or each other.
    """

    group: InstanceGroup
    launcher: Launcher | None = None
    compiler: Compiler | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        self.requests()

    def requests(self) -> Sequence[JobRequest]:
        """Return the job's requests in the order in which they run."""
        return on_each_type(self.group, self._requests_on)

    def _requests_on(self, group: InstanceGroup) -> Sequence[JobRequest]:
        request = launched(group, self.launcher)
        advice = (*scale_up_advice(group), *efa_advice(group), *request.advice)
        return compiled(replace(request, advice=advice), self.compiler)


def on_each_type(
    group: InstanceGroup, requests_on: Callable[[InstanceGroup], Sequence[JobRequest]]
) -> Sequence[JobRequest]:
    """Return the requests of a job on a group.

    Raises:
        ValueError: The requests differ between the types of the group.
    """
    if not group.preferences:
        return requests_on(group)
    of_types = [requests_on(alternative) for alternative in group.alternatives]
    return [_merged(group, of_one) for of_one in zip(*of_types, strict=True)]


def _merged(group: InstanceGroup, requests: Sequence[JobRequest]) -> JobRequest:
    first, *others = requests
    for name, other in zip([preference.instance_type for preference in group.preferences[1:]], others, strict=True):
        for member in fields(JobRequest):
            value, other_value = getattr(first, member.name), getattr(other, member.name)
            if member.name not in ("resource_config", "advice") and value != other_value:
                rule = "list types on which the job is the same, or be one type"
                got = f"{group.instance_type!r} with {member.name} {value!r} beside {name!r} with {other_value!r}"
                raise must("instance_type", rule, "['ml.p5.48xlarge', 'ml.p5e.48xlarge']", got)
    return replace(
        first,
        resource_config=group.resource_config(),
        advice=tuple(dict.fromkeys(advice for request in requests for advice in request.advice)),
        alone_because="it has several instance types (InstancePreferences), which exclude instance groups",
    )


def launched(group: InstanceGroup, launcher: Launcher | None) -> JobRequest:
    """Return the request of a job on machines of one type."""
    machines = group.resource_config()
    if launcher is None:
        return JobRequest(resource_config=machines)
    program = getattr(launcher, "program", None)
    return JobRequest(
        resource_config=machines,
        hyperparameters=launcher.hyperparameters(group),
        # The toolkit takes this variable, which the image may have as well, before the hyperparameter `sagemaker_program`.
        environment={} if program is None else {"SAGEMAKER_PROGRAM": program},
        files=() if program is None else (program,),
        alone_because=launcher.alone_because,
        advice=launcher.advice(group),
    )
