"""Settings for every test."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Seconds until a test and its fixtures fail with the stack of every thread, by the test's folder: many times what it takes on a
# quiet machine. A test that needs more has a mark of its own, `@pytest.mark.timeout(SECONDS)`.
LIMITS = {"constructs": 300, "examples": 300, "permissions": 300, "sdk_requests": 300}
LIMIT = 600
SOAK_LIMIT = 1_800

# CDK's template validator takes seconds for each synthesis. It runs where it is what is tested, in test_examples.py.
os.environ.setdefault("CDK_VALIDATION", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--aws",
        action="store_true",
        help="run the tests marked aws in the account of the environment's credentials, which costs money: see tests/aws/run.py",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--aws"):  # a job on AWS waits for its machines; run.py prints how long at most
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            kind = item.path.relative_to(HERE).parts[0]
            limit = SOAK_LIMIT if item.get_closest_marker("soak") else LIMITS.get(kind, LIMIT)
            item.add_marker(pytest.mark.timeout(limit))
