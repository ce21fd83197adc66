"""SNS: delivery to queues and to endpoints of this machine."""
