"""What a step of a training takes on machines, what bounds it, and what it costs: from measurements and prices."""
