"""EventBridge, SNS, CloudWatch's alarms, metrics and logs."""
