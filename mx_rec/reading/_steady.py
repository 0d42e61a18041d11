"""Reading a checkpoint that another process may replace or remove meanwhile.

A reader first opens all it needs and then makes sure that the name still means what it meant when it began: then all
that was opened is of one save, and stays so. Where that fails, because another save took the name, it begins again.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Optional, TypeVar

from mx_rec._log import logger
from mx_rec.checkpoint import _chain, _layout, _manifest
from mx_rec.transaction import _recovery

# A save takes milliseconds at least, opening files less than one: twenty of them in a row are no accident.
ATTEMPTS = 20
# While a save puts its directories in their places, whoever lists them may miss the old one and the new one; a process
# that waits for its turn just then makes that last for milliseconds. So what is missing so often, and so many seconds
# apart, is not there.
LOOKS, APART = 5, 0.01

_T = TypeVar("_T")


class Version(NamedTuple):
    """What the name of a checkpoint means at an instant. Another save under that name makes it another one."""

    prefix: str
    location: _recovery.Location
    manifest_crc32c: Optional[int]
    dense_index_crc32c: Optional[int]
    shares: tuple[str, ...]  # where the tables of all ranks are that saved it together, each into its own

    @classmethod
    def of(cls, prefix: str) -> "Version":
        location = _recovery.locate(prefix)
        crcs = _manifest.identity(location.sparse), _layout.dense_crc32c(location.dense)
        return cls(prefix, location, *crcs, _shares_of(location.sparse))

    def is_current(self) -> bool:
        """Tells whether the name still means this version."""
        return Version.of(self.prefix) == self

    def is_settled(self, error: Exception) -> bool:
        """Tells whether a reading of this version that failed by `error` would fail again: the name still means this
        version, and if that is nothing, then not only for an instant."""
        if isinstance(error, ReplacedError):
            return False  # even if the name means this version again: it was seen between two renames
        if os.path.isdir(self.location.sparse):
            return self.is_current()
        return not comes_back(lambda: os.path.isdir(self.location.sparse) or not self.is_current())

    def confirm(self) -> None:
        """Raises ReplacedError unless the name still means this version. Files that were opened since this was made are
        of one save if this returns."""
        if not self.is_current():
            raise ReplacedError(f"checkpoint '{self.prefix}' was replaced or removed while it was read")


def comes_back(is_there: Callable[[], bool]) -> bool:
    """Tells whether what is missing was so only for an instant, between two renames."""
    for _ in range(LOOKS - 1):
        time.sleep(APART)
        if is_there():
            return True
    return False


def _shares_of(directory):
    try:
        prefixes = _chain.prefixes_of_save(directory)
    except (OSError, ValueError):
        return ()  # whoever reads the manifest says so
    return tuple(_recovery.locate(prefix).sparse for prefix in prefixes) if len(prefixes) > 1 else ()


class ReplacedError(ValueError):
    """Another save took a checkpoint's name, or removed it, while it was read."""


def steadily(
    prefix: str,
    read: Callable[[Version], _T],
    is_settled: Callable[[Version, Exception], bool] = Version.is_settled,
) -> _T:
    """Returns read(version) of the checkpoint `prefix`; again if it raises and the checkpoint was replaced meanwhile,
    as `is_settled` tells. `read` must take back what it did when it raises. ReplacedError if that never ends."""
    for _ in range(ATTEMPTS):
        version = Version.of(prefix)
        try:
            return read(version)
        except Exception as error:
            if is_settled(version, error):
                raise
            failure = error
            logger.info("checkpoint '%s' was replaced while it was read; reading begins again (%s)", prefix, error)
    raise ReplacedError(
        f"checkpoint '{prefix}' was replaced by another save each of the {ATTEMPTS} times it was read; save less "
        "often, or under a name with the step, global_step=..., so that a checkpoint stays for a while"
    ) from failure
