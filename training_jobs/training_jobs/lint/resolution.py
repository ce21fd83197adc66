"""Which versions of packages go together, as far as that is known without an index.

A package that is not in ``facts/packages.json`` may need anything. Versions after those in it satisfy what has no upper bound,
and need what the newest one does, or later versions: what is said to fail still fails when new versions are released.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from training_jobs.facts.libraries import minor_of
from training_jobs.facts.packages import (
    FUTURE,
    Release,
    is_known,
    needs_in,
    needs_of_next,
    releases_of,
    takes_next,
    versions_in,
)

# Their setup.py imports torch, which the environment that pip builds in lacks (flash-attn's README asks for
# --no-build-isolation, which a requirements.txt cannot have).
_IMPORT_TORCH_TO_BUILD = ("flash-attn",)
_FRAMEWORKS = ("torch", "tensorflow")
_Range = tuple[Version, ...]


class Kind(Enum):
    """What a mistake leads to."""

    FAILS = "fails"  # pip ends
    REPLACES = "replaces-framework"  # pip replaces the container's framework
    BUILDS = "builds-from-source"  # pip builds a package on each host, if it can
    OTHER_BUILD = "built-otherwise"  # the script ends when it imports the package


class Mistake(NamedTuple):
    """A line with which pip fails, or does something else than meant.

    Attributes:
        path: The file, relative to the folder.
        line: Its line.
        kind: What it leads to.
        rule: What the line has to do, after "must".
        example: What does it.
        got: The line, and what is wrong with it.
    """

    path: str
    line: int
    kind: Kind
    rule: str
    example: str
    got: str

    def __str__(self) -> str:
        like = f", like {self.example}" if self.example else ""
        return f"must {self.rule}{like}: {self.got}"


@dataclass(frozen=True)
class Target:
    """Where pip installs.

    Attributes:
        python: The minor version of Python 3; None where it is not known.
        versions: Versions of packages that are there, by name, like ``{"torch": "2.6"}``.
        indexes: Whether variables name another index, or constraints, for pip.
        builds: Whether pip may build packages from source distributions.
    """

    python: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    indexes: bool = False
    builds: bool = True

    def takes(self, release: Release) -> bool:
        """Whether pip installs a release there."""
        return release.takes(self.python, builds=self.builds)

    def takes_next(self, name: str) -> bool:
        """Whether a version of a package that is still to come may be installed there."""
        return takes_next(name, self.python, builds=self.builds)


class Line(NamedTuple):
    """A line of a file, without its comment."""

    path: str
    number: int
    text: str

    def mistake(self, rule: str, example: str, why: str, kind: Kind = Kind.FAILS) -> Mistake:
        """Return what is wrong with it; `why` follows it, after a comma."""
        return Mistake(self.path, self.number, kind, rule, example, f"{self.text!r}, {why}")


class _Cause(NamedTuple):
    """What narrows the versions of a package.

    Attributes:
        text: It, as a clause.
        source: The package that needs it; None for a line.
        any_of: Specifiers, of which a version meets one.
    """

    text: str
    source: str | None
    any_of: frozenset[str]

    def versions(self, name: str) -> frozenset[Version]:
        """The versions of the package that it leaves."""
        return frozenset().union(*(versions_in(name, specifier) for specifier in self.any_of))


class Resolution:
    """The versions that each package may have, narrowed by what they need of each other until nothing changes.

    A version goes where one of its needs has no version left. Each package that is required, or that all versions of such a one
    need, gets into the environment: if it has no version left, pip finds none either.

    Args:
        required: The requirements, with their lines.
        target: Where pip installs.
    """

    def __init__(self, required: Iterable[tuple[Line, Requirement]], target: Target) -> None:
        """Keep the requirements of packages that are known."""
        self._target = target
        self._required: list[tuple[Line, str, str]] = [
            (line, canonicalize_name(one.name), str(one.specifier)) for line, one in required if is_known(one.name)
        ]
        self._ranges: dict[str, _Range] = {}
        self._causes: dict[str, list[_Cause]] = {}
        self._lines: dict[str, Line] = {}
        self._needed_by: dict[str, str] = {}

    def mistakes(self) -> Iterator[Mistake]:
        """Yield what is wrong with each requirement by itself; where nothing is, with all of them together."""
        found = [one for line, name, specifier in self._required for one in self._of_line(line, name, specifier)]
        yield from found
        if not any(one.kind is Kind.FAILS for one in found):
            yield from self._together()

    def _of_line(self, line: Line, name: str, specifier: str) -> Iterator[Mistake]:
        releases, python, asked = releases_of(name), self._target.python, versions_in(name, specifier)
        fitting = [version for version in releases if version in asked]
        if not asked:
            near = max((version for version in releases if version <= _named(specifier)), default=next(iter(releases)))
            yield line.mistake("ask for a version that there is", f"'{name}=={near}'", "which no release is")
        elif python is None or (FUTURE in asked and self._target.takes_next(name)):
            return
        elif not any(self._target.takes(releases[version]) for version in fitting):
            version = fitting[-1] if fitting else next(reversed(releases))
            of = releases[version]
            wheels = _shown(of.wheels or ())
            needs = (
                f"needs Python {of.python}"
                if (of.source and self._target.builds) or of.wheels is None
                else f"has wheels for {wheels} alone"
            )
            taken = [each for each in releases if self._target.takes(releases[each])]
            near = next((each for each in taken if each > version), taken[-1] if taken else FUTURE)
            like = f"'{name}=={near}'" if taken else ""
            rule = f"be of a version for the container's Python, 3.{python}"
            yield line.mistake(rule, like, f"and {name} {version} {needs}")

    def _together(self) -> Iterator[Mistake]:
        for line, name, specifier in self._required:
            first = self._lines.setdefault(name, line)
            cause = _Cause(f"{line.path}:{line.number} has {line.text!r}", None, frozenset([specifier]))
            self._causes.setdefault(name, []).append(cause)
            left = cause.versions(name)
            self._ranges[name] = (
                *(version for version in self._range(name) if version in left),
                *_yanked(specifier, name, self._target),
            )
            if not self._ranges[name]:
                why = f"while {first.path}:{first.number} has {first.text!r}"
                yield line.mistake("go with the other lines", "", why)
                return
        if (conflict := self._narrow()) is not None:
            name, why = conflict
            example = "'trl==0.23.0' with 'transformers==4.56.2'"
            yield self._line_of(name).mistake("have versions that go together", example, why)
            return
        yield from self._replaced()
        yield from self._built()

    def _range(self, name: str) -> _Range:
        """The versions of a package that the container's Python takes, and those to come."""
        if name not in self._ranges:
            known = [version for version, of in releases_of(name).items() if self._target.takes(of) and not of.yanked]
            self._ranges[name] = (*known, *([FUTURE] if self._target.takes_next(name) else []))
        return self._ranges[name]

    def _narrow(self) -> tuple[str, str] | None:
        """Narrow the ranges; return a package that has no version left, and why."""
        present, changed = [*self._ranges], True
        while changed:
            changed = False
            for name in [*present]:
                unmet = self._all_unmet(name)
                left = tuple(version for version, other in unmet.items() if not other)
                if not left:
                    version, other = next(reversed(unmet.items()))
                    return name, self._conflict(name, version, other)
                changed |= len(left) < len(unmet)
                self._ranges[name] = left
                changed |= self._pass_on(name, present)
        return None

    def _pass_on(self, name: str, present: list[str]) -> bool:
        """Narrow what all versions of a package need, to what one of them takes; return whether anything changed."""
        needs = [self._needs(name, version) for version in self._ranges[name]]
        changed = False
        for other in needs[0]:
            if not all(other in of for of in needs):
                continue
            any_of = frozenset(of[other] for of in needs)
            shown = f"{name} {self._ranges[name][0]}" if len(needs) == 1 else name
            cause = _Cause(f"{shown} needs {_shown_needs(other, any_of)}", name, any_of)
            before, left = self._range(other), cause.versions(other)
            if other not in present:
                present.append(other)
                self._needed_by[other], changed = name, True
            if not left.issuperset(before):
                self._ranges[other], changed = tuple(version for version in before if version in left), True
                self._causes.setdefault(other, []).append(cause)
        return changed

    def _needs(self, name: str, version: Version) -> Mapping[str, str]:
        """What a version needs of other packages."""
        python = self._target.python
        return needs_of_next(name, python) if version == FUTURE else needs_in(releases_of(name)[version].needs, python)

    def _all_unmet(self, name: str) -> dict[Version, str]:
        """By each version that is left a package of which it needs another one than those that are left; empty for none."""
        releases, found = releases_of(name), dict[Version, str]()
        by_needs: dict[object, str] = {}  # versions that follow each other mostly need the same
        for version in self._ranges[name]:
            needs = version if version == FUTURE else releases[version].needs
            if needs not in by_needs:
                by_needs[needs] = self._unmet(name, version)
            found[version] = by_needs[needs]
        return found

    def _unmet(self, name: str, version: Version) -> str:
        """A package of which a version needs another one than those that are left; empty if there is none."""
        needs = self._needs(name, version).items()
        return next((other for other, need in needs if versions_in(other, need).isdisjoint(self._range(other))), "")

    def _conflict(self, name: str, version: Version, other: str) -> str:
        python, need = self._target.python, self._needs(name, version)[other]
        takes = {FUTURE, *(each for each, of in releases_of(other).items() if self._target.takes(of))}
        needed = versions_in(other, need) & takes
        causes = self._causes.get(other, [])
        alone = [cause for cause in causes if needed.isdisjoint(cause.versions(other))]
        texts = [cause.text for cause in alone[:1] or causes] or [f"no such version is for Python 3.{python}"]
        return f"and {name} {version} needs {other}{need}, while {' and '.join(texts)}"

    def _replaced(self) -> Iterator[Mistake]:
        """A framework of the container that pip replaces, since a line has, or needs, another version."""
        for name in _FRAMEWORKS:
            there, left = self._target.versions.get(name), self._ranges.get(name, ())
            minor = minor_of(there or "")
            same = {version for version in releases_of(name) if minor_of(str(version)) == minor}
            if not same or not left or not same.isdisjoint(left):
                continue
            cause = next((one for one in self._causes.get(name, []) if same.isdisjoint(one.versions(name))), None)
            if cause is not None:
                why = f"and {cause.text}" if cause.source else "which it is not"
                yield self._line_of(cause.source or name).mistake(
                    f"go with the container's {name}, {there}",
                    f"a version of its own for {name} {minor}" if cause.source else f"{name} left out",
                    f"{why}: pip replaces {name} on each host before the script starts, with a build for another CUDA",
                    Kind.REPLACES,
                )

    def _built(self) -> Iterator[Mistake]:
        """Packages that have wheels, but none for the container's Python in the versions that are left."""
        python = self._target.python
        there = {*self._lines, *self._needed_by} - {*self._target.versions}
        for name in sorted(there) if python is not None else ():
            left = self._ranges[name]
            known = [of for version in left if (of := releases_of(name).get(version)) and not of.has_wheel(python or 0)]
            if len(known) < len(left):
                continue
            because = "".join(f"{cause.text}: " for cause in self._causes.get(name, [])[-1:] if cause.source)
            if name in _IMPORT_TORCH_TO_BUILD:
                rule = "be a wheel, since its build imports torch, which the environment that pip builds in lacks"
                example = "the address of one for the container's Python and torch"
                yield self._line_of(name).mistake(rule, example, f"and {because}{name} has none", Kind.BUILDS)
            elif wheels := known[-1].wheels:
                yield self._line_of(name).mistake(
                    f"have a wheel for the container's Python, 3.{python}",
                    "a later version",
                    f"and {because}{name} {left[-1]} has wheels for {_shown(wheels)} alone, so that pip builds it on each host, "
                    "if it can",
                    Kind.BUILDS,
                )

    def _line_of(self, name: str) -> Line:
        """The line of a package, or of what needs it."""
        while name not in self._lines:
            name = self._needed_by[name]
        return self._lines[name]


def _named(specifier: str) -> Version:
    """The highest version that a specifier names."""
    return max((Version(part.version.removesuffix(".*")) for part in SpecifierSet(specifier)), default=FUTURE)


def _yanked(specifier: str, name: str, target: Target) -> Iterator[Version]:
    """Yanked versions that a specifier asks for by number."""
    asked = versions_in(name, specifier)
    if any(part.operator in ("==", "===") and not part.version.endswith("*") for part in SpecifierSet(specifier)):
        for version, release in releases_of(name).items():
            if release.yanked and target.takes(release) and version in asked:
                yield version


def _shown_needs(name: str, any_of: Iterable[str]) -> str:
    texts = sorted(f"{name}{specifier}" for specifier in any_of)
    return " or ".join(texts if len(texts) < 3 else [texts[0], texts[-1]])


def _shown(minors: Iterable[int]) -> str:
    return f"Python {', '.join(f'3.{minor}' for minor in sorted(minors))}"
