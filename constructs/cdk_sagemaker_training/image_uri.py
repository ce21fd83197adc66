"""Which repository in ECR an image's URI names, also where parts of it are known only when the stack is deployed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam

from cdk_sagemaker_training.tokens import is_unresolved

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
_MARK = r"<\d+>"  # stands for a token in what follows: neither sign is one of an image's URI
_SPELLED_OUT = re.compile(
    rf"(?P<account>\d{{12}}|{_MARK})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+|{_MARK})\.(?:{_SUFFIX}|{_MARK})"
    r"/(?P<repository>[^:@]+)(?P<version>[:@].+)?"
)
_AFTER_A_TOKEN = re.compile(rf"{_MARK}/(?P<repository>[^:@]+)(?P<version>[:@].+)?")
_PSEUDO_PARAMETERS = {
    "AWS::AccountId": Aws.ACCOUNT_ID,
    "AWS::Partition": Aws.PARTITION,
    "AWS::Region": Aws.REGION,
    "AWS::URLSuffix": Aws.URL_SUFFIX,
}


@dataclass(frozen=True)
class Repositories:
    """The repository in ECR that an image lies in, by ``arn`` and ``name``; without a name, ``arn`` is a pattern of several."""

    arn: str
    name: str | None

    def grant_pull(self, grantee: iam.IGrantable) -> None:
        """Let ``grantee`` pull from them, as CDK's ``Repository.grant_pull`` does from one."""
        pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
        iam.Grant.add_to_principal(grantee=grantee, actions=pull, resource_arns=[self.arn])
        iam.Grant.add_to_principal(grantee=grantee, actions=["ecr:GetAuthorizationToken"], resource_arns=["*"])


def repository_arn(stack: Stack, place: re.Match[str]) -> str:
    """The repository of an image that `IN_ECR` matches."""
    return _arn(stack, place["region"], place["account"], place["repository"])


def repositories_of(stack: Stack, image_uri: str) -> Repositories | None:
    """The repository that an image's URI names, as far as it is known at synth; None for a registry that is not ECR.

    A part that is a token stays one: the stack's account and region, a repository of the stack. Where the text does not hold
    the registry, as with a parameter's value, it is that of the stack's account and region; where it does not hold the end of a
    repository's name, it is each repository whose name begins so.
    """
    tokens: list[str] = []

    def mark(found: re.Match[str]) -> str:
        # A place in an execution's input is nothing that a policy could name.
        tokens.append("*" if str(stack.resolve(found[0])).startswith("$") else found[0])
        return f"<{len(tokens) - 1}>"

    def restored(text: str, instead: str = "*") -> str:
        whole = re.sub(r"<(\d+)>", lambda found: tokens[int(found[1])], text)
        return instead if whole == "*" else whole

    marked = _TOKEN.sub(mark, _spelled_out(stack, image_uri))
    registry, slash, _ = marked.partition("/")
    if slash and "<" not in registry and not _SPELLED_OUT.fullmatch(marked):
        return None
    account, region, repository = stack.account, stack.region, "*"
    if found := _SPELLED_OUT.fullmatch(marked) or _AFTER_A_TOKEN.fullmatch(marked):
        groups: Mapping[str, str | None] = found.groupdict()
        account = restored(groups.get("account") or account, stack.account)
        region = restored(groups.get("region") or region, stack.region)
        repository = found["repository"]
        # A token at the end may hold a tag as well.
        if not found["version"]:
            repository = re.sub(rf"{_MARK}$", "*", repository)
        repository = restored(repository)
    return Repositories(_arn(stack, region, account, repository), None if "*" in repository else repository)


def _spelled_out(stack: Stack, image_uri: str) -> str:
    """The URI with what a Fn::Sub or a Fn::Join puts together in its place, as CDK writes the URI of an image that it builds."""
    if not _TOKEN.fullmatch(image_uri):
        return image_uri
    match stack.resolve(image_uri):
        case str() as text if not text.startswith("$"):  # else it is a place in the input of an execution
            return text
        case {"Fn::Sub": str() as text}:
            return re.sub(r"\$\{(AWS::\w+)\}", lambda found: _PSEUDO_PARAMETERS.get(found[1], found[0]), text)
        case {"Fn::Join": ["", [*parts]]} if all(map(_is_spelled_out, parts)):
            return "".join(part if isinstance(part, str) else _PSEUDO_PARAMETERS[part["Ref"]] for part in parts)
    return image_uri


def _is_spelled_out(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, Mapping) and part.get("Ref") in _PSEUDO_PARAMETERS)


def _arn(stack: Stack, region: str, account: str, repository: str) -> str:
    return f"arn:{stack.partition}:ecr:{region}:{account}:repository/{repository}"


def is_image_uri(text: str) -> bool:
    """Whether a text is an image with its registry, or may be one when the stack is deployed."""
    return is_unresolved(text) or ("/" in text and not re.search(r"\s|^\w+://", text))
