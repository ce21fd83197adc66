"""What pip cannot install of a requirements.txt, or installs otherwise than meant, without asking an index."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from training_jobs.facts.libraries import minor_of
from training_jobs.facts.packages import holds, is_known, packages_by_module, takes_wheel, what_comes_with
from training_jobs.lint.resolution import Kind, Line, Resolution
from training_jobs.lint.resolution import Mistake as Mistake
from training_jobs.lint.resolution import Target as Target

_ALLOWED = re.compile(r"#\s*training-jobs:\s*allow\s+requirements\b")
# Options with which pip takes versions, or builds, that the index does not have; and those that name another file.
_ELSEWHERE = re.compile(r"-i\b|-f\b|--(?:index-url|extra-index-url|find-links|no-index|pre)\b")
_ONLY_BINARY = re.compile(r"--only-binary[\s=]+:all:")
_FILE = re.compile(r"(?:-r|-c|--requirement|--constraint)[\s=]*(?P<path>\S+)")
_EDITABLE = re.compile(r"(?:-e|--editable)[\s=]*(?P<path>\S+)")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_OPTIONS = re.compile(r"\s--[a-z][\w-]*[\s=].*")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_PATH = re.compile(r"(?:[\w.-]+(?:\[[^]]*\])?\s*@\s*)?(?P<path>(?:[\w+]+:/|\.{0,2}/)\S+|\S+\.whl\b\S*)")
_TORCH = re.compile(r"torch\s*={2,3}\s*(\d+\.\d+)")
# What a wheel's local version says of the framework that it was built with, as flash-attn's do: +cu12torch2.6cxx11abiTRUE
_BUILT_WITH = re.compile(r"torch(\d+\.\d+)")


def requirement_mistakes(folder: Path, target: Target, file: str = "requirements.txt") -> Iterator[Mistake]:
    """Yield the mistakes of a requirements.txt and of the files that it names; a comment switches this off.

    Args:
        folder: The folder, from which pip installs.
        target: Where it installs.
        file: The file, relative to the folder.
    """
    lines = [*_lines(folder, file, ())]
    texts = [line.text for line in lines if isinstance(line, Line)]
    if any(map(_ALLOWED.search, texts)):
        return
    torch = next((match[1] for text in texts if (match := _TORCH.match(text))), target.versions.get("torch", ""))
    required: list[tuple[Line, Requirement]] = []
    for line in lines:
        found = line if isinstance(line, Mistake) else _parsed(folder, line, target.python, torch)
        if isinstance(found, Mistake):
            yield found
        elif found is not None and isinstance(line, Line) and holds(found.marker, target.python):
            required.append((line, found))
    if not target.indexes and not any(map(_ELSEWHERE.match, texts)):
        builds = target.builds and not any(map(_ONLY_BINARY.match, texts))
        yield from _resolved(tuple(required), tuple(sorted(target.versions.items())), target.python, builds)


@lru_cache(maxsize=64)
def _resolved(
    required: tuple[tuple[Line, Requirement], ...],
    versions: tuple[tuple[str, str], ...],
    python: int | None,
    builds: bool,
) -> tuple[Mistake, ...]:
    """The mistakes of requirements together, which a synthesis asks for twice: what it refuses, and what it warns of."""
    return tuple(Resolution(required, Target(python, dict(versions), builds=builds)).mistakes())


def absent_modules(folder: Path, file: str = "requirements.txt") -> frozenset[str]:
    """Return the modules of known packages that a requirements.txt does not bring; none where it has lines that may bring any.

    Args:
        folder: The folder, from which pip installs.
        file: The file, relative to the folder.
    """
    return _absent(folder, _lines(folder, file, ()))


def absent_without(requirements: Iterable[str]) -> frozenset[str]:
    """Return the modules of known packages that requirements do not bring; none where they may bring any.

    Args:
        requirements: Requirements, as pip takes them.
    """
    return _absent(Path(), (Line("", 0, text) for text in requirements))


def _absent(folder: Path, lines: Iterable[Line | Mistake]) -> frozenset[str]:
    brought = set[str]()
    for line in lines:
        found = line if isinstance(line, Mistake) else _parsed(folder, line, None, "")
        if not isinstance(found, Requirement) or not is_known(found.name):
            return frozenset()
        name = canonicalize_name(found.name)
        # An extra of huggingface_hub brings a way of downloads; others, such as transformers[torch], what the table leaves out.
        those = what_comes_with(name) if not found.extras or name == "huggingface-hub" else None
        if those is None:
            return frozenset()
        brought |= those
    by_module = packages_by_module()
    return frozenset(module for module, package in by_module.items() if package not in brought)


def _lines(folder: Path, file: str, outer: tuple[str, ...]) -> Iterator[Line | Mistake]:
    """The lines of a file and of those that it names; a mistake for one that is not there."""
    for number, whole in _joined((folder / file).read_text(errors="replace")):
        text = whole.strip() if _ALLOWED.search(whole) else _COMMENT.sub("", whole).strip()
        line = Line(file, number, text)
        other, editable = _FILE.match(text), _EDITABLE.match(text)
        if other is not None and not _is_elsewhere(other["path"]):
            path = os.path.normpath(Path(file).parent / other["path"])
            if not (folder / path).is_file():
                yield line.mistake("name a file of the folder", "'-r requirements/base.txt'", "which is not there")
            elif path in (*outer, file):
                yield line.mistake("not name a file that names this one", "'-r base.txt'", "where pip ends")
            elif text.startswith(("-r", "--r")):
                yield from _lines(folder, path, (*outer, file))
        elif editable is not None and not _is_elsewhere(editable["path"]):
            root = folder / editable["path"].partition("[")[0]
            if not any((root / name).is_file() for name in ("setup.py", "pyproject.toml")):
                yield line.mistake("name a folder with pyproject.toml or setup.py", "'-e ./package'", "which has none")
        elif text:
            yield line


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, those that end in a backslash with the next."""
    start, parts = 1, list[str]()
    for number, line in enumerate(text.splitlines(), start=1):
        start = start if parts else number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            parts.append(line[:-1])
            continue
        yield start, "".join([*parts, line])
        parts = []
    if parts:
        yield start, "".join(parts)


def _is_elsewhere(path: str) -> bool:
    return "://" in path or path.startswith("git+") or bool(_VARIABLE.search(path))


def _parsed(folder: Path, line: Line, python: int | None, torch: str) -> Requirement | Mistake | None:
    """The requirement of a line; None for an option, a folder, an address, or a file, which is checked by its name."""
    if line.text.startswith(("-", "#")) or _VARIABLE.search(line.text):
        return None
    text = _OPTIONS.sub("", line.text)
    address = _PATH.match(text)
    if address is None:
        try:
            return Requirement(text)
        except InvalidRequirement as error:
            why = str(error).partition("\n")[0]
            return line.mistake(
                "be a requirement that pip reads", "'transformers>=4.50,<5'", f"in which pip has: {why}"
            )
    path = address["path"].partition("#")[0].partition(";")[0]
    if ":/" not in path and not (folder / path).exists():
        return line.mistake("name a file of the folder", "'./package-1.0-py3-none-any.whl'", "which is not there")
    return _of_wheel(line, path.rpartition("/")[2], python, torch) if path.endswith(".whl") else None


def _of_wheel(line: Line, name: str, python: int | None, torch: str) -> Mistake | None:
    """What is wrong with a wheel by its name."""
    try:
        _, version, _, tags = parse_wheel_filename(name.replace("%2B", "+").replace("%2b", "+"))
    except (InvalidWheelFilename, InvalidVersion) as error:
        return line.mistake("have a wheel's name", "'package-1.0-py3-none-any.whl'", f"in which pip has: {error}")
    if python is not None and not any(takes_wheel(python, tag) for tag in tags):
        its = " or ".join(sorted({tag.interpreter for tag in tags}))
        rule = f"be a wheel for the container's Python, 3.{python}"
        return line.mistake(rule, f"one whose name has cp3{python}", f"which is for {its}: pip ends")
    if not any(tag.platform == "any" or "linux" in tag.platform for tag in tags):
        its = " or ".join(sorted({tag.platform for tag in tags}))
        return line.mistake(
            "be a wheel for Linux", "one whose name has manylinux_2_28_x86_64", f"which is for {its}: pip ends"
        )
    built = _BUILT_WITH.search(version.local or "")
    if built and torch and minor_of(torch) != built[1]:
        rule = f"be built with torch {minor_of(torch)}, which the script has"
        why = f"which is built with torch {built[1]}: its import ends with an undefined symbol"
        return line.mistake(rule, f"one whose name has torch{minor_of(torch)}", why, Kind.OTHER_BUILD)
    return None
