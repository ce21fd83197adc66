"""`local-account permissions` and `explain`: which permissions were used, and why a call is denied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from sagemaker_local_account import control_api
from sagemaker_local_account.cli_lifecycle import running_in
from sagemaker_local_account.core.state import AccountError

# Roles of the CDK's bootstrap stack, whose policies are the CDK's.
_OF_BOOTSTRAP = re.compile(r":role/cdk-\w+-(?:deploy|lookup|cfn-exec|file-publishing|image-publishing)-role-")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def permissions(
    context: typer.Context,
    role: Annotated[str | None, typer.Argument(help="Only roles and users with this in their ARN.")] = None,
    check: Annotated[bool, typer.Option("--check", help="End with 1 where a permission was not used.")] = False,
    wildcards: Annotated[
        bool, typer.Option("--wildcards", help="Also what was called by each action and resource with a wildcard.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show which permissions of roles and users were used since the account started, and which were not.

    A permission that is used only when something fails, or in another region, is not used in a run without it.
    """
    found = control_api.call_operation(running_in(context)[1], "ListPermissionUse", {})
    chosen = {arn: rows for arn, rows in sorted(found.items()) if _is_chosen(arn, role)}
    if not chosen:
        raise AccountError(f"no role or user has {role!r} in its ARN" if role else "the account has no roles of yours")
    if as_json:
        print(json.dumps(chosen, indent=2))
    else:
        for line in lines(chosen, wildcards=wildcards):
            print(line)
    if check and any(unused(row) for rows in chosen.values() for row in rows):
        raise typer.Exit(1)


def explain(
    context: typer.Context,
    principal: Annotated[
        str | None,
        typer.Argument(help="The name of a role, or the ARN of a role or user; by default the last denied call."),
    ] = None,
    action: Annotated[str | None, typer.Argument(help="Like s3:GetObject.")] = None,
    resource: Annotated[str, typer.Argument(help="Its ARN.")] = "*",
    context_keys: Annotated[
        list[str] | None, typer.Option("--context", metavar="KEY=VALUE", help="The value of a condition key.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain why a call is allowed or denied: the last one that was denied, or one of your own."""
    call = None
    if principal is not None:
        if action is None:
            raise AccountError(
                "explain takes PRINCIPAL ACTION [RESOURCE], like Jobs s3:GetObject arn:aws:s3:::bucket/key"
            )
        given = [text.partition("=") for text in context_keys or []]
        if wrong := [name for name, equals, _ in given if not equals]:
            raise AccountError(f"--context must be KEY=VALUE, like aws:RequestTag/team=vision, got {wrong[0]!r}")
        values = {name: value for name, _, value in given}
        call = {"principal": principal, "action": action, "resource": resource, "context": values}
    found = control_api.call_operation(running_in(context)[1], "ExplainCall", {"call": call})
    if as_json:
        print(json.dumps(found, indent=2))
        return
    print(f"{found['principal']}\n{found['action']} on {found['resource']}")
    print(found["decision"] + (f" {found['why']}" if found["why"] else ""))
    for it in found["statements"]:
        lacks = "; ".join(it["lacks"]) or "matches"
        print(f"  {it['effect']}, statement {it['statement']} of {it['policy']}: {lacks}")
    if not found["statements"]:
        print(f"  no statement is about the action, in {', '.join(found['policies']) or 'no policy at all'}")


def unused(row: Mapping[str, Any]) -> bool:
    """Whether a statement has an action or a resource that was not used."""
    return not all(row["actions"].values()) or not all(row["resources"].values())


def lines(found: Mapping[str, list[dict[str, Any]]], *, wildcards: bool = False) -> Iterator[str]:
    """Yields the report's lines.

    Args:
        found: the rows of each role and user, by ARN.
        wildcards: also what was called by each action and resource with a wildcard.
    """
    for arn, rows in found.items():
        whole = sum(not unused(row) for row in rows)
        yield f"{arn.rpartition(':')[2]}: {whole} of {len(rows)} statements used whole"
        policy = None
        for row in rows:
            said = list(_findings(row, wildcards=wildcards))
            if said and policy != row["policy"]:
                policy = row["policy"]
                yield f"  {policy}"
            yield from (f"    statement {row['statement']} {text}" for text in said)


def _findings(row: Mapping[str, Any], *, wildcards: bool) -> Iterator[str]:
    if not row["used"]:
        yield f"never used: {', '.join(row['actions'])} on {', '.join(row['resources'])}"
        return
    for what in ("actions", "resources"):
        if never := [text for text, calls in row[what].items() if not calls]:
            yield f"{what} never used: {', '.join(never)}"
    if not row["needed"]:
        yield "not needed: other statements allow all that was called by it"
    for what in ("actions", "resources") if wildcards else ():
        for text, calls in row[what].items():
            if "*" in text and text != "*" and calls:
                yield f"{text} was {', '.join(calls)}"


def _is_chosen(arn: str, role: str | None) -> bool:
    return role in arn if role else _OF_BOOTSTRAP.search(arn) is None
