"""The constructs that run jobs: TrainingTask, TrainingWorkflow, and their state machines."""
