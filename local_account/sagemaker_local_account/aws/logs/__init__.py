"""CloudWatch Logs: filters, and a limit on memory."""
