"""A folder with the training script, as a value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal

from cdk_sagemaker_training.core.errors import must
from cdk_sagemaker_training.props.prop import Known, Prop, kind
from cdk_sagemaker_training.props.prop_types import Value, check_fields

# What no training script needs, and what changes without the code.
_EXCLUDED = ("__pycache__", "*.pyc", ".*", "cdk.out", "node_modules")


_READ = Known("synth", "since the folder is read")
# What starts the script with its arguments in another form, beside it in the archive.
STARTER, SETTINGS = "script_arguments.py", "script_arguments.json"
ArgumentsForm = Literal["--key value", "--key=value", "key=value"]


@kind("TrainingCode('src', entry_point='train.py')")
@dataclass(frozen=True)
class TrainingCode(Value):
    """A folder with the training script, for an image whose toolkit fetches it, such as one of AWS's containers.

    The deployment uploads the folder as an asset, and SageMaker's toolkit unpacks it into ``/opt/ml/code`` and starts the
    script, as for the SageMaker Python SDK's ``source_dir`` and ``entry_point``. So an edit needs neither Docker nor a push. A
    ``requirements.txt`` in the folder is installed when the job starts.

    Args:
        directory: The folder, of which hidden files, ``__pycache__``, ``node_modules`` and ``cdk.out`` are left out.
        entry_point: Path of the script relative to ``directory``. A file that does not end in ``.py`` is run by the shell.
        exclude: Patterns of files and folders to leave out too, such as ``"*.ipynb"``; each is compared with the path relative
            to ``directory`` and with the name alone (fnmatch).
        arguments: How the script takes its hyperparameters. The toolkit passes ``--key value`` (`to_cmd_args` in mapping.py of
            sagemaker-training), which argparse takes; nanoGPT's configurator takes ``--key=value``, Hydra ``key=value``. For
            another form than the toolkit's a file beside the script starts it.
        flags: Hyperparameters that are options without a value, such as argparse's ``store_true``: they are given where the
            hyperparameter is true, and left out where it is false.

    Raises:
        ValueError: ``directory`` is not a folder, does not contain ``entry_point``, or contains the name of the file that
            ``arguments`` and ``flags`` need.
    """

    directory: Annotated[str, Prop(known=_READ, example="'src'")]
    entry_point: Annotated[str, _READ] = "train.py"
    exclude: Annotated[Sequence[str], _READ] = ()
    arguments: Annotated[ArgumentsForm, _READ] = "--key value"
    flags: Annotated[Sequence[str], _READ] = ()

    @property
    def starter(self) -> bool:
        """Whether a file beside the script starts it, with its arguments in another form than the toolkit's."""
        return bool(self.flags) or self.arguments != "--key value"

    @property
    def program(self) -> str:
        """Path of what the toolkit starts in the archive."""
        return STARTER if self.starter else self.entry_point

    def __post_init__(self) -> None:
        check_fields(self)
        if not Path(self.directory).is_dir():
            raise must("directory", "be a folder with the training script", "'src'", repr(self.directory))
        if self.starter and (taken := {STARTER, SETTINGS} & set(map(str, self.files()))):
            rule = "be a folder without a file of this name, which arguments and flags put beside the script"
            raise must("directory", rule, "'src'", f"{self.directory!r} with {min(taken)!r}")
        if self.entry_point in map(str, self.files()):
            return
        scripts = (str(path) for path in self.files() if path.suffix == ".py")
        rule = "be a file of directory that exclude does not leave out"
        example = repr(next(scripts, "train.py"))
        raise must("entry_point", rule, example, f"{self.entry_point!r} with directory={self.directory!r}")

    def files(self) -> Iterator[Path]:
        """The paths of the files relative to ``directory``, in an order that does not depend on the file system.

        Links are followed to files, and not to folders.
        """
        yield from self._files_below(Path())

    def _files_below(self, folder: Path) -> Iterator[Path]:
        for path in sorted((Path(self.directory) / folder).iterdir()):
            relative = folder / path.name
            if any(
                fnmatch(text, pattern) for pattern in (*_EXCLUDED, *self.exclude) for text in (path.name, str(relative))
            ):
                continue
            if path.is_file():
                yield relative
            elif path.is_dir() and not path.is_symlink():
                yield from self._files_below(relative)
