"""The source of a stack whose workflow sends a request."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training_jobs.adopt.code import Source, uploaded_code
from training_jobs.adopt.existing import Existing
from training_jobs.adopt.members import Difference, Members
from training_jobs.adopt.props import Subnets, name_prefix, props_of
from training_jobs.adopt.python_source import WIDTH, Call, Name, functions, source

# The aliases of the CDK's modules that sources use.
_MODULES = ("ec2", "efs", "fsx", "iam", "kms", "lambda_", "s3")
_ARN = re.compile(r"arn:(?P<partition>[a-z-]+):[a-z-]+:(?P<region>[a-z0-9-]*):(?P<account>\d{12}):")


@dataclass(frozen=True)
class Adopted:
    """A stack that sends a job's request.

    Attributes:
        source: The Python of an app with the stack.
        differences: The members of which its request has another value than the job's.
    """

    source: str
    differences: tuple[Difference, ...]


def adopted_stack(
    request: Mapping[str, Any],
    *,
    region: str,
    subnets: Subnets | None = None,
    uploads: Sequence[str] = (),
    source_code: Source | None = None,
    beside: Path | None = None,
) -> Adopted:
    """Return the stack of a CreateTrainingJob request.

    Args:
        request: The request.
        region: The region in which it is sent.
        subnets: The VPC of its subnets; None if unknown, for a placeholder that deployment does not use.
        uploads: S3 URIs that must be written before a job can start.
        source_code: The folder of a script of the SDK, which the deployment uploads where AWS's container starts it.
        beside: The folder in which the stack runs; None for the working directory.

    Raises:
        ValueError: There is no stack for it, such as for an algorithm of AWS Marketplace.
    """
    _check(request)
    role = _ARN.match(request["RoleArn"])
    if role is None:
        raise ValueError(
            f"RoleArn must be a role's ARN, like 'arn:aws:iam::123456789012:role/Job', got {request['RoleArn']!r}"
        )
    code = None if source_code is None else uploaded_code(request, source_code, beside or Path.cwd())
    members = Members(code.request if code else request)
    members.differences.extend(code.differences if code else ())
    existing = Existing(role["account"], region, role["partition"])
    of_network = request.get("VpcConfig", {}).get("Subnets", [])
    placeholder = Subnets("vpc-0123456789abcdef0", (f"{region}a",) * len(of_network))
    props = props_of(members, existing, subnets or placeholder, code.call if code else None)
    if code:
        replaced = tuple(str(one.value) for one in code.differences if "s3://" in str(one.value))
        uploads = [one for one in uploads if not one.startswith(replaced)]
    if _has_several_hosts(request["ResourceConfig"]):
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            if name not in request.get("Environment", {}):
                members.differs(f"Environment.{name}", None, "'eth0', the network interface between hosts")
    name = str(request.get("TrainingJobName") or "training")
    stack = Call(
        "cdk.Stack",
        (Name("app"), _stack_name(name)),
        {"env": Call("cdk.Environment", (), {"account": role["account"], "region": region})},
    )
    workflow = Call("TrainingWorkflow", (Name("stack"), "Training"), props)
    notes = list(members.differences)
    header = f'"""A stack whose workflow sends the request of the job {name}, each time it is started."""'
    lines = [
        header,
        "",
        *_imports([stack, workflow, *existing.variables.values()]),
        "",
        "app = cdk.App()",
        f"stack = {source(stack, reserved=8)}",
    ]
    for variable, call in existing.variables.items():
        if variable.startswith("vpc") and subnets is None:
            lines.append("# The request has no VPC: with its id and zones, other constructs can use it.")
        lines.append(f"{variable} = {source(call, reserved=len(variable) + 3)}")
    lines += [
        "",
        *_comments(notes),
        *_of_uploads(uploads, with_code=code is not None),
        source(workflow),
        "",
        "app.synth()",
        "",
    ]
    return Adopted("\n".join(lines), tuple(notes))


def _check(request: Mapping[str, Any]) -> None:
    algorithm = request.get("AlgorithmSpecification") or {}
    if algorithm.get("AlgorithmName"):
        raise ValueError(
            f"an algorithm of AWS Marketplace has no prop: AlgorithmSpecification.AlgorithmName {algorithm['AlgorithmName']!r}"
        )
    for member, value in (
        ("AlgorithmSpecification.TrainingImage", algorithm.get("TrainingImage")),
        ("OutputDataConfig.S3OutputPath", (request.get("OutputDataConfig") or {}).get("S3OutputPath")),
        ("RoleArn", request.get("RoleArn")),
    ):
        if not value:
            raise ValueError(f"the job's request has no {member}, which a TrainingWorkflow needs")


def _stack_name(job_name: str) -> str:
    words = re.findall(r"[a-zA-Z0-9]+", name_prefix(job_name))
    name = "".join(word[0].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"Job{name}"


def _imports(calls: list[Call]) -> list[str]:
    used = {function for call in calls for function in functions(call)}
    modules = sorted(alias for alias in _MODULES if any(it.startswith(f"{alias}.") for it in used))
    names = sorted(it.split(".")[0] for it in used if it[0].isupper() or "." not in it)
    return [
        "import aws_cdk as cdk",
        *(f"from aws_cdk import aws_{alias.rstrip('_')} as {alias}" for alias in modules),
        "",
        "from cdk_sagemaker_training import (",
        *(f"    {name}," for name in dict.fromkeys(names)),
        ")",
    ]


def _comments(differences: list[Difference]) -> list[str]:
    lines = ["# The request of its jobs is that job's, but for:"]
    for it in differences:
        value = "" if it.value is None else f" {it.value!r}"
        lines += _item(f"{it.member}{value}: {it.why}")
    return lines


def _of_uploads(uploads: Sequence[str], *, with_code: bool) -> list[str]:
    folders = sorted({uri.rpartition("/")[0] + "/" for uri in uploads})
    outer = [one for one in folders if not any(one != other and one.startswith(other) for other in folders)]
    if not outer:
        return []
    begin = "# The script uploads to these places before it starts its job, which the stack does not"
    hint = "# each deployment uploads a folder with a script, in place of sagemaker_submit_directory:"
    return [
        *([f"{begin}:"] if with_code else [f"{begin}. With code=TrainingCode(...)", hint]),
        *(line for folder in outer for line in _item(folder)),
    ]


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent="# - ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _has_several_hosts(machines: Mapping[str, Any]) -> bool:
    groups = machines.get("InstanceGroups") or [machines]
    counts = [one.get("InstanceCount", 1) for one in machines.get("InstancePreferences", ())]
    return bool(max(sum(group.get("InstanceCount", 1) for group in groups), *counts, 1) > 1)
