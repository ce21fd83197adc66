from types import SimpleNamespace
from typing import Any

from cdk_sagemaker_training import S3Prefix

BUCKET: Any = SimpleNamespace(bucket_name="bucket")


def test_a_prefix_has_the_uri_of_its_place() -> None:
    assert S3Prefix(BUCKET, "models/").uri == "s3://bucket/models/"
