"""What is read of Dockerfiles, held against a builder of images."""

from __future__ import annotations

import json
import posixpath
import random
import re
from pathlib import Path

from dockerfile_answers import ANSWERS, NUMBER, written

from training_jobs.facts.bases import base_of
from training_jobs.lint import UNKNOWN
from training_jobs.lint.dockerfile import Dockerfile, MalformedError
from training_jobs.lint.image_start import ImageStart

RECORD = json.loads(ANSWERS.read_text())["answers"]


def is_of(text: str, real: str) -> bool:
    """Whether a text may be another, where a part of it is not known."""
    return re.fullmatch(".*".join(map(re.escape, text.split(UNKNOWN))), real, re.DOTALL) is not None


def check(number: int, folder: Path) -> None:
    dockerfile = Dockerfile(written(number, folder), "Dockerfile", {"GIVEN": "given"})
    image, answer, lacking = dockerfile.image, RECORD[str(number)], [*dockerfile.lacking()]
    if answer is None:
        assert lacking or not image.is_certain
        return
    assert not lacking
    assert {"PATH", *image.env} == {*answer["env"]}
    assert all(is_of(text, answer["env"][name]) for name, text in image.env.items())
    assert image.path == answer["env"]["PATH"].split(":")
    started = image.entrypoint
    words = None if started is None else [*([] if started.is_exec else ["/bin/sh", "-c"]), *started.words]
    assert words == (answer["entrypoint"] or None)
    assert is_of(image.workdir, answer["workdir"] or "")
    files, real = {path: file.read_text() for path, file in image.files.items()}, answer["files"]
    # A file to a path without a slash is below it where that is a folder.
    folders = {posixpath.dirname(path) for path in real}
    either = {path for path in files if path not in real and (path in folders or posixpath.dirname(path) in files)}
    certain = {path: text for path, text in files.items() if path not in either}
    assert certain == real or not image.is_certain
    assert certain.items() <= real.items()


def test_an_image_is_what_a_builder_makes_of_its_dockerfile(tmp_path: Path) -> None:
    for number in range(NUMBER):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            check(number, folder)
        except AssertionError as error:
            error.add_note((folder / "Dockerfile").read_text())
            raise


def test_an_arg_before_the_first_from_is_known_in_a_stage_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "ARG A=/opt\nARG B=/srv\nFROM x\nARG A\nARG B\nWORKDIR $A/one\nENV C=$B D=$E\n"
    )
    image = Dockerfile(tmp_path, "Dockerfile", {"B": "/given"}).image
    assert (image.workdir, image.env) == ("/opt/one", {"C": "/given", "D": UNKNOWN})


def test_a_damaged_dockerfile_is_read_or_refused(tmp_path: Path) -> None:
    text = (written(3, tmp_path) / "Dockerfile").read_text()
    refused = 0
    for number in range(300):
        draw = random.Random(number)
        at = draw.randrange(len(text))
        damage = draw.choice(
            ["'", '"', "\\", "\n", "$", "${", "[", "FROM\n", "COPY ", "ENV A", "ARG ", "RUN <<E\n", "\0"]
        )
        (tmp_path / "Dockerfile").write_text(text[:at] + damage + text[at + draw.randrange(9) :])
        dockerfile = Dockerfile(tmp_path, "Dockerfile", {})
        try:
            start = ImageStart(dockerfile, base_of(dockerfile.image.parent))
        except MalformedError:
            refused += 1
            continue
        _ = [*start.mistakes(), *dockerfile.lacking(), *start.reserved()], start.installs, dockerfile.script_line
    assert refused > 0
