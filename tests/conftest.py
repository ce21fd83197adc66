"""Settings for every test."""

import os

import pytest

# CDK's template validator takes seconds for each synthesis. It runs where it is what is tested, in test_examples.py.
os.environ.setdefault("CDK_VALIDATION", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--aws",
        action="store_true",
        help="run the tests marked aws in the account of the environment's credentials, which costs money: see tests/aws/run.py",
    )
