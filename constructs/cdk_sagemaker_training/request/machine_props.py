"""Props of a job: its machines and its time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Required, TypedDict

from cdk_sagemaker_training.core.checks import seconds_of
from cdk_sagemaker_training.data.capacity import Spot, UltraServers, WarmPool
from cdk_sagemaker_training.jobs.kinds import TrainingJob
from cdk_sagemaker_training.props.prop import Known, Member, Prop
from cdk_sagemaker_training.request import machine_rules, members
from cdk_sagemaker_training.request.members import optional

if TYPE_CHECKING:
    from aws_cdk import Duration, Size
    from aws_cdk import aws_kms as kms


class MachineProps(TypedDict, total=False):
    """The machines and the time limits of a job."""

    job: Required[
        Annotated[
            TrainingJob,
            Prop(
                Member(
                    "ResourceConfig",
                    members.resource_config,
                    parts=(
                        Member("InstanceType", sync=True, docs="`job`: `InstanceGroup`"),
                        Member("InstanceCount", sync=True, docs="`job`: `InstanceGroup`"),
                        Member("InstancePreferences", docs="`job`: `InstanceGroup` of several types"),
                        Member("InstanceGroups", docs="`job`: `HeterogeneousJob`, in its `order`; also of one group"),
                    ),
                )
            ),
        ]
    ]
    """The kind of job and its machines, such as ``DataParallelJob(InstanceGroup("ml.g5.xlarge"))``. Required."""

    ultra_servers: Annotated[
        UltraServers | None,
        Prop(
            Member("ResourceConfig.InstancePlacementConfig", optional(UltraServers.placement_config)),
            check=machine_rules.check_ultra_servers,
        ),
    ]
    """How machines are placed on UltraServers, for their types only. Default: SageMaker places them."""

    warm_pool: Annotated[
        WarmPool | None,
        Prop(
            Member(
                "ResourceConfig.KeepAlivePeriodInSeconds",
                optional(lambda warm_pool: seconds_of("keep_alive", warm_pool.keep_alive)),
            ),
            check=machine_rules.check_warm_pool,
        ),
    ]
    """Keeps the machines for the next job, and bills them; neither with instance groups nor on spot machines. Default: none."""

    training_plan: Annotated[
        str | None,
        Prop(
            Member("ResourceConfig.TrainingPlanArn"),
            check=machine_rules.check_training_plan,
            known=Known("execution", "permissions are then on all training plans of the account and region"),
        ),
    ]
    """The ARN of the training plan whose reserved machines the job runs on. Default: on-demand machines."""

    volume_key: Annotated[
        kms.IKey | None,
        Prop(
            Member("ResourceConfig.VolumeKmsKeyId", optional(lambda key: key.key_arn), sync=True),
            check=machine_rules.check_volume_key,
        ),
    ]
    """Encrypts the volumes of the hosts; not of types with disks of their own. Default: SageMaker's own key."""

    volume_size: Annotated[
        Size | None,
        Prop(
            Member("ResourceConfig.VolumeSizeInGB", lambda size, _: members.volume_gib(size), sync=True),
            known=Known("execution"),
        ),
    ]
    """The volume of each host, in whole GiB. Types with disks of their own use these instead. Default: 30 GiB."""

    infra_check: Annotated[bool, Prop(Member("InfraCheckConfig.EnableInfraCheck", members.flag))]
    """Tests the machines before they train. Default: False."""

    max_pending: Annotated[
        Duration | int | None,
        Prop(
            Member("StoppingCondition.MaxPendingTimeInSeconds", lambda time, _: members.max_pending_seconds(time)),
            known=Known("execution"),
        ),
    ]
    """The longest that the job waits for machines with accelerators: a Duration or seconds.

    30 minutes to 28 days (service model, MaxPendingTimeInSeconds). Default: SageMaker's own limit.
    """

    max_runtime: Annotated[
        Duration | int | None,
        Prop(
            Member(
                "StoppingCondition.MaxRuntimeInSeconds", lambda time, _: members.max_runtime_seconds(time), sync=True
            ),
            check=machine_rules.check_max_runtime,
            known=Known("execution"),
        ),
    ]
    """How long the job runs, its retries by SageMaker included: a Duration or seconds, at most 28 days. Default: one day."""

    spot: Annotated[
        Spot | None,
        Prop(
            Member("EnableManagedSpotTraining", optional(lambda spot: True), sync=True),
            Member(
                "StoppingCondition.MaxWaitTimeInSeconds",
                members.max_wait_seconds,
                sync=True,
                docs="`Spot(max_wait=)`",
                name="spot.max_wait",
            ),
            check=machine_rules.check_spot,
        ),
    ]
    """Spot machines, which are cheaper and which AWS may take back; may name the checkpoints too. Default: on-demand machines."""

    maximum_retry_attempts: Annotated[
        int | None, Prop(Member("RetryStrategy.MaximumRetryAttempts", sync=True), known=Known("execution"))
    ]
    """How often SageMaker starts the job again after an InternalServerError, 1 to 30 (API, RetryStrategy). Default: never."""
