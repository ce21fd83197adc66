"""Lambda functions that are called, and the custom resources that they make, in an account that enforces permissions."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, reasons
from running_account import Running
from visible import python_folders

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.aws.awslambda import execution_environments, functions

TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
# Responds to CloudFormation; says what it was asked for; its properties say how it fails.
CODE = """
import boto3, cfnresponse, json
def handler(event, context):
    print("request", json.dumps([event["RequestType"], event["ResourceProperties"]["Number"]]))
    number = event["ResourceProperties"]["Number"]
    if number == "3" and event["RequestType"] == "Delete":
        raise ValueError("three stays")
    if number == "4":
        boto3.client("s3").list_buckets()
    cfnresponse.send(event, context, "SUCCESS", {"Twice": number * 2}, physicalResourceId="it-" + number[:1])
"""
UNNAMED_LOGS = {"Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {}}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with LocalAccount(state=tmp_path_factory.mktemp("account")) as account:
        yield Running(account)
        assert os.listdir(account.state / "functions")  # of environments that wait
    assert not os.listdir(account.state / "functions")


def function(**properties: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Code": {"ZipFile": CODE},
            "Handler": "index.handler",
            "LoggingConfig": {"LogGroup": {"Ref": "Logs"}},
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Runtime": "python3.13",
            "Timeout": 60,
            **properties,
        },
    }


def resources(number: int, **properties: Any) -> dict[str, Any]:
    """A custom resource, and a parameter with what it gave."""
    writing = {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": "*"}
    policy = {"PolicyName": "Logs", "PolicyDocument": {"Version": "2012-10-17", "Statement": [writing]}}
    role = {"AssumeRolePolicyDocument": TRUST, "Policies": [policy]}
    return {
        "Logs": {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "functions"}},
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Function": function(**properties),
        "It": {
            "Type": "Custom::Number",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Number": number},
        },
        "Twice": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {"Name": "twice", "Type": "String", "Value": {"Fn::GetAtt": ["It", "Twice"]}},
        },
    }


def requests(running: Running) -> list[Any]:
    """The requests that the functions printed, in their order."""
    events = running.client("logs").filter_log_events(logGroupName="functions")["events"]
    said = sorted((event["timestamp"], event["message"]) for event in events if event["message"].startswith("request "))
    return [json.loads(message.removeprefix("request ")) for _, message in said]


def test_a_custom_resource_is_made_changed_replaced_and_deleted_by_its_function(running: Running) -> None:
    deploy(running, "Numbers", resources(1))
    assert running.client("ssm").get_parameter(Name="twice")["Parameter"]["Value"] == "11"
    deploy(running, "Numbers", resources(10))
    assert requests(running) == [["Create", "1"], ["Update", "10"]]
    assert running.client("ssm").get_parameter(Name="twice")["Parameter"]["Value"] == "1010"
    deploy(running, "Numbers", resources(2))
    assert requests(running)[2:] == [["Update", "2"], ["Delete", "10"]]
    left = {name: one for name, one in resources(2).items() if name not in ("It", "Twice")}
    deploy(running, "Numbers", left)
    assert requests(running)[4:] == [["Delete", "2"]]
    destroy(running, "Numbers")


def test_what_a_resource_refers_to_stays_where_the_resource_is_not_deleted(running: Running) -> None:
    deploy(running, "Staying", {**resources(3), **UNNAMED_LOGS})
    stacks = running.client("cloudformation")
    stacks.delete_stack(StackName="Staying")
    [stack] = stacks.describe_stacks(StackName="Staying")["Stacks"]
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "three stays" in stack["StackStatusReason"]
    left = stacks.list_stack_resources(StackName="Staying")["StackResourceSummaries"]
    assert sorted(one["LogicalResourceId"] for one in left) == ["Function", "It", "Logs", "Role"]


SAYS = "import os\ndef handler(event, context): return [{number}, os.environ.get('WORD'), context.memory_limit_in_mb]\n"


def test_an_update_replaces_the_code_and_all_of_the_configuration_and_a_rollback_brings_it_back(
    running: Running,
) -> None:
    """What is left out has the template reference's default."""

    def parts(number: int, **properties: Any) -> dict[str, Any]:
        code = {"ZipFile": SAYS.format(number=number)}
        found = resources(0, Code=code, **properties)
        return {name: found[name] for name in ("Logs", "Role", "Function")} | UNNAMED_LOGS

    def said() -> Any:
        [name] = [
            it["FunctionName"]
            for it in client.list_functions()["Functions"]
            if it["FunctionName"].startswith("Changing")
        ]
        return json.loads(client.invoke(FunctionName=name)["Payload"].read())

    client = running.client("lambda")
    deploy(running, "Changing", parts(1, Environment={"Variables": {"WORD": "first"}}, MemorySize=256))
    assert said() == [1, "first", "256"]
    deploy(running, "Changing", parts(2))
    assert said() == [2, None, "128"]
    named = {"RoleName": "taken", "AssumeRolePolicyDocument": TRUST}
    role = {"Type": "AWS::IAM::Role", "Properties": named, "DependsOn": "Function"}
    failing = {"First": role, "Taken": role}
    with pytest.raises(WaiterError):
        deploy(running, "Changing", parts(3, Environment={"Variables": {"WORD": "third"}}) | failing)
    assert said() == [2, None, "128"]
    deploy(running, "Changing", parts(4, FunctionName="Changing-named"))
    assert said() == [4, None, "128"]
    destroy(running, "Changing")


def test_a_function_does_what_its_role_lets_it(running: Running) -> None:
    with pytest.raises(WaiterError):
        deploy(running, "Denied", {**resources(4), **UNNAMED_LOGS})
    assert "is not authorized to perform: s3:ListAllMyBuckets" in reasons(running, "Denied")


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"Runtime": "nodejs22.x"}, "Runtime 'nodejs22.x'"),
        ({"SnapStart": {}}, "SnapStart"),
        ({"Code": {"ImageUri": "image"}}, "Code.ImageUri"),
    ],
)
def test_a_function_that_cannot_be_run_is_refused_by_its_property_and_name(
    running: Running, properties: dict[str, Any], named: str
) -> None:
    with pytest.raises(ClientError, match=rf"{named} of AWS::Lambda::Function \(Function\)"):
        deploy(running, "Refused", resources(1, **properties))


def create(running: Running, name: str, code: str, role: str | None = None) -> Any:
    """A function of a module `main`; the client that invokes it."""
    lambda_, role = running.client("lambda"), role or running.role(f"Role-of-{name}", "lambda.amazonaws.com")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(zipfile.ZipInfo("main.py"), code)  # the same bytes whenever it is made
    lambda_.create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role=role,
        Handler="main.handler",
        Code={"ZipFile": archive.getvalue()},
    )
    return lambda_


@pytest.mark.parametrize(("value", "payload"), [("b'\"text\"'", b'"text"'), ("{'it': b'text'}", b'{"it": "text"}')])
def test_bytes_are_the_payload_and_text_within_it(running: Running, value: str, payload: bytes) -> None:
    """stepfunctions/v2/assign, test_variables_in_lambda_task; within a value they are written as simplejson writes them"""
    name = f"bytes-{len(value)}"
    lambda_ = create(running, name, f"def handler(event, context): return {value}")
    assert lambda_.invoke(FunctionName=name)["Payload"].read() == payload


def test_a_function_is_invoked_and_its_error_is_the_answer(running: Running) -> None:
    lambda_ = create(running, "invoked", "def handler(event, context): return {'twice': 2 * event['number']}")
    answer = lambda_.invoke(FunctionName="invoked", Payload=b'{"number": 4}')
    assert json.load(answer["Payload"]) == {"twice": 8}
    answer = lambda_.invoke(FunctionName="invoked", Payload=b"{}")
    assert answer["FunctionError"] == "Unhandled"
    failed = json.load(answer["Payload"])
    assert failed["errorType"] == "KeyError"
    assert failed["requestId"]
    assert failed["stackTrace"][0].startswith('  File "/var/task/')


LOOK = """
import os
def handler(event, context):
    try:
        os.symlink(event["file"], "/tmp/link")
        os.open(event["file"], os.O_RDONLY)
    except OSError as error:
        found = error.strerror
    processes = [name for name in os.listdir("/proc") if name.isdigit()]
    return [found, os.getcwd(), processes, os.environ["LAMBDA_TASK_ROOT"], os.listdir("/home")]
"""


def test_a_function_sees_no_file_and_no_process_of_the_person_who_runs_the_account(running: Running) -> None:
    keys = running.account.state / "account.json"
    assert keys.exists()
    lambda_ = create(running, "looking", LOOK)
    answer = lambda_.invoke(FunctionName="looking", Payload=json.dumps({"file": str(keys)}).encode())
    of_python = {path.split("/")[2] for path in python_folders(running.account.state) if path.startswith("/home/")}
    assert json.load(answer["Payload"]) == [
        "No such file or directory",
        "/var/task",
        ["1"],
        "/var/task",
        [*of_python],  # empty but for the interpreter and its packages
    ]


# The handlers lambda_cache.py and lambda_timeout_env.py of LocalStack's tests, in one.
REMEMBERS = """
import pathlib, signal
number, store = 0, pathlib.Path("/tmp/store")
def handler(event, context):
    global number
    number += 1
    if event.get("write"):
        store.write_text(event["write"])
    if event.get("sleep"):
        print("starting wait")
        signal.pause()
    print("invocation", number, end="")
    return [number, store.read_text() if store.exists() else None]
"""


def invoked(lambda_: Any, name: str, **event: Any) -> Any:
    return json.load(lambda_.invoke(FunctionName=name, Payload=json.dumps(event).encode())["Payload"])


def test_an_invocation_finds_what_the_one_before_it_made_and_after_a_timeout_its_files_alone(running: Running) -> None:
    """Recorded on AWS: test_lambda_cache_local, test_lambda_invoke_timed_out_environment_reuse."""
    lambda_ = create(running, "remembers", REMEMBERS)
    assert invoked(lambda_, "remembers", write="text") == [1, "text"]
    assert invoked(lambda_, "remembers") == [2, "text"]
    lambda_.update_function_configuration(FunctionName="remembers", Timeout=1)
    assert invoked(lambda_, "remembers") == [3, "text"]
    over = invoked(lambda_, "remembers", sleep=True)
    assert over["errorType"] == "Sandbox.Timedout"
    assert re.fullmatch(r"RequestId: [-0-9a-f]{36} Error: Task timed out after 1\.00 seconds", over["errorMessage"])
    assert invoked(lambda_, "remembers") == [1, "text"]
    lambda_.update_function_configuration(FunctionName="remembers", Environment={"Variables": {"IT": "new"}})
    assert invoked(lambda_, "remembers") == [1, None]
    role = lambda_.get_function(FunctionName="remembers")["Configuration"]["Role"]
    lambda_.delete_function(FunctionName="remembers")
    assert invoked(create(running, "remembers", REMEMBERS, role), "remembers") == [1, None]


def test_an_environment_has_one_log_stream_with_the_lines_of_each_invocation(running: Running) -> None:
    lambda_ = create(running, "logging", REMEMBERS)
    writing = {"Effect": "Allow", "Action": "logs:*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [writing]})
    running.client("iam").put_role_policy(RoleName="Role-of-logging", PolicyName="Logs", PolicyDocument=policy)
    assert [invoked(lambda_, "logging")[0] for _ in range(3)] == [1, 2, 3]
    logs = running.client("logs")
    [stream] = logs.describe_log_streams(logGroupName="/aws/lambda/logging")["logStreams"]
    events = logs.get_log_events(logGroupName="/aws/lambda/logging", logStreamName=stream["logStreamName"])["events"]
    assert [event["message"] for event in events] == [f"invocation {number}" for number in (1, 2, 3)]


def test_invocations_at_one_time_have_an_environment_each(running: Running) -> None:
    """Each waits until the other has begun, in a folder that both see, as a bucket is on AWS."""
    code = """
import boto3, time
number = 0
def handler(event, context):
    global number
    number += 1
    s3 = boto3.client("s3")
    s3.put_object(Bucket="meeting", Key=event["mine"])
    while event["other"] not in [it["Key"] for it in s3.list_objects_v2(Bucket="meeting")["Contents"]]:
        time.sleep(0.01)
    return number
"""
    lambda_ = create(running, "meeting", code)
    running.client("s3").create_bucket(Bucket="meeting")
    running.client("iam").attach_role_policy(
        RoleName="Role-of-meeting", PolicyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess"
    )
    with ThreadPoolExecutor() as threads:
        ends = [threads.submit(invoked, lambda_, "meeting", mine=mine, other=other) for mine, other in ("ab", "ba")]
        assert [end.result() for end in ends] == [1, 1]
        assert invoked(lambda_, "meeting", mine="a", other="b") == 2


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("sys.exit(0)", "without providing a reason"),
        ("sys.exit(127)", "with error: exit status 127"),
        ("ctypes.string_at(0)", "with error: signal: segmentation fault"),
    ],
)
def test_a_process_that_ends_is_an_error_and_the_next_invocation_has_another(
    running: Running, ending: str, why: str
) -> None:
    """Recorded on AWS: TestLambdaErrors, test_lambda_handler_exit, test_lambda_runtime_wrapper_not_found."""
    name = f"ends-{len(ending)}"
    code = f"import ctypes, sys\ndef handler(event, context):\n    if event:\n        {ending}\n    return 'well'\n"
    lambda_ = create(running, name, code)
    ended = invoked(lambda_, name, end=True)
    assert ended["errorType"] == "Runtime.ExitError"
    assert re.fullmatch(rf"RequestId: [-0-9a-f]{{36}} Error: Runtime exited {why}", ended["errorMessage"])
    assert invoked(lambda_, name) == "well"


def test_a_module_that_cannot_be_imported_is_named(running: Running) -> None:
    """The message of AWS's runtime (awslambdaric/bootstrap.py)."""
    lambda_ = create(running, "importing", "import nothing_of_the_kind\n")
    failed = invoked(lambda_, "importing")
    assert failed["errorType"] == "Runtime.ImportModuleError"
    assert failed["errorMessage"] == "Unable to import module 'main': No module named 'nothing_of_the_kind'"
    assert failed["requestId"] == ""


def test_a_process_that_ended_while_it_waited_fails_no_invocation(running: Running) -> None:
    lambda_ = create(running, "waits", REMEMBERS)
    assert invoked(lambda_, "waits", write="text") == [1, "text"]
    waiting = functions.account_functions()._environments._idle[-1].process
    assert waiting is not None
    waiting.pod.kill_host("function")
    waiting.pod.wait()
    assert invoked(lambda_, "waits") == [1, "text"]


VARIABLES = """
import os
def handler(event, context):
    print("printed")
    return [os.environ["AWS_LAMBDA_LOG_STREAM_NAME"] == context.log_stream_name, os.environ["AWS_EXECUTION_ENV"]]
"""


def test_the_tail_of_the_log_is_in_the_answer_where_it_is_asked_for(running: Running) -> None:
    """LocalStack's recorded test_invocation_with_logs; the variables are those of Lambda's guide."""
    lambda_ = create(running, "tail", VARIABLES)
    assert "LogResult" not in lambda_.invoke(FunctionName="tail")
    answer = lambda_.invoke(FunctionName="tail", LogType="Tail")
    assert json.load(answer["Payload"]) == [True, "AWS_Lambda_python3.13"]
    start, printed, end, report = base64.b64decode(answer["LogResult"]).decode().splitlines()
    [request_id] = re.findall(r"^START RequestId: ([-0-9a-f]{36}) Version: \$LATEST$", start)
    assert (printed, end) == ("printed", f"END RequestId: {request_id}")
    assert re.fullmatch(
        rf"REPORT RequestId: {request_id}\tDuration: [0-9.]+ ms\tBilled Duration: \d+ ms\tMemory Size: 128 MB", report
    )


def test_a_payload_that_is_no_json_is_refused(running: Running) -> None:
    """LocalStack's recorded test_lambda_invoke_payload_encoding_error."""
    lambda_ = create(running, "json", VARIABLES)
    with pytest.raises(
        ClientError, match="Could not parse request body into json: Could not parse payload into json"
    ) as refused:
        lambda_.invoke(FunctionName="json", Payload=b'{"number": ')
    assert refused.value.response["Error"]["Code"] == "InvalidRequestContentException"


@pytest.mark.parametrize(("name", "session"), [("s", "s@lambda_function"), ("aa", "aa")])
def test_the_session_of_a_functions_role_has_the_functions_name(running: Running, name: str, session: str) -> None:
    """LocalStack's recorded test_assume_role."""
    code = "import boto3\ndef handler(event, context): return boto3.client('sts').get_caller_identity()['Arn']\n"
    arn = f"arn:aws:sts::123456789012:assumed-role/Role-of-{name}/{session}"
    assert invoked(create(running, name, code), name) == arn


def test_environments_that_wait_for_long_are_closed(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    lambda_ = create(running, "long", REMEMBERS)
    assert invoked(lambda_, "long", write="text") == [1, "text"]
    waiting = functions.account_functions()._environments._idle[-1]
    monkeypatch.setattr(execution_environments, "_IDLE_SECONDS", 0.0)
    invoked(create(running, "other", REMEMBERS), "other")
    assert not waiting.spec.folder.exists()
    assert waiting.process is None
    monkeypatch.undo()
    assert invoked(lambda_, "long") == [1, None]


def with_network(running: Running, role: str | None = None, **network: Any) -> dict[str, Any]:
    """A function in a subnet, with a role that may only make its interfaces, or that the properties name."""
    ec2 = [f"ec2:{it}NetworkInterface{'s' * (it == 'Describe')}" for it in ("Create", "Describe", "Delete")]
    statement = {"Effect": "Allow", "Action": ec2, "Resource": "*"}
    policy = {"PolicyName": "Network", "PolicyDocument": {"Version": "2012-10-17", "Statement": [statement]}}
    properties = {"Policies": [policy] if role is None else [], "AssumeRolePolicyDocument": TRUST}
    return {
        "Logs": UNNAMED_LOGS["Logs"],
        "Role": {"Type": "AWS::IAM::Role", "Properties": properties},
        "Function": function(VpcConfig=network),
    }


def test_a_function_in_a_vpc_is_made_where_its_role_may_make_its_interfaces(running: Running) -> None:
    """The sentence is AWS's (aws/aws-cdk#23589, aws/aws-sam-cli#617)."""
    ec2 = running.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.1.0/24")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName="in", Description="in", VpcId=vpc)["GroupId"]
    inside = {"SubnetIds": [subnet], "SecurityGroupIds": [group]}
    deploy(running, "Inside", with_network(running, **inside))
    [found] = [it for it in running.client("lambda").list_functions()["Functions"] if "Inside" in it["FunctionName"]]
    assert found["VpcConfig"] == {**inside, "VpcId": vpc, "Ipv6AllowedForDualStack": False}
    deploy(running, "Inside", with_network(running))
    [found] = [it for it in running.client("lambda").list_functions()["Functions"] if "Inside" in it["FunctionName"]]
    assert found["VpcConfig"]["SubnetIds"] == []
    destroy(running, "Inside")
    wrong = {
        "does not have permissions to call CreateNetworkInterface on EC2": with_network(running, "without", **inside),
        "The subnet 'subnet-0' does not exist": with_network(running, **{**inside, "SubnetIds": ["subnet-0"]}),
        "The security group 'sg-0' does not exist": with_network(running, **{**inside, "SecurityGroupIds": ["sg-0"]}),
    }
    for number, (why, template) in enumerate(wrong.items()):
        with pytest.raises(WaiterError):
            deploy(running, f"Outside{number}", template)
        assert why in reasons(running, f"Outside{number}")


def test_a_layer_of_another_account_or_that_does_not_exist_fails_the_function(running: Running) -> None:
    """The sentence of AWS (LocalStack's recorded TestLambdaLayer, test_layer_function_exceptions)."""
    lambda_ = running.client("lambda")
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("python/it.py", "")
    own = lambda_.publish_layer_version(LayerName="own", Content={"ZipFile": archive.getvalue()})["LayerVersionArn"]
    for number, arn in enumerate(
        (own.replace("123456789012", "017000801446"), own[:-1] + "2", own.replace("own", "its"))
    ):
        parts = {"Logs": UNNAMED_LOGS["Logs"], "Role": resources(0)["Role"], "Function": function(Layers=[own, arn])}
        with pytest.raises(WaiterError):
            deploy(running, f"Layers{number}", parts)
        assert f"Layer version {arn} does not exist." in reasons(running, f"Layers{number}")


def test_no_more_invocations_run_than_a_function_reserves(running: Running) -> None:
    """Recorded on AWS: TestLambdaConcurrency, test_lambda_concurrency_block."""
    code = """
import boto3
def handler(event, context):
    queues = boto3.client("sqs")
    queues.send_message(QueueUrl=event["begun"], MessageBody="begun")
    while not queues.receive_message(QueueUrl=event["go"], WaitTimeSeconds=20).get("Messages"):
        pass
    return "done"
"""
    lambda_ = create(running, "reserved", code)
    queues = running.client("sqs")
    running.client("iam").attach_role_policy(
        RoleName="Role-of-reserved", PolicyArn="arn:aws:iam::aws:policy/AmazonSQSFullAccess"
    )
    lambda_.update_function_configuration(FunctionName="reserved", Timeout=300)
    event = {name: queues.create_queue(QueueName=f"reserved-{name}")["QueueUrl"] for name in ("begun", "go")}
    lambda_.put_function_concurrency(FunctionName="reserved", ReservedConcurrentExecutions=1)
    with ThreadPoolExecutor() as threads:
        running_one = threads.submit(invoked, lambda_, "reserved", **event)
        while not queues.receive_message(QueueUrl=event["begun"], WaitTimeSeconds=20).get("Messages"):
            pass
        with pytest.raises(lambda_.exceptions.TooManyRequestsException) as caught:
            invoked(lambda_, "reserved", **event)
        queues.send_message(QueueUrl=event["go"], MessageBody="go")
        assert running_one.result() == "done"
    answer = caught.value.response
    assert answer["Error"] == {"Code": "TooManyRequestsException", "Message": "Rate Exceeded."}
    assert (answer["Reason"], answer["Type"]) == ("ReservedFunctionConcurrentInvocationLimitExceeded", "User")
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 429
    queues.send_message(QueueUrl=event["go"], MessageBody="go")
    assert invoked(lambda_, "reserved", **event) == "done"
    assert lambda_.invoke(FunctionName="reserved", InvocationType="DryRun")["StatusCode"] == 204  # it would wait to go
    lambda_.put_function_concurrency(FunctionName="reserved", ReservedConcurrentExecutions=0)
    with pytest.raises(lambda_.exceptions.TooManyRequestsException):
        invoked(lambda_, "reserved", **event)


def test_a_response_of_more_than_4096_bytes_fails_the_resource(running: Running) -> None:
    """ "Custom resource response objects" in CloudFormation's guide: the total size of the body."""
    code = """
import json, urllib.request
def handler(event, context):
    body = {it: event[it] for it in ("StackId", "RequestId", "LogicalResourceId")}
    body |= {"Status": "SUCCESS", "PhysicalResourceId": "it", "Data": {"Text": ""}}
    length = int(event["ResourceProperties"]["Length"]) if event["RequestType"] == "Create" else 1000
    body["Data"]["Text"] = "x" * (length - len(json.dumps(body)))
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], json.dumps(body).encode(), method="PUT"))
"""

    def parts(length: int) -> dict[str, Any]:
        token = {"Fn::GetAtt": ["Function", "Arn"]}
        made = resources(0, Code={"ZipFile": code}) | UNNAMED_LOGS
        it = {"Type": "Custom::Long", "Properties": {"ServiceToken": token, "Length": length}}
        return {"It": it, **{name: made[name] for name in ("Logs", "Role", "Function")}}

    deploy(running, "Whole", parts(4096))
    destroy(running, "Whole")
    with pytest.raises(WaiterError):
        deploy(running, "Longer", parts(4097))
    assert "Response object is too long." in reasons(running, "Longer")
