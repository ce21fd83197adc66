"""The recordings are those of the cases, one each."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def record() -> ModuleType:
    """record.py, by a name of its own, since the tests share one path of modules."""
    spec = importlib.util.spec_from_file_location("sdk_requests_record", HERE / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_case_has_a_recording_and_each_recording_a_case() -> None:
    assert {path.stem for path in (HERE / "recorded").glob("*.json")} == set(record().all_cases())


def test_each_recording_is_of_the_sdk_that_the_clients_tests_pin() -> None:
    pinned = (HERE.parent / "clients" / "requirements-v2.txt").read_text().splitlines()
    for path in (HERE / "recorded").glob("*.json"):
        assert json.loads(path.read_text())["sdk"].replace(" ", "==") in pinned, path.name


def test_what_is_named_as_refused_was_refused() -> None:
    for path in (HERE / "recorded").glob("*.json"):
        assert ("_refused_" in path.stem) == ("refused" in json.loads(path.read_text())), path.name
