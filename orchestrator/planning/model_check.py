"""The check of a study's models in a process of its own, while the study's text is read and Ray starts: torch takes
seconds to import, and the study's process needs it for nothing else."""

import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

from orchestrator.config.study import StudySpec
from trainables.errors import InputError


class ModelCheck:
    """Begins at once."""

    def __init__(self, spec: StudySpec) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for the study's process, which ends this one
        )
        assert self._process.stdin is not None
        with self._process.stdin as there:
            there.write(spec.model_dump_json().encode())

    def require_sound(self, *, waiting: bool = True) -> None:
        """Raises InputError as ``checked_plans`` does; without ``waiting``, if that is known by now."""
        if not waiting and self._process.poll() is None:
            return
        assert self._process.stdout is not None
        found = self._process.stdout.read()  # nothing, where it was read before
        if self._process.wait():
            raise subprocess.CalledProcessError(self._process.returncode, self._process.args)
        if error := json.loads(found or "null"):
            raise InputError(**error)

    def close(self) -> None:
        """End the process."""
        with self._process:
            self._process.kill()


if __name__ == "__main__":
    error = None
    with redirect_stdout(sys.stderr):  # an objective of another package may print
        from orchestrator.planning.arm_plan import checked_plans

        try:
            checked_plans(StudySpec.model_validate_json(sys.stdin.buffer.read()))
        except InputError as found:
            error = vars(found)
    print(json.dumps(error))
