"""Each `training-jobs` and `local-account` command of the documentation is one that the programs take, with its options."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from sagemaker_local_account.cli import app as local_account
from training_jobs.cli.main import app as training_jobs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
PROGRAMS = {"training-jobs": training_jobs, "local-account": local_account}
BLOCK = re.compile(r"^```(?:console|)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Usage, with optional parts or an ellipsis, is no command.
INLINE = re.compile(r"`((?:training-jobs|local-account) [^`\[\]]+)`")


def commands() -> Iterator[tuple[str, str]]:
    """The page and the text of each."""
    for page in PAGES:
        text = page.read_text()
        for block in BLOCK.findall(text):
            for line in block.replace("\\\n", " ").splitlines():
                if (typed := line.removeprefix("$ ").strip()).startswith(tuple(PROGRAMS)):
                    yield page.name, typed
        for typed in INLINE.findall(text):
            if "..." not in typed and "--install-completion" not in typed:  # which would be done
                yield page.name, " ".join(typed.split())


def parse(command: Any, name: str, words: list[str]) -> None:
    """Parse a command's words as it would, which raises an exception for what it does not take."""
    try:
        context = command.make_context(name, words)
    except Exception as error:
        # A file of the page's; and a command that a sentence names, without what it takes.
        if "does not exist" in str(error) or (not words and str(error).startswith("Missing parameter")):
            return
        raise
    rest = [*context._protected_args, *context.args]
    if rest and hasattr(command, "resolve_command"):
        found, inner, rest = command.resolve_command(context, rest)
        parse(inner, str(found), rest)


FOUND = sorted(set(commands()))


def test_there_are_many_and_what_is_not_taken_is_found() -> None:
    assert len(FOUND) > 90
    with pytest.raises(Exception, match="No such option"):
        parse(typer.main.get_command(training_jobs), "training-jobs", ["start", "--nowhere"])


@pytest.mark.parametrize(("page", "typed"), FOUND)
def test_a_documented_command_is_taken(page: str, typed: str) -> None:
    words = shlex.split(typed, comments=True)
    words = words[: next((index for index, word in enumerate(words) if word in (">", "|", "&&")), None)]
    program, *rest = words
    with contextlib.suppress(typer.Exit):  # of --help or --version
        parse(typer.main.get_command(PROGRAMS[program]), program, rest)
