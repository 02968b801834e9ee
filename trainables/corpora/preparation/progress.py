"""How far a preparation is, how fast it goes, and what it took."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Packing(NamedTuple):
    """What of the text is tokenised and packed. What an earlier preparation had made is there at once: it counts in no
    rate."""

    parts: int = 0  # all of them
    total_bytes: int = 0  # of the text, as it is stored
    done_bytes: int = 0  # of the parts that are done
    tokens: int = 0  # of those
    made_parts: int = 0  # by this preparation
    made_bytes: int = 0
    made_tokens: int = 0
    seconds: float = 0.0  # since the packing began
    whole_seconds: float = 0.0  # since the preparation began
    machines: int = 0  # that made a part
    abandoned: int = 0  # other preparations in the same store, which were removed

    @property
    def tokens_per_second(self) -> float | None:
        """Of this preparation; None before its first part."""
        return self.made_tokens / self.seconds if self.made_parts and self.seconds else None

    @property
    def seconds_left(self) -> float | None:
        """Until the text is packed, if the rest goes as fast; None before the first part."""
        if not self.made_bytes:
            return None
        return (self.total_bytes - self.done_bytes) * self.seconds / self.made_bytes


class Progress(NamedTuple):
    """How far the preparation is."""

    stage: str  # a key of ``orchestrator.reporting.corpus.STAGES``
    done: int  # parts, or tasks of another kind
    parts: int  # all of them; 1 where it is not known how far the stage is
    packing: Packing = Packing()  # in the stages ``packing`` and ``packed``, the last one


class Meter:
    """Counts what is packed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._machines = set[str]()
        self._packing, self._packing_began = Packing(), self._began

    @property
    def packing(self) -> Packing:
        """What is packed by now."""
        now = self._clock()
        return self._packing._replace(seconds=now - self._packing_began, whole_seconds=now - self._began)

    def begin(self, parts: int, total_bytes: int) -> None:
        """The packing of so many parts and so much text begins."""
        self._packing, self._packing_began = Packing(parts, total_bytes), self._clock()

    def count(self, size_bytes: int, tokens: int, made_by: str | None) -> None:
        """A part is done: made by a machine, or there already."""
        packing = self._packing
        packing = packing._replace(done_bytes=packing.done_bytes + size_bytes, tokens=packing.tokens + tokens)
        if made_by is not None:
            self._machines.add(made_by)
            packing = packing._replace(
                made_parts=packing.made_parts + 1,
                made_bytes=packing.made_bytes + size_bytes,
                made_tokens=packing.made_tokens + tokens,
                machines=len(self._machines),
            )
        self._packing = packing
