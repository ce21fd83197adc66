"""Lambda functions in Python, each invocation of which runs in a separate host."""
