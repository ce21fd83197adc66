"""What requests to SageMaker are authorized by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import ServiceAuthorization


def _context(operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
    if operation != "CreateTrainingJob":
        return {}
    resources = request.get("ResourceConfig") or {}
    groups = resources.get("InstanceGroups") or resources.get("InstancePreferences") or [resources]
    network = request.get("VpcConfig") or {}
    return {
        "sagemaker:instancetypes": [group.get("InstanceType") for group in groups],
        "sagemaker:intercontainertrafficencryption": request.get("EnableInterContainerTrafficEncryption", False),
        "sagemaker:maxruntimeinseconds": (request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
        "sagemaker:networkisolation": request.get("EnableNetworkIsolation", False),
        "sagemaker:outputkmskey": (request.get("OutputDataConfig") or {}).get("KmsKeyId"),
        "sagemaker:volumekmskey": resources.get("VolumeKmsKeyId"),
        "sagemaker:vpcsecuritygroupids": network.get("SecurityGroupIds"),
        "sagemaker:vpcsubnets": network.get("Subnets"),
    }


def _with_training_job(call: Call, request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """The further calls that creating a job requires.

    Tags at creation require sagemaker:AddTags (SageMaker's guide, "Required permissions"). A training plan requires
    CreateTrainingJob on the plan and on the capacity that it reserves (AmazonSageMakerFullAccess, statement
    AllowUseOfTrainingPlanResources; another statement of it excludes both).
    """
    if call.action != "sagemaker:CreateTrainingJob":
        return
    if request.get("Tags"):
        # Of the job's condition keys, those of its tags apply, and sagemaker:TaggingAction.
        tags = {key: values for key, values in call.context.items() if key.startswith("aws:")}
        yield Call("sagemaker:AddTags", call.resource, {**tags, "sagemaker:taggingaction": ("CreateTrainingJob",)})
    resources = request.get("ResourceConfig") or {}
    preferred = (preference.get("TrainingPlanArns") or [] for preference in resources.get("InstancePreferences") or [])
    for plan in filter(None, [resources.get("TrainingPlanArn"), *itertools.chain.from_iterable(preferred)]):
        yield Call(call.action, plan, call.context)
        yield Call(call.action, f"{plan.partition(':training-plan/')[0]}:reserved-capacity/*", call.context)


AUTHORIZATION = ServiceAuthorization(
    "sagemaker",
    resources={
        "AddTags": "{ResourceArn}",
        "CreateModelPackage": "model-package-group/{ModelPackageGroupName}",
        "CreateModelPackageGroup": "model-package-group/{ModelPackageGroupName}",
        # SageMaker's ARNs have the job's name in lower case.
        "CreateTrainingJob": "training-job/{TrainingJobName.lower}",
        "DeleteTags": "{ResourceArn}",
        "DescribeTrainingJob": "training-job/{TrainingJobName.lower}",
        "ListTags": "{ResourceArn}",
        "StopTrainingJob": "training-job/{TrainingJobName.lower}",
    },
    without_resource={"ListTrainingJobs"},
    passed_roles={"CreateTrainingJob": ("RoleArn", "sagemaker.amazonaws.com")},
    context=_context,
    further=_with_training_job,
)
