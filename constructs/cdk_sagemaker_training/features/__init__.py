"""Features of a workflow, each in a file of its own."""
