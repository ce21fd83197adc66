"""How a workflow finds out that a job completed without a model.

SageMaker uploads nothing for an empty ``/opt/ml/model`` and completes the job all the same: no model.tar.gz is there
(aws/sagemaker-python-sdk 608 and 3455, aws/sagemaker-training-toolkit 82; "Your training job will not save any model files to
S3", says the container of TensorFlow in its log). DescribeTrainingJob has ``ModelArtifacts.S3ModelArtifacts`` nonetheless, so S3
has to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.data import S3Prefix
from cdk_sagemaker_training.jsonpath import quoted
from cdk_sagemaker_training.retries import retry
from cdk_sagemaker_training.role import also_behind
from cdk_sagemaker_training.tokens import is_unresolved

MissingModel = Literal["warn", "fail", "ignore"]

_WITHOUT = "the job completed without a model: it left nothing in /opt/ml/model, and nothing is at S3ModelArtifacts"


@dataclass(frozen=True)
class ModelCheck:
    """Looks for what a completed job uploaded below ``output``, and ``fails`` the execution where there is nothing, or warns."""

    output: S3Prefix
    fails: bool

    def states(self, partition: str, own: str) -> dict[str, Any]:
        """From `FindModel` to `Completed` or `WithoutModel`; ``own`` is the path of what the workflow keeps of the execution.

        The key begins with ``output/model`` packed or not (model.tar.gz, model/). Where S3 refuses the listing, as a bucket's
        policy may, a job is not warned of; an execution that is to fail without a model fails with that error.
        """
        folder = self.output.prefix.rstrip("/")
        below = quoted(f"{folder}/" if folder else "")
        after_error = "Error" if self.fails else "Completed"
        return {
            "FindModel": {
                "Type": "Task",
                "Resource": f"arn:{partition}:states:::aws-sdk:s3:listObjectsV2",
                "Parameters": {
                    "Bucket": self.output.bucket.bucket_name,
                    "Prefix.$": f"States.Format('{{}}{{}}/output/model', {below}, {own}.JobName)",
                    "MaxKeys": 1,
                },
                "ResultSelector": {"Objects.$": "$.KeyCount"},
                "ResultPath": f"{own}.Model",
                "Retry": [retry(3, "S3.S3Exception", "S3.SdkClientException")],
                "Catch": [{"ErrorEquals": ["States.ALL"], "ResultPath": f"{own}.Error", "Next": after_error}],
                "Next": "HasModel",
            },
            "HasModel": {
                "Type": "Choice",
                "Choices": [{"Variable": f"{own}.Model.Objects", "NumericEquals": 0, "Next": "WithoutModel"}],
                "Default": "Completed",
            },
            "WithoutModel": self._without(own),
        }

    def _without(self, own: str) -> dict[str, Any]:
        if self.fails:
            return {
                "Type": "Fail",
                "Error": "TrainingJobWithoutModel",
                "CausePath": f"States.Format('{{}}: {_WITHOUT}', {own}.JobName)",
            }
        return {"Type": "Pass", "Result": [_WITHOUT], "ResultPath": f"{own}.Job.Warnings", "Next": "Completed"}

    def policies(self) -> Iterator[iam.PolicyStatement]:
        """Leave to list what begins with the output's prefix, which takes no key of the bucket's."""
        for place, condition in also_behind(self.output.bucket):
            yield iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[place.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{self.output.prefix}*"]}, **condition},
            )


def model_check(missing_model: MissingModel, output: S3Prefix) -> ModelCheck | None:
    """What looks for models at ``output``; None where nothing does, or nobody can say where they are.

    That is so of a ``subfolder``, which an execution's input may end with a slash or without. Raises ``ValueError`` where an
    execution is to fail nonetheless.
    """
    if missing_model == "ignore":
        return None
    unknown = is_unresolved(output.prefix) and not output.prefix.endswith("/")
    if output.subfolder is None and not unknown:
        return ModelCheck(output, fails=missing_model == "fail")
    if missing_model == "fail":
        raise ValueError(
            "missing_model must be 'warn' or 'ignore' where only an execution knows the place of its model, or output a prefix "
            f"like S3Prefix(bucket, 'models/'), got 'fail' with {output.prefix!r} and subfolder={output.subfolder!r}"
        )
    return None
