"""Props of a job: its container, its data and its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, TypedDict

from cdk_sagemaker_training.data.capacity import PrivateRegistry
from cdk_sagemaker_training.data.code import TrainingCode
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.props.prop import Known, Member, Prop
from cdk_sagemaker_training.request import members, rules
from cdk_sagemaker_training.request.members import optional

if TYPE_CHECKING:
    from aws_cdk import aws_kms as kms

    from cdk_sagemaker_training.request.members import Channel
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
                check=rules.check_image,
            ),
        ]
    ]
    """The container image that the job's hosts run. Required."""

    code: Annotated[
        TrainingCode | None,
        Prop(check=rules.check_code, known=Known("synth"), example="TrainingCode('src', entry_point='train.py')"),
    ]
    """The folder with the training script, which each host fetches from S3 when it starts. Default: the code is in the image."""

    metric_definitions: Annotated[
        Mapping[str, str | Sequence[str]] | None,
        Prop(
            Member(
                "AlgorithmSpecification.MetricDefinitions",
                members.metric_definitions,
                sync=True,
                docs="`metric_definitions`, several expressions of one metric too",
            ),
            known=Known("execution", "values, not names"),
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
            Member("AlgorithmSpecification.ContainerEntrypoint", members.command("container_entrypoint")),
            known=Known("execution"),
            example="['python', 'train.py']",
        ),
    ]
    """Replaces the image's own ``train``. Default: the image's."""

    container_arguments: Annotated[
        Sequence[str] | None,
        Prop(
            Member("AlgorithmSpecification.ContainerArguments", members.command("container_arguments")),
            known=Known("execution"),
            example="['--fast']",
        ),
    ]
    """Arguments of the container's entry point. Default: the image's."""

    private_registry: Annotated[
        PrivateRegistry | None,
        Prop(
            Member("AlgorithmSpecification.TrainingImageConfig", optional(PrivateRegistry.image_config)),
            check=rules.check_private_registry,
        ),
    ]
    """The registry that the image is in, where that is not ECR; it is reached through ``network``. Default: ECR."""

    environment: Annotated[
        Mapping[str, str] | None,
        Prop(
            Member("Environment", members.environment, sync=True, docs="`environment`, and the job's compiler"),
            check=rules.check_environment,
            known=Known("execution", "values, not names"),
        ),
    ]
    """Environment variables of the container, at most 100 with those of the job (service model). Default: the job's."""

    hyperparameters: Annotated[
        Mapping[str, Any] | None,
        Prop(
            Member(
                "HyperParameters",
                members.hyperparameters,
                sync=True,
                docs="`hyperparameters`, an `S3Prefix` (TensorFlow's `model_dir`) too, `code`, and the job's launcher",
            ),
            known=Known("execution", "text of its own, not in a list or a dict"),
        ),
    ]
    """Hyperparameters of the script, by name, with values of JSON. At most 100 with those of the job, of 2,500 characters each.

    An ``S3Prefix``, such as TensorFlow's ``model_dir``, is its URI, below which the job may read and write. Default: the job's.
    """


class DataProps(TypedDict, total=False):
    """The channels, the checkpoints and the output of a job."""

    channels: Annotated[
        Mapping[str, Channel] | None,
        Prop(
            Member(
                "InputDataConfig",
                members.input_data_config,
                parts=(
                    Member("ChannelName", sync=True),
                    Member("CompressionType", sync=True, docs="`S3Channel(compression=)`"),
                    Member("ContentType", sync=True, docs="`content_type=` of each channel"),
                    Member("DataSource.FileSystemDataSource", docs="`FsxLustreChannel`, `EfsChannel`"),
                    Member("DataSource.S3DataSource.AttributeNames", sync=True, docs="`S3Channel(attribute_names=)`"),
                    Member("DataSource.S3DataSource.InstanceGroupNames", docs="`S3Channel(groups=)`"),
                    Member("DataSource.S3DataSource.ModelAccessConfig", docs="`S3Channel(accept_eula=)`"),
                    Member(
                        "DataSource.S3DataSource.S3DataDistributionType", sync=True, docs="`S3Channel(distribution=)`"
                    ),
                    Member("DataSource.S3DataSource.S3DataType", sync=True, docs="`S3Channel(data_type=)`"),
                    Member(
                        "DataSource.S3DataSource.S3Uri",
                        sync=True,
                        docs="`S3Channel(bucket, prefix)`, also of an `S3AccessPoint`",
                    ),
                    Member("InputMode", sync=True, docs="`S3Channel(input_mode=)`"),
                    Member("RecordWrapperType", sync=True, docs="`S3Channel(record_wrapper=)`"),
                    Member("ShuffleConfig", docs="`S3Channel(shuffle_seed=)`"),
                ),
            ),
            check=rules.check_channels,
            known=Known("synth", "by their names"),
            example="{'images': S3Channel(bucket, 'images/')}",
        ),
    ]
    """The job's data, at most 20 channels by name: each is below ``/opt/ml/input/data/<name>`` on the hosts. Default: none."""

    checkpoint_local_path: Annotated[
        str | None,
        Prop(
            Member(
                "CheckpointConfig.LocalPath",
                members.checkpoint_local_path,
                sync=True,
                docs="`checkpoint_local_path`, `Spot(local_path=)`",
            ),
            known=Known("execution"),
            example="'/opt/ml/checkpoints'",
        ),
    ]
    """The directory on a host whose files are the checkpoints. Default: ``/opt/ml/checkpoints`` (API, CheckpointConfig)."""

    checkpoints: Annotated[
        S3Prefix | None,
        Prop(
            Member(
                "CheckpointConfig.S3Uri",
                members.checkpoint_uri,
                sync=True,
                docs="`checkpoints`, `Spot(checkpoints=)`",
            )
        ),
    ]
    """Where in S3 the checkpoints are kept, in a folder for each execution. Default: that of ``spot``, else none is kept."""

    output_compression: Annotated[
        Literal["GZIP", "NONE"] | None, Prop(Member("OutputDataConfig.CompressionType"), known=Known("execution"))
    ]
    """How the model is packed; ``"NONE"`` leaves its files as they are. Default: ``"GZIP"`` (API, OutputDataConfig)."""

    output_key: Annotated[
        kms.IKey | None, Prop(Member("OutputDataConfig.KmsKeyId", optional(lambda key: key.key_arn), sync=True))
    ]
    """Encrypts the model. Default: the key for S3 of the role's account (API, OutputDataConfig)."""

    output: Required[
        Annotated[S3Prefix, Prop(Member("OutputDataConfig.S3OutputPath", optional(lambda place: place.uri), sync=True))]
    ]
    """Where in S3 the model goes, in a folder for each job. Required."""
