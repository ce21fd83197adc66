"""Secrets Manager's secrets and their policies in CloudFormation, which moto lacks."""

from __future__ import annotations

import json
import secrets
import string
import uuid
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.secretsmanager.models import secretsmanager_backends
from moto.secretsmanager.utils import random_password
from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, is_true, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.aws.secretsmanager import versions

_EXCLUDED = ("Numbers", "Punctuation", "Uppercase", "Lowercase")


class _OfSecrets(ResourceBase):
    @property
    def _backend(self) -> Any:
        """The backend of moto."""
        return secretsmanager_backends[self.account_id][self.region_name]


class Secret(_OfSecrets):
    """AWS::SecretsManager::Secret; its physical id is its ARN."""

    @override
    def attributes(self) -> dict[str, str]:
        return {"Id": self.physical_resource_id}

    @classmethod
    @override
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **details: Any
    ) -> Secret:
        """Creates a secret with a name as CloudFormation makes it, which the CDK takes from the ARN (`secret_name`)."""
        letters = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(12))
        given = cloudformation_json["Properties"]
        made = cls(f"{details['LogicalId']}-{letters}", given, account_id, region_name)
        made.create()
        return made

    @override
    def create(self) -> None:
        name = self.properties.get("Name", self.physical_resource_id)
        if name in self._backend.secrets:
            raise ValidationError(message=f"The operation failed because the secret {name} already exists.")
        self._write(name, self._value())

    @override
    def update(self, former: Properties) -> None:
        replace_unless(
            self.properties, former, {"Description", "GenerateSecretString", "KmsKeyId", "SecretString", "Tags"}
        )
        of_value = ("GenerateSecretString", "SecretString")
        changed = any(self.properties.get(name) != former.get(name) for name in of_value)
        self._write(self._backend.secrets[self.physical_resource_id].name, self._value() if changed else None)

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_secret(self.physical_resource_id, None, True)

    def _write(self, name: str, value: str | None) -> None:
        given = self.properties
        secret, _ = self._backend._add_secret(
            name, secret_string=value, description=given.get("Description", ""), tags=given.get("Tags", []),
            kms_key_id=given.get("KmsKeyId"), version_id=str(uuid.uuid4()),
        )  # fmt: skip
        secret.kms_key_id = given.get("KmsKeyId")  # which moto keeps where it is left out
        self.physical_resource_id = secret.arn

    def _value(self) -> str | None:
        """The text that the template has, or one that is generated; None without either."""
        given = self.properties
        generated: dict[str, Any] | None = given.get("GenerateSecretString")
        if generated is None:
            return given.get("SecretString")
        if "SecretString" in given:
            raise ValidationError(message="You can't specify both GenerateSecretString and SecretString.")
        excluded = (is_true(generated.get(f"Exclude{kind}", False)) for kind in _EXCLUDED)
        characters = generated.get("ExcludeCharacters", "")
        spaces = is_true(generated.get("IncludeSpace", False))
        each = is_true(generated.get("RequireEachIncludedType", True))
        password = random_password(int(generated.get("PasswordLength", 32)), characters, *excluded, spaces, each)
        key, template = generated.get("GenerateStringKey"), generated.get("SecretStringTemplate")
        if (key is None) != (template is None):
            raise ValidationError(message="You must specify GenerateStringKey and SecretStringTemplate together.")
        if template is None:
            return password
        return json.dumps({**json.loads(template), key: password}, separators=(",", ":"))


class Policy(_OfSecrets):
    """AWS::SecretsManager::ResourcePolicy; its physical id is its secret's ARN."""

    @override
    def create(self) -> None:
        secret = self.properties["SecretId"]
        self._backend.put_resource_policy(secret, json.dumps(self.properties["ResourcePolicy"]))
        self.physical_resource_id = self._backend.secrets[secret].arn

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"BlockPublicPolicy", "ResourcePolicy"})
        self.create()

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        self._backend.delete_resource_policy(self.properties["SecretId"])


RESOURCES = ServiceResources(
    types={
        "AWS::SecretsManager::ResourcePolicy": real(
            "evaluated", "BlockPublicPolicy ResourcePolicy SecretId", made_by=Policy
        ),
        "AWS::SecretsManager::Secret": real(
            "stores a text, or generates one; also what `{{resolve:secretsmanager:...}}` of a template has",
            "Description GenerateSecretString KmsKeyId Name SecretString Tags",
            made_by=Secret,
        ),
    },
    install=versions.install,
)
