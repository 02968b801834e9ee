"""Studies as jobs of a Ray cluster: submit, list, follow and stop.

A job's driver runs on the cluster's head node, so the study goes on when this machine sleeps. The study file and our
own packages travel with the job; torch and the other dependencies are installed on the cluster. Results are read from
the study's storage afterwards: nothing comes back through the job but its output.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from orchestrator.config.files import override, study_names
from orchestrator.config.folder import STUDY_FILE
from orchestrator.config.yaml_text import parse_yaml
from orchestrator.planning.machine import require_whole_ray
from trainables.config import Config
from trainables.errors import InputError, near, nearest
from trainables.object_store import SCHEMES
from trainables.storage import is_here, local_path

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

OUR_PACKAGES = ("orchestrator", "trainables", "search_spaces")

_OUR_COMMANDS = ("h2h", "orchestrator.cli")  # the second after `python -m`
_TAKE_VALUES = ("--set", "--address")  # of their options

_POLL_SECONDS = 2.0
_CONNECTION_SECONDS, _ANSWER_SECONDS = 10.0, 60.0  # the second between two pieces; Ray's client waits for ever
_SLOWEST_UPLOAD = 50_000  # bytes a second: what is sent counts as connecting
_PATIENCE_SECONDS = 120.0  # a head node under load, a proxy or a tunnel may fail for a while; the job goes on meanwhile
_EXIT_CODES = {"SUCCEEDED": 0, "SUBMITTED": 0, "FAILED": 1, "UNREACHABLE": 1, "STOPPED": 130, "DETACHED": 130}


@dataclass(frozen=True)
class Submission:
    """A submitted job, as last seen."""

    submission_id: str  # the name by which the cluster knows the job
    address: str  # the job server's address
    status: str
    """Ray's SUCCEEDED, FAILED or STOPPED; or, of a job that may still run: SUBMITTED when not waited for,
    DETACHED when following was interrupted, UNREACHABLE when the job server was lost while following."""
    message: str = ""  # Ray's words on the status

    @property
    def exit_code(self) -> int:
        """The command line's: 0 done or submitted, 1 failed or lost, 130 stopped or interrupted."""
        return _EXIT_CODES[self.status]


def submit(
    study: Path | str,
    *,
    address: str,
    overrides: Sequence[str] = (),
    working_dir: Path | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    wait: bool = True,
    on_line: Callable[[str], None] = print,
) -> Submission:
    """Run ``h2h run STUDY --resume --set ...`` as a job on a cluster: a study that has begun is gone on with. Raises
    InputError if the study, working folder, runtime environment or storage cannot be used by a job, or the cluster is
    not reached, or refuses it.

    Args:
        study: a study file, which travels with the job; or a shipped study's name; or a study's folder, here or on an
            object store.
        address: the job server, ``http://HOST:8265``; on another machine mostly through a tunnel.
        working_dir: a folder that travels with the job, for a study that names files beside it; else the file alone.
        runtime_env: Ray's runtime environment. Our packages are added to its ``py_modules``, unless that is ``[]``:
            then the cluster has them installed.
        wait: follow the job to its end, each line of its output to ``on_line``; Ctrl-C ends that, not the job.
    """
    require_whole_ray("a job", "h2h submit")
    _require_url(address)
    environment = dict(runtime_env or {})
    _require_known(environment)
    if working_dir is not None and "working_dir" in environment:
        raise InputError("working_dir is given twice", where="runtime_env", remedy="give one of the two")
    py_modules = environment.pop("py_modules", None)
    if py_modules != []:
        environment["py_modules"] = [*(py_modules or ()), *(str(files(name)) for name in OUR_PACKAGES)]
    begun = _begun(study, address)
    file = None if begun else _study_file(study, working_dir)
    if not begun:
        _require_reachable_storage(file, overrides, address)
    client = _connect(address)
    submission_id = re.sub(r"[^\w.-]+", "-", f"h2h-{Path(study).stem}-{uuid.uuid4().hex[:8]}")
    with tempfile.TemporaryDirectory() as temporary:
        argument = begun or str(study)
        if working_dir is not None:
            environment["working_dir"] = str(working_dir)
            argument = file.relative_to(working_dir.resolve()).as_posix() if file else argument
        elif file is not None and "working_dir" not in environment:
            shutil.copy(file, temporary)
            environment["working_dir"] = temporary
            argument = file.name
        entrypoint = _entrypoint(argument, overrides)
        with _explained(address):
            client.submit_job(entrypoint=entrypoint, runtime_env=environment, submission_id=submission_id)
    on_line(f"submitted {submission_id} to {address}")
    if not wait:
        _say_how_to_return(submission_id, address, on_line)
        return Submission(submission_id, address, "SUBMITTED")
    return _follow(client, submission_id, address, on_line)


class Submitted(Config):
    """What became of a job."""

    format: Literal["headtohead.submission/1"] = "headtohead.submission/1"
    submission_id: str
    address: str
    """The job server's."""
    status: str
    """As of :class:`Submission`; STOPPING of one that was asked to end, ENDED of one that had ended before it was."""
    message: str = ""
    folder: str = ""
    """The study's, where that is known."""


class StudyJob(Config):
    """A job that runs a study, as the cluster knows it."""

    submission_id: str
    status: str
    """Ray's: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED."""
    began: float | None
    """In seconds since the epoch."""
    ended: float | None
    study: str
    """As it was submitted: a file, a name or a folder."""


class JobList(Config):
    """A cluster's jobs that run studies, the last one first."""

    format: Literal["headtohead.jobs/1"] = "headtohead.jobs/1"
    jobs: tuple[StudyJob, ...]


def study_jobs(address: str) -> list[StudyJob]:
    """The cluster's jobs that run studies, the last one first. Raises InputError if the cluster is not reached."""
    return _study_jobs(_connect(address), address)


def _study_jobs(client: JobSubmissionClient, address: str) -> list[StudyJob]:
    with _explained(address):
        found = client.list_jobs()
    jobs = [
        StudyJob(
            submission_id=job.submission_id,
            status=str(job.status.value),
            began=None if job.start_time is None else job.start_time / 1000,
            ended=None if job.end_time is None else job.end_time / 1000,
            study=study,
        )
        for job in found
        if job.submission_id is not None and (study := _study_of(job.entrypoint)) is not None
    ]
    return sorted(jobs, key=lambda job: job.began or math.inf, reverse=True)


def follow_job(address: str, submission_id: str, on_line: Callable[[str], None] = print) -> Submission:
    """Follow a job's output from its beginning to its end; Ctrl-C ends that, not the job. Raises InputError."""
    return _follow(_client_of(address, submission_id), submission_id, address, on_line)


def stop_job(address: str, submission_id: str) -> bool:
    """Ask a job to end: as Ray gives it some seconds, what runs may be saved. Whether it had not ended already. Raises
    InputError."""
    client = _client_of(address, submission_id)
    with _explained(address):
        return bool(client.stop_job(submission_id))


def _client_of(address: str, submission_id: str) -> JobSubmissionClient:
    """Of the cluster that has this job. Raises InputError if it is no study's."""
    client = _connect(address)
    known = [job.submission_id for job in _study_jobs(client, address)]
    if submission_id not in known:
        raise InputError(
            f"the cluster at {address} has no study's job {submission_id}", remedy=nearest(submission_id, known)
        )
    return client


def _study_of(entrypoint: str) -> str | None:
    """The study that a job's command runs; None where it is another command."""
    try:
        words = shlex.split(entrypoint)
    except ValueError:  # not ours: its quotes are not even
        return None
    place = next((index for index, word in enumerate(words) if word.rpartition("/")[2] in _OUR_COMMANDS), None)
    if place is None or words[place + 1 : place + 2] not in (["run"], ["resume"], ["extend"]):
        return None
    rest = zip(words[place + 1 :], words[place + 2 :], strict=False)
    return next((word for before, word in rest if not word.startswith("-") and before not in _TAKE_VALUES), None)


def read_runtime_env(text: str) -> dict[str, Any]:
    """A runtime environment, of a YAML or JSON file or text. Raises InputError if it is no YAML, or no mapping."""
    is_file = "\n" not in text and not text.lstrip().startswith("{") and is_here(text)
    value = parse_yaml(Path(text).read_bytes() if is_file else text, text)
    if not isinstance(value, dict):
        raise InputError(
            "the runtime environment is no mapping",
            where=text,
            remedy="an existing YAML or JSON file, or e.g. '{env_vars: {HF_HOME: /data/hf}}'",
        )
    return value


def _require_known(environment: Mapping[str, Any]) -> None:
    """Raises InputError for a misspelt key, which Ray would pass over, and modules that are no list."""
    from ray.runtime_env import RuntimeEnv

    known = sorted(RuntimeEnv.known_fields)
    for key in environment:
        if key not in known and (meant := near(str(key), known)):  # any other may be a plugin's
            raise InputError(f"unknown key '{key}'", where="runtime_env", remedy=meant)
    if isinstance(environment.get("py_modules"), str | Mapping):
        raise InputError("'py_modules' is no list", where="runtime_env", remedy="py_modules: [s3://BUCKET/x.zip]")


def _entrypoint(study: str, overrides: Sequence[str]) -> str:
    settings = [word for override in overrides for word in ("--set", override)]
    return shlex.join(["python", "-m", "orchestrator.cli", "run", study, "--resume", *settings])


def _begun(study: Path | str, address: str) -> str | None:
    """The folder of a study that has begun, as the cluster can name it. Raises InputError if it cannot."""
    if "://" in str(study):
        return str(study)
    if str(study) in study_names() or not (Path(study) / STUDY_FILE).is_file():
        return None
    if not _is_this_machines(address):
        raise InputError(
            f"the study lies in a folder of this machine, but the cluster is at {address}",
            where=str(local_path(study)),
            why="its machines do not have it",
            remedy=f"where they share it, on one of them: h2h resume {local_path(study)} --address auto",
        )
    return str(local_path(study))


def _study_file(study: Path | str, working_dir: Path | None) -> Path | None:
    """The study's file on this machine, or None for a shipped study's name."""
    if str(study) in study_names():
        return None
    candidates = [Path(study)] if working_dir is None else [Path(study), working_dir / study]
    file = next((path.resolve() for path in candidates if path.is_file()), None)
    if file is None:
        raise InputError(
            f"there is no study file {study}",
            remedy="an existing file, a shipped study's name (h2h list), or a study's folder",
        )
    if file and working_dir is not None and not file.is_relative_to(working_dir.resolve()):
        raise InputError(
            f"the study file {file} is not in the working folder {working_dir}",
            why="only the working folder travels with the job",
            remedy="move it there, or leave out the working folder",
        )
    return file


def _require_reachable_storage(file: Path | None, overrides: Sequence[str], address: str) -> None:
    declared = parse_yaml(file.read_bytes(), str(file)) if file else None
    content = declared if isinstance(declared, dict) else {}
    override(content, overrides)
    storage = str(content.get("storage") or "")
    if storage.startswith((*(f"{scheme}://" for scheme in SCHEMES), "file:///")):
        return  # the last: who writes it so means a folder that the machines share, which is looked at there
    if "://" in storage:
        raise InputError(
            f"a study cannot lie in {storage}",
            where="storage",
            remedy="--set storage=s3://BUCKET/studies (or gs://...)",
        )
    said = storage or "not set"
    if not _is_this_machines(address):
        raise InputError(
            f"the storage is {said}, but the cluster is at {address}",
            where="storage",
            why="a local path would lie on the cluster's nodes, each its own, and be lost with them",
            remedy="--set storage=s3://BUCKET/studies (or gs://...); a folder that its machines share: file:///FOLDER",
        )
    if not storage.startswith(("/", "~")):
        raise InputError(
            f"the storage is {said}, which a job takes for a folder beside its own files",
            where="storage",
            why="Ray removes those with the cluster, and replaces them while it runs",
            remedy=f"--set storage=s3://BUCKET/studies (or gs://...), or a folder that the cluster's machines share: "
            f"--set storage={shlex.quote(str(local_path(storage or 'studies')))}",
        )


def _is_this_machines(address: str) -> bool:
    """Whether it may be this machine's cluster; or a tunnel to one, where only the user knows what a path means."""
    return urlsplit(address).hostname in {"127.0.0.1", "localhost", "::1"}


def _require_url(address: str) -> None:
    try:
        parts = urlsplit(address)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:  # brackets that are not closed
        is_url = False
    if not is_url:
        raise InputError(
            f"'{address}' is no job server's address",
            remedy="http://HOST:8265, as `ray start` or `ray dashboard` says it",
        )


def _connect(address: str) -> JobSubmissionClient:
    from ray.job_submission import JobSubmissionClient

    class Client(JobSubmissionClient):  # type: ignore[misc]  # Ray has no types here
        """Waits so long for an answer."""

        def _do_request(self, *arguments: Any, data: bytes | None = None, **options: Any) -> Any:
            sending = _CONNECTION_SECONDS + len(data or b"") / _SLOWEST_UPLOAD
            return super()._do_request(*arguments, data=data, timeout=(sending, _ANSWER_SECONDS), **options)

    _require_url(address)
    # Ray lets these variables win over its argument; what the user said in this call wins here.
    variables = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    saved = {name: os.environ.pop(name) for name in variables if name in os.environ}
    try:
        with _explained(address):
            return Client(address, headers=_authorization())
    finally:
        os.environ.update(saved)


def _authorization() -> dict[str, str]:
    """The user's token, from where Ray looks for it; like ``ray.init``, not if ``RAY_AUTH_MODE=disabled``."""
    if os.environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return {}
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if not token and file.is_file():
        token = file.read_text(encoding="utf-8")
    return {"Authorization": f"Bearer {token.strip()}"} if token.strip() else {}


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Errors of Ray's client as errors that say what to do."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as error:
        raise _refused_token(address, error) from error
    except (ConnectionError, requests.RequestException) as error:
        raise InputError(
            f"no job server answers at {address}",
            why=str(error),
            remedy="check the address; to a remote cluster open a tunnel first: `ray dashboard CLUSTER.yaml` "
            "or `kubectl port-forward service/NAME-head-svc 8265:8265`",
        ) from error
    except (RuntimeError, ValueError, TypeError) as error:  # Ray's, for every refusal by client or server
        text = str(error)
        if "exceeds the maximum size" in text or "Maximum request body size" in text:
            raise InputError(
                "the working folder is too large to travel with the job",
                where="working_dir",
                why=text.strip().splitlines()[-1],
                remedy="leave data out of it (a .rayignore file there) and name it by s3://...",
            ) from error
        raise InputError(f"the cluster at {address} refuses the job", why=text) from error


def _refused_token(address: str, error: Exception) -> InputError:
    return InputError(
        f"the cluster at {address} refuses the token",
        why=str(error).splitlines()[0],
        remedy="put the cluster's token in ~/.ray/auth_token, in the file that RAY_AUTH_TOKEN_PATH "
        "names, or in RAY_AUTH_TOKEN; `RAY_AUTH_MODE=token ray get-auth-token` prints it on the head",
    )


def _follow(
    client: JobSubmissionClient, submission_id: str, address: str, on_line: Callable[[str], None]
) -> Submission:
    """Hand on the job's output until it ends. Ray's own follower is a websocket that ends quietly when a proxy closes
    it; asking again survives that."""
    try:
        return _poll(client, submission_id, address, on_line)
    except KeyboardInterrupt:
        on_line("no longer following; the job goes on")
        _say_how_to_return(submission_id, address, on_line)
        return Submission(submission_id, address, "DETACHED")


def _poll(client: JobSubmissionClient, submission_id: str, address: str, on_line: Callable[[str], None]) -> Submission:
    import requests
    from ray.exceptions import AuthenticationError

    shown = 0
    last_answer = time.monotonic()
    while True:
        try:
            details = client.get_job_info(submission_id)  # before the logs, so that the last logs are complete
            logs = client.get_job_logs(submission_id)
        except AuthenticationError as error:
            raise _refused_token(address, error) from error
        except (requests.RequestException, RuntimeError) as error:
            if time.monotonic() - last_answer > _PATIENCE_SECONDS:
                on_line(f"lost the job server at {address}: {error}")
                _say_how_to_return(submission_id, address, on_line)
                return Submission(submission_id, address, "UNREACHABLE", str(error))
        else:
            last_answer = time.monotonic()
            ended = details.status.is_terminal()
            end = len(logs) if ended else logs.rfind("\n") + 1
            for line in logs[shown:end].splitlines():
                on_line(line)
            shown = max(shown, end)
            if ended:
                if details.status != "SUCCEEDED":
                    # Ray adds the end of the output, which was just shown.
                    why = (details.message or "").partition(", last available logs")[0]
                    on_line(f"the job ended as {details.status}: {why}")
                return Submission(submission_id, address, str(details.status), details.message or "")
        time.sleep(_POLL_SECONDS)


def _say_how_to_return(submission_id: str, address: str, on_line: Callable[[str], None]) -> None:
    on_line(f"  follow: h2h jobs {address} --follow {submission_id}")
    on_line(f"  stop:   h2h jobs {address} --stop {submission_id}")
