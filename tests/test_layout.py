"""The source roots stand beside PyPI's packages without shadowing them, and names in the constructs say what they name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import constructs


def test_constructs_is_still_the_package_that_aws_cdk_imports() -> None:
    assert hasattr(constructs, "Construct")


#: Words that name nothing, so that no search and no guess finds what is called by them.
NO_NAMES = {"again", "every", "how", "made", "one", "own", "turns"}


def names(file: Path) -> Iterator[str]:
    """The names that a file's code gives to functions, classes, parameters, variables and attributes."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def test_names_in_the_constructs_say_what_they_name() -> None:
    library = Path(__file__).parents[1] / "constructs"
    found = {
        f"{file.name}: {name}" for file in library.rglob("*.py") for name in names(file) if name.strip("_") in NO_NAMES
    }
    assert found == set()
