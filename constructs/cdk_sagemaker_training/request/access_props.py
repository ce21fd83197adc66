"""Props of a job: its role and network, its monitoring, its tags and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypedDict

from cdk_sagemaker_training.data.observability import Debugger, Experiment, Mlflow, Profiler, TensorBoard
from cdk_sagemaker_training.props.prop import Known, Member, Prop
from cdk_sagemaker_training.request import members, rules
from cdk_sagemaker_training.request.members import optional

if TYPE_CHECKING:
    from aws_cdk import aws_iam as iam

    from cdk_sagemaker_training.resources.network import TrainingNetwork
    from cdk_sagemaker_training.resources.role import TrainingRole


class AccessProps(TypedDict, total=False):
    """The role and the network of a job."""

    role: Annotated[TrainingRole | iam.IRole | None, Prop(Member("RoleArn", members.role_arn, sync=True))]
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
            )
        ),
    ]
    """The VPC that the hosts are in. Default: SageMaker's own network, which reaches the internet."""

    network_isolation: Annotated[bool, Prop(Member("EnableNetworkIsolation", members.flag, sync=True))]
    """Cuts the script off from every network but its peers, and from the role's credentials. Default: False."""

    inter_container_encryption: Annotated[bool, Prop(Member("EnableInterContainerTrafficEncryption", members.flag))]
    """Encrypts what hosts send to each other, which makes them slower. Default: False."""

    session_tag_chaining: Annotated[bool, Prop(Member("SessionChainingConfig.EnableSessionTagChaining", members.flag))]
    """Passes the caller's session tags on to the role. Default: False."""

    remote_debug: Annotated[
        bool, Prop(Member("RemoteDebugConfig.EnableRemoteDebug", members.flag), check=rules.check_remote_debug)
    ]
    """Allows shells on the hosts through Systems Manager; not with ``network_isolation``. Default: False."""


class MonitoringProps(TypedDict, total=False):
    """The monitoring of a job, its tags and names."""

    debugger: Annotated[
        Debugger | None,
        Prop(
            Member("DebugHookConfig", optional(Debugger.hook_config)),
            Member(
                "DebugRuleConfigurations",
                optional(members.rule_configurations),
                docs="`Debugger(rules=)`",
                name="debugger.rules",
            ),
            check=rules.check_rule_names,
        ),
    ]
    """Saves tensors of the training, and evaluates rules on them. Default: none."""

    profiler: Annotated[
        Profiler | None,
        Prop(
            Member("ProfilerConfig", members.profiler_config),
            Member(
                "ProfilerRuleConfigurations",
                optional(members.rule_configurations),
                docs="`Profiler(rules=)`",
                name="profiler.rules",
            ),
            check=rules.check_profiler,
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
            Member("Tags", members.tags, sync=True),
            check=rules.check_tags,
            known=Known("execution", "values, not names"),
            example="{'team': 'vision'}",
        ),
    ]
    """Tags of the job, at most 49: the library adds one, with the execution that started the job. Default: that one."""

    job_name_prefix: Annotated[
        str | None,
        Prop(
            Member("TrainingJobName", members.job_name, sync=True),
            known=Known("synth", "since permissions and names are made of it"),
            example="'digits'",
        ),
    ]
    """How the jobs' names begin: 1 to 26 letters, digits and inner hyphens.

    Default: the construct's path in lower case, with a hash where that is too long, not all in ASCII, or another construct's.
    """
