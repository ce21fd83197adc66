"""Maps an HTTP request to the IAM actions, resources and condition keys that it is authorized by.

moto evaluates every resource as "*", except S3's. Here each call that the stacks of this library, the CDK CLI and training
scripts make has its own resource and condition keys, which its service has (`service_authorization.py`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sagemaker_local_account.core.location import Location
from sagemaker_local_account.core.operations import members_of, operation_of
from sagemaker_local_account.iam.policies import Call
from sagemaker_local_account.iam.service_authorization import UNKNOWN, Members, ServiceAuthorization

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

_TAGGED = re.compile(r"(?:TagSpecification\.\d+\.)?Tags?\.(?:member\.)?\d+\.Key")
_NAMED = re.compile(r"\{([\w|]+)\.?(\w*)\}")
FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "after_function": lambda text: text.rpartition("function:")[2],
    "after_group": lambda text: text.rpartition(":log-group:")[2].removesuffix(":*"),
    "after_slash": lambda text: text.rpartition("/")[2],
    "before_colon": lambda text: text.partition(":")[0],
    "lower": str.lower,
    "parameter": lambda text: text.rpartition(":parameter")[2].removeprefix("/").partition(":")[0],
}


def calls_of(
    environ: WSGIEnvironment, service: str, location: Location, services: Mapping[str, ServiceAuthorization]
) -> list[Call]:
    """Returns the IAM calls of a request, all of which must be allowed.

    Args:
        environ: the WSGI request; its body is read and put back.
        service: the signing name of the service.
        location: the account and region that the request is addressed to.
        services: what the requests of each service are authorized by, by signing names.
    """
    of = services.get(service, UNKNOWN)
    if of.calls is not None:
        return of.calls(environ)
    operation = operation_of(environ, service)
    name, members = of.actions.get(operation, operation), of.members(members_of(environ, service, operation))
    action = f"{of.prefix or service}:{name}"
    context = {**_request_tags(members), **_given(of.context(name, members))}
    template, found = of.resources.get(name, ""), of.resources_of(name, members, location)
    known = found is not None or name in of.without_resource or (template and _is_filled(template, members))
    resources = found or (_filled(of.prefix, template, members, location) if template else ["*"])
    calls = [Call(action, resource, context, unknown=not known) for resource in resources]
    calls = [*([] if name in of.by_parts else calls), *of.further(calls[0], members, location)]
    if name in of.passed_roles:
        member, to = of.passed_roles[name]
        holders = [members, *(one for one in members.get("Targets") or [] if isinstance(one, dict))]
        roles = [str(holder[member]) for holder in holders if holder.get(member)]
        calls += [Call("iam:PassRole", role, {"iam:passedtoservice": (to,)}) for role in dict.fromkeys(roles)]
    return calls


def _filled(service: str, template: str, members: Members, location: Location) -> list[str]:
    """A template's ARNs: one, or one for each value of a member that is a list."""
    values = [[FORMS[form](text) for text in _values(members, names)] for names, form in _NAMED.findall(template)]
    between = re.split(r"\{[^}]*\}", template)
    region = "" if service == "iam" else location.region
    arns = []
    for chosen in itertools.product(*values):
        given = next((text for text in chosen if text.startswith("arn:")), None)
        name = between[0] + "".join(text + after for text, after in zip(chosen, between[1:], strict=True))
        arns.append(given or f"arn:aws:{service}:{region}:{location.account}:{name}")
    return arns


def _is_filled(template: str, members: Members) -> bool:
    return all(any(members.get(name) for name in names.split("|")) for names, _ in _NAMED.findall(template))


def _values(members: Members, names: str) -> list[str]:
    """The values of all members of these names, since it is the service that chooses between them."""
    given = [members[name] for name in names.split("|") if members.get(name)] or ["*"]
    return [str(item) for value in given for item in (value if isinstance(value, list) else [value])]


def _request_tags(members: Members) -> dict[str, tuple[str, ...]]:
    """aws:RequestTag/KEY and aws:TagKeys of the tags in a request: a list of keys and values, a map, or fields of Query."""
    given = next((members[name] for name in ("Tags", "tags", "TagList") if members.get(name)), None)
    tags: dict[str, str] = {}
    if isinstance(given, Mapping):
        tags = {str(key): str(value) for key, value in given.items()}
    elif isinstance(given, list):
        for tag in (one for one in given if isinstance(one, Mapping)):
            key = next((tag[name] for name in ("Key", "key", "TagKey") if name in tag), "")
            tags[str(key)] = str(next((tag[name] for name in ("Value", "value", "TagValue") if name in tag), ""))
    for name in filter(_TAGGED.fullmatch, members):
        tags[str(members[name])] = str(members.get(f"{name.removesuffix('Key')}Value", ""))
    keys = {"aws:tagkeys": tuple(tags)} if tags else {}
    return {**keys, **{f"aws:requesttag/{key}".lower(): (value,) for key, value in tags.items()}}


def _given(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The values that are set, as text."""
    found = {}
    for key, value in values.items():
        items: Iterable[Any] = value if isinstance(value, list) else [value]
        texts = tuple(str(item).lower() if isinstance(item, bool) else str(item) for item in items if item is not None)
        if texts:
            found[key] = texts
    return found
