"""Batch's API: service environments, job queues, scheduling policies and service jobs, in AWS's REST JSON protocol.

moto's Batch has neither service environments nor service jobs, and runs container jobs by Docker. All requests to Batch are
therefore handled here, and an unsupported operation is rejected by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sagemaker_local_account.aws.batch.queues import Queues, client_error
from sagemaker_local_account.aws.batch.service_jobs import ServiceJobs
from sagemaker_local_account.core.rest_operations import rest_operation
from sagemaker_local_account.core.service_errors import ServiceError, check
from sagemaker_local_account.http.json_api import JsonApi


def batch_api(queues: Queues, jobs: ServiceJobs) -> JsonApi:
    """Returns the WSGI application for requests to `/v1/<operation in lower case>`."""
    operations: Mapping[str, Callable[[dict[str, Any]], Any]] = {
        "CreateJobQueue": queues.create_queue,
        "CreateQuotaShare": queues.create_quota_share,
        "CreateSchedulingPolicy": queues.create_policy,
        "CreateServiceEnvironment": queues.create_environment,
        "DeleteJobQueue": lambda request: jobs.delete_queue(request["jobQueue"]),
        "DeleteQuotaShare": lambda request: queues.shares.delete(request["quotaShareArn"]),
        "DeleteSchedulingPolicy": lambda request: queues.policies.delete(request["arn"]),
        "DeleteServiceEnvironment": lambda request: queues.environments.delete(request["serviceEnvironment"]),
        "DescribeJobQueues": lambda request: {"jobQueues": queues.queues.describe(request.get("jobQueues"))},
        "DescribeQuotaShare": lambda request: queues.shares.get(request["quotaShareArn"]),
        "DescribeSchedulingPolicies": lambda request: {"schedulingPolicies": queues.policies.describe(request["arns"])},
        "DescribeServiceEnvironments": lambda request: {
            "serviceEnvironments": queues.environments.describe(request.get("serviceEnvironments"))
        },
        "DescribeServiceJob": lambda request: jobs.describe(request["jobId"]),
        "ListQuotaShares": lambda request: {"quotaShares": queues.quota_shares_of(request["jobQueue"])},
        "ListServiceJobs": jobs.list,
        "SubmitServiceJob": jobs.submit,
        "TerminateServiceJob": lambda request: jobs.terminate(request["jobId"], request["reason"]),
        "UpdateQuotaShare": jobs.update_quota_share,
    }
    return JsonApi(
        "Batch",
        {name: _checked(name, operation) for name, operation in operations.items()},
        name_of=lambda environ: _operation(environ["PATH_INFO"]),
    )


def _operation(path: str) -> str:
    found = rest_operation("batch", "POST", path)
    return found[0] if found else path.rpartition("/")[2]


def _checked(name: str, operation: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    def call(request: dict[str, Any]) -> Any:
        try:
            check(name, request, "batch")
        except ServiceError as error:
            raise client_error(error.message) from None
        return operation(request)

    return call
