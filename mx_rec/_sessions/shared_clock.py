"""Decisions by the clock on the wall that all ranks take alike: whatever rank 0's clock says.

Hooks that act on all ranks, as a save does, must act at the same step. A clock that is asked after every step would
cost an exchange each time, so rank 0 also says how many questions later it wants to be asked again.
"""

import struct
import time

from mx_rec import _ranks

# What rank 0 tells: whether the time has come, and how many questions the others may answer with "no" by themselves.
_ANSWER = struct.Struct("<?i")
# So that a step that takes much longer than those before it does not put a decision off for ever.
_MOST_UNASKED = 1000


class SharedClock:
    """Seconds since it was made or restarted. All ranks must ask the clock of a name equally often."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._unasked = 0  # questions that need no exchange
        self._asked_at = time.monotonic()
        self._questions = 0  # since the last exchange
        self.restart()

    def restart(self) -> None:
        """Lets time begin anew."""
        self._began = time.monotonic()
        self._unasked = 0

    def has_passed(self, seconds: float) -> bool:
        """Tells whether so much time has passed, by rank 0's clock."""
        now = time.monotonic()
        if not _ranks.are_several():
            return now - self._began >= seconds
        self._questions += 1
        if self._unasked > 0:
            self._unasked -= 1
            return False
        left = seconds - (now - self._began)
        each = max(now - self._asked_at, 1e-6) / self._questions
        mine = _ANSWER.pack(left <= 0, max(0, min(_MOST_UNASKED, int(left / each / 2))))
        has_passed, self._unasked = _ANSWER.unpack(_ranks.gather(f"clock of {self._name}", mine)[0])
        self._asked_at, self._questions = now, 0
        return has_passed
