"""Writes the Python of a stack whose workflow sends the same request as an existing job.

``adopted_stack`` translates a CreateTrainingJob request; ``request_of_job`` reads that of a job, and
``request_of_script`` that which a script of SageMaker's SDK would send. Each member of the request is either set in the stack or
in its list of differences.
"""

from training_jobs.adopt.members import Difference as Difference
from training_jobs.adopt.stack import Adopted as Adopted
from training_jobs.adopt.stack import adopted_stack as adopted_stack
