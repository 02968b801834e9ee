"""How far trials' checkpoints came, asked of the storage beside Tune's loop: it may take minutes to answer."""

import time
from concurrent.futures import Future, ThreadPoolExecutor

from orchestrator.ledger.remote_log import lost_storage
from trainables.storage import Location
from trainables.training.checkpoint_record import CheckpointFolders

_THREADS = 4


class NewestCheckpoints:
    """The newest checkpoints of a study's trials, looked up by threads."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="newest-checkpoint")
        self._asked: dict[str, Future[int]] = {}

    def step(self, trial: str) -> int | None:
        """The step of the newest one, 0 without any; None while the storage has not answered: ask again. Each answer is
        given once. Raises InputError: the storage is lost."""
        if trial not in self._asked:
            self._asked[trial] = self._threads.submit(lambda: self._look(trial))
        if not self._asked[trial].done():
            return None
        return self._asked.pop(trial).result()

    def _look(self, trial: str) -> int:
        checkpoints, began = self._folder / "trials" / trial, time.monotonic()
        try:
            return max(CheckpointFolders(checkpoints).steps(), default=0)
        except OSError as error:
            raise lost_storage(checkpoints, self._folder, error, time.monotonic() - began) from error
