"""Maps an HTTP request to the IAM actions, resources and condition keys that it is authorized by.

moto evaluates every resource as "*", except S3's. Here each call that the stacks of this library, the CDK CLI and
training scripts make has its own resource and condition keys. Any other call is evaluated on "*": a statement
that names resources does not allow it, and the error message gives that reason.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from sagemaker_local_account.core.request_body import body_of
from sagemaker_local_account.core.rest_operations import rest_operation
from sagemaker_local_account.iam import s3_actions
from sagemaker_local_account.iam.actions import (
    BATCH_OPERATIONS,
    ON_KEYS,
    ON_REPOSITORIES,
    ON_ROLES,
    ON_STACKS,
    SCHEDULER_OPERATIONS,
)
from sagemaker_local_account.iam.policies import Call

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

# The service prefix of IAM actions, where it differs from the signing name.
PREFIXES = {"cloudcontrolapi": "cloudformation", "monitoring": "cloudwatch"}

# The last part of the resource ARN of each action, from IAM's service authorization reference. `{Name}` is the request's member
# of that name, `{a|b}` the first of them that is set, `{Name.form}` the member in a form of `FORMS`; an ARN is used as it is.
RESOURCES: dict[str, str] = {
    "batch:CreateJobQueue": "job-queue/{jobQueueName}",
    "batch:CreateQuotaShare": "job-queue/{jobQueue}",
    "batch:CreateSchedulingPolicy": "scheduling-policy/{name}",
    "batch:CreateServiceEnvironment": "service-environment/{serviceEnvironmentName}",
    "batch:DeleteJobQueue": "job-queue/{jobQueue}",
    "batch:DeleteQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
    "batch:DeleteSchedulingPolicy": "scheduling-policy/{arn}",
    "batch:DeleteServiceEnvironment": "service-environment/{serviceEnvironment}",
    "batch:DescribeQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
    "batch:ListQuotaShares": "job-queue/{jobQueue}",
    "batch:SubmitServiceJob": "job-queue/{jobQueue}",
    "batch:TerminateServiceJob": "service-job/{jobId}",
    "batch:UpdateQuotaShare": "job-queue/*/quota-share/{quotaShareArn}",
    **{f"cloudformation:{name}": "stack/{StackName}/*" for name in ON_STACKS},
    "codebuild:BatchGetBuilds": "project/{ids.before_colon}",
    "codebuild:BatchGetProjects": "project/{names}",
    "codebuild:StartBuild": "project/{projectName}",
    "ec2:CreateNetworkInterfacePermission": "network-interface/{NetworkInterfaceId}",
    "ec2:DeleteNetworkInterface": "network-interface/{NetworkInterfaceId}",
    **{f"ecr:{name}": "repository/{repositoryName|repositoryNames|resourceArn}" for name in ON_REPOSITORIES},
    "events:DescribeRule": "rule/{Name}",
    "events:PutEvents": "event-bus/default",
    "events:PutRule": "rule/{Name}",
    "events:PutTargets": "rule/{Rule}",
    **{f"iam:{name}": "role/{RoleName}" for name in ON_ROLES},
    "iam:SimulatePrincipalPolicy": "{PolicySourceArn}",
    **{f"kms:{name}": "key/{KeyId}" for name in ON_KEYS},
    "lambda:InvokeFunction": "function:{FunctionName}",
    # A stream's ARN contains its group's; a group's ARN ends before the stream's name.
    "logs:CreateLogGroup": "log-group:{logGroupName}:log-stream:",
    "logs:CreateLogStream": "log-group:{logGroupName}:log-stream:{logStreamName}",
    "logs:DescribeLogStreams": "log-group:{logGroupName}:log-stream:",
    "logs:FilterLogEvents": "log-group:{logGroupName}:log-stream:",
    "logs:GetLogEvents": "log-group:{logGroupName}:log-stream:{logStreamName}",
    "logs:PutLogEvents": "log-group:{logGroupName}:log-stream:{logStreamName}",
    "logs:PutRetentionPolicy": "log-group:{logGroupName}:log-stream:",
    "sagemaker:AddTags": "{ResourceArn}",
    # SageMaker's ARNs have the job's name in lower case.
    "sagemaker:CreateModelPackage": "model-package-group/{ModelPackageGroupName}",
    "sagemaker:CreateModelPackageGroup": "model-package-group/{ModelPackageGroupName}",
    "sagemaker:CreateTrainingJob": "training-job/{TrainingJobName.lower}",
    "sagemaker:DeleteTags": "{ResourceArn}",
    "sagemaker:DescribeTrainingJob": "training-job/{TrainingJobName.lower}",
    "sagemaker:ListTags": "{ResourceArn}",
    "sagemaker:StopTrainingJob": "training-job/{TrainingJobName.lower}",
    **{f"scheduler:{name}": "schedule/{GroupName}/{Name}" for name in SCHEDULER_OPERATIONS.values() if name[-1] == "e"},
    **{f"scheduler:{name}": "schedule-group/{Name}" for name in SCHEDULER_OPERATIONS.values() if name[-1] == "p"},
    "sns:Publish": "{TopicArn|TargetArn}",
    "sqs:SendMessage": "{QueueUrl.after_slash}",
    "ssm:GetParameter": "parameter/{Name.without_slash}",
    "ssm:GetParameters": "parameter/{Names.without_slash}",
    "ssm:PutParameter": "parameter/{Name.without_slash}",
    "states:DescribeExecution": "{executionArn}",
    "states:DescribeStateMachine": "{stateMachineArn}",
    "states:GetExecutionHistory": "{executionArn}",
    "states:ListExecutions": "{stateMachineArn}",
    "states:RedriveExecution": "{executionArn}",
    "states:StartExecution": "{stateMachineArn}",
    "states:StopExecution": "{executionArn}",
    "sts:AssumeRole": "{RoleArn}",
}
_ON_MACHINES = {
    "cloudformation:GetResource": "states:DescribeStateMachine",
    "cloudformation:UpdateResource": "states:UpdateStateMachine",
}
# Of REST operations, where the action has another name (service authorization reference).
_ACTIONS = {"Invoke": "InvokeFunction"}
_TAGGED = re.compile(r"(?:TagSpecification\.\d+\.)?Tags?\.(?:member\.)?\d+\.Key")
FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "after_slash": lambda text: text.rpartition("/")[2],
    "before_colon": lambda text: text.partition(":")[0],
    "lower": str.lower,
    "without_slash": lambda text: text.removeprefix("/"),
}
# Actions without a resource type (same source).
WITHOUT_RESOURCE = frozenset(
    {
        "batch:DescribeJobQueues",
        "batch:DescribeSchedulingPolicies",
        "batch:DescribeServiceEnvironments",
        "batch:DescribeServiceJob",
        "batch:ListServiceJobs",
        "cloudformation:GetResource",
        "cloudformation:GetTemplateSummary",
        "cloudformation:ListStacks",
        "cloudformation:UpdateResource",
        "cloudformation:ValidateTemplate",
        "cloudwatch:PutMetricData",
        "ecr:GetAuthorizationToken",
        "fsx:DescribeDataRepositoryAssociations",
        "fsx:DescribeFileSystems",
        "kms:ListAliases",
        "kms:ListKeys",
        "logs:DescribeLogGroups",
        "s3:ListAllMyBuckets",
        "sagemaker:ListTrainingJobs",
        "scheduler:ListScheduleGroups",
        "scheduler:ListSchedules",
        "states:ListStateMachines",
        "sts:GetCallerIdentity",
    }
)
# The member by which an operation passes a role to a service, which requires iam:PassRole.
PASSED_ROLES = {
    "cloudformation:CreateChangeSet": ("RoleARN", "cloudformation.amazonaws.com"),
    "cloudformation:CreateStack": ("RoleARN", "cloudformation.amazonaws.com"),
    "cloudformation:DeleteStack": ("RoleARN", "cloudformation.amazonaws.com"),
    "cloudformation:UpdateStack": ("RoleARN", "cloudformation.amazonaws.com"),
    "codebuild:CreateProject": ("serviceRole", "codebuild.amazonaws.com"),
    "events:PutTargets": ("RoleArn", "events.amazonaws.com"),
    "lambda:CreateFunction": ("Role", "lambda.amazonaws.com"),
    "sagemaker:CreateTrainingJob": ("RoleArn", "sagemaker.amazonaws.com"),
    "scheduler:CreateSchedule": ("RoleArn", "scheduler.amazonaws.com"),
    "scheduler:UpdateSchedule": ("RoleArn", "scheduler.amazonaws.com"),
    "states:CreateStateMachine": ("roleArn", "states.amazonaws.com"),
    "states:UpdateStateMachine": ("roleArn", "states.amazonaws.com"),
}


@dataclass(frozen=True)
class Location:
    """The account and region that a request is addressed to."""

    account: str
    region: str


def calls_of(environ: WSGIEnvironment, service: str, location: Location) -> list[Call]:
    """Returns the IAM calls of a request, all of which must be allowed.

    Args:
        environ: the WSGI request; its body is read and put back.
        service: the signing name of the service.
        location: the account and region that the request is addressed to.
    """
    if service == "s3":
        return s3_actions.calls_of(environ)
    prefix = PREFIXES.get(service, service)
    operation, members = _operation(environ, service)
    action = f"{prefix}:{operation}"
    context = {**_request_tags(members), **_context(action, members)}
    unknown = action not in WITHOUT_RESOURCE
    calls = [
        Call(action, resource, context, unknown=unknown and resource == "*")
        for resource in _resources(action, members, location)
    ]
    if action == "sagemaker:CreateTrainingJob":
        calls += _with_training_job(calls[0], members)
    if action in _ON_MACHINES:
        calls += _by_cloud_control(action, members)
    if action == "batch:SubmitServiceJob":
        calls += _with_service_job(members, location)
    if action in PASSED_ROLES:
        member, to = PASSED_ROLES[action]
        holders = [members, *(one for one in members.get("Targets") or [] if isinstance(one, dict))]
        roles = [str(holder[member]) for holder in holders if holder.get(member)]
        calls += [Call("iam:PassRole", role, {"iam:passedtoservice": (to,)}) for role in dict.fromkeys(roles)]
    return calls


def _operation(environ: WSGIEnvironment, service: str) -> tuple[str, dict[str, Any]]:
    """The operation and its members, of the protocols JSON and Query, and of Batch; else the method and path, without members."""
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if service == "scheduler":
        return _of_scheduler(environ)
    if service == "batch":
        name = environ["PATH_INFO"].rpartition("/")[2]
        target = BATCH_OPERATIONS.get(name, name)
    body = body_of(environ)
    if target:
        try:
            members = json.loads(body or b"{}")
        except ValueError:  # the service itself rejects it
            members = {}
        return target.rpartition(".")[2], members if isinstance(members, dict) else {}
    fields = {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
    fields |= {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    if "Action" in fields:
        return fields["Action"], fields
    path = unquote(urlsplit(environ["REQUEST_URI"]).path)
    if found := rest_operation(service, environ["REQUEST_METHOD"], path):
        operation, labels = found
        return _ACTIONS.get(operation, operation), {**_json(body), **labels}
    return f"{environ['REQUEST_METHOD']} {path}", {}


def _json(body: bytes) -> dict[str, Any]:
    """A body that is an object in JSON; empty for any other, such as the payload of a function."""
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}


def _of_scheduler(environ: WSGIEnvironment) -> tuple[str, dict[str, Any]]:
    """An operation of EventBridge Scheduler: its name and group are in the path, the query or the body."""
    path = unquote(urlsplit(environ["REQUEST_URI"]).path)
    _, kind, name, *_ = [*path.split("/"), "", ""]
    query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    try:
        members = json.loads(body_of(environ) or b"{}")
    except ValueError:
        members = {}
    members = members if isinstance(members, dict) else {}
    role = (members.get("Target") or {}).get("RoleArn")
    group = members.get("GroupName") or query.get("groupName") or "default"
    if not name and environ["REQUEST_METHOD"] == "GET":
        return {"schedules": "ListSchedules", "schedule-groups": "ListScheduleGroups"}.get(kind, kind), {}
    operation = SCHEDULER_OPERATIONS.get((environ["REQUEST_METHOD"], kind), f"{environ['REQUEST_METHOD']} {path}")
    return operation, {"Name": name, "GroupName": group, "RoleArn": role}


def _resources(action: str, members: Mapping[str, Any], location: Location) -> list[str]:
    if action in WITHOUT_RESOURCE:
        return ["*"]
    if action == "ec2:CreateNetworkInterface":
        return _of_network_interface(members, location)
    template = RESOURCES.get(action)
    return _filled(action.partition(":")[0], template, members, location) if template else ["*"]


def _of_network_interface(members: Mapping[str, Any], location: Location) -> list[str]:
    groups = [value for name, value in members.items() if name.startswith("SecurityGroupId.")]
    ec2 = f"arn:aws:ec2:{location.region}:{location.account}:"
    named = [f"{ec2}{name}" for name in ("network-interface/*", *(f"security-group/{group}" for group in groups))]
    return [*named, subnet_arn(members.get("SubnetId", "*"), location)]


def subnet_arn(id: str, location: Location) -> str:
    """Returns a subnet's ARN; one that is shared by RAM has its owner's account (terraform-aws-iam 227, runs-on 463)."""
    from moto.ec2.exceptions import InvalidSubnetIdError
    from moto.ec2.models import ec2_backends

    try:
        return str(ec2_backends[location.account][location.region].get_subnet(id).arn)
    except InvalidSubnetIdError:
        return f"arn:aws:ec2:{location.region}:{location.account}:subnet/{id}"


def _filled(service: str, template: str, members: Mapping[str, Any], location: Location) -> list[str]:
    """A template's ARNs: one, or one for each value of a member that is a list."""
    values = [
        [FORMS[form](text) for text in _values(members, names)]
        for names, form in re.findall(r"\{([\w|]+)\.?(\w*)\}", template)
    ]
    between = re.split(r"\{[^}]*\}", template)
    region = "" if service == "iam" else location.region
    arns = []
    for chosen in itertools.product(*values):
        given = next((text for text in chosen if text.startswith("arn:")), None)
        name = between[0] + "".join(text + after for text, after in zip(chosen, between[1:], strict=True))
        arns.append(given or f"arn:aws:{service}:{region}:{location.account}:{name}")
    return arns


def _values(members: Mapping[str, Any], names: str) -> list[str]:
    value = next((members[name] for name in names.split("|") if members.get(name)), "*")
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _request_tags(members: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """aws:RequestTag/KEY and aws:TagKeys of the tags in a request: a list of keys and values, a map, or fields of Query."""
    given = next((members[name] for name in ("Tags", "tags", "TagList") if members.get(name)), None)
    tags: dict[str, str] = {}
    if isinstance(given, Mapping):
        tags = {str(key): str(value) for key, value in given.items()}
    elif isinstance(given, list):
        for tag in (one for one in given if isinstance(one, Mapping)):
            key = next((tag[name] for name in ("Key", "key", "TagKey") if name in tag), "")
            tags[str(key)] = str(next((tag[name] for name in ("Value", "value", "TagValue") if name in tag), ""))
    for name in filter(_TAGGED.fullmatch, members):
        tags[str(members[name])] = str(members.get(f"{name.removesuffix('Key')}Value", ""))
    keys = {"aws:tagkeys": tuple(tags)} if tags else {}
    return {**keys, **{f"aws:requesttag/{key}".lower(): (value,) for key, value in tags.items()}}


def _context(action: str, members: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The condition keys of an action, of those that the account evaluates."""
    if action == "cloudwatch:PutMetricData":
        return _given({"cloudwatch:namespace": members.get("Namespace")})
    if action == "sts:AssumeRole":
        return _given({"sts:externalid": members.get("ExternalId")})
    if action == "sagemaker:CreateTrainingJob":
        return _of_training_job(members)
    return {}


def _with_training_job(call: Call, request: Mapping[str, Any]) -> Iterator[Call]:
    """The further calls that creating a job requires.

    Tags at creation require sagemaker:AddTags (SageMaker's guide, "Required permissions"). A training plan requires
    CreateTrainingJob on the plan and on the capacity that it reserves (AmazonSageMakerFullAccess, statement
    AllowUseOfTrainingPlanResources; another statement of it excludes both).
    """
    if request.get("Tags"):
        # Of the job's condition keys, those of its tags apply, and sagemaker:TaggingAction.
        tags = {key: values for key, values in call.context.items() if key.startswith("aws:")}
        yield Call("sagemaker:AddTags", call.resource, {**tags, "sagemaker:taggingaction": ("CreateTrainingJob",)})
    resources = request.get("ResourceConfig") or {}
    preferred = (preference.get("TrainingPlanArns") or [] for preference in resources.get("InstancePreferences") or [])
    for plan in filter(None, [resources.get("TrainingPlanArn"), *itertools.chain.from_iterable(preferred)]):
        yield Call(call.action, plan, call.context)
        yield Call(call.action, f"{plan.partition(':training-plan/')[0]}:reserved-capacity/*", call.context)


def _by_cloud_control(action: str, request: Mapping[str, Any]) -> Iterator[Call]:
    """What Cloud Control API calls with the caller's permissions; a patch gives a role by `/RoleArn` alone (cloud_control.py)."""
    yield Call(_ON_MACHINES[action], str(request.get("Identifier", "*")), {})
    try:
        patch = json.loads(request.get("PatchDocument") or "[]")
    except (ValueError, TypeError):  # the service itself rejects it
        return
    for operation in patch if isinstance(patch, list) else []:
        if isinstance(operation, dict) and operation.get("path") == "/RoleArn" and "value" in operation:
            yield Call("iam:PassRole", str(operation["value"]), {"iam:passedtoservice": ("states.amazonaws.com",)})


def _with_service_job(request: Mapping[str, Any], location: Location) -> Iterator[Call]:
    """The further calls that submitting a service job requires (Service Authorization Reference, AWS Batch, API operations)."""
    own = f"arn:aws:batch:{location.region}:{location.account}:"
    jobs = f"{own}service-job/*"
    yield Call("batch:SubmitServiceJob", jobs, {})
    if share := request.get("quotaShareName"):
        queue = str(request.get("jobQueue", "")).rpartition("/")[2]
        yield Call("batch:SubmitServiceJob", f"{own}job-queue/{queue}/quota-share/{share}", {})
    if request.get("tags"):
        yield Call("batch:TagResource", jobs, {})
    try:
        role = json.loads(request["serviceRequestPayload"])["RoleArn"]
    except (ValueError, KeyError, TypeError):  # the service itself rejects it
        return
    yield Call("iam:PassRole", str(role), {"iam:passedtoservice": ("sagemaker.amazonaws.com",)})


def _of_training_job(request: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    resources = request.get("ResourceConfig") or {}
    groups = resources.get("InstanceGroups") or resources.get("InstancePreferences") or [resources]
    network = request.get("VpcConfig") or {}
    return _given(
        {
            "sagemaker:instancetypes": [group.get("InstanceType") for group in groups],
            "sagemaker:intercontainertrafficencryption": request.get("EnableInterContainerTrafficEncryption", False),
            "sagemaker:maxruntimeinseconds": (request.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
            "sagemaker:networkisolation": request.get("EnableNetworkIsolation", False),
            "sagemaker:outputkmskey": (request.get("OutputDataConfig") or {}).get("KmsKeyId"),
            "sagemaker:volumekmskey": resources.get("VolumeKmsKeyId"),
            "sagemaker:vpcsecuritygroupids": network.get("SecurityGroupIds"),
            "sagemaker:vpcsubnets": network.get("Subnets"),
        }
    )


def _given(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The values that are set, as text."""
    found = {}
    for key, value in values.items():
        items: Iterable[Any] = value if isinstance(value, list) else [value]
        texts = tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in items if item is not None)
        if texts:
            found[key] = texts
    return found
