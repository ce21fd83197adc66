"""docs/troubleshooting.md quotes messages as the code has them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of AWS, of the CDK CLI, of Docker, by whom they are documented: retries.md, the local account and its tests have the first ones.
OF_OTHERS = {
    "403 Forbidden",
    "SSM parameter /cdk-bootstrap/hnb659fds/version not found",
    "NUMBER_VALUE can not be converted to String",
    "InvalidClientTokenId",
    "ModuleNotFoundError",
    "Unknown interface: aws-cdk-lib.cloud_assembly_schema.MetadataEntry",
}


def test_each_message_of_the_page_is_one_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE)
    quoted = {text for row in rows for text in re.findall(r"`([^`]+)`", row)} - OF_OTHERS - {"public.ecr.aws"}
    assert len(quoted) > 10
    folders = [ROOT / name for name in ("constructs", "local_account", "training_jobs")]
    code = "\n".join(file.read_text() for folder in folders for file in folder.rglob("*.py"))
    # A message that is written in two literals is one text.
    joined = re.sub(r'"\n\s*f?"', "", code)
    # The formatter of errors puts "must" between a prop and its rule.
    formatted = re.sub(r'must\(\s*f?"([^"]*)",\s*f?"', r'"\1 must ', joined)
    assert [text for text in quoted if text.removeprefix("must ") not in joined and text not in formatted] == []
