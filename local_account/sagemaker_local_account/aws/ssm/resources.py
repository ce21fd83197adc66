"""SSM's parameters in CloudFormation, which are moto's."""

from __future__ import annotations

from sagemaker_local_account.aws.resource_types import ServiceResources, real

RESOURCES = ServiceResources(
    types={
        "AWS::SSM::Parameter": real(
            "stores a value", "AllowedPattern DataType Description Name Policies Tags Tier Type Value"
        ),
    },
)
