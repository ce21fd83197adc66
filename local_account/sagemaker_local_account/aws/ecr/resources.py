"""CloudFormation's ECR repositories.

moto generates repository names with capitals, which ECR rejects, reads the properties for scanning and encryption by the names of
the API, drops EmptyOnDelete and the policies, and replaces a repository with KMS encryption, with its images, at every update.
"""

from __future__ import annotations

import json
from typing import Any

from moto.cloudformation.exceptions import ValidationError
from moto.ecr.models import Repository, RepositoryUpdateProperty, ecr_backends

from sagemaker_local_account.aws.resource_base import Properties
from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.core.patches import CREATE, UPDATE, patch

_moto_create = Repository.create_from_cloudformation_json


def install() -> None:
    """Patches moto's repositories."""
    patch(Repository, "create_from_cloudformation_json", _create, CREATE)
    patch(Repository, "update_from_cloudformation_json", _update, UPDATE)


def _delete(repository: Repository, account_id: str, region_name: str) -> None:
    empty_on_delete = str(getattr(repository, "empty_on_delete", "false")).lower() == "true"
    ecr_backends[account_id][region_name].delete_repository(repository.name, force=empty_on_delete)


def _create(
    cls: Any, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> Repository:
    properties = cloudformation_json["Properties"]
    name = properties.get("RepositoryName", resource_name.lower())
    converted = {**properties, **_encryption(properties), **_scanning(properties)}
    made: Repository = _moto_create(name, {"Properties": converted}, account_id, region_name)
    made.encryption_properties = properties.get("EncryptionConfiguration")
    try:
        _settle(made, properties, account_id, region_name)
    except BaseException:
        ecr_backends[account_id][region_name].delete_repository(made.name)
        raise
    return made


def _update(
    cls: Any, original_resource: Repository, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
) -> Repository:
    properties = cloudformation_json["Properties"]
    repository = original_resource
    if (
        properties.get("RepositoryName", repository.name) != repository.name
        or properties.get("EncryptionConfiguration") != repository.encryption_properties
    ):
        raise NotImplementedError  # it is replaced
    repository.update(
        RepositoryUpdateProperty.IMAGE_SCANNING_CONFIGURATION,
        image_scanning_configuration=_scanning(properties).get("ImageScanningConfiguration", {"scanOnPush": False}),
    )
    repository.update(
        RepositoryUpdateProperty.IMAGE_TAG_MUTABILITY,
        image_tag_mutability=properties.get("ImageTagMutability"),
        image_tag_mutability_exclusion_filters=cls._convert_cfn_mutability_exclusion_filters(
            properties.get("ImageTagMutabilityExclusionFilters")
        ),
    )
    ecr_backends[account_id][region_name].tagger.tag_resource(repository.arn, properties.get("Tags", []))
    _settle(repository, properties, account_id, region_name)
    return repository


def _settle(repository: Repository, properties: Properties, account_id: str, region_name: str) -> None:
    ecr = ecr_backends[account_id][region_name]
    repository.empty_on_delete = properties.get("EmptyOnDelete", False)
    lifecycle = properties.get("LifecyclePolicy", {})
    if "LifecyclePolicyText" in lifecycle:
        ecr.put_lifecycle_policy(None, repository.name, lifecycle["LifecyclePolicyText"])
    else:
        repository.lifecycle_policy = None
    policy = properties.get("RepositoryPolicyText")
    if policy:
        text = policy if isinstance(policy, str) else json.dumps(policy)
        ecr.set_repository_policy(None, repository.name, text)
    else:
        repository.policy = None


def _encryption(properties: Properties) -> Properties:
    settings = properties.get("EncryptionConfiguration")
    if not settings:
        return {}
    kind = settings["EncryptionType"]
    if kind not in ("AES256", "KMS"):
        raise ValidationError(message=f"EncryptionType must be AES256 or KMS in the local account, got {kind!r}")
    key = {"kmsKey": settings["KmsKey"]} if "KmsKey" in settings else {}
    return {"EncryptionConfiguration": {"encryptionType": kind, **key}}


def _scanning(properties: Properties) -> Properties:
    settings = properties.get("ImageScanningConfiguration")
    on_push = str((settings or {}).get("ScanOnPush", False)).lower() == "true"
    return {"ImageScanningConfiguration": {"scanOnPush": on_push}} if settings else {}


RESOURCES = ServiceResources(
    types={
        "AWS::ECR::Repository": real(
            "jobs run its images; images are not scanned, and the lifecycle policy is stored and not applied",
            "EmptyOnDelete EncryptionConfiguration ImageScanningConfiguration ImageTagMutability "
            "ImageTagMutabilityExclusionFilters LifecyclePolicy RepositoryName RepositoryPolicyText Tags",
        ),
    },
    delete={Repository: _delete},
    install=install,
)
