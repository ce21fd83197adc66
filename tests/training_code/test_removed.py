"""What libraries no longer have, beside the libraries themselves; TensorFlow 2.21 in packages of its own."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import transformers
from removed_cases import CASES, SETUP
from test_interruptions import KINDS, Kind, packages_of, quiet_tensorflow

from training_jobs.facts.libraries import names_of_others
from training_jobs.lint import Job, lint
from training_jobs.lint.removed import _OF_PYTHON, REMOVED
from training_jobs.lint.script import Script

__all__ = ["packages_of"]


def found(text: str, **versions: str) -> list[tuple[int, str]]:
    mistakes = lint([Script("train.py", text)], Job(versions=versions))
    return [(one.line, one.reason) for one in mistakes if one.rule == "removed"]


@pytest.mark.parametrize(("statement", "ends"), CASES.items())
def test_a_statement_that_ends_with_tensorflows_version_is_found_and_no_other(statement: str, ends: bool) -> None:
    for version in ("2.16", "2.21.0"):
        assert bool(found(f"{SETUP}{statement}", tensorflow=version)) is ends
    assert found(f"{SETUP}{statement}") == []


# As `removed_cases.py` ended with 2.15.1: what version 2.0 removed.
BEFORE = {name for one in REMOVED["tensorflow"] if one.since == "2.0" for name in one.names}


@pytest.mark.parametrize("statement", CASES)
def test_with_an_older_tensorflow_only_what_it_lacks_too_is_found(statement: str) -> None:
    of_first = any(statement.replace("tf.", "tensorflow.").removeprefix("import ").startswith(name) for name in BEFORE)
    assert bool(found(f"{SETUP}{statement}", tensorflow="2.15.1")) is of_first
    assert found(f"{SETUP}{statement}", tensorflow="1.15.5") == []


@pytest.mark.soak
def test_each_statement_ends_with_the_real_tensorflow_as_it_is_listed(
    packages_of: Callable[[Kind], Path | None], tmp_path: Path
) -> None:
    packages = packages_of(KINDS["tensorflow compiled"])
    environment = {**quiet_tensorflow(tmp_path), "PYTHONPATH": str(packages), "PATH": ""}
    script = Path(__file__).with_name("removed_cases.py")
    run = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    ended: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    assert {statement: bool(text) for statement, text in ended.items()} == CASES


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("try:\n    ", "\nexcept ValueError:\n    model.export('folder')"),
        ("if tf.__version__ < '2.16':\n    ", ""),
        ("os.environ['TF_USE_LEGACY_KERAS'] = '1'\n", ""),
        ("import tf_keras\n", ""),
        ("subprocess.run(['pip', 'install', 'tensorflow==2.15'])\n", ""),
    ],
)
def test_what_may_run_with_another_version_is_not_found(before: str, after: str) -> None:
    assert found(f"{SETUP}model.save('folder')", tensorflow="2.21") != []
    assert found(f"{SETUP}{before}model.save('folder'){after}", tensorflow="2.21") == []


@pytest.mark.parametrize(
    "statement",
    [
        "image.save('folder')",
        "checkpoint.save('folder')",
        "np.save('x', 1)",
        "model.load_model('folder')",
        "path = 'folder'\npath = path_of('x')\nmodel.save(path)",
        "keras.utils.progress(lr=0.1)",
        "tf.app_of('x')",
        "model.save(path_in('/opt/ml/model'))",
    ],
)
def test_what_is_another_or_not_known_is_not_found(statement: str) -> None:
    assert found(f"{SETUP}{statement}", tensorflow="2.21") == []


def test_names_are_found_by_the_modules_that_are_imported_at_their_first_line() -> None:
    text = "import tensorflow.keras\ndef train():\n    tensorflow.estimator.Estimator()\ntensorflow.estimator\n"
    assert [line for line, _ in found(text, tensorflow="2.21")] == [3]
    assert [line for line, _ in found(f"import tensorflow\ntensorflow.estimator\n{text}", tensorflow="2.21")] == [2]
    assert found(text.replace("tensorflow.keras", "tensorflow.keras as keras"), tensorflow="2.21") == []


def test_a_model_is_also_what_is_fitted() -> None:
    assert found(f"{SETUP}network.fit(features)\nnetwork.save('folder')", tensorflow="2.21") != []
    assert found(f"{SETUP}self.keras_model.save(os.environ['SM_MODEL_DIR'])", tensorflow="2.21") != []
    assert found(f"{SETUP}model.save(args.model_dir)", tensorflow="2.21") != []
    assert found(f"{SETUP}model.save(args.path)", tensorflow="2.21") == []


def test_the_reason_names_the_version_and_what_to_use() -> None:
    text = (
        "import tensorflow as tf\nimport torch._six\nmodel.save('folder')\ntf.estimator.Estimator()\ntf.estimator.X\n"
    )
    assert found(text, tensorflow="2.21", torch="2.13.0") == [
        (2, "torch 2.13.0 has no torch._six, since 2.0: use math.inf, str and collections.abc"),
        (
            3,
            "save takes paths that end with .keras or .h5 or .hdf5 alone: name a file, or write a SavedModel by "
            "model.export(folder) (Keras 3, which TensorFlow 2.21 has)",
        ),
        (4, "tensorflow 2.21 has no tensorflow.estimator, since 2.16: use a model of tf.keras"),
    ]
    assert found(text, torch="1.13.1") == []


def test_numpy_lacks_what_is_said_of_it_and_has_what_is_named_alike() -> None:
    for [name] in ([name] for one in REMOVED["numpy"] for name in one.names):
        assert name.partition(".")[2] not in dir(numpy)
        text = f"import numpy as np\nfrom numpy import random\nx = {name.replace('numpy', 'np')}\n"
        assert [line for line, _ in found(text, numpy="1.26 or newer")] == [3]
        assert found(text, numpy="1.23.5") == found(text) == []
    text = "import numpy as np\nnp.float64, np.int32, np.object_, np.bool_, np.str_, np.complex64, np.integer\n"
    assert found(text, numpy="2.4.6") == []


def test_pytorch_lacks_what_is_said_of_it() -> None:
    for one in REMOVED["torch"]:
        for name in one.names:
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)


def test_python_lacks_what_is_said_of_its_version() -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for one in _OF_PYTHON:
        for name in one.names:
            module, _, member = name.rpartition(".")
            text = f"from {module} import {member}\n" if module else f"import {name}\n"
            assert found(text, python=one.since) == [
                (1, f"Python {one.since} has no {name}, since {one.since}: use {one.instead}")
            ]
            before = f"3.{int(one.since.partition('.')[2]) - 1}"
            assert found(text, python=before) == []
            if found(text, python=here):
                with pytest.raises(ImportError):
                    exec(text)


# By hand, of 3.12.1 and 3.13.0: each module of PEP 594 and each name is there in the one and not in the other.
def test_names_that_this_python_still_has_are_not_said_to_be_gone_before_it() -> None:
    now = (sys.version_info.major, sys.version_info.minor)
    later = [one for one in _OF_PYTHON if tuple(map(int, one.since.split("."))) > now]
    missing = [name for one in later for name in one.names if not _is_here(name)]
    assert set(missing) <= {"nis", "spwd", "crypt", "ossaudiodev"}  # of some systems alone


def _is_here(name: str) -> bool:
    module, _, member = name.rpartition(".")
    if not module:
        return importlib.util.find_spec(name) is not None
    return hasattr(importlib.import_module(module), member)


def test_a_module_of_the_scripts_own_is_none_of_pythons() -> None:
    script = Script("train.py", "import chunk, cgi\nprint(chunk.of(cgi))\n")
    own = Script("chunk.py", "def of(one): ...\n")
    reasons = [one.reason for one in lint([script, own], Job(versions={"python": "3.13"})) if one.rule == "removed"]
    assert reasons == ["Python 3.13 has no cgi, since 3.13: use a package from PyPI (PEP 594)"]


def test_a_name_that_a_script_tries_to_import_is_left_out_wherever_it_is_used() -> None:
    text = (
        "try:\n    from transformers import AdamW\nexcept ImportError:\n    AdamW = None\noptimizer = AdamW.of(model)\n"
    )
    assert found(text, transformers="5.3.0") == []
    assert (
        len(found(text.replace("try:", "if True:").replace("except ImportError:", "else:"), transformers="5.3.0")) == 1
    )


def test_transformers_lacks_what_is_said_of_it() -> None:
    gone = names_of_others("transformers", transformers.__version__)
    assert len(gone) > 1_000
    assert [name for name in gone if hasattr(transformers, name)] == []
    text = "import transformers\nfrom transformers import AdamW, AutoModel\ntransformers.TFAutoModel.from_pretrained('x')\n"
    assert found(text, transformers="5.3.0") == [
        (2, "transformers 5.3.0 has no AdamW, which 4.49 had last"),
        (3, "transformers 5.3.0 has no TFAutoModel, which 4.57 had last"),
    ]
    assert found(text, transformers="4.49.0") == found(text, transformers="9.0") == []
    for name in ("AdamW", "TFAutoModel"):
        with pytest.raises(ImportError):
            exec(f"from transformers import {name}")
