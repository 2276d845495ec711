"""When a connection that has ended is made again, and how often before it is given up."""

from __future__ import annotations

import time
from collections.abc import Callable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class Reconnect:
    """As client/reconnect.h: one that the controller had taken is made again at once; attempts that
    reach nobody follow after pauses that double up to two seconds."""

    def __init__(self, patience: float, now: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._now = now
        self._over = now() + patience
        self._pause = 0.0

    def pause_after(self, taken: bool) -> float | None:
        """What to wait before the next one; None: it was tried for long enough."""
        if taken:
            self._over = self._now() + self._patience
            self._pause = 0.0
        else:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        return None if self._now() >= self._over else self._pause
