from types import SimpleNamespace
from typing import Any

import pytest
from aws_cdk import Duration

from cdk_sagemaker_training import S3Channel, S3Prefix, Spot, WarmPool

BUCKET: Any = SimpleNamespace(bucket_name="bucket")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: S3Prefix(BUCKET, "/models"),
            "prefix must be how keys in the bucket begin, like 'images/', got '/models'",
        ),
        (
            lambda: S3Channel(BUCKET, "s3://bucket/images"),
            "prefix must be how keys in the bucket begin, like 'images/', got 's3://bucket/images'",
        ),
        (
            lambda: S3Channel(BUCKET, groups="data_group"),
            "groups must be a list, like ['data_group'], got 'data_group'",
        ),
        (
            lambda: S3Channel(BUCKET, distribution="Sharded"),  # type: ignore[arg-type]
            "distribution must be one of 'FullyReplicated', 'ShardedByS3Key', like 'FullyReplicated'"
            ", or unlisted('Sharded') where AWS differs by now, got 'Sharded'",
        ),
        (
            lambda: S3Channel(BUCKET, input_mode="Stream"),  # type: ignore[arg-type]
            "input_mode must be one of 'File', 'FastFile', 'Pipe', like 'File'"
            ", or unlisted('Stream') where AWS differs by now, got 'Stream'",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=60, local_path="checkpoints"),
            "local_path must be an absolute path, like '/opt/ml/checkpoints', got 'checkpoints'",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=0),
            "max_wait must be a Duration or whole seconds, at least 1, like Duration.hours(6), got 0",
        ),
        (
            lambda: Spot(S3Prefix(BUCKET), max_wait=Duration.millis(1500)),
            "max_wait must be a Duration or whole seconds, at least 1, like Duration.hours(6), got 1.5 seconds",
        ),
        (
            lambda: WarmPool(float("nan")),
            "keep_alive must be a Duration or a whole number, like Duration.hours(6), got nan",
        ),
        (
            lambda: WarmPool(Duration.hours(7)),
            "keep_alive must be at most 6 hours, like Duration.minutes(30), got 25200 seconds",
        ),
    ],
)
def test_a_mistake_is_refused_with_prop_rule_example_and_value(make: Any, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        make()
    assert str(raised.value) == message


def test_a_prefix_has_the_uri_of_its_place() -> None:
    assert S3Prefix(BUCKET, "models/").uri == "s3://bucket/models/"
