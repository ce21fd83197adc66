"""A bucket for a job's data, checkpoints and models, as a security review wants it."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_sagemaker_training.prop_types import checked


class TrainingBucket(s3.Bucket):
    """A bucket for training: encrypted, private, reached by TLS only, with a log of who read and wrote what.

    The log lies in a bucket of its own beside this one, for 90 days. Takes the props of CDK's ``Bucket``, each in place of a
    default of this one's, so ``encryption_key`` for a key of yours and ``server_access_logs_bucket`` for a bucket of logs that
    there is. With ``removal_policy`` DESTROY the log goes too, with what is in it.
    """

    @checked
    def __init__(self, scope: Construct, id: str, **props: Any) -> None:
        private: dict[str, Any] = {"block_public_access": s3.BlockPublicAccess.BLOCK_ALL, "enforce_ssl": True}
        if "encryption_key" not in props:
            private["encryption"] = s3.BucketEncryption.S3_MANAGED
        logs = props.get("server_access_logs_bucket") or _bucket_of_logs(scope, f"{id}AccessLogs", props)
        super().__init__(scope, id, **{**private, **props, "server_access_logs_bucket": logs})


def _bucket_of_logs(scope: Construct, id: str, props: dict[str, Any]) -> s3.Bucket:
    removed = props.get("removal_policy") == RemovalPolicy.DESTROY
    return s3.Bucket(
        scope,
        id,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,  # S3 delivers its logs to no bucket with a key of the user's
        enforce_ssl=True,
        lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(90))],
        removal_policy=RemovalPolicy.DESTROY if removed else RemovalPolicy.RETAIN,
        auto_delete_objects=True if removed else None,
    )
