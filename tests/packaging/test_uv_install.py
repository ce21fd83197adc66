"""Packages are installed by uv with the settings that pip has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "release"))
import uv_install


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        ("", {}),
        ("global.index-url='https://mirror/simple'", {"UV_DEFAULT_INDEX": "https://mirror/simple"}),
        ("global.extra-index-url='file:///one file:///two'", {"UV_INDEX": "file:///one file:///two"}),
        ("global.extra-index-url='\\nfile:///one\\nfile:///two'", {"UV_INDEX": "file:///one file:///two"}),
        ("user.find-links='/a /b'", {"UV_FIND_LINKS": "/a,/b"}),
        ("global.constraint='/c.txt'\nglobal.timeout='60'", {"UV_CONSTRAINT": "/c.txt"}),
        ("global.cert='/old.crt'\n:env:.cert='/new.crt'", {"SSL_CERT_FILE": "/new.crt"}),
    ],
)
def test_a_setting_of_pip_is_one_of_uv(listed: str, variables: dict[str, str]) -> None:
    assert uv_install.settings(listed) == variables


def test_a_variable_of_pip_wins_over_its_files_and_one_of_uv_over_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file/simple\nno-index = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    for name in ("UV_DEFAULT_INDEX", "UV_NO_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    assert uv_install.environment()["UV_DEFAULT_INDEX"] == "https://file/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable/simple")
    assert uv_install.environment()["UV_DEFAULT_INDEX"] == "https://variable/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://of-uv/simple")
    assert uv_install.environment()["UV_DEFAULT_INDEX"] == "https://of-uv/simple"
    assert uv_install.environment()["UV_NO_INDEX"] == "true"
