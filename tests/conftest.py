"""Settings for every test."""

import os

# CDK's template validator takes seconds for each synthesis. It runs where it is what is tested, in test_examples.py.
os.environ.setdefault("CDK_VALIDATION", "false")
