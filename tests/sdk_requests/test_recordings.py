"""The recordings are those of the cases, one each."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def record(name: str = "record") -> ModuleType:
    """A module of this folder, by a name of its own, since the tests share one path of modules."""
    spec = importlib.util.spec_from_file_location(f"sdk_requests_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_case_has_a_recording_and_each_recording_a_case() -> None:
    assert {path.stem for path in (HERE / "recorded").glob("*.json")} == set(record().all_cases())
    assert {path.stem for path in (HERE / "recorded_v3").glob("*.json")} == set(record("jobs_v3").CASES)


def test_each_recording_is_of_the_sdk_that_the_clients_tests_pin() -> None:
    for folder, requirements in (("recorded", "requirements-v2.txt"), ("recorded_v3", "requirements-v3.txt")):
        pinned = (HERE.parent / "clients" / requirements).read_text().splitlines()
        for path in [*(HERE / folder).glob("*.json"), *([HERE / "queue.json"] if folder == "recorded_v3" else [])]:
            assert json.loads(path.read_text())["sdk"].replace(" ", "==") in pinned, path.name


def test_what_is_named_as_refused_was_refused() -> None:
    for path in HERE.glob("recorded*/*.json"):
        assert ("_refused_" in path.stem) == ("refused" in json.loads(path.read_text())), path.name
