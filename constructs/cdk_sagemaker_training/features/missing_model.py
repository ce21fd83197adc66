"""Detects jobs that complete without a model.

SageMaker uploads nothing for an empty ``/opt/ml/model`` and still completes the job: there is no model.tar.gz
(aws/sagemaker-python-sdk 608 and 3455, aws/sagemaker-training-toolkit 82; the log of TensorFlow's container: "Your training job
will not save any model files to S3"). DescribeTrainingJob returns ``ModelArtifacts.S3ModelArtifacts`` nonetheless, so the states
list the prefix in S3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.data.s3 import S3Prefix
from cdk_sagemaker_training.lifecycle.attempt import Attempt, Seam
from cdk_sagemaker_training.lifecycle.feature import Feature
from cdk_sagemaker_training.lifecycle.states import DATA, catch, fail, retry
from cdk_sagemaker_training.props.jsonpath import quoted
from cdk_sagemaker_training.request.scripts.code import unsaved_model_advice
from cdk_sagemaker_training.resources.role import policy_targets

if TYPE_CHECKING:
    from cdk_sagemaker_training.lifecycle.plan import Plan

MissingModel = Literal["warn", "fail", "ignore"]

_WITHOUT = "the job completed without a model: it left nothing in /opt/ml/model, and nothing is at S3ModelArtifacts"


class ModelCheck(Feature):
    """Checks that the last job, once it completed, uploaded a model."""

    prop = "missing_model"

    def __init__(self, output: S3Prefix, *, fails: bool) -> None:
        """Remember where the model must be."""
        self.output, self.fails = output, fails

    def check(self, plan: Plan) -> None:
        """Warn of scripts that save a model elsewhere."""
        if (code := plan.props.get("code")) is not None:
            plan.jobs.advise(unsaved_model_advice(code, plan.all_requests))

    def states(self, attempt: Attempt) -> None:
        """Put the states from `FindModel` before `Completed`.

        The key begins with ``output/model``, compressed or not (model.tar.gz, model/). If S3 refuses the listing, for instance by
        the bucket's policy, there is no warning; if a missing model fails the execution, it fails with S3's error.
        """
        if not attempt.is_last:
            return
        folder = self.output.prefix.rstrip("/")
        below = quoted(f"{folder}/" if folder else "")
        no_objects = {"Variable": f"{DATA}.Model.Objects", "NumericEquals": 0, "Next": "WithoutModel"}
        warning = {"Type": "Pass", "Result": [_WITHOUT], "ResultPath": f"{DATA}.Job.Warnings", "Next": Seam.COMPLETED}
        attempt.before(
            Seam.COMPLETED,
            "FindModel",
            {
                "FindModel": {
                    "Type": "Task",
                    "Resource": f"arn:{attempt.partition}:states:::aws-sdk:s3:listObjectsV2",
                    "Parameters": {
                        "Bucket": self.output.bucket.bucket_name,
                        "Prefix.$": f"States.Format('{{}}{{}}/output/model', {below}, {DATA}.JobName)",
                        "MaxKeys": 1,
                    },
                    "ResultSelector": {"Objects.$": "$.KeyCount"},
                    "ResultPath": f"{DATA}.Model",
                    "Retry": [retry(3, "S3.S3Exception", "S3.SdkClientException")],
                    "Catch": [catch("Error" if self.fails else Seam.COMPLETED)],
                    "Next": "HasModel",
                },
                "HasModel": {"Type": "Choice", "Choices": [no_objects], "Default": Seam.COMPLETED},
                "WithoutModel": fail("TrainingJobWithoutModel", f"{{}}: {_WITHOUT}") if self.fails else warning,
            },
        )

    def statements(self, plan: Plan) -> Iterator[iam.PolicyStatement]:
        """Yield the statements that allow listing the output's prefix, for which the bucket's key is not needed."""
        for place, condition in policy_targets(self.output.bucket):
            yield iam.PolicyStatement(
                actions=["s3:ListBucket"],
                resources=[place.bucket_arn],
                conditions={"StringLike": {"s3:prefix": [f"{self.output.prefix}*"]}, **condition},
            )


def model_check(missing_model: MissingModel, output: S3Prefix) -> ModelCheck | None:
    """Return the check for missing models.

    There is none with ``"ignore"``, nor where the location is unknown at synthesis, where ``"fail"`` is refused: with
    ``subfolder``, which an execution's input may end with or without a slash.
    """
    if missing_model == "ignore":
        return None
    unknown = is_unresolved(output.prefix) and not output.prefix.endswith("/")
    if output.subfolder is None and not unknown:
        return ModelCheck(output, fails=missing_model == "fail")
    if missing_model == "fail":
        known = "or output a prefix like S3Prefix(bucket, 'models/')"
        rule = f"be 'warn' or 'ignore' if the location of the model depends on the execution, {known}"
        raise must("missing_model", rule, "", f"'fail' with {output.prefix!r} and subfolder={output.subfolder!r}")
    return None
