"""The source roots stand beside PyPI's packages without shadowing them."""

import constructs


def test_constructs_is_still_the_package_that_aws_cdk_imports() -> None:
    assert hasattr(constructs, "Construct")
