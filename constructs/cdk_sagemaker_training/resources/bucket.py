"""``TrainingBucket``: a bucket for data, checkpoints and models that passes cdk-nag."""

from __future__ import annotations

from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_sagemaker_training.core.nag import Reasons, acknowledge, compliance_reasons
from cdk_sagemaker_training.props.prop_types import checked

_REASONS: Reasons = compliance_reasons(
    {
        "S3BucketReplicationEnabled": "a job writes its checkpoints and models again; replication_rules copies them elsewhere",
        "S3BucketVersioningEnabled": "each version of a checkpoint would be billed; versioned=True keeps them",
        "S3DefaultEncryptionKMS": "S3 encrypts with a key of its own; encryption_key= is one of yours",
    }
)
_REASONS_OF_LOGS: Reasons = compliance_reasons(
    {
        "S3BucketReplicationEnabled": "access logs are kept for 90 days; server_access_logs_bucket is one of yours",
        "S3BucketVersioningEnabled": "no log is written twice",
        "S3DefaultEncryptionKMS": "S3 cannot deliver logs to a bucket with a customer managed key",
    }
)


class TrainingBucket(s3.Bucket):
    """A bucket for training: encrypted, private, TLS only, with server access logs."""

    @checked
    def __init__(self, scope: Construct, id: str, **props: Any) -> None:
        """Create the bucket and, by default, another one for its access logs, which expire after 90 days.

        With ``removal_policy`` DESTROY the bucket of logs is deleted with its content.

        Args:
            scope: The parent construct.
            id: The construct id.
            **props: Props of CDK's ``Bucket``, which override the defaults, such as ``encryption_key`` for a key of your own
                instead of S3's and ``server_access_logs_bucket`` for an existing bucket of logs.
        """
        private: dict[str, Any] = {"block_public_access": s3.BlockPublicAccess.BLOCK_ALL, "enforce_ssl": True}
        if "encryption_key" not in props:
            private["encryption"] = s3.BucketEncryption.S3_MANAGED
        logs = props.get("server_access_logs_bucket") or _bucket_of_logs(scope, f"{id}AccessLogs", props)
        super().__init__(scope, id, **{**private, **props, "server_access_logs_bucket": logs})
        acknowledge(self, _REASONS)


def _bucket_of_logs(scope: Construct, id: str, props: dict[str, Any]) -> s3.Bucket:
    removed = props.get("removal_policy") == RemovalPolicy.DESTROY
    bucket = s3.Bucket(
        scope,
        id,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        encryption=s3.BucketEncryption.S3_MANAGED,  # S3 cannot deliver logs to a bucket with a customer managed key
        enforce_ssl=True,
        lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(90))],
        removal_policy=RemovalPolicy.DESTROY if removed else RemovalPolicy.RETAIN,
        auto_delete_objects=True if removed else None,
    )
    acknowledge(bucket, _REASONS_OF_LOGS)
    return bucket
