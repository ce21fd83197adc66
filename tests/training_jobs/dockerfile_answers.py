"""Drawn Dockerfiles, and what a builder of images makes of them: `python dockerfile_answers.py` records it beside this file.

It needs buildah and root's rights; the tests read the record. Its images have no base, and their RUN is left out.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_suffix(".json")
NUMBER = 200
CONTEXT = {
    "train.py": 0o644,
    "run.sh": 0o755,
    "data.json": 0o644,
    "src/a.py": 0o644,
    "src/b/c.py": 0o644,
    "src/b/d.txt": 0o644,
    "tests/t.py": 0o644,
}
IGNORED = (
    "",
    "",
    "**/*.txt\n",
    "tests\n# comment\n",
    "src/b\n!src/b/c.py\n",
    "*.json\n",
    "*\n!train.py\n!src\n",
    "/tests/\nsrc/?.py\n",
)


def written(number: int, folder: Path) -> Path:
    """Write the context and the Dockerfile of a number.

    Args:
        number: The number.
        folder: An empty folder.
    """
    drawn = random.Random(number)
    for name, mode in CONTEXT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    if ignored := drawn.choice(IGNORED):
        (folder / ".dockerignore").write_text(ignored)
    lines = ["ARG ROOT=/opt", "FROM scratch AS first", *_lines(drawn, 3)]
    lines += [f"FROM {drawn.choice(['first', 'scratch'])}", *_lines(drawn, 6)]
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n")
    return folder


def _lines(drawn: random.Random, most: int) -> Iterator[str]:
    yield "COPY train.py /kept/"  # a builder makes no image of nothing
    for _ in range(drawn.randrange(1, most + 1)):
        yield drawn.choice(
            (
                "ARG ROOT",
                "ARG NAME=train.py",
                "ARG GIVEN=no",
                "ENV A=1 B='two words' C=\"$A-$NAME\"",
                "ENV A the rest of $A",
                "ENV PATH=/opt/program:$PATH",
                "ENV D=${A:-none} E=${A:+some} F=\\$A",
                "ENV SAGEMAKER_PROGRAM=${GIVEN:-x}.py",
                "WORKDIR /opt/program",
                "WORKDIR below",
                "WORKDIR ..",
                "WORKDIR ${ROOT:-/srv}/code",
                "COPY train.py .",
                "COPY train.py run.sh ./",
                "COPY src .",
                "COPY src /opt/src/",
                "COPY src/*.py /opt/",
                "COPY . /opt/all",
                'COPY ["train.py", "/opt/a b/"]',
                "COPY train.py /opt/other.py",
                "COPY train.py run.sh \\\n  data.json /opt/ml/code/",
                "COPY --chown=1:1 run.sh /usr/bin/",
                "ADD src/b /data/",
                "ADD ./run.sh /bin/train",
                'ENTRYPOINT ["python", "train.py"]',
                "ENTRYPOINT python $A train.py",
                "ENTRYPOINT []",
                'CMD ["train.py"]',
                "EXPOSE 80",
                "LABEL a=b",
                "# comment",
            )
        )


def answer(number: int) -> dict[str, Any] | None:
    """What the builder makes of a number; None where it ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = written(number, Path(name))
        build = ["bud", "--isolation", "chroot", "--build-arg", "GIVEN=given", "-t", "drawn", str(folder)]
        if _buildah(*build, check=False) is None:
            return None
        config = json.loads(_buildah("inspect", "--type", "image", "drawn") or "")["OCIv1"]["config"]
        container = (_buildah("from", "drawn") or "").strip()
        root = Path((_buildah("mount", container) or "").strip())
        files = {f"/{path.relative_to(root)}": path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}
        _buildah("rm", container)
        _buildah("rmi", "drawn")
        return {
            "env": dict(one.split("=", 1) for one in config.get("Env", [])),
            "entrypoint": config.get("Entrypoint"),
            "workdir": config.get("WorkingDir", ""),
            "files": files,
        }


def _buildah(*words: str, check: bool = True) -> str | None:
    done = subprocess.run(["buildah", "--storage-driver", "vfs", *words], capture_output=True, text=True)
    if check and done.returncode:
        sys.exit(done.stderr)
    return None if done.returncode else done.stdout


if __name__ == "__main__":
    version = subprocess.run(["buildah", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    answers = {str(number): answer(number) for number in range(NUMBER)}
    ANSWERS.write_text(json.dumps({"builder": version, "answers": answers}, indent=1) + "\n")
    print(f"{sum(one is not None for one in answers.values())} of {NUMBER} built")
