"""SageMaker's API: the operations of training jobs and of the model registry, in AWS's JSON 1.1 protocol.

moto's CreateTrainingJob runs nothing and completes every job at once. All requests to SageMaker are therefore handled here, and
an unsupported operation is rejected by name instead of passed to moto.
"""

from __future__ import annotations

from typing import Any

from sagemaker_local_account.aws.sagemaker.job_store import TrainingJobs
from sagemaker_local_account.aws.sagemaker.model_registry import ModelRegistry
from sagemaker_local_account.core.service_errors import ServiceError
from sagemaker_local_account.http.json_api import JsonApi

TARGET_PREFIX = "SageMaker."


def sagemaker_api(jobs: TrainingJobs, registry: ModelRegistry) -> JsonApi:
    """Returns the WSGI application for requests whose `X-Amz-Target` is `SageMaker.<Operation>`."""
    return JsonApi(
        "SageMaker",
        {
            "CreateTrainingJob": lambda request: jobs.create(request),
            "DescribeTrainingJob": lambda request: jobs.describe(_required(request, "TrainingJobName")),
            "ListTrainingJobs": jobs.list,
            "StopTrainingJob": lambda request: jobs.stop(_required(request, "TrainingJobName")),
            "AddTags": lambda request: jobs.add_tags(_required(request, "ResourceArn"), _required(request, "Tags")),
            "ListTags": lambda request: jobs.list_tags(_required(request, "ResourceArn")),
            "DeleteTags": lambda request: jobs.delete_tags(
                _required(request, "ResourceArn"), _required(request, "TagKeys")
            ),
            **registry.operations(),
        },
    )


def _required(request: dict[str, Any], member: str) -> Any:
    if request.get(member) is None:
        raise ServiceError(
            "ValidationException",
            f"1 validation error detected: Value null at '{member[0].lower()}{member[1:]}' failed to satisfy "
            "constraint: Member must not be null",
            400,
        )
    return request[member]
