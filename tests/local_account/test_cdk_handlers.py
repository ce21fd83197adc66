"""The handlers of aws-cdk-lib in Python call and respond what its own for Node.js do, with the same requests and answers."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import tarfile
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import aws_cdk
import boto3
import pytest
from botocore.exceptions import ClientError

from sagemaker_local_account.aws.awslambda import cdk_handlers

PACKAGE = next(Path(aws_cdk.__file__).with_name("_jsii").glob("*.jsii.tgz"))
DIST = "package/custom-resource-handlers/dist/"
FRAMEWORK = "package/custom-resources/lib/provider-framework/runtime/"
# Of each handler: the file in the package, its name there, and its name here.
HANDLERS = {
    "call": (f"{DIST}custom-resources/aws-custom-resource-handler/index.js", "handler", "aws_custom_resource"),
    "api": (f"{DIST}aws-events-targets/aws-api-handler/index.js", "handler", "aws_api"),
    "retention": (f"{DIST}aws-logs/log-retention-handler/index.js", "handler", "log_retention"),
    "trigger": (f"{DIST}core/nodejs-entrypoint-handler/index.js", "handler", "trigger"),
    "on_event": (f"{FRAMEWORK}framework.js", "onEvent", "on_event"),
    "is_complete": (f"{FRAMEWORK}framework.js", "isComplete", "is_complete"),
    "on_timeout": (f"{FRAMEWORK}framework.js", "onTimeout", "on_timeout"),
}
# Of the SDK for JavaScript and of botocore.
ACTIONS = {
    "getParameter": "GetParameter",
    "describeParameters": "DescribeParameters",
    "putParameter": "PutParameter",
    "deleteParameter": "DeleteParameter",
    "getObject": "GetObject",
    "createLogGroup": "CreateLogGroup",
    "deleteLogGroup": "DeleteLogGroup",
    "putRetentionPolicy": "PutRetentionPolicy",
    "deleteRetentionPolicy": "DeleteRetentionPolicy",
}
VARIABLES = {
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_LAMBDA_FUNCTION_NAME": "the-function",
    "AWS_LAMBDA_LOG_STREAM_NAME": "the-stream",
    "USER_ON_EVENT_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:on",
    "WAITER_STATE_MACHINE_ARN": "arn:aws:states:us-east-1:123456789012:stateMachine:waiter",
}
WAITING = {"USER_IS_COMPLETE_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:is"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handlers")
    with tarfile.open(PACKAGE) as archive:
        for member in archive:
            if member.name.startswith((FRAMEWORK, DIST)) and member.name.endswith(".js"):
                archive.extract(member, folder, filter="data")
    # The entry point of a trigger's function has the trigger beside it.
    entry = folder / HANDLERS["trigger"][0]
    (folder / DIST / "triggers/lambda/index.js").rename(entry.with_name("user.js"))
    entry.write_text(entry.read_text().replace('userHandlerIndex:"./index"', 'userHandlerIndex:"./user"'))
    return folder


def request(kind: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    before = {} if kind == "Create" else {"PhysicalResourceId": "before"}
    return {
        "RequestType": kind,
        "ResponseURL": "https://bucket.s3.amazonaws.com/key?signed",
        "StackId": "the-stack",
        "RequestId": "the-request",
        "LogicalResourceId": "It",
        "ResourceProperties": {"ServiceToken": "token", **properties},
        **before,
        **more,
    }


def call(**members: Any) -> str:
    return json.dumps({"service": "SSM", "action": "getParameter", "parameters": {"Name": "/it"}, **members})


def payload(value: Any, **more: Any) -> dict[str, Any]:
    return {"result": {"StatusCode": 200, "Payload": {"$bytes": json.dumps(value)}, **more}}


def error(name: str) -> dict[str, Any]:
    return {"error": {"name": name, "message": f"there was {name}"}}


OF = {"physicalResourceId": {"id": "named"}}
OF_ITSELF = {"Key": "Name", "Values": ["PHYSICAL:RESOURCEID:"]}
FOUND = {
    "Parameter": {
        "Name": "/it", "Value": "v", "Version": 3, "LastModifiedDate": {"$time": "2026-01-02T03:04:05Z"}, "ARN": "arn:p",
    },
}  # fmt: skip
GOT = {"result": FOUND}
LISTED = {
    "result": {
        "Parameters": [{"Name": "a", "Policies": [], "Version": 1}, {"Name": "b", "Version": 2}],
        "NextToken": "",
    }
}
FAILED = {"errorMessage": "no luck", "errorType": "ValueError", "trace": ["a", "b"]}
NAMES = {"LogGroupName": "/group", "RetentionInDays": "7"}
TRIGGERED = {"HandlerArn": "arn:f", "InvocationType": "RequestResponse", "Timeout": "120000"}
TIMED_OUT = {
    "Error": "Error",
    "Cause": json.dumps({"errorMessage": json.dumps(request("Create", {}, PhysicalResourceId="x"))}),
}
CASES: dict[str, tuple[str, dict[str, Any], list[Any], dict[str, str]]] = {
    "a call": ("call", request("Create", {"Create": call(**OF)}), [GOT], {}),
    "a call by the name of a package": (
        "call",
        request("Create", {"Create": call(service="@aws-sdk/client-ssm", action="GetParameterCommand", **OF)}),
        [GOT],
        {},
    ),
    "a call by the name of an API": ("call", request("Create", {"Create": call(action="GetParameter", **OF)}), [GOT], {}),
    "a call in another region": ("call", request("Create", {"Create": call(region="eu-west-1", **OF)}), [GOT], {}),
    "paths of the answer": (
        "call", request("Create", {"Create": call(outputPaths=["Parameter.V"], **OF)}), [GOT], {},
    ),
    "a path of the answer": ("call", request("Create", {"Create": call(outputPath="Parameter.ARN", **OF)}), [GOT], {}),
    "an id from the answer": (
        "call",
        request("Create", {"Create": call(physicalResourceId={"responsePath": "Parameter.ARN"}, outputPaths=["Nothing"])}),
        [GOT],
        {},
    ),
    "lists in the answer": (
        "call", request("Create", {"Create": call(action="describeParameters", parameters={}, **OF)}), [LISTED], {},
    ),
    "numbers and truths as text": (
        "call",
        request("Create", {"Create": call(action="describeParameters", parameters={"MaxResults": "5", "Shared": True}, **OF)}),
        [LISTED],
        {},
    ),
    "a body in the answer": (
        "call",
        request("Create", {"Create": call(service="S3", action="getObject", parameters={"Bucket": "b", "Key": "k"}, **OF)}),
        [{"result": {"ContentLength": 4, "Body": {"$bytes": "text"}}}],
        {},
    ),
    "no call at its creation": ("call", request("Create", {"Update": call(**OF)}), [], {}),
    "no call and no name": ("call", request("Create", {}), [], {}),
    "no call at its deletion": ("call", request("Delete", {"Create": call(**OF)}), [], {}),
    "an update": ("call", request("Update", {"Create": call(**OF), "Update": call(**OF)}), [GOT], {}),
    "an update without a name": ("call", request("Update", {"Update": call()}), [GOT], {}),
    "its own id in a list": (
        "call",
        request("Update", {"Update": call(action="describeParameters", parameters={"Filters": [OF_ITSELF]})}),
        [LISTED],
        {},
    ),
    "its own id": (
        "call",
        request("Delete", {"Delete": call(action="deleteParameter", parameters={"Name": "PHYSICAL:RESOURCEID:"})}),
        [{"result": {}}],
        {},
    ),
    "an error": ("call", request("Create", {"Create": call(**OF)}), [error("ParameterNotFound")], {}),
    "an error that is ignored": (
        "call", request("Create", {"Create": call(ignoreErrorCodesMatching="NotFound", **OF)}), [error("ParameterNotFound")], {},
    ),
    "an error that is not ignored": (
        "call", request("Create", {"Create": call(ignoreErrorCodesMatching="^Not", **OF)}), [error("ParameterNotFound")], {},
    ),
    "an event's call": ("api", {"service": "SSM", "action": "getParameter", "parameters": {"Name": "/it"}}, [GOT], {}),
    "an event's call without parameters": ("api", {"service": "ssm", "action": "DescribeParameters"}, [LISTED], {}),
    "an error of an event's call": (
        "api", {"service": "SSM", "action": "getParameter", "parameters": {"Name": "/it"}}, [error("ParameterNotFound")], {},
    ),
    "a caught error of an event's call": (
        "api",
        {"service": "SSM", "action": "getParameter", "parameters": {"Name": "/it"}, "catchErrorPattern": "NotFound"},
        [error("ParameterNotFound")],
        {},
    ),
    "another error of an event's call": (
        "api",
        {"service": "SSM", "action": "getParameter", "parameters": {"Name": "/it"}, "catchErrorPattern": "^Not"},
        [error("ParameterNotFound")],
        {},
    ),
    "a group": ("retention", request("Create", NAMES), [{"result": {}}] * 4, {}),
    "groups that exist": (
        "retention",
        request("Create", NAMES),
        [error("ResourceAlreadyExistsException"), {"result": {}}, error("ResourceAlreadyExistsException"), {"result": {}}],
        {},
    ),
    "a group without an end": ("retention", request("Update", {"LogGroupName": "/group"}), [{"result": {}}] * 2, {}),
    "a group of another region": (
        "retention", request("Update", {**NAMES, "LogGroupRegion": "eu-west-1"}), [{"result": {}}] * 2, {},
    ),
    "a group that stays": ("retention", request("Delete", NAMES), [], {}),
    "a group that goes": ("retention", request("Delete", {**NAMES, "RemovalPolicy": "destroy"}), [{"result": {}}], {}),
    "a group that is gone": (
        "retention",
        request("Delete", {**NAMES, "RemovalPolicy": "destroy"}),
        [error("ResourceNotFoundException")],
        {},
    ),
    "a group that cannot be made": ("retention", request("Create", NAMES), [error("LimitExceededException")], {}),
    "a trigger": ("trigger", request("Create", TRIGGERED), [payload({})], {}),
    "a trigger again": ("trigger", request("Update", TRIGGERED), [payload({})], {}),
    "a trigger that does not wait": (
        "trigger",
        request("Create", {**TRIGGERED, "InvocationType": "Event"}),
        [{"result": {"StatusCode": 202, "Payload": {"$bytes": ""}}}],
        {},
    ),
    "a trigger only once": ("trigger", request("Update", {**TRIGGERED, "ExecuteOnHandlerChange": "false"}), [], {}),
    "a trigger's deletion": ("trigger", request("Delete", TRIGGERED), [], {}),
    "a trigger that fails": ("trigger", request("Create", TRIGGERED), [payload(FAILED, FunctionError="Unhandled")], {}),
    "a resource": ("on_event", request("Create", {"A": "b"}), [payload({"Data": {"Is": True, "Number": 3}})], {}),
    "a resource without an answer": ("on_event", request("Create", {}), [payload(None)], {}),
    "a resource with a name": ("on_event", request("Create", {}), [payload({"PhysicalResourceId": "mine", "NoEcho": True})], {}),
    "a resource that changes": ("on_event", request("Update", {}), [payload({"Data": {"A": ["b", {"c": None}]}})], {}),
    "a resource that is replaced": ("on_event", request("Update", {}), [payload({"PhysicalResourceId": "after"})], {}),
    "a resource that is deleted": ("on_event", request("Delete", {}), [payload({})], {}),
    "a resource deleted by another name": ("on_event", request("Delete", {}), [payload({"PhysicalResourceId": "after"})], {}),
    "a resource that was never made": (
        "on_event",
        request("Delete", {}, PhysicalResourceId="AWSCDK::CustomResourceProviderFramework::CREATE_FAILED"),
        [],
        {},
    ),
    "a resource that fails": ("on_event", request("Create", {}), [payload(FAILED, FunctionError="Unhandled")], {}),
    "a change that fails": ("on_event", request("Update", {}), [payload(FAILED, FunctionError="Unhandled")], {}),
    "a resource that takes long": (
        "on_event", request("Create", {}), [payload({"PhysicalResourceId": "p", "More": 1}), {"result": {}}], WAITING,
    ),
    "one that is not complete": (
        "is_complete", request("Create", {}, PhysicalResourceId="p", Data={"a": 1}), [payload({"IsComplete": False})], WAITING,
    ),
    "one that is complete": (
        "is_complete",
        request("Create", {}, PhysicalResourceId="p", Data={"a": 1, "b": 2}),
        [payload({"IsComplete": True, "Data": {"b": 3}})],
        WAITING,
    ),
    "one that is complete without data": (
        "is_complete", request("Delete", {}), [payload({"IsComplete": True})], WAITING,
    ),
    "data of one that is not complete": (
        "is_complete", request("Create", {}), [payload({"IsComplete": False, "Data": {"b": 3}})], WAITING,
    ),
    "one whose check fails": (
        "is_complete", request("Update", {}), [payload(FAILED, FunctionError="Unhandled")], WAITING,
    ),
    "one that took too long": ("on_timeout", TIMED_OUT, [], WAITING),
}  # fmt: skip


def of_node(files: Path, kind: str, event: Any, answers: list[Any], variables: dict[str, str]) -> Any:
    file, handler, _ = HANDLERS[kind]
    given = {
        "file": str(files / file),
        "handler": handler,
        "event": event,
        "answers": answers,
        "actions": list(ACTIONS.values()),
    }
    script = Path(__file__).with_name("cdk_handler.js")
    ran = subprocess.run(
        ["node", script], input=json.dumps(given), env=variables, capture_output=True, text=True, check=True
    )
    return json.loads(ran.stdout)


def of_python(
    kind: str, event: Any, answers: list[Any], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Any:
    found: dict[str, Any] = {"calls": [], "responses": [], "raised": None}
    left = list(answers)

    class Client:
        """botocore's, which checks the parameters, without its connection."""

        def __init__(self, client: Any) -> None:
            self._client = client
            self.exceptions, self.meta = client.exceptions, client.meta

        def _make_api_call(self, name: str, parameters: dict[str, Any]) -> Any:
            self._client._serializer.serialize_to_request(parameters, self.meta.service_model.operation_model(name))
            given = {
                one: it.decode() if isinstance(it, bytes) else it for one, it in parameters.items() if one != "Payload"
            }
            payload = {"Payload": parameters["Payload"]} if "Payload" in parameters else {}
            found["calls"].append([name, {**given, **payload}])
            one = left.pop(0)
            if "error" in one:
                told = {"Code": one["error"]["name"], "Message": one["error"]["message"]}
                raise self.exceptions.from_code(told["Code"])({"Error": told}, name)
            return revived(one["result"])

        def __getattr__(self, name: str) -> Any:
            operation = self.meta.method_to_api_mapping[name]
            return lambda **parameters: self._make_api_call(operation, parameters)

    original = boto3.Session.client
    monkeypatch.setattr(boto3.Session, "client", lambda self, *args, **more: Client(original(self, *args, **more)))
    monkeypatch.setattr(boto3, "client", lambda *args, **more: boto3.Session().client(*args, **more))

    def opened(sent: urllib.request.Request) -> Any:
        assert sent.full_url == "https://bucket.s3.amazonaws.com/key?signed"
        assert isinstance(sent.data, bytes)
        found["responses"].append(json.loads(sent.data))
        return io.BytesIO()

    monkeypatch.setattr(urllib.request, "urlopen", opened)
    for name in (*VARIABLES, *WAITING):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        getattr(cdk_handlers, HANDLERS[kind][2])(copy.deepcopy(event), None)
    except (cdk_handlers.Retry, ClientError) as raised:
        found["raised"] = str(raised)
    assert not left
    return found


def revived(value: Any) -> Any:
    if isinstance(value, dict):
        if "$time" in value:
            return datetime.fromisoformat(value["$time"])
        if "$bytes" in value:
            return io.BytesIO(value["$bytes"].encode())
        return {name: revived(it) for name, it in value.items()}
    return [revived(it) for it in value] if isinstance(value, list) else value


def comparable(found: Any) -> Any:
    """Without what has no meaning: the names of errors in front of a reason, the trace after it, and a member that is null."""
    for response in found["responses"]:
        reason = response["Reason"]
        for known in ("there was ", "no luck", "DELETE: cannot", '"Data" is not'):
            if known in reason:
                response["Reason"] = reason[reason.index(known) :].partition("\n")[0]
        for name in [name for name, it in response.items() if it in (None, {}) or (name == "NoEcho" and not it)]:
            del response[name]
    for one in found["calls"]:
        one[0] = one[0][0].lower() + one[0][1:]
        one[1] = {
            name: json.loads(it) if name in ("Payload", "input") else it
            for name, it in one[1].items()
            if it != "RequestResponse"  # the default, which the CDK leaves out
        }
    if found["raised"]:
        text = found["raised"]
        found["raised"] = json.loads(text) if text.startswith("{") else text[text.index("there was ") :]
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_handler_calls_and_responds_what_that_of_the_cdk_does(
    name: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, event, answers, more = CASES[name]
    variables = {**VARIABLES, **more}
    node = comparable(of_node(files, kind, event, answers, variables))
    assert node["responses"] or node["raised"] or kind == "api" or node["calls"][-1][0] == "startExecution"
    assert comparable(of_python(kind, event, answers, variables, monkeypatch)) == node
