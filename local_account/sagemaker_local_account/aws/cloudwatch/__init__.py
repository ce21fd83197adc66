"""CloudWatch: alarms, which moto stores and never evaluates."""
