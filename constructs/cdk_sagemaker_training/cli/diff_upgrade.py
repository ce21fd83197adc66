"""``training-jobs diff-upgrade``: what a newer version of the library changes in an app, before it is deployed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from cdk_sagemaker_training.cli.context import AsJson
from cdk_sagemaker_training.cli.errors import JOB_FAILED
from cdk_sagemaker_training.cli.output import print_json


def diff_upgrade(
    old: Annotated[
        Path, typer.Argument(metavar="OLD", help="What `cdk synth --output OLD` wrote with the version in use.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The same with the newer version.")],
    as_json: AsJson = False,
) -> None:
    """Compare logical ids, CreateTrainingJob requests and IAM permissions of two syntheses; exit code 1 if any is breaking.

    Needs no credentials. Hashes of images and files are no difference.
    """
    from cdk_sagemaker_training.upgrades.assembly import read_assembly
    from cdk_sagemaker_training.upgrades.differences import differences

    try:
        found = differences(read_assembly(old), read_assembly(new))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    breaking = sum(one.breaking for one in found)
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        for one in found:
            typer.echo(f"{'breaking' if one.breaking else 'other':8}  {one.stack}: {one.kind}: {one.what}")
        typer.echo(f"{breaking} breaking, {len(found) - breaking} other")
    if breaking:
        raise typer.Exit(JOB_FAILED)
