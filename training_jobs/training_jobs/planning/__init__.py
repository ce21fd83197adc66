"""Predicts the time, the bottleneck and the cost of a training step on given machines, from measurements and prices."""
