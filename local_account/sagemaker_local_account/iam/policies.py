"""Evaluation of IAM policy documents: a pure function of documents and call.

    effect_of([{"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}}], call)

The rules are those of "IAM JSON policy elements" and "Policy evaluation logic" in IAM's user guide. Elements that are not
implemented raise `UnsupportedCondition`: unsupported conditions are treated as denied.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

Document = Mapping[str, Any]
Effect = Literal["Allow", "Deny"]
Values = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Call:
    """One action on one resource.

    Args:
        action: such as ``s3:GetObject``.
        resource: the ARN, such as ``arn:aws:s3:::bucket/key``; "*" for an action without a resource.
        context: the values of condition keys, by keys in lower case. A key of `KNOWN_KEYS` that is missing is not in
            the request context.
        unknown: whether the action has a resource, which is not known here.
    """

    action: str
    resource: str = "*"
    context: Values = field(default_factory=dict)
    unknown: bool = False


class UnsupportedCondition(Exception):
    """A policy uses a condition key, operator or variable that is not implemented; the message names it."""


# The condition keys that the account evaluates.
KNOWN_KEYS = frozenset(
    {
        "aws:currenttime",
        "aws:epochtime",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principaltype",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:securetransport",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceowner",
        "aws:tagkeys",
        "aws:viaawsservice",
        "cloudwatch:namespace",
        "ec2:subnet",
        "elasticfilesystem:accessedviamounttarget",
        "iam:passedtoservice",
        "kms:calleraccount",
        "kms:granteeprincipal",
        "kms:grantisforawsresource",
        "kms:viaservice",
        "s3:delimiter",
        "s3:prefix",
        "s3:resourceaccount",
        "s3:x-amz-server-side-encryption",
        "s3:x-amz-server-side-encryption-aws-kms-key-id",
        "sagemaker:instancetypes",
        "sagemaker:intercontainertrafficencryption",
        "sagemaker:maxruntimeinseconds",
        "sagemaker:networkisolation",
        "sagemaker:outputkmskey",
        "sagemaker:taggingaction",
        "sagemaker:volumekmskey",
        "sagemaker:vpcsecuritygroupids",
        "sagemaker:vpcsubnets",
        "sts:externalid",
    }
)
# Placeholders for `${*}`, `${?}` and `${$}`, which are literal characters, until the pattern is compiled.
LITERALS = {"*": "\1", "?": "\2", "$": "$"}
# Keys with the name of a tag. A call whose resource's tags are known has the second itself, without a name.
OF_RESOURCE_TAGS = "aws:resourcetag/"
KNOWN_PREFIXES = ("aws:requesttag/", OF_RESOURCE_TAGS)


def effect_of(
    documents: Iterable[Document], call: Call, principal: Callable[[Mapping[str, Any]], bool] | None = None
) -> Effect | None:
    """Evaluates documents together: an explicit Deny overrides every Allow.

    Args:
        documents: the policies.
        call: the action, resource and context.
        principal: for resource-based policies: whether a statement is about the caller, by its Principal or NotPrincipal.

    Returns:
        The effect; None where no statement matches the call.

    Raises:
        UnsupportedCondition: the effect depends on a condition that is not implemented.
    """
    effects: set[Effect] = set()
    unknown: dict[Effect, UnsupportedCondition] = {}
    for document in documents:
        for statement in statements(document):
            if principal is not None and not principal(statement):
                continue
            try:
                if applies(statement, call):
                    effects.add(statement["Effect"])
            except UnsupportedCondition as why:
                unknown[statement["Effect"]] = why
    if "Deny" in effects:
        return "Deny"
    # An Allow that cannot be evaluated changes nothing where another statement allows the call.
    for effect, error in unknown.items():
        if effect == "Deny" or "Allow" not in effects:
            raise error
    return "Allow" if effects else None


def statements(document: Document) -> list[Mapping[str, Any]]:
    """Returns a document's statements as a list."""
    return _listed(document.get("Statement", []))


def applies(statement: Mapping[str, Any], call: Call) -> bool:
    """Whether a statement matches a call by action, resource and conditions."""
    return _about_action(statement, call) and _about_resource(statement, call) and _conditions_hold(statement, call)


def matches_of(statement: Mapping[str, Any], call: Call) -> tuple[list[str], list[str]]:
    """Returns which of its actions and resources make a statement match a call; all of a NotAction or NotResource."""
    if "NotAction" in statement:
        actions = _listed(statement["NotAction"])
    else:
        actions = [it for it in _listed(statement.get("Action", [])) if _like(call.action.lower(), it.lower())]
    if "NotResource" in statement:
        return actions, _listed(statement["NotResource"])
    return actions, [it for it in _listed(statement.get("Resource", ["*"])) if _is_resource(call.resource, it, call)]


def mismatches(statement: Mapping[str, Any], call: Call) -> list[str] | None:
    """Returns why a statement about the call's action does not match it, empty where it does; None for one about others."""
    if not _about_action(statement, call):
        return None
    why = []
    try:
        if not _about_resource(statement, call):
            element = "NotResource" if "NotResource" in statement else "Resource"
            why.append(
                f"its {element} is {', '.join(_listed(statement.get(element, '*')))}, and that of the call {call.resource}"
            )
    except UnsupportedCondition as error:
        why.append(f"{error} is not known here")
    for operator, tests in statement.get("Condition", {}).items():
        for key, wanted in tests.items():
            try:
                holds = _conditions_hold({"Condition": {operator: {key: wanted}}}, call)
                given = ", ".join(call.context.get(key.lower(), ())) or "no value"
                said = f"{operator} of {key} wants {', '.join(map(_text, _listed(wanted)))}, and the call has {given}"
            except UnsupportedCondition as error:
                holds, said = False, f"{error} is not evaluated here"
            why += [] if holds else [said]
    return why


def _about_action(statement: Mapping[str, Any], call: Call) -> bool:
    if "NotAction" in statement:
        return not any(_like(call.action.lower(), text.lower()) for text in _listed(statement["NotAction"]))
    return any(_like(call.action.lower(), text.lower()) for text in _listed(statement.get("Action", [])))


def _about_resource(statement: Mapping[str, Any], call: Call) -> bool:
    if call.unknown and statement["Effect"] == "Deny":
        return _may_be_about(statement, call)
    if "NotResource" in statement:
        return not any(_is_resource(call.resource, text, call) for text in _listed(statement["NotResource"]))
    # A trust policy has no Resource element: its resource is the role.
    return any(_is_resource(call.resource, text, call) for text in _listed(statement.get("Resource", ["*"])))


def _may_be_about(statement: Mapping[str, Any], call: Call) -> bool:
    """Whether a Deny is about every resource; it is not known whether it is about one of the action's service.

    Raises:
        UnsupportedCondition: it names resources of that service.
    """
    names = _listed(statement.get("Resource", statement.get("NotResource", ["*"])))
    if "Resource" in statement and "*" in names:
        return True
    service = call.action.partition(":")[0]
    of_service = any(_like(f"arn:aws:{service}", ":".join(str(name).split(":")[:3])) for name in names)
    if of_service or "NotResource" in statement:
        raise UnsupportedCondition(f"the resource of {call.action}")
    return False


def _conditions_hold(statement: Mapping[str, Any], call: Call) -> bool:
    return all(
        _condition_holds(operator, key, [_filled(_text(value), call) for value in _listed(wanted)], call)
        for operator, tests in statement.get("Condition", {}).items()
        for key, wanted in tests.items()
    )


def _condition_holds(operator: str, key: str, wanted: Sequence[str], call: Call) -> bool:
    name = key.lower()
    if name not in KNOWN_KEYS and not name.startswith(KNOWN_PREFIXES):
        raise UnsupportedCondition(f"the condition key {key}")
    if name.startswith(OF_RESOURCE_TAGS) and OF_RESOURCE_TAGS not in call.context:
        raise UnsupportedCondition(f"the condition key {key} of {call.resource}")
    given = call.context.get(name, ())
    quantifier, _, simple = operator.rpartition(":")
    if simple == "Null":
        return any((value.lower() == "true") == (not given) for value in wanted)
    if_exists = simple.endswith("IfExists")
    simple = simple.removesuffix("IfExists")
    compare = OPERATORS.get(simple.replace("Not", "", 1) if simple in NEGATED else simple)
    if compare is None or quantifier not in ("", "ForAnyValue", "ForAllValues"):
        raise UnsupportedCondition(f"the condition operator {operator}")
    if not given:
        # "ForAnyValue [...] returns false if the key doesn't exist in the request" ("Multivalued context keys").
        return quantifier != "ForAnyValue" and (if_exists or simple in NEGATED or quantifier == "ForAllValues")
    try:
        matches = [any(compare(value, other) for other in wanted) for value in given]
    except ValueError as error:
        raise UnsupportedCondition(f"the condition {operator} of {key} and {', '.join(wanted)}: {error}") from None
    if simple in NEGATED:
        matches = [not match for match in matches]
        return any(matches) if quantifier == "ForAnyValue" else all(matches)
    return all(matches) if quantifier == "ForAllValues" else any(matches)


def _number(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda given, wanted: compare(float(given), float(wanted))


def _time(compare: Callable[[float, float], bool]) -> Callable[[str, str], bool]:
    return lambda given, wanted: compare(_seconds(given), _seconds(wanted))


def _seconds(text: str) -> float:
    if text.replace(".", "", 1).isdigit():
        return float(text)
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _is_resource(resource: str, pattern: str, call: Call) -> bool:
    """Whether a resource is one of a statement's, by the six parts of its ARN.

    "A wildcard cannot span segments", but the last may contain colons. "If you specify an incomplete ARN (one with fewer than the
    standard six fields) [...], AWS automatically completes the ARN by adding wildcard characters (*) to all missing fields" ("IAM
    JSON policy elements: Resource"). A variable can be used "only in the resource portion of the ARN [...] after the fifth colon"
    ("IAM policy elements: Variables and tags").
    """
    if pattern == "*" or resource == "*":
        return _like(resource, pattern)
    parts = pattern.split(":", 5)
    if "${" in ":".join(parts[:5]):
        return False
    parts[5:] = [_filled(part, call) for part in parts[5:]]
    return _like_parts(resource, [*parts, *["*"] * (6 - len(parts))])


def _like_arn(text: str, pattern: str) -> bool:
    """Whether ARNs are alike: "each of the six colon-delimited components of the ARN is checked separately" (ArnLike).

    Raises:
        ValueError: the pattern has fewer parts, of which no page says what it matches.
    """
    parts = pattern.split(":", 5)
    if len(parts) < 6:
        raise ValueError(f"{pattern!r} has not the six parts of an ARN")
    return _like_parts(text, parts)


def _like_parts(text: str, parts: Sequence[str]) -> bool:
    given = text.split(":", 5)
    return len(given) == 6 and all(map(_like, given, parts))


def _like(text: str, pattern: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


@lru_cache(4096)
def _pattern(text: str) -> re.Pattern[str]:
    """Only ``*`` and ``?`` are wildcards, and ``*`` also matches colons and slashes."""
    meanings = {"*": ".*", "?": ".", **{mark: re.escape(letter) for letter, mark in LITERALS.items()}}
    return re.compile("".join(meanings.get(letter) or re.escape(letter) for letter in text), re.DOTALL)


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": str.__eq__,
    "StringEqualsIgnoreCase": lambda given, wanted: given.lower() == wanted.lower(),
    "StringLike": _like,
    "ArnEquals": _like_arn,
    "ArnLike": _like_arn,
    "Bool": lambda given, wanted: given.lower() == wanted.lower(),
    "IpAddress": lambda given, wanted: ipaddress.ip_address(given) in ipaddress.ip_network(wanted, strict=False),
    "NumericEquals": _number(float.__eq__),
    "NumericLessThan": _number(float.__lt__),
    "NumericLessThanEquals": _number(float.__le__),
    "NumericGreaterThan": _number(float.__gt__),
    "NumericGreaterThanEquals": _number(float.__ge__),
    "DateEquals": _time(float.__eq__),
    "DateLessThan": _time(float.__lt__),
    "DateLessThanEquals": _time(float.__le__),
    "DateGreaterThan": _time(float.__gt__),
    "DateGreaterThanEquals": _time(float.__ge__),
}
NEGATED = frozenset(
    {
        "StringNotEquals",
        "StringNotEqualsIgnoreCase",
        "StringNotLike",
        "ArnNotEquals",
        "ArnNotLike",
        "NotIpAddress",
        "NumericNotEquals",
        "DateNotEquals",
    }
)


def _filled(text: str, call: Call) -> str:
    """Substitutes policy variables such as ``${aws:PrincipalAccount}``; a default may follow a comma."""

    def value(match: re.Match[str]) -> str:
        if match[1] in LITERALS:
            return LITERALS[match[1]]
        name, _, default = match[1].partition(",")
        if name.lower() not in KNOWN_KEYS:
            raise UnsupportedCondition(f"the policy variable ${{{name}}}")
        given = call.context.get(name.strip().lower(), ())
        # Without a value the text matches nothing.
        return given[0] if given else default.strip(" '") or "\0"

    return re.sub(r"\$\{([^}]*)\}", value, text) if "${" in text else text


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def principals(statement_principal: Any) -> Iterator[tuple[str, str]]:
    """Yields the kind and name of each principal of a Principal element: ("AWS", ARN, account or "*"), ("Service", name)."""
    if statement_principal == "*":
        yield "AWS", "*"
    elif isinstance(statement_principal, Mapping):
        for kind, names in statement_principal.items():
            yield from ((kind, str(name)) for name in _listed(names))
