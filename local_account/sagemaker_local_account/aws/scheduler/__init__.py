"""EventBridge Scheduler: schedules, which moto stores and never invokes."""
