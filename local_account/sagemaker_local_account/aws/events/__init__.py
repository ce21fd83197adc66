"""EventBridge: rules, patterns, targets, and what they invoke."""
