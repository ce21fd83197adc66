from pathlib import Path

import pytest

from sagemaker_local_account.images.dockerignore import ignored_by, matcher


@pytest.mark.parametrize(
    ("patterns", "path", "is_ignored"),
    [
        ("*.pyc", "a.pyc", True),
        ("*.pyc", "package/a.pyc", False),
        ("**/*.pyc", "package/inner/a.pyc", True),
        ("**/*.pyc", "a.pyc", True),
        ("data", "data/images/1.png", True),
        ("data/", "data/1.png", True),
        ("/data", "data/1.png", True),
        ("data", "more/data/1.png", False),
        ("data/**/raw", "data/a/b/raw/1.png", True),
        ("model-?.py", "model-1.py", True),
        ("model-?.py", "model-12.py", False),
        ("model[0-4].py", "model3.py", True),
        ("model[^0-4].py", "model3.py", False),
        ("*\n!train.py", "train.py", False),
        ("*\n!train.py", "test.py", True),
        ("!train.py\n*", "train.py", True),
        ("data\n!data/keep", "data/keep/1.png", False),
        ("# *.py", "a.py", False),
        ("\n\n", "a.py", False),
        (".git", ".github/a", False),
    ],
)
def test_patterns_match_as_docker_says(patterns: str, path: str, is_ignored: bool):
    assert matcher(patterns)(path) is is_ignored


def test_the_file_in_the_context_counts(tmp_path: Path):
    (tmp_path / ".dockerignore").write_text("*.csv")
    assert ignored_by(tmp_path, tmp_path / "Dockerfile")("a.csv")


def test_a_file_named_after_the_dockerfile_counts_in_its_place(tmp_path: Path):
    (tmp_path / ".dockerignore").write_text("*.csv")
    (tmp_path / "gpu.Dockerfile.dockerignore").write_text("*.png")
    ignored = ignored_by(tmp_path, tmp_path / "gpu.Dockerfile")
    assert (ignored("a.csv"), ignored("a.png")) == (False, True)


def test_nothing_is_ignored_without_either(tmp_path: Path):
    assert not ignored_by(tmp_path, tmp_path / "Dockerfile")("Dockerfile")
