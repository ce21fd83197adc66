"""Which operation of a REST service a request's method and path are, by botocore's model of the service."""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any

from botocore.exceptions import UnknownServiceError

from sagemaker_local_account.core.service_models import loader, service_model

_BEGIN = 100_000  # characters of a model, which have its metadata
# Signing names that differ from botocore's name of the service.
MODELS = {
    "cloudcontrolapi": "cloudcontrol",
    "elasticfilesystem": "efs",
    "monitoring": "cloudwatch",
    "states": "stepfunctions",
    "tagging": "resourcegroupstaggingapi",
}


def is_target(service: str, prefix: str) -> bool:
    """Whether X-Amz-Target begins so in requests that are signed for a service.

    Args:
        service: the signing name of the service.
        prefix: such as "SageMaker".
    """
    if service == "local-account":  # the account's own, which is no service of AWS
        return prefix == "LocalAccount"
    try:
        known = service_model(MODELS.get(service, service)).metadata.get("targetPrefix")
    except UnknownServiceError:
        known = None
    # Some services share a signing name, or have another than botocore's name: all models are read for these, once.
    return prefix == known or prefix in _targets().get(service, ())


@functools.cache
def _targets() -> dict[str, set[str]]:
    """How X-Amz-Target begins in the requests of all services, by their signing names."""
    found: dict[str, set[str]] = {}
    for name in loader().list_available_services("service-2"):
        metadata = metadata_of(name)
        if "targetPrefix" in metadata:
            signing = metadata.get("signingName") or metadata["endpointPrefix"]
            found.setdefault(signing, set()).add(metadata["targetPrefix"])
    return found


def metadata_of(name: str) -> dict[str, Any]:
    """Returns the metadata of a service's model, which are read without the rest: all models whole take eight seconds.

    Args:
        name: botocore's name of the service.
    """
    model = Path(name, loader().determine_latest_version(name, "service-2"), "service-2.json")
    for folder in map(Path, loader().search_paths):
        for file, opener in ((folder / f"{model}.gz", gzip.open), (folder / model, open)):
            if file.is_file():
                with opener(file, "rt", encoding="utf-8") as text:
                    begin = text.read(_BEGIN)
                found: dict[str, Any]
                found, _ = json.JSONDecoder().raw_decode(begin, begin.index("{", begin.index('"metadata"')))
                return found
    raise UnknownServiceError(service_name=name, known_service_names="")


def rest_operation(service: str, method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """Returns an operation's name and the members in its path; None where no operation of the service matches.

    Args:
        service: the signing name of the service.
        method: the HTTP method.
        path: the path without the query, decoded.
    """
    for verb, pattern, name in _operations(service):
        if verb == method and (found := pattern.fullmatch(path)):
            return name, found.groupdict()
    return None


@functools.cache
def query_members(service: str, operation: str) -> dict[str, str]:
    """Returns the members of an operation that are in the query of its request, by their names there."""
    shape = service_model(MODELS.get(service, service)).operation_model(operation).input_shape
    in_query = (
        []
        if shape is None
        else [
            (member.serialization.get("name", name), name)
            for name, member in shape.members.items()
            if member.serialization.get("location") == "querystring"
        ]
    )
    return dict(in_query)


@functools.cache
def _operations(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    """The operations of a REST service with method and path pattern; none for an unknown service, or one of another protocol."""
    try:
        model = service_model(MODELS.get(service, service))
    except UnknownServiceError:
        return []
    found = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = http["requestUri"].partition("?")[0]
        pattern = re.sub(r"\\{(\w+)(\\\+)?\\}", _label, re.escape(path))
        found.append((http["method"], re.compile(pattern), name))
    # The longest first: literal path segments take precedence over labels.
    return sorted(found, key=lambda one: -len(one[1].pattern))


def _label(label: re.Match[str]) -> str:
    return f"(?P<{label[1]}>{'.+' if label[2] else '[^/]+'})"
