"""Finds mistakes in training scripts that cost time, end a job or train wrong, by their syntax alone: nothing is imported or run.

Each rule has its source in its docstring. A comment ``# training-jobs: allow RULE`` switches a rule off, on the line that is
found or the one above it, and above the file's first statement for the whole file. The standard library, packaging,
PyYAML and dockerfile-parse are all that this needs.
"""

from training_jobs.lint.checks import Finding as Finding
from training_jobs.lint.checks import lint as lint
from training_jobs.lint.checks import lint_folder as lint_folder
from training_jobs.lint.checks import scripts_of as scripts_of
from training_jobs.lint.command_arguments import refused_arguments as refused_arguments
from training_jobs.lint.commands import Command as Command
from training_jobs.lint.commands import names_launcher as names_launcher
from training_jobs.lint.dataclass_options import options_of as options_of
from training_jobs.lint.deepspeed_file import deepspeed_refusals as deepspeed_refusals
from training_jobs.lint.options import ignored as ignored
from training_jobs.lint.options import ignored_keys as ignored_keys
from training_jobs.lint.options import refusals as refusals
from training_jobs.lint.rules import channels_of as channels_of
from training_jobs.lint.script import Job as Job
from training_jobs.lint.shell import UNKNOWN as UNKNOWN
