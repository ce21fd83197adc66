"""A stack such as users of the CDK have beside their training: what the CDK makes with functions of its own, secrets, layers."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_deployment as s3_deployment
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_ssm as ssm
from aws_cdk import custom_resources as cr
from aws_cdk import triggers
from botocore.exceptions import WaiterError
from cdk_stacks import deploy, destroy, reasons
from running_account import Running

ACCOUNT = "123456789012"
ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-us-east-1"
# The functions of a resource that is complete when it is asked for the second time, and one that is triggered.
CODE = """
import boto3, os
seen = {}
def on_event(event, context):
    if event["RequestType"] == "Delete":
        boto3.client("sqs").send_message(QueueUrl=os.environ["QUEUE"], MessageBody="deleted")
        return {}
    name = event["ResourceProperties"]["Name"]
    return {"PhysicalResourceId": f"thing-{name}", "Data": {"Twice": 2 * name, "True": True}}
def is_complete(event, context):
    seen[event["RequestId"]] = seen.get(event["RequestId"], 0) + 1
    if seen[event["RequestId"]] < 2:
        return {"IsComplete": False}
    return {"IsComplete": True, **({} if event["RequestType"] == "Delete" else {"Data": {"Looks": 2}})}
def triggered(event, context):
    boto3.client("sqs").send_message(QueueUrl=os.environ["QUEUE"], MessageBody="triggered")
"""
# Reads a secret, and has a module and a program of its layers.
READS = """
import boto3, os, shared, subprocess
def handler(event, context):
    got = boto3.client("secretsmanager").get_secret_value(SecretId=os.environ["SECRET"])
    said = subprocess.run(["says"], capture_output=True, text=True, check=True).stdout
    return [got["SecretString"], shared.WORD, said, context.function_version]
"""


@pytest.fixture(scope="module", autouse=True)
def assets(running: Running) -> None:
    running.client("s3").create_bucket(Bucket=ASSETS)


def assemble(running: Running, stack: cdk.Stack, out: Path) -> dict[str, Any]:
    """The template of a stack, whose assets are in the account's bucket as `cdk deploy` puts them there."""
    (out / "assets").mkdir(parents=True)
    folder = Path(cdk.App.of(stack).synth().directory)  # type: ignore[union-attr]
    files = json.loads((folder / f"{stack.artifact_id}.assets.json").read_text())["files"]
    for name, file in files.items():
        source = folder / file["source"]["path"]
        if file["source"]["packaging"] == "zip":
            source = Path(shutil.make_archive(str(out / "assets" / name), "zip", source))
        [destination] = file["destinations"].values()
        running.client("s3").upload_file(str(source), ASSETS, destination["objectKey"])
    template: dict[str, Any] = json.loads((folder / f"{stack.artifact_id}.template.json").read_text())
    return {
        "Resources": {name: it for name, it in template["Resources"].items() if it["Type"] != "AWS::CDK::Metadata"},
        **{name: template[name] for name in ("Mappings", "Conditions", "Outputs") if name in template},
    }


def new_stack(out: Path) -> cdk.Stack:
    context = {"aws:cdk:version-reporting": False}
    app = cdk.App(outdir=str(out / "cdk.out"), analytics_reporting=False, context=context)
    synthesizer = cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
    environment = cdk.Environment(account=ACCOUNT, region="us-east-1")
    return cdk.Stack(app, "Users", env=environment, synthesizer=synthesizer)


def deployed(running: Running, stack: cdk.Stack, out: Path) -> dict[str, str]:
    template = assemble(running, stack, out)
    try:
        return deploy(running, "Users", template.pop("Resources"), **template)
    except WaiterError:
        raise AssertionError(reasons(running, "Users")) from None


def with_uploads(folder: Path, out: Path, word: str, *, prune: bool = True) -> cdk.Stack:
    stack = new_stack(out)
    bucket = s3.Bucket(stack, "Data", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True)
    s3_deployment.BucketDeployment(
        stack,
        "Upload",
        sources=[
            s3_deployment.Source.asset(str(folder)),
            s3_deployment.Source.json_data("settings.json", {"bucket": bucket.bucket_arn, "word": word}),
        ],
        destination_bucket=bucket,
        destination_key_prefix="train",
        prune=prune,
        retain_on_delete=False,
    )
    cdk.CfnOutput(stack, "Bucket", value=bucket.bucket_name)
    return stack


@pytest.mark.soak  # test_cdk_handlers.py has the handler's calls and answers
def test_a_bucket_deployment_uploads_changes_and_removes_files_by_the_functions_of_the_cdk(
    running: Running, tmp_path: Path
) -> None:
    """The handler and the AWS CLI of its layer are those of aws-cdk-lib."""
    folder = tmp_path / "data"
    (folder / "part").mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    (folder / "part/b.txt").write_text("two")
    client = running.client("s3")

    def found(bucket: str) -> dict[str, str]:
        keys = [it["Key"] for it in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {key: client.get_object(Bucket=bucket, Key=key)["Body"].read().decode() for key in keys}

    bucket = deployed(running, with_uploads(folder, tmp_path / "1", "first"), tmp_path / "1")["Bucket"]
    settings = {"bucket": f"arn:aws:s3:::{bucket}", "word": "first"}
    assert found(bucket) == {
        "train/a.txt": "one",
        "train/part/b.txt": "two",
        "train/settings.json": json.dumps(settings, separators=(",", ":")),
    }
    client.put_object(Bucket=bucket, Key="train/mine.txt", Body=b"mine")
    client.put_object(Bucket=bucket, Key="other/mine.txt", Body=b"mine")
    (folder / "a.txt").unlink()
    deployed(running, with_uploads(folder, tmp_path / "2", "second"), tmp_path / "2")
    assert list(found(bucket)) == ["other/mine.txt", "train/part/b.txt", "train/settings.json"]
    assert json.loads(found(bucket)["train/settings.json"])["word"] == "second"
    destroy(running, "Users")


def with_functions(out: Path, name: str) -> cdk.Stack:
    stack = new_stack(out)
    queue = sqs.Queue(stack, "Queue")

    def function(id: str, handler: str, **more: Any) -> lambda_.Function:
        made = lambda_.Function(
            stack,
            id,
            code=lambda_.Code.from_inline(CODE),
            handler=f"index.{handler}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            environment={"QUEUE": queue.queue_url},
            **more,
        )
        queue.grant_send_messages(made)
        return made

    parameter = ssm.StringParameter(stack, "Parameter", string_value="the value")
    allowed = cr.AwsCustomResourcePolicy.from_sdk_calls(resources=cr.AwsCustomResourcePolicy.ANY_RESOURCE)
    names = {"Name": parameter.parameter_name}
    read = cr.AwsSdkCall(
        service="SSM",
        action="getParameter",
        parameters=names,
        physical_resource_id=cr.PhysicalResourceId.of("read"),
    )
    got = cr.AwsCustomResource(stack, "Read", on_update=read, policy=allowed)
    written = cr.AwsCustomResource(
        stack,
        "Written",
        on_update=cr.AwsSdkCall(
            service="@aws-sdk/client-ssm",
            action="PutParameterCommand",
            parameters={"Name": f"/users/{name}", "Value": name, "Type": "String"},
            physical_resource_id=cr.PhysicalResourceId.of(f"/users/{name}"),
        ),
        on_delete=cr.AwsSdkCall(
            service="ssm", action="DeleteParameter", parameters={"Name": cr.PhysicalResourceIdReference()}
        ),
        policy=allowed,
    )
    provider = cr.Provider(
        stack,
        "Provider",
        on_event_handler=function("OnEvent", "on_event", log_retention=logs.RetentionDays.ONE_WEEK),
        is_complete_handler=function("IsComplete", "is_complete"),
        query_interval=cdk.Duration.seconds(1),
    )
    thing = cdk.CustomResource(
        stack,
        "Thing",
        service_token=provider.service_token,
        resource_type="Custom::Thing",
        properties={"Name": name},
    )
    triggers.Trigger(stack, "Trigger", handler=function("Triggered", "triggered"), execute_after=[thing])
    outputs = {
        "Read": got.get_response_field("Parameter.Value"),
        "Written": written.get_response_field("region"),
        "Thing": cdk.Fn.join(" ", [thing.ref, *(thing.get_att_string(it) for it in ("Twice", "True", "Looks"))]),
        "Queue": queue.queue_url,
    }
    for id, value in outputs.items():
        cdk.CfnOutput(stack, f"Of{id}", value=value)
    return stack


@pytest.mark.soak  # its functions are in test_cdk_handlers.py
def test_custom_resources_of_the_cdk_call_wait_and_trigger(running: Running, tmp_path: Path) -> None:
    def received(queue: str) -> list[str]:
        return [it["Body"] for it in running.client("sqs").receive_message(QueueUrl=queue).get("Messages", [])]

    def parameters() -> list[str]:
        found = running.client("ssm").describe_parameters()["Parameters"]
        return [it["Name"] for it in found if it["Name"].startswith("/users/")]

    found = deployed(running, with_functions(tmp_path / "1", "a"), tmp_path / "1")
    queue = found.pop("OfQueue")
    assert found == {"OfRead": "the value", "OfWritten": "us-east-1", "OfThing": "thing-a aa true 2"}
    assert (parameters(), received(queue)) == (["/users/a"], ["triggered"])
    kept = {
        it["logGroupName"]: it.get("retentionInDays")
        for it in running.client("logs").describe_log_groups()["logGroups"]
    }
    assert sorted(it for name, it in kept.items() if "OnEvent" in name or "LogRetention" in name) == [1, 7]
    found = deployed(running, with_functions(tmp_path / "2", "b"), tmp_path / "2")
    assert found["OfThing"] == "thing-b bb true 2"
    # What is replaced is deleted, by the calls that it has for that.
    assert (parameters(), received(queue)) == (["/users/b"], ["deleted"])
    destroy(running, "Users")
    assert parameters() == []


def with_secrets(out: Path, number: int) -> cdk.Stack:
    stack = new_stack(out)
    key = kms.Key(stack, "Key", removal_policy=cdk.RemovalPolicy.DESTROY)
    generated = secretsmanager.SecretStringGenerator(
        secret_string_template=json.dumps({"user": "me"}),
        generate_string_key="password",
        password_length=20,
        exclude_punctuation=True,
    )
    secret = secretsmanager.Secret(stack, "Secret", encryption_key=key, generate_secret_string=generated)
    plain = cdk.SecretValue.unsafe_plain_text(f"token {number}")
    token = secretsmanager.Secret(stack, "Token", secret_string_value=plain, secret_name="users/token")
    vpc = ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=["us-east-1a"],
        restrict_default_security_group=False,
        subnet_configuration=[ec2.SubnetConfiguration(name="In", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
    )

    def layer(id: str, files: dict[str, str]) -> lambda_.LayerVersion:
        folder = out / id
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        return lambda_.LayerVersion(stack, id, code=lambda_.Code.from_asset(str(folder)))

    layers = [
        layer("First", {"python/shared.py": "WORD = 'under'", "bin/says": "#!/bin/sh\necho said\n"}),
        layer("Second", {"python/shared.py": f"WORD = 'layer {number}'"}),
    ]
    function = lambda_.Function(
        stack,
        "Reads",
        code=lambda_.Code.from_inline(READS),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
        environment={"SECRET": secret.secret_name, "NUMBER": str(number)},
        ephemeral_storage_size=cdk.Size.gibibytes(1),
        layers=layers,
        timeout=cdk.Duration.seconds(60),
        tracing=lambda_.Tracing.ACTIVE,
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
    )
    secret.grant_read(function)
    alias = lambda_.Alias(stack, "Live", alias_name="live", version=function.current_version)
    parameter = ssm.StringParameter(stack, "Copy", string_value=cdk.Token.as_string(token.secret_value))
    field = secret.secret_value_from_json("user")
    second = ssm.StringParameter(stack, "User", string_value=cdk.Token.as_string(field))
    outputs = {
        "Copy": parameter.parameter_name,
        "User": second.parameter_name,
        "Function": function.function_name,
        "Live": alias.function_arn,
        "Version": function.current_version.version,
        "Secret": secret.secret_arn,
    }
    for id, value in outputs.items():
        cdk.CfnOutput(stack, f"Of{id}", value=value)
    return stack


@pytest.mark.soak  # ten seconds of a processor; its layers are in test_functions.py
def test_a_function_with_layers_in_a_vpc_reads_a_secret_and_a_version_of_it_stays(
    running: Running, tmp_path: Path
) -> None:
    functions, ssm_client = running.client("lambda"), running.client("ssm")

    def said(name: str) -> Any:
        return json.load(functions.invoke(FunctionName=name)["Payload"])

    def value(name: str) -> str:
        return str(ssm_client.get_parameter(Name=name)["Parameter"]["Value"])

    found = deployed(running, with_secrets(tmp_path / "1", 1), tmp_path / "1")
    text, *rest = said(found["OfFunction"])
    secret = json.loads(text)
    assert (secret["user"], len(secret["password"]), secret["password"].isalnum()) == ("me", 20, True)
    assert rest == ["layer 1", "said\n", "$LATEST"]
    assert said(found["OfLive"]) == [text, "layer 1", "said\n", "1"]
    assert (value(found["OfCopy"]), value(found["OfUser"]), found["OfVersion"]) == ("token 1", "me", "1")
    about = functions.get_function_configuration(FunctionName=found["OfFunction"])
    assert about["TracingConfig"] == {"Mode": "Active"}
    assert about["EphemeralStorage"] == {"Size": 1024}
    assert about["VpcConfig"]["VpcId"].startswith("vpc-")
    for qualifier in ("1", "live"):
        answer = functions.invoke(FunctionName=found["OfFunction"], Qualifier=qualifier, Payload=b'{"qualifier": "7"}')
        assert (answer["ExecutedVersion"], json.load(answer["Payload"])[-1]) == ("1", "1")
    with pytest.raises(functions.exceptions.ResourceNotFoundException):
        functions.invoke(FunctionName=found["OfFunction"], Qualifier="7")

    found = deployed(running, with_secrets(tmp_path / "2", 2), tmp_path / "2")
    assert said(found["OfLive"]) == [text, "layer 2", "said\n", "2"]
    # A secret's value is read when what has it is changed.
    assert running.client("secretsmanager").get_secret_value(SecretId="users/token")["SecretString"] == "token 2"
    deployed(running, with_secrets(tmp_path / "3", 3), tmp_path / "3")
    # The number of a version that was deleted is not used again.
    assert said(found["OfLive"])[-1] == "3"
    assert said(found["OfFunction"])[1] == "layer 3"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("python/shared.py", "WORD = 'another layer'")
    another = functions.publish_layer_version(LayerName="another", Content={"ZipFile": archive.getvalue()})
    with_program = functions.get_function_configuration(FunctionName=found["OfFunction"])["Layers"][0]["Arn"]
    layers = [with_program, another["LayerVersionArn"]]
    functions.update_function_configuration(FunctionName=found["OfFunction"], Layers=layers)
    assert said(found["OfFunction"])[1] == "another layer"
    functions.delete_layer_version(LayerName="another", VersionNumber=1)
    destroy(running, "Users")
    assert running.client("secretsmanager").list_secrets()["SecretList"] == []
    assert functions.list_layers()["Layers"] == []
