"""What can be wrong with a checkpoint that a tool is asked to read."""


class CheckpointError(ValueError):
    """A checkpoint cannot be used as asked; the message says why and what to do."""


class NewerFormatError(CheckpointError):
    """A later version of this package wrote it: whether it is whole, this one cannot know."""


class DamagedError(CheckpointError):
    """A file is missing or does not hold what it should; the message names it."""


def damage(path: str, what: str) -> DamagedError:
    return DamagedError(f"checkpoint file '{path}' {what}")


def unreadable(path: str, error: OSError) -> CheckpointError:
    return CheckpointError(f"cannot read '{path}': {error.strerror or error}")
