"""Environment variables that libfabric and aws-ofi-nccl need to use EFA, by their versions."""

from __future__ import annotations

import re
from typing import Annotated

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.core.tokens import is_unresolved
from cdk_sagemaker_training.core.unlisted import check_listed, unlisted_if
from cdk_sagemaker_training.facts.instance_facts import family, instance_facts
from cdk_sagemaker_training.props.prop import Prop
from cdk_sagemaker_training.props.prop_types import checked

# From these versions on the libraries detect the adapter and its fastest protocol: "EFA cheatsheet" of awsome-distributed-ai.
_LIBFABRIC = (1, 18)
_AWS_OFI_NCCL = (1, 7)
_WITH_RDMA = ("p4d", "p4de", "p5", "p5e", "p5en")


@checked
def efa_environment(
    instance_type: Annotated[str, Prop(example="'ml.p4d.24xlarge'")],
    *,
    libfabric: str = "1.18",
    aws_ofi_nccl: str = "1.7",
) -> dict[str, str]:
    """Return environment variables for a job on EFA, for ``environment=``.

    From libfabric 1.18 and aws-ofi-nccl 1.7 on, only huge pages are turned off, because data loaders that fork run out of them.
    Older versions also need the provider, the protocol and whether the adapter supports RDMA. Source: "EFA cheatsheet" of
    awsome-distributed-ai.

    Args:
        instance_type: The type of the machines.
        libfabric: Version of libfabric in the image.
        aws_ofi_nccl: Version of aws-ofi-nccl in the image.

    Returns:
        Values by the variables' names.

    Raises:
        ValueError: The type has no EFA, or is a token with such old libraries, or a version is malformed.
    """
    facts = instance_facts(instance_type)
    if facts is not None and facts.efa_interfaces == 0:
        check_listed("instance-facts", instance_type, False, "instance_type", "be one with EFA", "'ml.p4d.24xlarge'")
    versions = _version("libfabric", libfabric), _version("aws_ofi_nccl", aws_ofi_nccl)
    environment = {"FI_EFA_USE_HUGE_PAGE": unlisted_if("0", instance_type)}
    if versions[0] >= _LIBFABRIC and versions[1] >= _AWS_OFI_NCCL:
        return environment
    if is_unresolved(instance_type):
        rule = "be known at synthesis for libraries this old"
        raise must("instance_type", rule, "'ml.p4d.24xlarge'", "a token")
    rdma = "1" if family(instance_type) in _WITH_RDMA else "0"
    return {**environment, "FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": rdma, "NCCL_PROTO": "simple"}


def _version(prop: str, version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise must(prop, "be a version", "'1.18' or '1.22.0amzn1.0'", repr(version))
    return int(match[1]), int(match[2])
