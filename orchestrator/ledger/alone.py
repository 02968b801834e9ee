"""To change what lies beside a ledger while nobody leads its study, without writing to the ledger itself."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchestrator.ledger.lease import Lease
from orchestrator.ledger.local_log import lock
from trainables.storage import Location


@contextmanager
def alone(ledger: Location, say: Callable[[str], None] = lambda _: None) -> Iterator[Callable[[], None]]:
    """Inside, no other process begins to lead the study. Gives what is to be called now and then, as between two
    files. Both raise InputError where another process leads it; ``say`` is told what is waited for."""
    if ledger.local is not None:
        exclusive = lock(ledger.local)
        try:
            yield lambda: None
        finally:
            os.close(exclusive)
        return
    lease = Lease(ledger, say)
    try:
        yield lease.renew_if_due
    finally:
        lease.release()
