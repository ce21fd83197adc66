"""Lambda functions in Python, whose execution environments are separate hosts."""
