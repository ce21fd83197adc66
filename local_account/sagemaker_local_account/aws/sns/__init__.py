"""SNS: delivery to queues, functions and endpoints of this machine."""
