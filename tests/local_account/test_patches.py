"""What the account replaces in moto: checked when it starts, put back when it closes."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from moto.sts.models import STSBackend

from sagemaker_local_account.account import LocalAccount
from sagemaker_local_account.core import patches
from sagemaker_local_account.core.patches import PatchError, add, patch


class Table:
    def put(self, name: str, *tags: str) -> str:
        return name

    @classmethod
    def made(cls, name: str) -> str:
        return name

    size = property(lambda self: 1)


@pytest.fixture
def module() -> Any:
    """A stand-in for a module of moto's."""
    module = ModuleType("moto.tables")
    module.Table = Table  # type: ignore[attr-defined]
    yield module
    patches.undo_all()


def message_of(owner: Any, name: str, replacement: Any, parameters: str | None = None) -> str:
    with pytest.raises(PatchError) as raised:
        patch(owner, name, replacement, parameters)
    return str(raised.value).partition("does not fit this account: ")[2].partition("; install")[0]


def test_what_is_renamed_is_named(module: Any) -> None:
    assert message_of(module, "Tables", Table) == "moto.tables.Tables does not exist"


def test_other_parameters_are_named_beside_those_that_were_expected(module: Any) -> None:
    assert message_of(Table, "put", lambda self, name: name, "self, name") == (
        "Table.put takes (self, name, *tags), and was replaced when it took (self, name)"
    )


def test_a_class_that_is_not_extended_is_named(module: Any) -> None:
    assert message_of(module, "Table", ModuleType) == (
        "moto.tables.Table is the class Table, which the replacement does not extend"
    )


def test_a_property_that_became_a_method_is_named(module: Any) -> None:
    assert message_of(Table, "put", property(len)) == "Table.put is a function, and its replacement a property"


def test_what_is_there_by_now_is_not_added(module: Any) -> None:
    with pytest.raises(PatchError, match=r"Table\.put exists, and did not in the version"):
        add(Table, "put", len)


def test_a_replaced_classmethod_takes_its_class_until_it_is_undone() -> None:
    patch(Table, "made", lambda cls, name: cls.__name__ + name, "cls, name")
    assert Table.made("s") == "Tables"
    patches.undo_all()
    assert Table.made("s") == "s"


def attributes() -> dict[tuple[str, ...], Any]:
    """Each function, property and class of moto's modules, and of the classes in them; not its data."""
    found: dict[tuple[str, ...], Any] = {}
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "moto":
            for attribute, value in vars(module).items():
                found[name, attribute] = value
                if isinstance(value, type):
                    found |= {(name, attribute, of): one for of, one in vars(value).items()}
    return {path: one for path, one in found.items() if callable(one) or isinstance(one, property | classmethod)}


def changed(before: dict[tuple[str, ...], Any]) -> list[tuple[str, ...]]:
    now = attributes()
    return [path for path in before | now if now.get(path) is not before.get(path)]


def test_a_closed_account_leaves_moto_and_the_environment_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "another")
    monkeypatch.setenv("MOTO_PORT", "1234")
    environment = dict(os.environ)
    with LocalAccount(state=tmp_path / "state"):  # by which all of moto's modules are imported
        pass
    before = attributes()
    with LocalAccount(state=tmp_path / "state"):
        assert ("moto.sts.models", "STSBackend", "get_caller_identity") in changed(before)
        assert os.environ.get("AWS_PROFILE") is None
    assert changed(before) == []
    assert dict(os.environ) == environment


def test_what_outlives_its_account_still_finds_moto_as_it_was_written_for(tmp_path: Path) -> None:
    replaced, over = STSBackend.get_caller_identity, threading.Event()
    with LocalAccount(state=tmp_path / "state"):
        late = threading.Thread(target=over.wait, daemon=True)
        late.start()
    assert STSBackend.get_caller_identity is not replaced
    over.set()
    late.join()
    with LocalAccount(state=tmp_path / "state"):
        pass
    assert STSBackend.get_caller_identity is replaced


def test_an_account_does_not_start_on_a_moto_that_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as renamed:
        renamed.delattr(STSBackend, "get_caller_identity")
        with pytest.raises(PatchError, match=r"STSBackend\.get_caller_identity does not exist; install the version"):
            LocalAccount(state=tmp_path / "state").start()
    with LocalAccount(state=tmp_path / "state"):
        pass
