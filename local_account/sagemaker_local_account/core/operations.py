"""The operation of a request and its members in AWS's protocols, as the log, faults, rates and authorization read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from sagemaker_local_account.core import s3_requests
from sagemaker_local_account.core.request_body import content_of
from sagemaker_local_account.core.rest_operations import query_members, rest_operation

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


def operation_of(environ: WSGIEnvironment, service: str) -> str:
    """Returns the operation of a request, or method and path where its protocol and service do not give one.

    Args:
        environ: the WSGI request; its body, of a form, is read and put back.
        service: the signing name of the service.
    """
    if target := environ.get("HTTP_X_AMZ_TARGET", ""):
        return target.rpartition(".")[2]
    if found := re.fullmatch(r"/service/\w+/operation/(\w+)", environ.get("PATH_INFO", "")):  # Smithy's RPC protocols
        return found[1]
    if service == "s3":
        return s3_requests.operation_of(environ)
    fields = _query(environ)
    if "Action" not in fields and environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        fields = _fields(content_of(environ))
    if "Action" in fields:
        return fields["Action"]
    path = unquote(urlsplit(environ["REQUEST_URI"]).path)
    found_in_model = rest_operation(service, environ["REQUEST_METHOD"], path)
    return found_in_model[0] if found_in_model else f"{environ['REQUEST_METHOD']}:{path}"


def members_of(environ: WSGIEnvironment, service: str, operation: str) -> dict[str, Any]:
    """Returns the members of a request in JSON, Query or REST JSON; of Query those of its first level, by their names there."""
    body = content_of(environ)
    if environ.get("HTTP_X_AMZ_TARGET"):
        return _json(body)
    query = _query(environ)
    fields = _fields(body) | query
    if "Action" in fields:
        return fields
    found = rest_operation(service, environ["REQUEST_METHOD"], unquote(urlsplit(environ["REQUEST_URI"]).path))
    if found is None:
        return {}
    # A member that the model has in the query is not read from the body.
    in_query = {name: query.get(written) for written, name in query_members(service, operation).items()}
    return {**_json(body), **in_query, **found[1]}


def _query(environ: WSGIEnvironment) -> dict[str, str]:
    return _first(parse_qs(environ.get("QUERY_STRING", "")))


def _fields(body: bytes) -> dict[str, str]:
    return _first(parse_qs(body.decode("utf-8", "replace")))


def _first(values: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: found[0] for name, found in values.items()}


def _json(body: bytes) -> dict[str, Any]:
    """A body that is an object in JSON; empty for any other, which the service rejects, and for the payload of a function."""
    try:
        members = json.loads(body or b"{}")
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}
