"""Settings for every test."""

import gc
import os
import sys
from collections.abc import Callable, Generator
from functools import cache
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader

HERE = Path(__file__).parent
# Seconds until a test and its fixtures fail with the stack of every thread, by the test's folder: many times what it takes on a
# quiet machine. A test that needs more has a mark of its own, `@pytest.mark.timeout(SECONDS)`.
LIMITS = {"constructs": 300, "examples": 300, "permissions": 300, "sdk_requests": 300, "training_jobs": 300}
LIMIT = 600
SOAK_LIMIT = 1_800
# Files that are long begin first, so that no process is left alone with one at the end: of these folders, and those that mostly
# wait, for jobs or for connections, in turn with those that compute, which keeps both cores busy.
FIRST = ("aws", "end_to_end", "clients", "packaging", "training_code", "local_account", "examples", "permissions")
WAIT = ("aws", "end_to_end", "clients", "packaging", "training_code/test_service")

# CDK's template validator takes seconds for each synthesis. It runs where it is what is tested, in test_examples.py.
os.environ.setdefault("CDK_VALIDATION", "false")

# Each session of botocore parses the models of its services anew: a twelfth of the time of accounts.
_parsed = cache(JSONFileLoader().load_file)


def _load_file(_: JSONFileLoader, path: str) -> Any:
    return _parsed(path)


JSONFileLoader.load_file = _load_file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--aws",
        action="store_true",
        help="run the tests marked aws in the account of the environment's credentials, which costs money: see tests/aws/run.py",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Accounts of all tests share the virtual environments that their images need, until pytest's cache is cleared."""
    if config.pluginmanager.hasplugin("cacheprovider"):
        os.environ.setdefault("SAGEMAKER_LOCAL_ACCOUNT_VENVS", str(config.cache.mkdir("venvs")))
        if not hasattr(config, "workerinput"):
            from jsii_kernel import variables

            os.environ.update(variables(config.cache.mkdir("jsii")))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the bytecode of the test files, whose assertions take each process ten seconds to rewrite.

    Only while nothing else runs: make sets PYTHONDONTWRITEBYTECODE so that no file comes or goes in a folder that a test copies.

    Nor is any garbage looked for among what is collected, which lasts until the end. The test files import the CDK, which starts
    jsii's kernel; what a test starts has jsii's own.
    """
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = written
        for name in ("JSII_NODE", "JSII_RUNTIME"):
            os.environ.pop(name, None)
        gc.freeze()
        gc.enable()


def kind_of(item: pytest.Item) -> str:
    """The folder that a test is in."""
    return item.path.relative_to(HERE).parts[0]


def in_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests in the order in which their files begin."""
    files = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    first = sorted(
        (tests for tests in files if kind_of(tests[0]) in FIRST), key=lambda tests: FIRST.index(kind_of(tests[0]))
    )
    rest = [tests for tests in files if kind_of(tests[0]) not in FIRST]
    wait, compute = [], []
    for tests in first:
        path = str(tests[0].path.relative_to(HERE))
        (wait if path.startswith(WAIT) else compute).append(tests)
    pairs = chain.from_iterable(zip_longest(wait, compute, fillvalue=[]))
    return [*chain.from_iterable(pairs), *chain.from_iterable(rest)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = in_turn(items)
    if config.getoption("--aws"):  # a job on AWS waits for its machines; run.py prints how long at most
        return
    for item in items:
        if item.get_closest_marker("timeout") is None:
            limit = SOAK_LIMIT if item.get_closest_marker("soak") else LIMITS.get(kind_of(item), LIMIT)
            item.add_marker(pytest.mark.timeout(limit))


@pytest.fixture(scope="session")
def programs_of(pytestconfig: pytest.Config) -> Callable[[Path], Path]:
    """The folder of programs of an environment that a requirements file lists, for what pins other versions than the project."""
    from virtual_environments import of_requirements

    assert pytestconfig.cache
    cache = pytestconfig.cache.mkdir("environments")
    return lambda requirements: of_requirements(cache, requirements)
