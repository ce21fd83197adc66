"""The account's web page: stacks, executions, jobs and buckets, read only."""
