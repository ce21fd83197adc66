"""SageMaker's model registry: model package groups and the versions in them, kept by moto's backend.

moto takes every request, ignores ClientToken, and deletes nothing; here requests are validated, and what moto would drop without
a word is rejected by name.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from typing import Any

from moto.core.exceptions import JsonRESTError, ServiceException
from moto.sagemaker.models import sagemaker_backends
from moto.utilities.utils import get_partition

from sagemaker_local_account.core.service_errors import ServiceError, check, refused

# Members of CreateModelPackage that moto's backend has no place for.
_LEFT_OUT = (
    "ModelCard",
    "ModelLifeCycle",
    "ManagedStorageType",
    "ModelPackageRegistrationType",
    "SecurityConfig",
    "SourceUri",
)
# What a summary of ListModelPackages has (API, ModelPackageSummary).
_OF_SUMMARY = (
    *("ModelPackageName", "ModelPackageGroupName", "ModelPackageVersion", "ModelPackageArn", "ModelPackageDescription"),
    *("CreationTime", "ModelPackageStatus", "ModelApprovalStatus"),
)
_OF_GROUP_SUMMARY = (
    *("ModelPackageGroupName", "ModelPackageGroupArn", "ModelPackageGroupDescription", "CreationTime"),
    "ModelPackageGroupStatus",
)


class ModelRegistry:
    """The model registry of one region.

    Args:
        account_id: the account.
        region: the region.
    """

    def __init__(self, account_id: str, region: str) -> None:
        self._backend: Any = sagemaker_backends[account_id][region]
        self._partition = get_partition(region)
        self._tokens: dict[str, str] = {}
        self._lock = threading.Lock()

    def operations(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        """Returns the functions of a request's members by the names of their operations."""
        return {
            "CreateModelPackage": self.create_package,
            "CreateModelPackageGroup": self.create_group,
            "DeleteModelPackage": self.delete_package,
            "DeleteModelPackageGroup": self.delete_group,
            "DescribeModelPackage": self.describe_package,
            "DescribeModelPackageGroup": self.describe_group,
            "ListModelPackageGroups": self.list_groups,
            "ListModelPackages": self.list_packages,
            "UpdateModelPackage": self.update_package,
        }

    def create_group(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateModelPackageGroup."""
        check("CreateModelPackageGroup", request)
        name = request["ModelPackageGroupName"]
        with self._lock:
            if name in self._backend.model_package_groups:
                raise refused(f"Model Package Group already exists: {name}")
            arn = self._backend.create_model_package_group(
                name, request.get("ModelPackageGroupDescription"), request.get("Tags")
            )
        return {"ModelPackageGroupArn": arn}

    def describe_group(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeModelPackageGroup."""
        check("DescribeModelPackageGroup", request)
        described: dict[str, Any] = self._group(request["ModelPackageGroupName"]).gen_response_object()
        described.pop("Tags", None)
        return _present(described)

    def list_groups(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListModelPackageGroups, in one page."""
        check("ListModelPackageGroups", request)
        part = request.get("NameContains", "")
        groups = [group for name, group in self._backend.model_package_groups.items() if part in name]
        return {"ModelPackageGroupSummaryList": [_only(one.gen_response_object(), _OF_GROUP_SUMMARY) for one in groups]}

    def delete_group(self, request: dict[str, Any]) -> None:
        """DeleteModelPackageGroup; of a group with versions it is a ConflictException (API, the operation's errors)."""
        check("DeleteModelPackageGroup", request)
        group = self._group(request["ModelPackageGroupName"])
        name = group.model_package_group_name
        with self._lock:
            if any(one.model_package_group_name == name for one in self._backend.model_packages.values()):
                raise ServiceError("ConflictException", f"Model Package Group has model packages: {name}")
            del self._backend.model_package_groups[name]

    def create_package(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateModelPackage; a repeated ClientToken gets the version that it made."""
        check("CreateModelPackage", request)
        left_out = [name for name in _LEFT_OUT if request.get(name) is not None]
        if left_out:
            raise refused(f"the local account does not support {', '.join(left_out)} of CreateModelPackage")
        token = request.get("ClientToken")
        group = _name(request.get("ModelPackageGroupName"))
        with self._lock:
            if token is not None and token in self._tokens:
                return {"ModelPackageArn": self._tokens[token]}
            arn = self._called(
                self._backend.create_model_package,
                model_package_name=request.get("ModelPackageName"),
                model_package_group_name=group,
                model_package_description=request.get("ModelPackageDescription"),
                inference_specification=request.get("InferenceSpecification"),
                validation_specification=request.get("ValidationSpecification"),
                source_algorithm_specification=request.get("SourceAlgorithmSpecification"),
                certify_for_marketplace=request.get("CertifyForMarketplace", False),
                tags=request.get("Tags"),
                # "PendingManualApproval" is the default of a version (SageMaker guide, "Update the Approval Status of a Model").
                model_approval_status=request.get("ModelApprovalStatus", "PendingManualApproval" if group else None),
                metadata_properties=request.get("MetadataProperties"),
                model_metrics=request.get("ModelMetrics"),
                client_token=token,
                customer_metadata_properties=request.get("CustomerMetadataProperties"),
                drift_check_baselines=request.get("DriftCheckBaselines"),
                domain=request.get("Domain"),
                task=request.get("Task"),
                sample_payload_url=request.get("SamplePayloadUrl"),
                additional_inference_specifications=request.get("AdditionalInferenceSpecifications"),
            )
            if token is not None:
                self._tokens[token] = arn
        return {"ModelPackageArn": arn}

    def describe_package(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeModelPackage."""
        check("DescribeModelPackage", request)
        package = self._called(self._backend.describe_model_package, request["ModelPackageName"])
        return _present(package.gen_response_object())

    def list_packages(self, request: dict[str, Any]) -> dict[str, Any]:
        """ListModelPackages, in one page."""
        check("ListModelPackages", request)
        group, status = _name(request.get("ModelPackageGroupName")), request.get("ModelApprovalStatus")
        kind = "Versioned" if group else request.get("ModelPackageType", "Unversioned")
        packages = [
            one
            for one in self._backend.model_packages.values()
            if group in (None, one.model_package_group_name)
            and status in (None, one.model_approval_status)
            and kind in ("Both", one.model_package_type)
        ]
        packages.sort(key=lambda one: one.creation_time, reverse=request.get("SortOrder") == "Descending")
        return {"ModelPackageSummaryList": [_only(one.gen_response_object(), _OF_SUMMARY) for one in packages]}

    def update_package(self, request: dict[str, Any]) -> dict[str, Any]:
        """UpdateModelPackage: the approval's status and description, and the customer's metadata."""
        check("UpdateModelPackage", request)
        taken = {"ModelPackageArn", "ModelApprovalStatus", "ApprovalDescription", "CustomerMetadataProperties"}
        left_out = sorted(set(request) - taken)
        if left_out:
            raise refused(f"the local account does not support {', '.join(left_out)} of UpdateModelPackage")
        package = self._called(self._backend.describe_model_package, request["ModelPackageArn"])
        package.customer_metadata_properties = {
            **(package.customer_metadata_properties or {}),
            **request.get("CustomerMetadataProperties", {}),
        }
        package.set_model_approval_status(request.get("ModelApprovalStatus", package.model_approval_status))
        package.approval_description = request.get("ApprovalDescription", package.approval_description)
        package.modifications_done()
        return {"ModelPackageArn": package.arn}

    def delete_package(self, request: dict[str, Any]) -> None:
        """DeleteModelPackage; of a group its newest version only, since moto numbers the next one by their count."""
        check("DeleteModelPackage", request)
        package = self._called(self._backend.describe_model_package, request["ModelPackageName"])
        group = package.model_package_group_name
        with self._lock:
            versions = [
                one for one in self._backend.model_packages.values() if group and one.model_package_group_name == group
            ]
            if versions and package.model_package_version != len(versions):
                raise refused("the local account deletes the versions of a group from the newest on")
            self._backend.model_packages.pop(package.arn, None)
            mapping = self._backend.model_package_name_mapping
            for name in [name for name, arn in mapping.items() if arn == package.arn]:
                del mapping[name]

    def _group(self, name_or_arn: str) -> Any:
        name = _name(name_or_arn)
        if name not in self._backend.model_package_groups:
            raise refused(f"ModelPackageGroup {name_or_arn} does not exist.")
        return self._backend.model_package_groups[name]

    @staticmethod
    def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (JsonRESTError, ServiceException) as error:
            raise refused(str(getattr(error, "message", error))) from None


def _name(name_or_arn: str | None) -> str | None:
    return None if name_or_arn is None else name_or_arn.rpartition("/")[2]


def _only(described: dict[str, Any], members: tuple[str, ...]) -> dict[str, Any]:
    return _present({name: described.get(name) for name in members})


def _present(described: dict[str, Any]) -> dict[str, Any]:
    """What is set, with moto's times, which have no zone, in UTC."""
    return {
        name: value.replace(tzinfo=datetime.UTC) if isinstance(value, datetime.datetime) else value
        for name, value in described.items()
        if value is not None
    }
