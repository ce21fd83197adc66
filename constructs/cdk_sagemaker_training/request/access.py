"""The role, the network, the monitoring, the tags and the names of a job: props, members, rules and warnings.

In the sources of rules "API" is the documentation of the members that comes with botocore's service model, and "guide"
SageMaker's developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.observability import Debugger, Experiment, Mlflow, Profiler, TensorBoard
from cdk_sagemaker_training.jobs.advice import Advice, advice
from cdk_sagemaker_training.props.prop import VALUES_IN_INPUT, Known, Member, Prop
from cdk_sagemaker_training.request.context import JobContext, RequestContext, flag, optional
from cdk_sagemaker_training.request.machine import instance_count
from cdk_sagemaker_training.request.scripts.code import debugger_advice
from cdk_sagemaker_training.request.variables import CODE_ARTIFACT, names_index

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from cdk_sagemaker_training.resources.networking.network import TrainingNetwork
    from cdk_sagemaker_training.resources.role import TrainingRole

# The key of the tag that identifies the execution of a job; the value is the execution's ARN.
EXECUTION_TAG = "StepFunctionsExecution"
_MOST_TAGS = 49  # TagList of the service model, less the one of the execution
# A job's name has 63 characters, of which a hyphen and a hash of the execution, the attempt and the index take the rest.
_LONGEST_JOB_NAME_PREFIX = 26


class AccessProps(TypedDict, total=False):
    """The role and the network of a job."""

    role: Annotated[TrainingRole | iam.IRole | None, Prop(Member("RoleArn", _role_arn, sync=True))]
    """The role of the jobs, which is granted what they need. Default: a new one."""

    network: Annotated[
        TrainingNetwork | None,
        Prop(
            Member(
                "VpcConfig",
                optional(lambda network: network.vpc_config()),
                parts=(
                    Member("SecurityGroupIds", sync=True, docs="`network`: `TrainingNetwork(security_groups=)`"),
                    Member("Subnets", sync=True),
                ),
            ),
            advice=_network_advice,
        ),
    ]
    """The VPC that the hosts are in. Default: SageMaker's own network, which reaches the internet."""

    network_isolation: Annotated[
        bool, Prop(Member("EnableNetworkIsolation", flag, sync=True), advice=_isolation_advice)
    ]
    """Cuts the script off from every network but its peers, and from the role's credentials. Default: False."""

    inter_container_encryption: Annotated[
        bool, Prop(Member("EnableInterContainerTrafficEncryption", flag), advice=_unused_encryption)
    ]
    """Encrypts what hosts send to each other, which makes them slower. Default: False."""

    session_tag_chaining: Annotated[bool, Prop(Member("SessionChainingConfig.EnableSessionTagChaining", flag))]
    """Passes the caller's session tags on to the role. Default: False."""

    remote_debug: Annotated[bool, Prop(Member("RemoteDebugConfig.EnableRemoteDebug", flag), check=_check_remote_debug)]
    """Allows shells on the hosts through Systems Manager; not with ``network_isolation``. Default: False."""


class MonitoringProps(TypedDict, total=False):
    """The monitoring of a job, its tags and names."""

    debugger: Annotated[
        Debugger | None,
        Prop(
            Member("DebugHookConfig", optional(Debugger.hook_config)),
            Member(
                "DebugRuleConfigurations",
                optional(_rule_configurations),
                docs="`Debugger(rules=)`",
                name="debugger.rules",
            ),
            check=_check_rule_names,
            advice=debugger_advice,
        ),
    ]
    """Saves tensors of the training, and evaluates rules on them. Default: none."""

    profiler: Annotated[
        Profiler | None,
        Prop(
            Member("ProfilerConfig", _profiler_config),
            Member(
                "ProfilerRuleConfigurations",
                optional(_rule_configurations),
                docs="`Profiler(rules=)`",
                name="profiler.rules",
            ),
            check=_check_profiler,
        ),
    ]
    """Measures the machines, and evaluates rules on that. Default: that of the job's compiler, else SageMaker's."""

    tensorboard: Annotated[
        TensorBoard | None, Prop(Member("TensorBoardOutputConfig", optional(TensorBoard.output_config)))
    ]
    """Where TensorBoard's files go. Default: nowhere."""

    experiment: Annotated[Experiment | None, Prop(Member("ExperimentConfig", optional(Experiment.config)))]
    """The experiment of SageMaker's that the job is part of. Default: none."""

    mlflow: Annotated[Mlflow | None, Prop(Member("MlflowConfig", optional(Mlflow.config)))]
    """The MLflow server that the job reports to. Default: none."""

    tags: Annotated[
        Mapping[str, str] | None,
        Prop(
            Member("Tags", _tags, sync=True),
            check=_check_tags,
            known=VALUES_IN_INPUT,
            example="{'team': 'vision'}",
        ),
    ]
    """Tags of the job, at most 49: the library adds one, with the execution that started the job. Default: that one."""

    job_name_prefix: Annotated[
        str | None,
        Prop(
            Member("TrainingJobName", _job_name, sync=True),
            known=Known("synth", "since permissions and names are made of it"),
            example="'digits'",
        ),
    ]
    """How the jobs' names begin: 1 to 26 letters, digits and inner hyphens.

    Default: the construct's path in lower case, with a hash where that is too long, not all in ASCII, or another construct's.
    """


def _role_arn(role: Any, context: RequestContext) -> str:
    return context.role_arn


def _isolation_advice(isolated: bool, context: JobContext) -> Iterator[Advice]:
    """A script in isolation has no AWS credentials (guide, "Run training and inference containers in internet-free mode")."""
    if not isolated:
        return
    callers = [name for name in ("mlflow", "experiment") if context.props.get(name) is not None]
    if context.job_request.storage:
        callers.append("job")
    for caller in callers:
        yield from advice(
            "isolated-script-calls-aws",
            f"network_isolation leaves the script without a network and without credentials, and {caller} requires calls to AWS, "
            "which fail.",
        )
    if _installs_packages(context):
        yield from advice(
            "isolated-script-installs-packages",
            "network_isolation leaves the hosts without a network, and the toolkit runs `pip install` of the requirements.txt of "
            "code before the script, which fails for a package that the image lacks: install them in an image of your own.",
        )


def _installs_packages(context: JobContext) -> bool:
    """The toolkit installs requirements; pip looks for what the image lacks on PyPI (`install` in sagemaker-training)."""
    code = context.props.get("code")
    return code is not None and code.has("requirements.txt")


def _network_advice(network: TrainingNetwork, context: JobContext) -> Iterator[Advice]:
    """Warn of packages that hosts without a route to PyPI install, unless variables name another index or no index."""
    if _installs_packages(context) and not names_index(context) and not network.has_egress:
        yield from advice(
            "network-without-egress-installs-packages",
            "the subnets of network have no route to the internet, and the toolkit runs `pip install` of the requirements.txt of "
            "code before the script, which fails for a package that the image lacks. Install them in an image of your own, have "
            "subnets with a NAT gateway, like TrainingNetwork(self, 'Network', vpc=ec2.Vpc(self, 'Vpc')), or name an index that "
            f"the hosts reach, like environment={{{CODE_ARTIFACT!r}: '...'}}.",
        )
    for prop, service in _called_in(context):
        if network.lacks_endpoint(service):
            yield from advice(
                "network-without-endpoint",
                f"network has neither a route to the internet nor an endpoint of {service!r}, which {prop} needs: "
                f"TrainingNetwork(self, 'Network', endpoints=[{service!r}]).",
            )


def _called_in(context: JobContext) -> Iterator[tuple[str, str]]:
    """The props for which a host calls an AWS service, and the service.

    Systems Manager's agent has permissions of ssmmessages alone (guide, "Access a training container through AWS Systems Manager
    for remote debugging"). Of MLflow's apps the endpoint is not known.
    """
    if context.props.get("remote_debug"):
        yield "remote_debug", "ssmmessages"
    mlflow = context.props.get("mlflow")
    if mlflow is not None and ":mlflow-tracking-server/" in mlflow.resource_arn:
        yield "mlflow", "experiments"


def _unused_encryption(encrypted: bool, context: JobContext) -> Iterator[Advice]:
    if encrypted and instance_count(context.job_request) == 1:
        yield from advice(
            "encryption-without-peers",
            "inter_container_encryption has no effect on a job of one machine, which has no peers; leave it out.",
        )


def _check_remote_debug(remote_debug: bool, context: JobContext) -> None:
    """Remote debugging is a session of Systems Manager, whose agent in the container calls out.

    "No inbound or outbound network calls can be made" in isolation (API, EnableNetworkIsolation; guide, "Access a training
    container through AWS Systems Manager").
    """
    if remote_debug and context.props.get("network_isolation"):
        rule = "be left out of a job with network isolation, whose hosts have no network"
        raise must("remote_debug", rule, "network_isolation=False", "True with network_isolation=True")


def _rule_configurations(hook: Any) -> list[dict[str, Any]]:
    return [rule.configuration() for rule in hook.rules]


def _check_rule_names(watcher: Debugger | Profiler, context: JobContext) -> None:
    """The rules of debugger and profiler have distinct names (API, DebugRuleConfiguration)."""
    watchers = (context.props.get("debugger"), context.props.get("profiler"))
    names = [rule.name for hook in watchers if hook is not None for rule in hook.rules]
    for name in names:
        if names.count(name) > 1:
            raise must("rules", "have distinct names", "'LossNotDecreasing'", f"{name!r} twice")


def _profiler_config(profiler: Profiler | None, context: RequestContext) -> dict[str, Any]:
    """The user's, unless the kind of job has its own."""
    of_job, output = dict(context.job_request.profiler_config), context.props["output"]
    if profiler is not None:
        return profiler.config(output)
    return {**of_job, "S3OutputPath": output.uri} if of_job.get("DisableProfiler") is False else of_job


def _check_profiler(profiler: Profiler, context: JobContext) -> None:
    of_job = context.job_request.profiler_config
    if of_job and profiler.disable != of_job.get("DisableProfiler"):
        example = "job=CompiledJob(..., TrainingCompiler(profiler=True))"
        raise must("profiler", "agree with that of the job's compiler", example, repr(profiler))
    _check_rule_names(profiler, context)


def _tags(tags: Mapping[str, str] | None, context: RequestContext) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in {**(tags or {}), **context.tags}.items()]


def _check_tags(tags: Mapping[str, str], context: JobContext) -> None:
    """No key is reserved ("Tag naming limits and requirements" of AWS's tagging guide, and this library's)."""
    example = "{'team': 'vision'}"
    if EXECUTION_TAG in tags:
        rule = f"not contain {EXECUTION_TAG!r}, by which this library identifies a job's execution"
        raise must("tags", rule, example, repr(tags[EXECUTION_TAG]))
    if len(tags) > _MOST_TAGS:
        rule = f"be at most {_MOST_TAGS}, since SageMaker allows {_MOST_TAGS + 1} and {EXECUTION_TAG!r} is one of them"
        raise must("tags", rule, example, f"{len(tags)}")
    for key in tags:
        if key.lower().startswith("aws:"):
            raise must("tags", "not begin with 'aws:', which is reserved by AWS", "'team'", repr(key))


def _job_name(prefix: str | None, context: RequestContext) -> str:
    return context.job_name


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
        rule = f"be 1 to {_LONGEST_JOB_NAME_PREFIX} letters, digits and hyphens, a hyphen neither first nor last"
        raise must("job_name_prefix", rule, "'digits'", repr(prefix))
