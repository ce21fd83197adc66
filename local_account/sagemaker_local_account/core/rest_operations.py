"""Which operation of a REST service a request's method and path are, by botocore's model of the service."""

from __future__ import annotations

import functools
import re

from botocore.exceptions import UnknownServiceError

from sagemaker_local_account.core.service_models import service_model

# Signing names that differ from botocore's name of the service.
MODELS = {
    "elasticfilesystem": "efs",
    "monitoring": "cloudwatch",
    "states": "stepfunctions",
    "tagging": "resourcegroupstaggingapi",
}


def target_prefix(service: str) -> str | None:
    """Returns how X-Amz-Target begins in a service's requests; None for a service whose protocol has no such header.

    Args:
        service: the signing name of the service.
    """
    if service == "local-account":  # the account's own, which is no service of AWS
        return "LocalAccount"
    try:
        model = service_model(MODELS.get(service, service))
    except UnknownServiceError:
        return None
    return model.metadata.get("targetPrefix")


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
