"""Secrets Manager in an account that enforces permissions: who may read a secret, and which of its versions."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError
from cdk_stacks import deploy, destroy, reasons
from running_account import Running
from test_enforced import Role, allow

READ = "secretsmanager:GetSecretValue"


def as_role(running: Running, name: str, *statements: dict[str, Any]) -> Any:
    """Secrets Manager's client of a role with these statements."""
    return Role(running, name, *statements).client("secretsmanager")


def denied(client: Any, **request: str) -> str:
    with pytest.raises(ClientError) as caught:
        client.get_secret_value(**request)
    assert caught.value.response["Error"]["Code"] == "AccessDeniedException"
    return str(caught.value)


def test_a_secret_is_read_by_who_may_read_it_whatever_names_it(running: Running) -> None:
    secrets = running.client("secretsmanager")
    arn = secrets.create_secret(Name="team/token", SecretString="the value")["ARN"]
    secrets.create_secret(Name="team/other", SecretString="another")
    # `secret.grant_read` of a secret of the stack, of `from_secret_name_v2` and of `from_secret_partial_arn`.
    for number, resource in enumerate((arn, f"{arn[:-6]}??????", f"{arn[:-7]}-*")):
        reader = as_role(running, f"Reader{number}", allow([READ], resource))
        for id in ("team/token", arn, arn[:-7]):
            assert reader.get_secret_value(SecretId=id)["SecretString"] == "the value"
        assert f"is not authorized to perform: {READ} on resource: {arn[:-12]}other-" in denied(
            reader, SecretId="team/other"
        )
        assert "secret:nowhere because" in denied(reader, SecretId="nowhere")


def test_a_secrets_policy_allows_and_denies(running: Running) -> None:
    secrets = running.client("secretsmanager")
    arn = secrets.create_secret(Name="shared", SecretString="the value")["ARN"]
    role = as_role(running, "Named")
    everyone = as_role(running, "Allowed", allow("secretsmanager:*"))
    denied(role, SecretId=arn)
    statements = [
        {
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::123456789012:role/Named"},
            "Action": READ,
            "Resource": "*",
        },
        {
            "Effect": "Deny",
            "Principal": {"AWS": "arn:aws:iam::123456789012:role/Allowed"},
            "Action": READ,
            "Resource": "*",
        },
    ]
    policy = {"Version": "2012-10-17", "Statement": statements}
    deploy(
        running,
        "Policy",
        {
            "Policy": {
                "Type": "AWS::SecretsManager::ResourcePolicy",
                "Properties": {"SecretId": arn, "ResourcePolicy": policy},
            }
        },
    )
    assert role.get_secret_value(SecretId=arn)["SecretString"] == "the value"
    assert "explicit deny" in denied(everyone, SecretId=arn)
    destroy(running, "Policy")
    denied(role, SecretId=arn)
    assert everyone.get_secret_value(SecretId=arn)["SecretString"] == "the value"


def test_a_secret_with_a_customer_managed_key_is_read_by_who_may_decrypt_with_it(running: Running) -> None:
    key = running.client("kms").create_key()["KeyMetadata"]["Arn"]
    running.client("secretsmanager").create_secret(Name="encrypted", SecretString="the value", KmsKeyId=key)
    reading = allow(READ)
    assert "kms:Decrypt" in denied(as_role(running, "WithoutKey", reading), SecretId="encrypted")
    via = {"StringEquals": {"kms:ViaService": "secretsmanager.us-east-1.amazonaws.com"}}
    using = allow("kms:Decrypt", key, Condition=via)
    assert as_role(running, "WithKey", reading, using).get_secret_value(SecretId="encrypted")["SecretString"]
    writer = as_role(running, "Writer", allow("secretsmanager:*"))
    for call in (
        lambda: writer.create_secret(Name="written", SecretString="it", KmsKeyId=key),
        lambda: writer.put_secret_value(SecretId="encrypted", SecretString="it"),
    ):
        with pytest.raises(ClientError, match="kms:GenerateDataKey"):
            call()


def test_the_value_is_that_of_the_version_that_is_current(running: Running) -> None:
    """Recorded on AWS: test_update_secret_version_stages_current_pending_cycle and its like."""
    secrets = running.client("secretsmanager")

    def put(value: str, *stages: str) -> str:
        return str(secrets.put_secret_value(SecretId="turned", SecretString=value, VersionStages=stages)["VersionId"])

    def value(**request: str) -> str:
        return str(secrets.get_secret_value(SecretId="turned", **request)["SecretString"])

    def labels() -> dict[str, list[str]]:
        return dict(secrets.describe_secret(SecretId="turned")["VersionIdsToStages"])

    first = secrets.create_secret(Name="turned", SecretString="first")["VersionId"]
    second = put("second", "AWSPENDING", "MINE")
    assert (value(), value(VersionStage="AWSPENDING")) == ("first", "second")
    move = {"VersionStage": "AWSCURRENT", "MoveToVersionId": second, "RemoveFromVersionId": first}
    secrets.update_secret_version_stage(SecretId="turned", **move)
    assert (value(), value(VersionStage="AWSPREVIOUS")) == ("second", "first")
    third = put("third", "AWSCURRENT")
    assert labels() == {second: ["MINE", "AWSPREVIOUS"], third: ["AWSCURRENT"]}
    assert value(VersionId=first) == "first"
    found = secrets.list_secret_version_ids(SecretId="turned")["Versions"]
    assert [it["VersionId"] for it in found] == [second, third]
    found = secrets.list_secret_version_ids(SecretId="turned", IncludeDeprecated=True)["Versions"]
    assert [it["VersionId"] for it in found] == [first, second, third]


def test_what_secrets_manager_refuses_has_its_words(running: Running) -> None:
    secrets = running.client("secretsmanager")
    secrets.create_secret(Name="gone", SecretString="it")
    secrets.delete_secret(SecretId="gone")
    refused = {
        "scheduled for deletion": lambda: secrets.create_secret(Name="gone", SecretString="it"),
        "marked for deletion": lambda: secrets.tag_resource(SecretId="gone", Tags=[{"Key": "a", "Value": "b"}]),
        "any of the following: -/_": lambda: secrets.create_secret(Name="a b", SecretString="it"),
        "does not rotate secrets": lambda: secrets.rotate_secret(
            SecretId="turned", RotationLambdaARN="arn:aws:lambda:f"
        ),
        "No Lambda rotation function": lambda: secrets.rotate_secret(SecretId="turned"),
        "can't find the specified secret": lambda: secrets.describe_secret(SecretId="nowhere"),
    }
    for why, call in refused.items():
        with pytest.raises(ClientError, match=why) as caught:
            call()
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def secret(**properties: Any) -> dict[str, Any]:
    return {"Secret": {"Type": "AWS::SecretsManager::Secret", "Properties": properties}}


def test_a_template_makes_changes_and_replaces_a_secret(running: Running) -> None:
    secrets = running.client("secretsmanager")

    def found() -> dict[str, Any]:
        [one] = [it for it in secrets.list_secrets()["SecretList"] if it["Name"].startswith(("Secret-", "mine"))]
        return {"Value": secrets.get_secret_value(SecretId=one["ARN"])["SecretString"], **one}

    deploy(running, "Secrets", secret(SecretString="first", Description="one"))
    before = found()
    assert (before["Value"], before["Description"]) == ("first", "one")
    deploy(running, "Secrets", secret(SecretString="first", Tags=[{"Key": "a", "Value": "b"}]))
    after = found()
    assert (after["ARN"], after.get("Description"), after["Tags"]) == (
        before["ARN"],
        None,
        [{"Key": "a", "Value": "b"}],
    )
    assert after["SecretVersionsToStages"] == before["SecretVersionsToStages"]
    key = running.client("kms").create_key()["KeyMetadata"]["Arn"]
    password = {"PasswordLength": 9, "ExcludeCharacters": "abc"}
    deploy(running, "Secrets", secret(GenerateSecretString=password))
    generated = found()["Value"]
    assert len(generated) == 9
    assert not {*generated} & {*"abc"}
    deploy(running, "Secrets", secret(GenerateSecretString=password, KmsKeyId=key))
    assert found()["Value"] == generated
    assert secrets.describe_secret(SecretId=found()["ARN"])["KmsKeyId"] == key
    deploy(running, "Secrets", secret(GenerateSecretString=password))
    assert "KmsKeyId" not in secrets.describe_secret(SecretId=found()["ARN"])
    deploy(running, "Secrets", secret(SecretString="last", Name="mine"))
    assert (found()["Name"], found()["Value"]) == ("mine", "last")
    destroy(running, "Secrets")
    assert [it for it in secrets.list_secrets()["SecretList"] if it["Name"] == "mine"] == []


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("kept", '{"user": "me"}'),
        ("kept:SecretString", '{"user": "me"}'),
        ("kept:SecretString:user", "me"),
        ("kept:SecretString:user:AWSCURRENT", "me"),
        ("kept:SecretString:user::", "me"),
        ("kept:SecretString::AWSCURRENT:", '{"user": "me"}'),
    ],
)
def test_a_dynamic_reference_has_the_value_of_a_secret(running: Running, reference: str, value: str) -> None:
    secrets = running.client("secretsmanager")
    if "kept" not in [it["Name"] for it in secrets.list_secrets()["SecretList"]]:
        secrets.create_secret(Name="kept", SecretString='{"user": "me"}')
    text = f"{{{{resolve:secretsmanager:{reference}}}}}"
    outputs = deploy(
        running,
        "Reading",
        {"It": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": text}}},
        Outputs={"Name": {"Value": {"Ref": "It"}}},
    )
    assert running.client("ssm").get_parameter(Name=outputs["Name"])["Parameter"]["Value"] == value
    destroy(running, "Reading")


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("nowhere", "can't find the specified secret"),
        ("kept:SecretString:nothing", "Could not find a value associated with JSONKey in SecretString: nothing"),
        ("plain:SecretString:user", "Could not parse SecretString JSON"),
    ],
)
def test_a_dynamic_reference_without_a_value_fails_the_stack(running: Running, reference: str, why: str) -> None:
    secrets = running.client("secretsmanager")
    for name, text in (("kept", '{"user": "me"}'), ("plain", "text")):
        if name not in [it["Name"] for it in secrets.list_secrets()["SecretList"]]:
            secrets.create_secret(Name=name, SecretString=text)
    text = f"{{{{resolve:secretsmanager:{reference}}}}}"
    with pytest.raises(WaiterError):
        deploy(
            running,
            "Failing",
            {"It": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": text}}},
        )
    assert why in reasons(running, "Failing")
    destroy(running, "Failing")
