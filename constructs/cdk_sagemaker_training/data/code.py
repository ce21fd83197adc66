"""A folder with the training script, as a value."""

from __future__ import annotations

import shlex
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
    ``requirements.txt`` in the folder is installed when the job starts; so is the folder itself where it has a ``setup.py``.

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
        command: A command of bash in the folder, in place of ``entry_point`` and of a launcher, such as ``'accelerate launch
            --config_file fsdp.yaml train.py "$@"'``; it ends at its first error. ``"$@"`` are the hyperparameters as ``--key
            value``; ``SM_HP_LR`` is the one named ``lr``. Beside the toolkit's variables it finds those of ModelTrainer
            (SageMaker's Python SDK, version 3): ``SM_HOST_COUNT``, ``SM_CURRENT_HOST_RANK``, ``SM_MASTER_ADDR`` and
            ``SM_MASTER_PORT``.

    Raises:
        ValueError: ``directory`` is not a folder, does not contain ``entry_point``, or contains the name of a file that starts
            the script; ``command`` is beside ``entry_point``, ``arguments`` or ``flags``, or has a quote without an end.
    """

    directory: Annotated[str, Prop(known=_READ, example="'src'")]
    entry_point: Annotated[str, _READ] = "train.py"
    exclude: Annotated[Sequence[str], _READ] = ()
    arguments: Annotated[ArgumentsForm, _READ] = "--key value"
    flags: Annotated[Sequence[str], _READ] = ()
    command: Annotated[str | None, _READ] = None

    @property
    def starter(self) -> bool:
        """Whether a file beside the script starts it.

        It passes arguments in another form than the toolkit's; and the toolkit installs requirements for a Python script alone
        (`install` in entry_point.py of sagemaker-training).
        """
        given = self.flags or self.arguments != "--key value" or self.command is not None
        return bool(given) or (self.is_shell_script and self.has("requirements.txt"))

    @property
    def is_shell_script(self) -> bool:
        """Whether the entry point is run by the shell."""
        return self.command is None and not self.entry_point.endswith(".py")

    @property
    def program(self) -> str:
        """Path of what the toolkit starts in the archive."""
        return STARTER if self.starter else self.entry_point

    @property
    def script(self) -> str:
        """Path of the script that is started: of a command, the first Python file of the folder that it names, or ``""``."""
        if self.command is None:
            return self.entry_point
        files = {*map(str, self.files())}
        words = (str(Path(word)) for word in shlex.split(self.command) if word.endswith(".py"))
        return next((word for word in words if word in files), "")

    def __post_init__(self) -> None:
        check_fields(self)
        if not Path(self.directory).is_dir():
            raise must("directory", "be a folder with the training script", "'src'", repr(self.directory))
        if self.starter and (taken := {STARTER, SETTINGS} & set(map(str, self.files()))):
            rule = "be a folder without a file of this name, by which the script is started"
            raise must("directory", rule, "'src'", f"{self.directory!r} with {min(taken)!r}")
        if self.command is not None:
            self._check_command(self.command)
            return
        if self.entry_point in map(str, self.files()):
            return
        scripts = (str(path) for path in self.files() if path.suffix == ".py")
        rule = "be a file of directory that exclude does not leave out"
        example = repr(next(scripts, "train.py"))
        raise must("entry_point", rule, example, f"{self.entry_point!r} with directory={self.directory!r}")

    def _check_command(self, command: str) -> None:
        example = """'accelerate launch --config_file fsdp.yaml train.py "$@"'"""
        for name, value, default in (
            ("entry_point", self.entry_point, "train.py"),
            ("arguments", self.arguments, "--key value"),
            ("flags", tuple(self.flags), ()),
        ):
            if value != default:
                raise must(
                    name, "be left out beside command, which has the script and its arguments", example, repr(value)
                )
        try:
            if shlex.split(command):
                return
        except ValueError:
            pass
        raise must("command", "be a command of bash, with an end for each quote", example, repr(command))

    def files(self) -> Iterator[Path]:
        """The paths of the files relative to ``directory``, in an order that does not depend on the file system.

        Links are followed to files, and not to folders.
        """
        yield from self._files_below(Path())

    def has(self, name: str) -> bool:
        """Return whether a file is at the top of the folder, and not left out.

        Args:
            name: The file's name, like ``"setup.py"``.
        """
        return not self._leaves_out(Path(name)) and Path(self.directory, name).is_file()

    def _leaves_out(self, path: Path) -> bool:
        patterns = (*_EXCLUDED, *self.exclude)
        return any(fnmatch(text, pattern) for pattern in patterns for text in (path.name, str(path)))

    def _files_below(self, folder: Path) -> Iterator[Path]:
        for path in sorted((Path(self.directory) / folder).iterdir()):
            relative = folder / path.name
            if self._leaves_out(relative):
                continue
            if path.is_file():
                yield relative
            elif path.is_dir() and not path.is_symlink():
                yield from self._files_below(relative)
