"""What requests to AWS Batch are authorized by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _with_service_job(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """The further calls that submitting a service job requires (Service Authorization Reference, AWS Batch, API operations)."""
    if call.action != "batch:SubmitServiceJob":
        return
    own = f"arn:aws:batch:{location.region}:{location.account}:"
    jobs = f"{own}service-job/*"
    yield Call(call.action, jobs, {})
    if share := request.get("quotaShareName"):
        queue = str(request.get("jobQueue", "")).rpartition("/")[2]
        yield Call(call.action, f"{own}job-queue/{queue}/quota-share/{share}", {})
    if request.get("tags"):
        yield Call("batch:TagResource", jobs, {})
    try:
        role = json.loads(request["serviceRequestPayload"])["RoleArn"]
    except (ValueError, KeyError, TypeError):  # the service itself rejects it
        return
    yield Call("iam:PassRole", str(role), {"iam:passedtoservice": ("sagemaker.amazonaws.com",)})


AUTHORIZATION = ServiceAuthorization(
    "batch",
    resources={
        "CreateJobQueue": "job-queue/{jobQueueName}",
        "CreateQuotaShare": "job-queue/{jobQueue}",
        "CreateSchedulingPolicy": "scheduling-policy/{name}",
        "CreateServiceEnvironment": "service-environment/{serviceEnvironmentName}",
        "DeleteJobQueue": "job-queue/{jobQueue}",
        "DeleteQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
        "DeleteSchedulingPolicy": "scheduling-policy/{arn}",
        "DeleteServiceEnvironment": "service-environment/{serviceEnvironment}",
        "DescribeQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
        "ListQuotaShares": "job-queue/{jobQueue}",
        "SubmitServiceJob": "job-queue/{jobQueue}",
        "TerminateServiceJob": "service-job/{jobId}",
        "UpdateQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
    },
    without_resource={
        "DescribeJobQueues",
        "DescribeSchedulingPolicies",
        "DescribeServiceEnvironments",
        "DescribeServiceJob",
        "ListServiceJobs",
    },
    further=_with_service_job,
)
