"""A channel with the model of an earlier step."""

from __future__ import annotations

from collections.abc import Sequence

from cdk_sagemaker_training.data.s3 import InputMode, S3Channel
from cdk_sagemaker_training.orchestration.step_results import job_path
from cdk_sagemaker_training.props.jsonpath import path
from cdk_sagemaker_training.props.prop_types import checked
from cdk_sagemaker_training.workflow.training_workflow import TrainingWorkflow


class ArtifactOf(S3Channel):
    """A channel with the model of an earlier workflow's job: its ``model.tar.gz``, or the files where it is not compressed.

    The S3 URI is ModelArtifacts.S3ModelArtifacts of the job's description in the input of the execution, which
    ``TrainingPipeline`` and ``as_task(keeps_job=True)`` put there. Jobs get read permission on the output's prefix.

    Attributes:
        workflow: The earlier workflow.
    """

    workflow: TrainingWorkflow

    @checked
    def __init__(
        self,
        workflow: TrainingWorkflow,
        *,
        groups: Sequence[str] | None = None,
        input_mode: InputMode = "File",
        content_type: str | None = None,
    ) -> None:
        """Describe the channel.

        Args:
            workflow: The earlier workflow.
            groups: Names of the instance groups that receive the channel; None for all hosts.
            input_mode: ``"File"`` copies the model before the script starts, ``"FastFile"`` streams it.
            content_type: MIME type that SageMaker passes to the container; None for none.
        """
        output = workflow.props["output"]
        object.__setattr__(self, "workflow", workflow)
        # SageMaker writes below the output's path with a slash after it.
        prefix = output.prefix if not output.prefix or output.prefix.endswith("/") else f"{output.prefix}/"
        super().__init__(output.bucket, prefix, groups=groups, input_mode=input_mode, content_type=content_type)

    @property
    def uri(self) -> str:
        """The S3 URI, a place in the input of an execution."""
        return path(f"{job_path(self.workflow)}.ModelArtifacts.S3ModelArtifacts")
