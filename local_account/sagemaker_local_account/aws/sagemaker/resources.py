"""SageMaker's resources in CloudFormation: groups of the model registry, which moto's CloudFormation lacks."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import override

from sagemaker_local_account.aws.resource_base import Properties, ResourceBase, replace_unless
from sagemaker_local_account.aws.resource_types import ServiceResources, real
from sagemaker_local_account.aws.sagemaker.model_registry import ModelRegistry

_registries: Mapping[str, ModelRegistry] = {}


def install(registries: Mapping[str, ModelRegistry]) -> None:
    """Creates groups in the account's registries.

    Args:
        registries: the model registry of each region.
    """
    global _registries
    _registries = registries


class ModelPackageGroup(ResourceBase):
    """AWS::SageMaker::ModelPackageGroup, whose Ref is its ARN (CloudFormation reference, "Return values")."""

    @override
    def create(self) -> None:
        created = _registries[self.region_name].create_group(self.properties)
        self.physical_resource_id = created["ModelPackageGroupArn"]

    @override
    def update(self, former: Properties) -> None:
        replace_unless(self.properties, former, {"Tags"})

    @override
    def delete(self, account_id: str, region_name: str) -> None:
        _registries[region_name].delete_group({"ModelPackageGroupName": self.properties["ModelPackageGroupName"]})

    @override
    def attributes(self) -> dict[str, str]:
        return {"ModelPackageGroupArn": self.physical_resource_id, "ModelPackageGroupStatus": "Completed"}


RESOURCES = ServiceResources(
    types={
        "AWS::SageMaker::ModelPackageGroup": real(
            "holds the versions of models that are registered in it; with versions it cannot be deleted",
            "ModelPackageGroupDescription ModelPackageGroupName Tags",
            made_by=ModelPackageGroup,
        ),
    },
)
