"""Finds the ECR repository in an image URI, also where parts of the URI are CDK tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.core.tokens import is_unresolved

# The suffixes of ECR's addresses: of each partition, and of its dual-stack endpoints ("Amazon ECR endpoints and quotas"; the
# partitions' as CDK's region-info has them).
_SUFFIX = (
    r"amazonaws\.com(?:\.cn)?|amazonaws\.eu|on\.aws|c2s\.ic\.gov|sc2s\.sgov\.gov|cloud\.adc-e\.uk|csp\.hci\.ic\.gov"
)
IN_ECR = re.compile(
    rf"(?P<registry>(?P<account>\d{{12}})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:{_SUFFIX}))"
    r"/(?P<repository>[^:@]+)"
)

_TOKEN = re.compile(r"\$\{Token\[[^\]]*\]\}")
_MARK = r"<\d+>"  # replaces a token in the text below; an image URI contains neither character
_URI = re.compile(
    rf"(?P<account>\d{{12}}|{_MARK})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+|{_MARK})\.(?:{_SUFFIX}|{_MARK})"
    r"/(?P<repository>[^:@]+)(?P<version>[:@].+)?"
)
_URI_AFTER_TOKEN = re.compile(rf"{_MARK}/(?P<repository>[^:@]+)(?P<version>[:@].+)?")
_PSEUDO_PARAMETERS = {
    "AWS::AccountId": Aws.ACCOUNT_ID,
    "AWS::Partition": Aws.PARTITION,
    "AWS::Region": Aws.REGION,
    "AWS::URLSuffix": Aws.URL_SUFFIX,
}


@dataclass(frozen=True)
class Repositories:
    """The ECR repository of an image, or a pattern of several repositories.

    Attributes:
        arn: ARN of the repository, or an ARN pattern with ``*``.
        name: Name of the repository; None where ``arn`` is a pattern.
    """

    arn: str
    name: str | None

    def grant_pull(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow ``grantee`` to pull images, with the actions of CDK's ``Repository.grant_pull``."""
        pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        grant = iam.Grant.add_to_principal(grantee=grantee, actions=pull, resource_arns=[self.arn])
        login = iam.Grant.add_to_principal(grantee=grantee, actions=["ecr:GetAuthorizationToken"], resource_arns=["*"])
        return grant.combine(login)


def repository_arn(stack: Stack, place: re.Match[str]) -> str:
    """Return the ARN of the repository of an image.

    Args:
        stack: The stack whose partition is used.
        place: A match of ``IN_ECR``.
    """
    return _arn(stack, place["region"], place["account"], place["repository"])


def repositories_of(stack: Stack, image_uri: str) -> Repositories | None:
    """Return the ECR repository of an image URI, as far as it is known at synthesis.

    Tokens in the URI (the stack's account and region, a repository of the stack) are kept. If the registry is unknown, as
    with a CloudFormation parameter, the stack's account and region are assumed; if the end of the repository name is unknown,
    the result is a pattern that begins with the known part.

    Args:
        stack: The stack that uses the image.
        image_uri: The URI, which may contain tokens or be one.

    Returns:
        The repository, or None for a registry that is not ECR.
    """
    tokens: list[str] = []

    def mark(found: re.Match[str]) -> str:
        # A policy cannot refer to the input of an execution.
        tokens.append("*" if str(stack.resolve(found[0])).startswith("$") else found[0])
        return f"<{len(tokens) - 1}>"

    def restored(text: str, instead: str = "*") -> str:
        whole = re.sub(r"<(\d+)>", lambda found: tokens[int(found[1])], text)
        return instead if whole == "*" else whole

    marked = _TOKEN.sub(mark, _expanded(stack, image_uri))
    registry, slash, _ = marked.partition("/")
    if slash and "<" not in registry and not _URI.fullmatch(marked):
        return None
    account, region, repository = stack.account, stack.region, "*"
    if found := _URI.fullmatch(marked) or _URI_AFTER_TOKEN.fullmatch(marked):
        groups: Mapping[str, str | None] = found.groupdict()
        account = restored(groups.get("account") or account, stack.account)
        region = restored(groups.get("region") or region, stack.region)
        repository = found["repository"]
        # A token at the end may hold a tag as well.
        if not found["version"]:
            repository = re.sub(rf"{_MARK}$", "*", repository)
        repository = restored(repository)
    return Repositories(_arn(stack, region, account, repository), None if "*" in repository else repository)


def _expanded(stack: Stack, image_uri: str) -> str:
    """Expand a URI that is a Fn::Sub or a Fn::Join, the forms that CDK renders for the images that it builds."""
    if not _TOKEN.fullmatch(image_uri):
        return image_uri
    match stack.resolve(image_uri):
        case str() as text if not text.startswith("$"):  # otherwise a JSONPath of the execution's input
            return text
        case {"Fn::Sub": str() as text}:
            return re.sub(r"\$\{(AWS::\w+)\}", lambda found: _PSEUDO_PARAMETERS.get(found[1], found[0]), text)
        case {"Fn::Join": ["", [*parts]]} if all(map(_is_expandable, parts)):
            return "".join(part if isinstance(part, str) else _PSEUDO_PARAMETERS[part["Ref"]] for part in parts)
    return image_uri


def _is_expandable(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("Ref") in _PSEUDO_PARAMETERS)


def _arn(stack: Stack, region: str, account: str, repository: str) -> str:
    return f"arn:{stack.partition}:ecr:{region}:{account}:repository/{repository}"


def is_repository_name(text: str) -> bool:
    """Return whether a text is what ECR takes as a repository's name (service model, RepositoryName); a token passes."""
    part = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
    return is_unresolved(text) or re.fullmatch(rf"{part}(/{part})*", text) is not None


def is_image_uri(text: str) -> bool:
    """Return whether a text is an image URI with its registry, or contains tokens that may resolve to one."""
    return is_unresolved(text) or ("/" in text and not re.search(r"\s|^\w+://", text))
