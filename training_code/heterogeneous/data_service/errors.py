"""What a user of the data service may have to catch."""


class DataServiceError(Exception):
    """The service cannot go on; the text says why."""


class DataHostLost(DataServiceError):
    """A data host answers no more, or never did; the text names it, and says when and why."""


class TrainerFailed(DataServiceError):
    """A training rank has failed, or has not been heard of for too long."""
