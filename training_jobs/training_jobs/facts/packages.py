"""Which versions packages have, for which Python, and what they need of each other: ``packages.json``.

`release/package_table.py` writes the table anew. It has what the public training examples of AWS and Hugging Face install.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name
from packaging.version import Version

# Distributions whose modules have other names.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "transformers": "transformers[torch]",  # whose Trainer needs accelerate
    "yaml": "pyyaml",
}
# No other package of the table brings these, and those that it leaves out do not either.
_BY_EXTRAS = ("deepspeed", "flash-attn", "wandb")
# Modules that are not named as their packages.
_MODULES = {"scikit-image": "skimage", "scikit-learn": "sklearn"}
_NAME = re.compile(r"[\w-]+")
# Any version that the table does not have yet.
FUTURE = Version("99999")
_PATCHES = (0, 9, 30)  # of Python, of which a container's tag says nothing


class Release(NamedTuple):
    """What is known of a version.

    Attributes:
        python: The Python that it needs.
        wheels: The minor versions of Python 3 that have a wheel on Linux with an x86-64 processor; None for each.
        source: Whether there is a source distribution, which pip builds where there is no wheel.
        yanked: Whether it is yanked, so that it is installed only where it is asked for by number.
        needs: What it needs of the table's packages, without its extras; None where that is not known.
    """

    python: SpecifierSet
    wheels: frozenset[int] | None
    source: bool
    yanked: bool
    needs: tuple[str, ...] | None

    def has_wheel(self, python: int) -> bool:
        """Whether there is a wheel for a minor version of Python 3."""
        return self.wheels is None or python in self.wheels

    def takes(self, python: int | None, *, builds: bool = True) -> bool:
        """Whether pip installs it with a minor version of Python 3, None for any, where it may build it or may not."""
        return python is None or (_runs(self.python, python) and ((self.source and builds) or self.has_wheel(python)))


@cache
def _runs(needed: SpecifierSet, python: int) -> bool:
    """Whether some patch of a minor version of Python 3 is one that is needed."""
    return any(needed.contains(f"3.{python}.{patch}") for patch in _PATCHES)


def is_known(name: str) -> bool:
    """Whether the table has a package."""
    return canonicalize_name(name) in _packages()


def distribution_of(module: str) -> str | None:
    """Return what pip installs for a module, like ``"opencv-python-headless"`` for ``"cv2"``; None where that is not known."""
    name = module.replace("_", "-")
    return _DISTRIBUTIONS.get(module) or (name if is_known(name) else None)


@cache
def packages_by_module() -> Mapping[str, str]:
    """Return the table's packages by the modules that they are imported by, of those that need NumPy or come by extras alone.

    Others, such as click, come with packages that the table does not have; and OpenCV's module has several.
    """
    brought = {name: what_comes_with(name) for name in _packages() if not name.startswith("opencv")}
    named = [name for name, those in brought.items() if "numpy" in (those or ())]
    return {_MODULES.get(name, name.replace("-", "_")): name for name in (*named, *_BY_EXTRAS)}


@cache
def what_comes_with(name: str) -> frozenset[str] | None:
    """Return the table's packages that any version of a package may bring; None where it is not known of the newest one."""
    found, left = set[str](), [name]
    while left:
        if (other := left.pop()) not in found:
            found.add(other)
            *_, newest = rows = _packages()[other]
            if newest[-1] is None:
                return None
            left += {_NAME.match(need)[0] for *_, needs in rows for need in needs or ()}  # type: ignore[index]
    return frozenset(found)


@cache
def takes_wheel(python: int, tag: Tag) -> bool:
    """Whether a minor version of CPython 3 takes a wheel with a tag, on the tag's own platform."""
    interpreter = f"cp3{python}"
    abis = [f"{interpreter}m" if python < 8 else interpreter]
    return tag in {
        *cpython_tags((3, python), abis=abis, platforms=[tag.platform]),
        *compatible_tags((3, python), interpreter, [tag.platform]),
    }


@cache
def releases_of(name: str) -> dict[Version, Release]:
    """Return what is known of each version of a package, from its first one on; empty for one that is not in the table."""
    found: dict[Version, Release] = {}
    for versions, python, has, needs in _packages().get(canonicalize_name(name), ()):
        release = _release(python, has.split(), needs)
        found |= dict.fromkeys(map(Version, versions.split()), release)
    return found


def takes_next(name: str, python: int | None, *, builds: bool = True) -> bool:
    """Whether a version of a package that is still to come may be for a minor version of Python 3.

    What the newest version no longer takes, those after it do not take either.
    """
    newest = next(reversed(releases_of(name).values()))
    return (
        python is None
        or newest.takes(python, builds=builds)
        or not any(newest.takes(minor, builds=builds) for minor in range(python, 20))
    )


def holds(marker: Marker | None, python: int | None) -> bool:
    """Whether a marker holds on Linux with an x86-64 processor; where Python is not known, not one that asks for it."""
    if marker is None:
        return True
    if python is None and "python" in str(marker):
        return False
    minor = f"3.{python or 11}"
    return marker.evaluate(
        {
            **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
            **{"implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": ""},
            **{"python_version": minor, "python_full_version": f"{minor}.{_PATCHES[1]}"},
        }
    )


@cache
def versions_in(name: str, specifier: str) -> frozenset[Version]:
    """Return the versions of a package that a specifier takes, with ``FUTURE`` if it may mean one that the table does not have.

    Args:
        name: The package, by its canonical name.
        specifier: Like ``">=4.46,<5"``. One that names a version before a release, or a local one such as ``2.6.0+cu126``, takes
            any: the table has none of these, and a container's own build may be one.
    """
    parsed, releases = SpecifierSet(specifier), releases_of(name)
    named = [Version(part.version.removesuffix(".*")) for part in parsed if part.operator not in ("!=", "===")]
    if any(version.is_prerelease or version.local for version in named):
        return frozenset([*releases, FUTURE])
    is_newer = parsed.contains(FUTURE) or any(version > max(releases) for version in named)
    return frozenset([*filter(parsed.contains, releases), *([FUTURE] if is_newer else [])])


@cache
def needs_of_next(name: str, python: int | None) -> Mapping[str, str]:
    """Return what versions of a package that are still to come need at least: what the newest one does, or later versions of it.

    Args:
        name: The package, by its canonical name.
        python: A minor version of Python 3; None where it is not known.
    """
    newest = releases_of(name)[max(releases_of(name))]
    return {other: _least(specifier) for other, specifier in needs_in(newest.needs, python).items()}


def _least(specifier: str) -> str:
    parts = [part for part in SpecifierSet(specifier) if part.operator in (">=", ">", "~=", "==")]
    return ",".join(f">={part.version.removesuffix('.*')}" for part in parts)


@cache
def needs_in(needs: tuple[str, ...] | None, python: int | None) -> Mapping[str, str]:
    """Return what is needed with a minor version of Python 3: specifiers by the packages' names.

    Args:
        needs: Requirements, as ``Release.needs`` has them; none where they are not known.
        python: The minor version; None where it is not known.
    """
    found: dict[str, str] = {}
    for need in map(Requirement, needs or ()):
        if holds(need.marker, python):
            found[need.name] = ",".join(filter(None, (found.get(need.name), str(need.specifier))))
    return found


def _release(python: str, has: list[str], needs: Iterable[str] | None) -> Release:
    minors = set[int]()
    for span in has:
        if span.startswith("3."):
            first, _, last = span.partition("-")
            minors |= {*range(int(first[2:]), int((last or first)[2:]) + 1)}
    wheels = None if "any" in has else frozenset(minors)
    return Release(
        _specifier(python), wheels, "source" in has, "yanked" in has, None if needs is None else tuple(needs)
    )


_specifier = cache(SpecifierSet)


@cache
def _packages() -> Mapping[str, Any]:
    return dict(json.loads(Path(__file__).with_suffix(".json").read_text())["packages"])
