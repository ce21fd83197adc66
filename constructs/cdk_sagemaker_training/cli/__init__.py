"""The command ``training-jobs``."""

from __future__ import annotations


def app() -> None:
    """Run the command line."""
    from cdk_sagemaker_training.cli.main import main

    main()
