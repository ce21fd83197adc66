"""Run the tests that are marked `aws` in the account of the caller's credentials: `make test-aws`.

Prints what they create and what that costs at most, and runs them only if that is agreed to: by `--yes`, or at the prompt.
Ends with 2 where there is no account to run them in, or nobody agreed, else as pytest does.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent / "end_to_end")]

from aws_account import AwsAccount, NoAccount  # noqa: E402

TESTS = [str(HERE.parent / "end_to_end")]
REFUSED = 2


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--yes", action="store_true", help="agree to what is printed")
    arguments.add_argument(
        "--only", default="", metavar="EXPRESSION", help="of the marked tests those that pytest's -k selects"
    )
    options = arguments.parse_args()
    try:
        account = AwsAccount(Path.cwd())
        account.check_bootstrapped()
    except NoAccount as error:
        print(f"test-aws: {error}", file=sys.stderr)
        return REFUSED
    # Imported here: whoever has no account need not wait for aws_cdk.
    from aws_plan import Collector, plan

    # aws_cdk, which is imported above, brings typeguard along, whose plugin pytest would rather import itself.
    quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:typeguard"]
    selected = [*quiet, "-m", "aws", "-k", options.only, "-p", "no:cacheprovider", *TESTS]
    collector = Collector()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        collected = pytest.main(["--collect-only", *selected], plugins=[collector])
    if collected != pytest.ExitCode.OK:
        print(said.getvalue())
        return int(collected)
    print(plan(collector.marked, account.number, account.region))
    if not (options.yes or _agreed()):
        print("test-aws: nothing was created; say --yes to agree", file=sys.stderr)
        return REFUSED
    return int(pytest.main(["--aws", "--verbose", *selected]))


def _agreed() -> bool:
    return sys.stdin.isatty() and input("\nGo on? [y/N] ").strip().lower() in ("y", "yes")


if __name__ == "__main__":
    sys.exit(main())
