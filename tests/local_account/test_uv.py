"""uv installs what pip would, with pip's settings and options."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagemaker_local_account.images import uv


@pytest.mark.parametrize(
    ("listed", "variables"),
    [
        ("", {}),
        ("global.index-url='https://mirror/simple'", {"UV_DEFAULT_INDEX": "https://mirror/simple"}),
        ("global.extra-index-url='file:///one file:///two'", {"UV_INDEX": "file:///one file:///two"}),
        ("global.extra-index-url='\\nfile:///one\\nfile:///two'", {"UV_INDEX": "file:///one file:///two"}),
        ("user.find-links='/a /b'", {"UV_FIND_LINKS": "/a,/b"}),
        ("global.constraint='/c.txt'\nglobal.timeout='60'", {"UV_CONSTRAINT": "/c.txt", "UV_HTTP_TIMEOUT": "60"}),
        ("global.pre='true'", {"UV_PRERELEASE": "allow"}),
        ("global.pre='false'", {}),
        ("global.cert='/old.crt'\n:env:.cert='/new.crt'", {"SSL_CERT_FILE": "/new.crt"}),
    ],
)
def test_a_setting_of_pip_is_one_of_uv(listed: str, variables: dict[str, str]):
    assert uv.settings(listed) == ([], variables)


def test_a_variable_of_pip_wins_over_its_files_and_one_of_uv_over_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://file/simple\nno-index = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    words, environment = uv.command(Path("python"))
    assert environment["UV_DEFAULT_INDEX"] == "https://file/simple"
    assert words[-1] == "--no-index"
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable/simple")
    words, environment = uv.command(Path("python"))
    assert environment["UV_DEFAULT_INDEX"] == "https://variable/simple"
    assert "--no-index" not in words
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://of-uv/simple")
    assert uv.command(Path("python"))[1]["UV_DEFAULT_INDEX"] == "https://of-uv/simple"


@pytest.mark.parametrize(
    ("of_pip", "arguments"),
    [
        (["--no-cache-dir", "-q", "--retries", "3", "--disable-pip-version-check"], []),
        (["--upgrade"], ["--upgrade-package=numpy", "--upgrade-package=pandas"]),
        (["-U", "--upgrade-strategy", "eager"], ["--upgrade"]),
        (["--upgrade-strategy", "only-if-needed", "--no-deps"], ["--no-deps"]),
        (["--only-binary", "a,b"], ["--only-binary", "a", "--only-binary", "b"]),
        (["--trusted-host", "mirror"], ["--allow-insecure-host", "mirror"]),
        (
            ["--index-url", "https://mirror/simple", "--pre"],
            ["--index-url", "https://mirror/simple", "--prerelease=allow"],
        ),
        (["--torch-backend=cpu"], ["--torch-backend=cpu"]),
    ],
)
def test_an_option_of_pip_is_one_of_uv(of_pip: list[str], arguments: list[str]):
    assert uv.options(of_pip, ["numpy", "pandas"]) == (arguments, {})


def test_a_proxy_of_pip_is_a_variable_of_uv():
    assert uv.options(["--proxy", "http://proxy:3128"], []) == ([], {"ALL_PROXY": "http://proxy:3128"})


NO_VERSION = """Using Python 3.11 environment at: venv
error: No solution found when resolving dependencies
  cause: Because only jobtools==1.0 is available and you require jobtools==3.0, we can conclude that your requirements are
      unsatisfiable.
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            NO_VERSION,
            "cannot install jobtools==3.0: Because only jobtools==1.0 is available and you require jobtools==3.0, we can "
            "conclude that your requirements are unsatisfiable.",
        ),
        (
            "error: Failed to build `oldtool==1.0`\n  cause: The build backend returned an error",
            "cannot install oldtool==1.0: Failed to build `oldtool==1.0` cause: The build backend returned an error",
        ),
        ("error: unexpected argument '--foo' found", "uv pip install failed: unexpected argument '--foo' found"),
        ("Killed", "uv pip install failed: Killed"),
    ],
)
def test_what_cannot_be_installed_is_named_first(said: str, reason: str):
    assert uv.failure(said) == reason
