"""Writes docs/licences.md: the licence of each package that requirements.txt pins, which the wheel with `[local]` brings.

    python release/licences.py .venv/bin/python > docs/licences.md

The argument is a Python that has them. Needs pip-licenses, which requirements-release.txt lists.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = """# Licences

What `pip install 'cdk-sagemaker-training[local]'` installs, with the licence that each package states. The project itself is
licensed under Apache 2.0. A release has the same with versions and dependencies, as a software bill of materials (CycloneDX,
`sbom.cdx.json`); `make release-check` writes both.

No package is under the GPL. certifi is under the MPL 2.0.

| package | licence |
|---|---|
"""


def main() -> None:
    """Print the page."""
    names = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    command = [
        str(Path(sys.executable).with_name("pip-licenses")),
        "--python",
        sys.argv[1],
        "--format=json",
        "--from=mixed",
    ]
    listed = json.loads(subprocess.run([*command, "--packages", *names], check=True, stdout=subprocess.PIPE).stdout)
    rows = sorted((one["Name"], one["License"]) for one in listed)
    print(HEAD + "\n".join(f"| {name} | {short(licence)} |" for name, licence in rows))


def short(licence: str) -> str:
    """A licence's name; of a package that has the whole text in its place, the licence whose text that is."""
    if "Permission is hereby granted, free of charge" in licence:
        return "MIT License"
    assert "\n" not in licence, licence
    return licence


if __name__ == "__main__":
    main()
