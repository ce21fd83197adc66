"""What the local account demands, held against IAM's own definition and the page of permissions."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.loaders import Loader
from iam_reference import GLOBAL_CONDITION_KEYS, actions_like, services, wrong_in
from page import PAGE, exercised

from sagemaker_local_account.aws.registry import AUTHORIZATIONS
from sagemaker_local_account.aws.sagemaker import role_calls
from sagemaker_local_account.core.location import Location
from sagemaker_local_account.iam import api_calls, policies
from sagemaker_local_account.iam.policies import Call

RESOURCES = {
    (service, action): resource for service, of in AUTHORIZATIONS.items() for action, resource in of.resources.items()
}
WITHOUT_RESOURCE = {f"{of.prefix}:{action}" for of in AUTHORIZATIONS.values() for action in of.without_resource}
# Of Scheduler's operations, by the method and the first part of their path (service model).
SCHEDULES = {"Create": "POST", "Delete": "DELETE", "Get": "GET", "Update": "PUT"}
PLACE = Location("123456789012", "us-east-1")
NAMES = {"QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/queue"}
ARNS = {
    "ResourceArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/digits",
    "RoleArn": "arn:aws:iam::123456789012:role/jobs",
    "PolicySourceArn": "arn:aws:iam::123456789012:role/jobs",
    "TopicArn": "arn:aws:sns:us-east-1:123456789012:topic",
    "stateMachineArn": "arn:aws:states:us-east-1:123456789012:stateMachine:digits",
    "executionArn": "arn:aws:states:us-east-1:123456789012:execution:digits:monday",
}
REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits-1",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/images:1",
        "TrainingInputMode": "File",
    },
    "EnableInterContainerTrafficEncryption": True,
    "EnableNetworkIsolation": True,
    "InputDataConfig": [
        {"DataSource": {"FileSystemDataSource": {"FileSystemId": "fs-1", "FileSystemType": kind}}}
        for kind in ("EFS", "FSxLustre")
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://data/models/", "KmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/1"},
    "ResourceConfig": {
        "InstanceType": "ml.p4d.24xlarge",
        "TrainingPlanArn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/spring",
        "VolumeKmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/1",
    },
    "RoleArn": ARNS["RoleArn"],
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "Tags": [{"Key": "team", "Value": "a"}],
    "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
}


def wrong(calls: list[Call]) -> list[str]:
    """What IAM does not have of calls, each as a statement that allows exactly it."""
    return [
        text
        for call in calls
        for text in wrong_in(
            {"Action": call.action, "Resource": call.resource, "Condition": {"Equals": dict.fromkeys(call.context, "")}}
        )
    ]


def calls_of(request: dict[str, Any], service: str) -> list[Call]:
    return api_calls.calls_of(request, service, PLACE, AUTHORIZATIONS)


def json_call(action: str, members: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps(members).encode()
    return {
        "HTTP_X_AMZ_TARGET": f"Service.{action.partition(':')[2]}",
        "PATH_INFO": f"/v1/{action.partition(':')[2].lower()}",  # of Batch
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }


def scheduler_call(action: str, members: dict[str, Any]) -> dict[str, Any]:
    """As botocore's serializer writes it: the name is in the path, the group in the query or the body."""
    operation = action.partition(":")[2]
    method = next(method for verb, method in SCHEDULES.items() if operation.startswith(verb))
    kind = "schedule-groups" if operation.endswith("Group") else "schedules"
    group = members.get("GroupName", "")
    in_query = method in ("GET", "DELETE")
    body = b"" if in_query else json.dumps({"GroupName": group}).encode()
    return {
        "REQUEST_METHOD": method,
        "REQUEST_URI": f"/{kind}/{members['Name']}",
        "QUERY_STRING": f"groupName={group}" if in_query and group else "",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }


def members_of(template: str) -> dict[str, str]:
    named = {name for names in re.findall(r"\{([\w|]+)\.?\w*\}", template) for name in names.split("|")}
    return {name: ARNS.get(name) or NAMES.get(name) or "name" for name in named}


@pytest.mark.parametrize(("service", "action"), sorted(RESOURCES))
def test_a_call_of_an_api_is_of_an_action_and_a_resource_that_iam_has(service: str, action: str) -> None:
    members = members_of(RESOURCES[service, action])
    request = (scheduler_call if service == "scheduler" else json_call)(f"{service}:{action}", members)
    assert wrong(calls_of(request, service)) == []


@pytest.mark.parametrize(
    ("operation", "members", "resources"),
    [
        ("DescribeRule", {"Name": "r"}, ["rule/r"]),
        ("PutRule", {"Name": "r", "EventBusName": "bus"}, ["rule/bus/r"]),
        (
            "PutTargets",
            {"Rule": "r", "EventBusName": "arn:aws:events:us-east-1:123456789012:event-bus/b"},
            ["rule/b/r"],
        ),
        ("PutEvents", {"Entries": [{}, {"EventBusName": "bus"}]}, ["event-bus/default", "event-bus/bus"]),
        ("PutEvents", {"Entries": []}, ["event-bus/default"]),
    ],
)
def test_a_call_about_rules_and_events_is_of_their_bus(
    operation: str, members: dict[str, Any], resources: list[str]
) -> None:
    calls = calls_of(json_call(f"events:{operation}", members), "events")
    assert wrong(calls) == []
    assert [call.resource for call in calls] == [f"arn:aws:events:us-east-1:123456789012:{it}" for it in resources]


@pytest.mark.parametrize("operation", ["CreateSchedule", "DeleteSchedule", "GetSchedule", "UpdateSchedule"])
def test_a_call_about_a_schedule_is_of_the_schedule_in_its_group(operation: str) -> None:
    request = scheduler_call(f"scheduler:{operation}", {"Name": "train", "GroupName": "nightly"})
    [call] = calls_of(request, "scheduler")
    assert (call.action, call.resource) == (
        f"scheduler:{operation}",
        "arn:aws:scheduler:us-east-1:123456789012:schedule/nightly/train",
    )


@pytest.mark.parametrize("action", sorted(WITHOUT_RESOURCE))
def test_an_action_without_a_resource_has_none_that_it_must_have(action: str) -> None:
    [known] = actions_like(action)
    types = services()[action.partition(":")[0]]["privileges"][action.partition(":")[2]]["resource_types"]
    assert known.name == action
    assert not [kind for kind, one in types.items() if one["required"]]


def test_creating_a_job_is_of_actions_resources_and_condition_keys_that_iam_has() -> None:
    calls = calls_of(json_call("sagemaker:CreateTrainingJob", REQUEST), "sagemaker")
    assert [call.action for call in calls] == [
        "sagemaker:CreateTrainingJob",
        "sagemaker:AddTags",
        "sagemaker:CreateTrainingJob",
        "sagemaker:CreateTrainingJob",
        "iam:PassRole",
    ]
    assert wrong(calls) == []


def test_creating_a_job_takes_every_action_that_iam_says_it_depends_on() -> None:
    calls = calls_of(json_call("sagemaker:CreateTrainingJob", REQUEST), "sagemaker")
    [known] = actions_like("sagemaker:CreateTrainingJob")
    assert known.dependent_actions <= {call.action for call in calls}


def test_creating_a_job_takes_the_plan_of_each_type_that_it_may_run_on() -> None:
    plan = REQUEST["ResourceConfig"]["TrainingPlanArn"]
    preferences = [{"InstanceType": "ml.p5.48xlarge", "TrainingPlanArns": [plan]}, {"InstanceType": "ml.g5.12xlarge"}]
    request = {**REQUEST, "ResourceConfig": {"InstancePreferences": preferences}}
    calls = calls_of(json_call("sagemaker:CreateTrainingJob", request), "sagemaker")
    created = [call.resource for call in calls if call.action == "sagemaker:CreateTrainingJob"]
    capacity = plan.replace("training-plan/spring", "reserved-capacity/*")
    assert created == ["arn:aws:sagemaker:us-east-1:123456789012:training-job/digits-1", plan, capacity]


def of_the_jobs_role() -> Iterator[Call]:
    yield from role_calls.image_calls(REQUEST)
    yield from role_calls.network_calls(REQUEST, PLACE)
    yield from role_calls.key_calls(REQUEST, PLACE)
    yield from role_calls.file_system_calls(REQUEST, PLACE)


def test_what_sagemaker_does_as_the_jobs_role_is_of_actions_and_resources_that_iam_has() -> None:
    assert wrong([*of_the_jobs_role()]) == []


def test_what_sagemaker_does_as_the_jobs_role_has_its_row_and_its_source_on_the_page() -> None:
    rows = {row.action for row in exercised(PAGE.read_text()) if row.role == "job" and row.sources}
    assert {call.action for call in of_the_jobs_role()} <= rows


S3 = Loader().load_service_model("s3", "service-2")["operations"]


@pytest.mark.parametrize("version", ["", "versionId=1"])
@pytest.mark.parametrize("operation", sorted(S3))
def test_an_operation_of_s3_is_of_an_action_and_a_resource_that_iam_has(operation: str, version: str) -> None:
    http = S3[operation]["http"]
    path, _, query = http["requestUri"].replace("{Bucket}", "data").replace("{Key+}", "images/1").partition("?")
    body = b"<Delete><Object><Key>images/1</Key></Object></Delete>"
    given = {
        "REQUEST_METHOD": http["method"],
        "REQUEST_URI": path,
        "QUERY_STRING": "&".join(filter(None, [query, version])),
        "HTTP_HOST": "localhost",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }
    assert wrong(calls_of(given, "s3")) == []


@pytest.mark.parametrize("key", sorted(policies.KNOWN_KEYS))
def test_a_condition_key_that_is_evaluated_is_one_of_iams(key: str) -> None:
    prefix = key.partition(":")[0]
    own = {name.lower() for name in services().get(prefix, {"conditions": {}})["conditions"]}
    assert key in GLOBAL_CONDITION_KEYS | own
