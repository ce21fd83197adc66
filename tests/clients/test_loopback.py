"""Each client of docs/local-account.md where nothing but loopback is: its calls end in the account, and it seeks nothing else."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import loopback
import pytest
from two_groups import Place

HERE = Path(__file__).parent
CALLS = str(HERE / "calls.json")
# A service that neither moto nor the account has, and an operation.
LACKING = {
    "health": "the local account does not have the service 'health'",
    "cloudcontrol": "does not have Cloud Control API's ListResourceRequests; it has GetResource, UpdateResource",
}


def commands(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The command of each client, which prints what came of each of its calls."""
    node = shutil.which("node", path=environment["PATH"]) or "node"
    package = Path(shutil.which("cdk", path=environment["PATH"]) or "").resolve().parents[1]
    return {
        "boto3": [sys.executable, str(HERE / "walk_boto3.py"), CALLS],
        "AWS CLI": [sys.executable, str(HERE / "walk_cli.py"), CALLS],
        "JavaScript": [node, str(HERE / "walk_javascript.js"), str(package)],
    }


@pytest.fixture(
    scope="module", params=[*(pytest.param(one, marks=pytest.mark.soak) for one in ("boto3", "AWS CLI")), "JavaScript"]
)
def walked(place: Place, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> loopback.Ran:
    environment = place.running.account.environment()
    ran = loopback.run(commands(environment)[request.param], environment, tmp_path_factory.mktemp("walk"))
    assert ran.code == 0, ran.errors
    return ran


def test_a_client_of_twenty_services_seeks_nothing_but_the_account(walked: loopback.Ran) -> None:
    assert (walked.sought, len(json.loads(walked.output)) >= 20) == ([], True)


def test_each_of_its_calls_is_answered_or_refused_by_the_account(walked: loopback.Ran) -> None:
    outcomes = json.loads(walked.output)
    assert {service: outcome for service, outcome in outcomes.items() if outcome.startswith("failed")} == {}


def test_a_service_or_operation_that_the_account_lacks_is_refused_by_its_name(walked: loopback.Ran) -> None:
    outcomes = json.loads(walked.output)
    [lacking] = [service for service in LACKING if service in outcomes]
    assert outcomes[lacking].endswith(LACKING[lacking]), outcomes[lacking]


def test_the_cdk_cli_bootstraps_and_seeks_nothing_but_the_account(place: Place, tmp_path: Path) -> None:
    environment = place.running.account.environment()
    ran = loopback.run(["cdk", "bootstrap", "aws://123456789012/us-east-1"], environment, tmp_path)
    assert (ran.code, ran.sought) == (0, []), ran.errors


def test_what_a_client_seeks_elsewhere_is_recorded(place: Place, tmp_path: Path) -> None:
    program = """
import contextlib, socket
for place in (("sts.us-east-1.amazonaws.com", 443), ("169.254.169.254", 80), ("198.51.100.7", 4443)):
    with contextlib.suppress(OSError):
        socket.create_connection(place)
with contextlib.suppress(OSError):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))
"""
    ran = loopback.run([sys.executable, "-c", program], place.running.account.environment(), tmp_path)
    assert ran.sought == ["sts.us-east-1.amazonaws.com", "169.254.169.254:80", "198.51.100.7:4443", "192.0.2.1:53"]
