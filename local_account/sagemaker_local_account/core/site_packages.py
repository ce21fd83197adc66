"""The folders of the packages that the account itself runs with."""

from __future__ import annotations

import site
from pathlib import Path


def own_folders() -> list[str]:
    """Returns the account's site-packages folders, without those of PYTHONPATH and the user's home folder.

    Python of Debian and Ubuntu names some that do not exist, such as ``dist-packages`` of a virtual environment.
    """
    return [folder for folder in site.getsitepackages() if Path(folder).is_dir()]
