"""Two workflows that several modules look at, synthesized once."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from stacks import RenderedWorkflow, UserStack
from whole_requests import ON_GROUPS

from cdk_sagemaker_training import S3Channel


@pytest.fixture(scope="session")
def sync() -> RenderedWorkflow:
    """A workflow whose job Step Functions' own integration waits for."""
    stack = UserStack()
    return RenderedWorkflow(
        stack,
        channels={"images": S3Channel(s3.Bucket.from_bucket_name(stack, "Data", "data"), "images/")},
        hyperparameters={"epochs": 4, "text": "5"},
        tags={"team": "digits"},
        max_runtime=cdk.Duration.hours(6),
    )


@pytest.fixture(scope="session")
def poll() -> RenderedWorkflow:
    """A workflow that polls its heterogeneous job, which is run three times at most."""
    stack = UserStack()
    return RenderedWorkflow(
        stack,
        job=ON_GROUPS,
        channels={
            "images": S3Channel(stack.bucket, "images/", groups=["data_group"]),
            "all": S3Channel(stack.bucket, "all/"),
        },
        checkpoints=stack.place("checkpoints"),
        metric_definitions={"loss": "loss=([0-9.]+)"},
        retries=2,
        volume_size=cdk.Size.gibibytes(100),
        max_runtime=cdk.Duration.hours(2),
    )


@pytest.fixture(scope="session", params=["sync", "poll"])
def either(request: pytest.FixtureRequest) -> RenderedWorkflow:
    """One of the two and then the other, for what is the same of both."""
    rendered: RenderedWorkflow = request.getfixturevalue(request.param)
    return rendered
