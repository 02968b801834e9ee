"""The check of a study's models in a process of its own, while its text is read: torch takes seconds to import, and the
study's process needs it for nothing else."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from orchestrator.config.study import StudySpec
from trainables.errors import InputError


class ModelCheck:
    """Begins at once. Its files are in a folder of its own: whatever else it prints is in one of them."""

    def __init__(self, spec: StudySpec) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="h2h-models-")
        folder = Path(self._folder.name)
        self._answer, self._output = folder / "answer.json", folder / "output"
        (folder / "study.json").write_text(json.dumps(spec.model_dump(mode="json")))
        # The modules that this process finds; and of the current folder only where it is one of their places.
        path = [place or str(Path.cwd()) for place in sys.path if isinstance(place, str)]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(folder)],
                stdin=subprocess.PIPE,  # ends with this process
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
                start_new_session=True,  # Ctrl-C is for the study's process, which ends this one
            )

    def require_sound(self, *, waiting: bool = True) -> None:
        """Raises InputError as ``checked_plans`` does; without ``waiting``, if that is known by now."""
        if not waiting and self._process.poll() is None:
            return
        self._process.wait()
        if not self._answer.exists():
            raise RuntimeError(f"the check of the models broke off:\n{self._output.read_text(errors='replace')}")
        if error := json.loads(self._answer.read_bytes()):
            raise InputError(**error)

    def close(self) -> None:
        """End the process."""
        with self._process, self._folder:
            self._process.kill()


def main() -> None:
    """The process: writes the error, null where there is none. It ends with its input."""
    threading.Thread(target=lambda: os._exit(len(sys.stdin.buffer.read())), daemon=True).start()
    from orchestrator.planning.arm_plan import checked_plans

    folder, error = Path(sys.argv[1]), None
    try:
        checked_plans(StudySpec.model_validate(json.loads((folder / "study.json").read_bytes())))
    except InputError as found:
        error = vars(found)
    (folder / "answer.json").write_text(json.dumps(error))


if __name__ == "__main__":
    main()
