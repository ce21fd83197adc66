"""A script that takes any hyperparameters."""

import sys

print(sys.argv[1:])
