"""The command ``training-jobs``."""

from __future__ import annotations


def app() -> None:
    """Run the command line."""
    from training_jobs.cli.main import main

    main()
