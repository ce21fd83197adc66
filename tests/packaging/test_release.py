"""What a release consists of: `make release-check`, and what it writes."""

from __future__ import annotations

import email
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
import yaml

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.com/owner/name"


@pytest.mark.parametrize(
    ("folder", "named"),
    [
        ("", "raw/{tag}/docs/watch-heterogeneous.svg"),
        ("local_account", "blob/{tag}/SECURITY.md"),
        ("training_jobs", "blob/{tag}/docs/command-line.md"),
    ],
)
def test_the_readme_of_a_package_has_absolute_links_and_pictures_alone(folder: str, named: str) -> None:
    written: Any = runpy.run_path(str(ROOT / "release" / "distributions.py"))
    page = written["absolute_links"]((ROOT / folder / "README.md").read_text(), REPOSITORY, folder)
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(targets) > 5
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []
    paths = [re.sub(rf"^{REPOSITORY}/(blob|raw)/v[\d.]+/([^#]*).*", r"\2", target) for target in targets]
    assert [path for path in paths if not path.startswith(("https://", "#")) and not (ROOT / path).exists()] == []
    assert f"({REPOSITORY}/{named.format(tag=written['tag']())})" in page


def test_each_package_that_is_pinned_has_its_licence_in_the_page() -> None:
    rows = dict(re.findall(r"^\| ([\w.-]+) \| (.+) \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE))
    del rows["package"]  # the head of the table
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert sorted(normal(name) for name in rows) == sorted(normal(name) for name in pinned), "run `make release-check`"
    assert [name for name, licence in rows.items() if licence in ("", "UNKNOWN")] == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.soak  # installs the wheel with all that it needs
def test_a_release_is_the_same_wherever_it_is_built_and_passes_every_check(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    command = ["make", "release-check", f"REPOSITORY={REPOSITORY}", f"PYTHON={sys.executable}"]
    checked = subprocess.run(command, cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert checked.returncode == 0, checked.stdout
    built = [file for file in (clone / "dist").iterdir() if file.name != "sbom.cdx.json"]
    assert sorted(file.name.partition("-")[0] + file.suffix for file in built) == [
        "cdk_sagemaker_training.gz",
        "cdk_sagemaker_training.whl",
        "sagemaker_local_account.gz",
        "sagemaker_local_account.whl",
        "training_jobs.gz",
        "training_jobs.whl",
    ]

    another = ["build/release/bin/python", "release/distributions.py", "--repository", REPOSITORY, "--to", "again"]
    subprocess.run(another, cwd=clone, env={**os.environ, "TZ": "Asia/Tokyo"}, umask=0o077, check=True)
    assert {file.name: digest(clone / "again" / file.name) for file in built} == {
        file.name: digest(file) for file in built
    }

    for wheel in (file for file in built if file.suffix == ".whl"):
        with zipfile.ZipFile(wheel) as archive:
            [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            metadata = email.message_from_bytes(archive.read(name))
        assert f"source, {REPOSITORY}" in metadata.get_all("Project-URL", [])

    bill = json.loads((clone / "dist" / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    versions = {normal(one["name"]): one["version"] for one in bill["components"]}
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    assert {name: versions.get(normal(name)) for name in pinned} == pinned
    assert (clone / "docs" / "licences.md").read_text() == (ROOT / "docs" / "licences.md").read_text()


def test_a_tag_of_another_version_is_not_released(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "release/distributions.py",
        "--repository",
        REPOSITORY,
        "--tag",
        "v9.9.9",
        "--to",
        str(tmp_path),
    ]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "--tag must be v" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_the_action_passes_its_inputs_to_the_shell_by_variables_alone() -> None:
    """Text of a workflow that were put into a script would run as a part of it ("Script injections" in GitHub's guide)."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    used = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", (ROOT / "action.yml").read_text()))
    assert used == action["inputs"].keys()
    assert steps[-1]["run"].startswith("python -m pytest --local-account")


@pytest.mark.soak  # installs actionlint
def test_the_workflow_of_the_page_on_ci_is_one_that_github_takes(
    tmp_path: Path, programs_of: Callable[[Path], Path]
) -> None:
    [workflow] = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "ci.md").read_text(), re.DOTALL)
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "test.yml").write_text(workflow.replace("OWNER/NAME@v0.1.0", "./"))
    (tmp_path / "action.yml").write_text((ROOT / "action.yml").read_text())
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    actionlint = programs_of(ROOT / "requirements-release.txt") / "actionlint"
    assert subprocess.run([actionlint], cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout == ""
    (folder / "test.yml").write_text(workflow.replace("OWNER/NAME@v0.1.0", "./").replace("arguments:", "argument:"))
    assert (
        'input "argument" is not defined'
        in subprocess.run([actionlint], cwd=tmp_path, stdout=subprocess.PIPE, text=True).stdout
    )


def wheel_of_transformers(folder: Path, version: str, arguments: str, trainer: str, exported: str, parser: str) -> None:
    of_sequences = "@dataclass\nclass Seq2SeqTrainingArguments(TrainingArguments):\n    beams: int | None = None\n"
    files = {
        "__init__.py": f"_import_structure = {{'optimization': {exported!r}.split()}}\nNAMES = {exported.split()!r}\n",
        "training_args.py": f"@dataclass\nclass TrainingArguments:\n{arguments}",
        "training_args_seq2seq.py": of_sequences,
        "trainer.py": f"class Trainer:\n    label: str = 'x'\n{trainer}",
        "trainer_seq2seq.py": "class Seq2SeqTrainer(Trainer):\n    def evaluate(self): ...\n",
        "hf_argparser.py": parser,
        "trainer_callback.py": CALLBACKS,
        "models/new.py": "__all__ = ['NewModel', 'NewTokenizer']\n",
    }
    with zipfile.ZipFile(folder / f"transformers-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(f"transformers/{name}", text)


CALLBACKS = """class CallbackHandler:
    def on_log(self, args, state, control, logs):
        return self.call_event("on_log", args, state, control, logs=logs)

    def call_event(self, event, args, state, control, **kwargs):
        getattr(callback, event)(args, state, control, model=self.model, **kwargs)
"""
TRAINS = """
    def train(self):
        self.step(*args, **kwargs)
        self.loader()
    def step(self):
        self.log({})
        self.label.log()
    def log(self): ...
    def loader(self, sampler_fn):
        sampler_fn(self.label)
    def unused(self):
        self.log(1, 2, 3)
"""


def test_the_table_of_transformers_is_what_its_wheels_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = f"    def __init__(self, args, tokenizer=None): ...\n{TRAINS}"
    renamed = "    @deprecate_kwarg('tokenizer', new_name='processing_class')\n"
    renamed += "    def __init__(self, args, *, processing_class=None): ...\n"
    renamed += TRAINS.replace("self.log({})", "self.log({}, start_time=0)")
    old = "    output_dir: str = field(metadata={'help': 'x'})\n    rank: int = field(init=False)\n    fp16: bool = False\n"
    new = "    output_dir: Optional[str] = field(default=None)\n    fp16: bool = False\n    resume: bool = field(default=True)\n"
    (folder := tmp_path / "transformers").mkdir()
    wheel_of_transformers(folder, "4.9.2", old, plain, "AdamW is_here helper OldTokenizer", "")
    wheel_of_transformers(folder, "4.10.0", old, plain, "AdamW is_here", "")
    wheel_of_transformers(folder, "5.0.1", new, renamed, "is_here NewTrainer", "name.replace('_', '-')")
    written: Any = runpy.run_path(str(ROOT / "release" / "library_tables.py"))
    facts = tmp_path / "transformers.json"
    names = written["main"].__globals__
    monkeypatch.setitem(names, "FACTS", tmp_path)
    monkeypatch.setitem(names, "last_of_each_minor", lambda *_: ["4.9.2", "4.10.0", "5.0.1"])
    monkeypatch.setattr(sys, "argv", ["library_tables.py", "transformers", "--wheels", str(tmp_path)])
    written["main"]()
    table = json.loads(facts.read_text())
    assert table["versions"] == ["4.9", "4.10", "5.0"]
    assert table["hyphens_from"] == "5.0"
    assert table["classes"] == {
        "TrainingArguments": [
            ["fp16", "bool", "", "4.9", "5.0"],
            ["output_dir", "str", "None", "5.0", "5.0"],
            ["output_dir", "str", "required", "4.9", "4.10"],
            ["resume", "bool", "True", "5.0", "5.0"],
        ],
        "Seq2SeqTrainingArguments": [["beams", "int", "None", "4.9", "5.0"]],
        "Trainer": [
            ["args", "", "", "4.9", "5.0"],
            ["processing_class", "", "", "5.0", "5.0"],
            ["tokenizer", "", "", "4.9", "5.0"],
        ],
        "Seq2SeqTrainer": [
            ["args", "", "", "4.9", "5.0"],
            ["processing_class", "", "", "5.0", "5.0"],
            ["tokenizer", "", "", "4.9", "5.0"],
        ],
    }
    assert table["last_versions"] == {"4.10": "AdamW"}
    assert table["first_versions"] == {"5.0": "NewTrainer"}
    assert table["calls"] == {
        "Trainer": [
            ["_get_train_sampler", "loader", "1", "", "4.9", "5.0"],
            ["loader", "train", "0", "", "4.9", "5.0"],
            ["log", "step", "1", "", "4.9", "4.10"],
            ["log", "step", "1", "start_time", "5.0", "5.0"],
            ["step", "train", "*", "*", "4.9", "5.0"],
        ],
        "TrainerCallback": [["on_log", "call_event", "3", "model logs", "4.9", "5.0"]],
    }


class Index(BaseHTTPRequestHandler):
    """A package index that answers in JSON, and serves parts of its wheels."""

    wheels: ClassVar[dict[str, bytes]] = {}
    yanked: ClassVar[set[str]] = set()
    later: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        name = self.path.strip("/").rpartition("/")[2]
        if (content := self.wheels.get(name)) is None:
            found = [file for file in self.wheels if file.startswith(f"{name.replace('-', '_')}-")]
            files = [
                {
                    "filename": file,
                    "url": f"http://{self.headers['Host']}/files/{file}",
                    "hashes": {},
                    "requires-python": ">=3.8",
                    "upload-time": f"{2026 if file in self.later else 2024}-06-01T00:00:00Z",
                    "yanked": file in self.yanked,
                }
                for file in found
            ]
            answer = {"meta": {"api-version": "1.1"}, "name": name, "files": files}
            self.answer(200, json.dumps(answer).encode(), {"Content-Type": "application/vnd.pypi.simple.v1+json"})
            return
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "bytes=0-"))
        assert asked is not None
        first = int(asked[1]) if asked[1] else max(0, len(content) - int(asked[2]))
        last = int(asked[2]) if asked[1] and asked[2] else len(content) - 1
        part = content[first : last + 1]
        self.answer(206, part, {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(content)}"})

    def do_HEAD(self) -> None:
        content = self.wheels[self.path.rpartition("/")[2]]
        self.answer(200, b"", {"Content-Length": str(len(content)), "Accept-Ranges": "bytes"})

    def answer(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def index_served() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def wheel_of(name: str, *paths: str, needs: str = "") -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as wheel:
        for path in paths:
            wheel.writestr(path, "")
        wheel.writestr(
            f"{name}-1.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{needs}\nText\n"
        )
    return content.getvalue()


LOCKED = """
[[package]]
name = "container"
version = "1"
source = { virtual = "." }

[[package]]
name = "Py_YAML"
version = "6.0+cu130"
source = { registry = "index" }

[[package]]
name = "nothing-known"
version = "1.0"
source = { registry = "index" }
"""
ONLY_CPU = '[[package]]\nname = "opencv-python"\nversion = "4.11"\nsource = { registry = "index" }\n'


def test_the_modules_of_a_container_are_those_in_the_wheels_of_what_its_list_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (
        "pytorch/2.13/cpu",
        "pytorch/2.13/cuda",
        "tensorflow/2.21/cpu",
        "tensorflow/2.21/cuda",
        "tensorflow/inference/2.20/cpu",
    ):
        (tmp_path / "docker" / folder).mkdir(parents=True)
        (tmp_path / "docker" / folder / "uv.lock").write_text(LOCKED + ONLY_CPU * folder.endswith("cpu"))
    Index.wheels = {
        "py_yaml-6.0-cp312-cp312-win_amd64.whl": wheel_of("py_yaml", "windows.py"),
        "py_yaml-6.0-cp312-cp312-manylinux_2_17_x86_64.whl": wheel_of(
            "py_yaml",
            "yaml/__init__.py",
            "_yaml/__init__.py",
            "tests/test_yaml.py",
            "alone.py",
            "native.cpython-312-x86_64-linux-gnu.so",
            "py_yaml-6.0.data/purelib/moved/__init__.py",
            "py_yaml-6.0.data/scripts/yamllint",
            "py_yaml.libs/libyaml.so",
            "data/table.json",
        ),
        "opencv_python-4.11-py3-none-any.whl": wheel_of("opencv_python", "cv2/__init__.py"),
        "own-1.0-py3-none-any.whl": wheel_of("own", "own.py", needs="Requires-Dist: other"),
        "own-2.0-py3-none-any.whl": wheel_of("own", "own.py", needs="Requires-Dist: later"),
        "later-1.0-py3-none-any.whl": wheel_of("later", "later.py"),
        "other-1.0-py3-none-any.whl": wheel_of("other", "other/__init__.py"),
    }
    Index.later = {"own-2.0-py3-none-any.whl"}
    rows = [
        [*row, "2025-01-01", "3.12", *more]
        for row, *more in [
            (["old-training", ["1.0"], "Dockerfile@1"], None, [["own"], ["other"]], [], ["flash_attn"]),
            (
                ["old-hub", ["4.49.0"], "@2"],
                ["old-training", "1.0"],
                [["own"], ["opencv-python"]],
                ["other", "flash-attn"],
                [],
            ),
            (["new-hub", ["5.0.0"], "@3"], ["pytorch", "2.13"], [["own"]], [], []),
        ]
    ]
    (dockerfiles := tmp_path / "dockerfiles.json").write_text(json.dumps({"rows": rows}))
    monkeypatch.syspath_prepend(ROOT / "release")
    written: Any = runpy.run_path(str(ROOT / "release" / "container_modules.py"))
    facts, names = tmp_path / "modules.json", written["main"].__globals__
    for name, value in {"FACTS": facts, "DOCKERFILES": dockerfiles, "NEEDS": {"flash_attn": ["other"]}}.items():
        monkeypatch.setitem(names, name, value)
    with index_served() as index:
        monkeypatch.setattr(sys, "argv", ["container_modules.py", str(tmp_path), index])
        written["main"]()
    of_each = {"nvidia", "pip", "pkg_resources", "setuptools"}
    locked, of_gpus = {"alone", "moved", "native", "yaml"}, {"flash_attn", "transformer_engine"}
    assert [(*row, {*modules} - of_each) for *row, modules in json.loads(facts.read_text())] == [
        ("pytorch", ["2.13"], "cpu", locked | {"cv2"}),
        ("pytorch", ["2.13"], "gpu", locked | of_gpus),
        ("tensorflow-training", ["2.21"], "cpu", locked | {"cv2"}),
        ("tensorflow-training", ["2.21"], "gpu", locked),
        ("old-training", ["1.0"], "gpu", {"flash_attn", "other", "own"}),
        ("old-training", ["1.0"], "cpu", {"other", "own"}),
        ("old-hub", ["4.49.0"], "gpu", {"cv2", "own"}),
        ("new-hub", ["5.0.0"], "gpu", locked | of_gpus | {"own", "other"}),
    ]
    assert "unknown: nothing-known" in capsys.readouterr().out


def test_the_table_of_packages_is_what_an_index_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = "Requires-Dist: torch<3,>=2 ; python_version >= '3.9'\nRequires-Dist: other\nRequires-Dist: torch; extra == 'dev'\n"
    Index.wheels = {
        "own-1.0-py3-none-any.whl": wheel_of("own", needs=needs),
        "own-1.1-py3-none-any.whl": wheel_of("own", needs=needs),
        "own-1.2rc1-py3-none-any.whl": wheel_of("own"),
        "own-1.2-py3-none-any.whl": wheel_of("own", needs=needs.replace("<3", "<4")),
        "own-1.2.tar.gz": b"",
        "torch-2.0-cp310-cp310-manylinux1_x86_64.whl": wheel_of("own"),
        "torch-2.0-cp311-cp311-manylinux1_x86_64.whl": wheel_of("own"),
        "torch-2.0-cp312-cp312-win_amd64.whl": wheel_of("own"),
        "torch-2.1-cp39-abi3-manylinux1_x86_64.whl": wheel_of("own"),
        "torch-2.2-py36-none-any.whl": wheel_of("own"),
        "torch-0.5.tar.gz": b"",
    }
    Index.yanked = {"torch-2.1-cp39-abi3-manylinux1_x86_64.whl"}
    facts = tmp_path / "packages.json"
    facts.write_text(json.dumps({"packages": {"torch": []}}))
    written: Any = runpy.run_path(str(ROOT / "release" / "package_table.py"))
    monkeypatch.setitem(written["main"].__globals__, "FACTS", facts)
    with index_served() as index:
        monkeypatch.setattr(sys, "argv", ["package_table.py", index, "own"])
        written["main"]()
    assert json.loads(facts.read_text())["packages"] == {
        "own": [
            ["1.0 1.1", ">=3.8", "any", ['torch<3,>=2; python_version >= "3.9"']],
            ["1.2", ">=3.8", "any source", ['torch<4,>=2; python_version >= "3.9"']],
        ],
        "torch": [
            ["0.5", ">=3.8", "source", None],
            ["2.0", ">=3.8", "3.10-3.11", []],
            ["2.1", ">=3.8", "3.9-3.14 yanked", []],
            ["2.2", ">=3.8", "any", []],
        ],
    }
