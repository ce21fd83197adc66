"""What the account's KMS does with keys of a stack."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from cdk_stacks import deploy, destroy, ids
from running_account import Running

ROOT = {"AWS": "arn:aws:iam::123456789012:root"}


def stack(**properties: Any) -> dict[str, Any]:
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": ROOT, "Action": "kms:*", "Resource": "*"}],
    }
    return {
        "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": policy, "EnableKeyRotation": True, **properties}},
        "Alias": {
            "Type": "AWS::KMS::Alias",
            "Properties": {"AliasName": "alias/mine", "TargetKeyId": {"Fn::GetAtt": ["Key", "Arn"]}},
        },
    }


def test_a_key_of_a_stack_encrypts_until_it_is_deleted(running: Running) -> None:
    kms = running.client("kms")
    deploy(running, "key", stack(Description="first", Tags=[{"Key": "a", "Value": "b"}]))
    key = ids(running, "key")["Key"]
    assert kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"]
    assert kms.list_resource_tags(KeyId=key)["Tags"] == [{"TagKey": "a", "TagValue": "b"}]
    secret = kms.encrypt(KeyId="alias/mine", Plaintext=b"plain")["CiphertextBlob"]
    assert kms.decrypt(CiphertextBlob=secret)["Plaintext"] == b"plain"
    deploy(running, "key", stack(Description="second", EnableKeyRotation=False))
    assert ids(running, "key")["Key"] == key
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["Description"] == "second"
    assert not kms.get_key_rotation_status(KeyId=key)["KeyRotationEnabled"]
    destroy(running, "key")
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "PendingDeletion"
    assert kms.list_aliases(KeyId=key)["Aliases"] == []
    with pytest.raises(ClientError, match="pending deletion"):
        kms.decrypt(CiphertextBlob=secret)


def test_a_disabled_key_does_not_encrypt(running: Running) -> None:
    deploy(running, "disabled", {"Key": stack(Enabled=False)["Key"]})
    with pytest.raises(ClientError, match="DisabledException"):
        running.client("kms").encrypt(KeyId=ids(running, "disabled")["Key"], Plaintext=b"plain")


def test_a_grant_is_listed_until_it_is_revoked(running: Running) -> None:
    kms = running.client("kms")
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    role = running.role("Grantee", "sagemaker.amazonaws.com")
    grant = kms.create_grant(KeyId=key, GranteePrincipal=role, Operations=["Decrypt"])["GrantId"]
    assert [found["GrantId"] for found in kms.list_grants(KeyId=key)["Grants"]] == [grant]
    kms.revoke_grant(KeyId=key, GrantId=grant)
    assert kms.list_grants(KeyId=key)["Grants"] == []


def test_data_keys_are_decrypted_with_the_key_they_are_of(running: Running) -> None:
    kms = running.client("kms")
    key = kms.create_key()["KeyMetadata"]["Arn"]
    data_key = kms.generate_data_key(KeyId=key, KeySpec="AES_256")
    decrypted = kms.decrypt(CiphertextBlob=data_key["CiphertextBlob"])
    assert (decrypted["Plaintext"], decrypted["KeyId"]) == (data_key["Plaintext"], key)
