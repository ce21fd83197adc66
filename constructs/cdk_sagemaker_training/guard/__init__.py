"""What stops jobs that nothing needs any more, and keeps what running executions need: events, a schedule, deletions, updates."""
