from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import Duration
from stacks import reads

from cdk_sagemaker_training import S3Channel, S3Prefix, Spot, WarmPool

BUCKET: Any = SimpleNamespace(bucket_name="bucket")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: S3Prefix(BUCKET, "/models"),
            "prefix must be how keys in the bucket begin ... got '/models'",
        ),
        (
            lambda: S3Channel(BUCKET, "s3://bucket/images"),
            "prefix must be how keys in the bucket begin ... got 's3://bucket/images'",
        ),
        (
            lambda: S3Channel(BUCKET, groups="data_group"),
            "groups must be a list ... got 'data_group'",
        ),
        (
            lambda: S3Channel(BUCKET, distribution="Sharded"),  # type: ignore[arg-type]
            "distribution must be one of 'FullyReplicated', 'ShardedByS3Key' ... got 'Sharded'",
        ),
        (
            lambda: S3Channel(BUCKET, input_mode="Stream"),  # type: ignore[arg-type]
            "input_mode must be one of 'File', 'FastFile', 'Pipe' ... got 'Stream'",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=60, local_path="checkpoints"),
            "local_path must be an absolute path ... got 'checkpoints'",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=0),
            "max_wait must be a Duration or whole seconds, at least 1 ... got 0",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=Duration.millis(1500)),
            "max_wait must be a Duration or whole seconds, at least 1 ... got 1.5 seconds",
        ),
        (
            lambda: WarmPool(float("nan")),
            "keep_alive must be a Duration or a whole number ... got nan",
        ),
        (
            lambda: WarmPool(Duration.hours(7)),
            "keep_alive must be at most 6 hours ... got 25200 seconds",
        ),
    ],
)
def test_a_mistake_is_refused_with_prop_rule_example_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        make()
    assert reads(str(raised.value), message)


def test_a_prefix_has_the_uri_of_its_place() -> None:
    assert S3Prefix(BUCKET, "models/").uri == "s3://bucket/models/"
