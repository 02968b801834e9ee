"""Studies in trackers: what is handed on, once and only once, and that a tracker's trouble is none of the study.

What a tracker holds is read back with its own library; those that are not installed are skipped.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from orchestrator.config.trackers import TRACKERS, TrackerName
from orchestrator.ledger.history import History
from orchestrator.ledger.records import BegunRecord, EndRecord, MeasureRecord, Record, TrialRecord
from orchestrator.reporting.results import Results
from orchestrator.reporting.track.companion import companions
from orchestrator.reporting.track.exporting import Export, export
from orchestrator.reporting.track.projection import run_of
from tests.helpers.demonstration import records
from tests.helpers.ledgers import begun, changed, write_ledger
from trainables.errors import InputError
from trainables.storage import Location

KILLED = "confirm-headless-000"
INSTALLED = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"{name} is not installed"))
    for name in TRACKERS
]


@dataclass
class Shown:
    """A run, as a tracker's own library reads it."""

    group: str
    job_type: str
    settings: dict[str, object]
    losses: list[tuple[float, float]]
    """Tokens and loss, in the order in which they are shown."""
    said: dict[str, object]
    texts: list[str]
    """Tables and pages, whatever their form."""


def the_records() -> list[Record]:
    return list(records(seeds=2, num_search=2))


def killed_after(report: int, *, checkpoint: int) -> list[Record]:
    """The study, in which a run was killed after a report and went on from the checkpoint of an earlier one: what came
    between is reported twice, with other losses."""
    whole: list[Record] = []
    before: list[MeasureRecord] = []
    attempt = 1
    for record in the_records():
        if isinstance(record, BegunRecord | MeasureRecord | EndRecord) and record.trial == KILLED and attempt > 1:
            record = changed(record, attempt=attempt)
        whole.append(record)
        if not isinstance(record, MeasureRecord) or record.trial != KILLED:
            continue
        before.append(record)
        if len(before) == report:
            attempt = 2
            first = next(r for r in whole if isinstance(r, TrialRecord) and r.trial == KILLED)
            again = changed(first, attempt=2, start_step=before[checkpoint - 1].step, time=record.time)
            whole += [again, begun(again, spent=before[checkpoint - 1].spent)]
            whole += [changed(r, attempt=2, loss=r.loss + 0.25, time=record.time) for r in before[checkpoint:]]
    return whole


def losses_of(written: Sequence[Record]) -> dict[str, list[tuple[float, float]]]:
    """By trial, tokens and loss of the steps that were not rolled back: told from the records alone."""
    found: dict[str, list[MeasureRecord]] = {}
    for record in written:
        if isinstance(record, TrialRecord):
            found[record.trial] = [m for m in found.get(record.trial, []) if m.step <= record.start_step]
        elif isinstance(record, MeasureRecord):
            found[record.trial].append(record)
    return {trial: [(m.spent["tokens"], m.loss or 0.0) for m in measures] for trial, measures in found.items()}


def write_study(folder: Path, written: Sequence[Record], segment: int = 1) -> Location:
    write_ledger(folder, written, segment)
    (folder / "study.yaml").write_text("name: demonstration")
    return Location(folder)


def read_tensorboard(folder: Path) -> dict[str, Shown]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = {}
    for file in folder.rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(file.parent), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        tags = events.Tags()
        summary = file.parent.name.startswith("summary-")
        content = b"" if summary else events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
        hparams = HParamsPluginData.FromString(content).session_start_info.hparams
        values = {name: getattr(value, value.WhichOneof("kind")) for name, value in hparams.items()}
        texts = {
            tag.removesuffix("/text_summary"): events.Tensors(tag)[0].tensor_proto.string_val[0].decode()
            for tag in tags["tensors"]
            if tag.endswith("/text_summary")
        }
        losses = events.Scalars("loss/tokens") if "loss/tokens" in tags["scalars"] else []
        page = file.parent / "report.html"
        assert len(list(file.parent.glob("events*"))) == 1
        found[file.parent.name] = Shown(
            group=str(values.pop("arm", "")),
            job_type=str(values.pop("phase", "")),
            settings=values,
            losses=[(event.step, event.value) for event in losses],
            said=dict(texts),
            texts=[*texts.values(), *([page.read_text()] if page.exists() else [])],
        )
    return found


def read_trackio(folder: Path) -> dict[str, Shown]:
    import trackio
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    found = {}
    for run in trackio.Api().runs("headless-vs-vanilla"):
        config = dict(run.config or {})
        logs = SQLiteStorage.get_logs("headless-vs-vanilla", run.name, run_id=run.id)
        texts = [json.dumps(value) for log in logs for value in log.values() if isinstance(value, dict | list)]
        pages = [log["report"]["file_path"] for log in logs if "report" in log]
        assert run.name not in found
        found[run.name] = Shown(
            group=str(config.pop("_Group")),
            job_type=str(config.pop("phase")),
            settings=config,
            losses=[(log["spent/tokens"], log["loss"]) for log in logs if "loss" in log],
            said={name: value for log in logs for name, value in log.items()} | config,
            texts=[*texts, *((MEDIA_DIR / page).read_text() for page in pages)],
        )
    return found


def read_mlflow(folder: Path) -> dict[str, Shown]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("headless-vs-vanilla")
    found = {}
    for run in client.search_runs([experiment.experiment_id]):
        history = client.get_metric_history(run.info.run_id, "loss/tokens")
        artifacts = [Path(run.info.artifact_uri) / file.path for file in client.list_artifacts(run.info.run_id)]
        assert run.info.run_name not in found
        found[run.info.run_name] = Shown(
            group=run.data.tags["arm"],
            job_type=run.data.tags["phase"],
            settings=dict(run.data.params),
            losses=sorted((metric.step, metric.value) for metric in history),
            said=run.data.tags | run.data.metrics,
            texts=[file.read_text() for file in artifacts],
        )
    return found


def records_of(file: Path) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log format, after a header of seven bytes."""
    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of its parts
            yield parts
            parts = b""


def read_wandb(folder: Path) -> dict[str, Shown]:
    from wandb.proto.wandb_internal_pb2 import Record as Written

    found = {}
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        shown, rows, summary = None, [], {}
        for data in records_of(file):
            record = Written.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                shown = record.run
            elif kind == "history":
                rows.append(
                    {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                )
            elif kind == "summary":
                summary |= {item.key or item.nested_key[0]: item.value_json for item in record.summary.update}
        assert shown is not None
        assert shown.display_name not in found
        settings = {item.key: json.loads(item.value_json) for item in shown.config.update if item.key != "_wandb"}
        found[shown.display_name] = Shown(
            group=shown.run_group,
            job_type=shown.job_type,
            settings=settings,
            losses=[(row["spent/tokens"], row["loss"]) for row in rows if "loss" in row],
            said={name: json.loads(value) for name, value in summary.items()},
            texts=[media.read_text() for media in (file.parent / "files" / "media").rglob("*") if media.is_file()],
        )
    return found


READERS: dict[TrackerName, Callable[[Path], dict[str, Shown]]] = {
    "tensorboard": read_tensorboard,
    "trackio": read_trackio,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
}


@pytest.fixture(scope="module")
def trackio_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trackio has one folder in a process."""
    folder = Path(os.environ.setdefault("TRACKIO_DIR", str(tmp_path_factory.mktemp("trackio"))))
    return folder.absolute()


@pytest.fixture
def place(request: pytest.FixtureRequest, name: TrackerName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a tracker writes; nothing leaves the machine."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    if name != "trackio":
        return tmp_path / "tracker"
    folder: Path = request.getfixturevalue("trackio_folder")
    for file in folder.glob("*.db*"):
        file.unlink()
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in folder.rglob("*") if f.is_file() and not f.name.endswith((".lock", "-shm"))}


@pytest.mark.parametrize("name", INSTALLED)
def test_a_study_as_a_tracker_has_it(name: TrackerName, place: Path, tmp_path: Path) -> None:
    written = killed_after(7, checkpoint=4)
    folder = write_study(tmp_path / "study", written)
    done = export(folder, name, str(place), lambda _: None)
    assert len(done.written) == len(done.history.trials) + 1
    shown, expected = READERS[name](place), losses_of(written)
    summary = shown.pop("summary-headless-vs-vanilla")
    assert shown.keys() == expected.keys()
    for trial, run in shown.items():
        assert [tokens for tokens, _ in run.losses] == pytest.approx([tokens for tokens, _ in expected[trial]], abs=1)
        assert [loss for _, loss in run.losses] == pytest.approx([loss for _, loss in expected[trial]])
        assert (run.job_type, run.group) == tuple(trial.split("-")[:2])
        history = done.history.trials[trial]
        assert float(str(run.settings["learning_rate"])) == pytest.approx(history.configuration["learning_rate"])
        assert run.said["outcome"] == history.outcome
    results = Results(folder)
    assert summary.said["verdict"] == results.verdict
    assert any("headless" in text and "vanilla" in text for text in summary.texts)
    assert any("<!doctype html>" in text.lower() and results.head in text for text in summary.texts)
    before = content(place)
    assert export(folder, name, str(place), lambda _: None).written == set()
    assert content(place) == before


@pytest.mark.parametrize("name", [param for param in INSTALLED if param.values == ("trackio",)])
def test_of_two_studies_of_one_name_each_has_its_report(name: TrackerName, place: Path, tmp_path: Path) -> None:
    written = killed_after(7, checkpoint=4)
    other = [written[0].model_copy(update={"time": written[0].time - 1.0}), *written[1:]]
    heads = set()
    for place_of, own in (("a", written), ("b", other)):
        folder = write_study(tmp_path / place_of, own)
        export(folder, name, str(place), lambda _: None)
        heads.add(Results(folder).head)
    pages = [file.read_text() for file in place.rglob("*.html")]
    assert len(heads) == 2
    assert all(any(head in page for page in pages) for head in heads)


@pytest.mark.parametrize("checkpoint", [4, 2], ids=["from its last checkpoint", "from one before, as that is damaged"])
@pytest.mark.parametrize("name", INSTALLED)
def test_a_study_that_is_followed_comes_to_the_same(
    name: TrackerName, place: Path, tmp_path: Path, checkpoint: int
) -> None:
    written = killed_after(7, checkpoint=checkpoint)
    expected = losses_of(written)
    beginnings = [i for i, r in enumerate(written) if isinstance(r, TrialRecord) and r.trial == KILLED]
    cuts = [40, beginnings[1], beginnings[1] + 4, len(written)]
    following, start = None, 0
    for segment, cut in enumerate(cuts, start=1):
        folder = write_study(tmp_path / "study", written[start:cut], segment)
        if following is None or segment == 3:  # what follows it is another process after a while
            following = Export(folder, name, str(place))
        following.catch_up()
        start = cut
        losses = {trial: run.losses for trial, run in READERS[name](place).items()}
        if checkpoint == 4:  # nothing was there that is rolled back later
            for trial, shown in losses.items():
                known = expected.get(trial, [])[: len(shown)]
                assert [loss for _, loss in shown] == pytest.approx([loss for _, loss in known]), (segment, trial)
    losses.pop("summary-headless-vs-vanilla")
    assert {trial: [loss for _, loss in shown] for trial, shown in losses.items()} == {
        trial: pytest.approx([loss for _, loss in known]) for trial, known in expected.items()
    }
    assert export(folder, name, str(place), lambda _: None).written == set()


@pytest.mark.parametrize("name", INSTALLED)
def test_an_extended_study_has_one_summary(name: TrackerName, place: Path, tmp_path: Path) -> None:
    """Its new answer takes the place of the old one."""
    written = the_records()
    folder = write_study(tmp_path / "study", written)
    export(folder, name, str(place), lambda _: None)
    last = changed(written[-1], time=written[-1].time + 5)  # whatever is added, the ledger's head is another
    write_study(tmp_path / "study", [last], segment=2)
    assert export(folder, name, str(place), lambda _: None).written == {"summary-headless-vs-vanilla"}
    texts = READERS[name](place)["summary-headless-vs-vanilla"].texts
    pages = [text for text in texts if "<!doctype html>" in text.lower()]
    assert len(pages) == 1
    assert Results(folder).head in pages[0]


def test_a_trial_that_runs_has_the_steps_before_its_last_checkpoint() -> None:
    """It was evaluated at reports 2, 4 and 6 of 7: the checkpoint of the sixth may still be on its way."""
    history, reports = History(), 0
    for record in the_records():
        history.apply(record)
        reports += isinstance(record, MeasureRecord) and record.trial == KILLED
        if reports == 7:
            break
    run = run_of(history, history.trials[KILLED])
    assert [step.number for step in run.steps] == [10, 20, 30, 40]
    assert not run.final
    assert run.said == {}


def test_a_trial_that_stopped_at_a_rung_is_final_when_its_search_is() -> None:
    history = History()
    whole = records()
    pruned = next(r for r in whole if isinstance(r, EndRecord) and r.outcome == "pruned")
    for record in whole[: whole.index(pruned) + 1]:
        history.apply(record)
    assert not run_of(history, history.trials[pruned.trial]).final
    for record in whole[whole.index(pruned) + 1 :]:
        history.apply(record)
    run = run_of(history, history.trials[pruned.trial])
    assert run.final
    assert run.said["outcome"] == "pruned"


@pytest.mark.parametrize("spec", [None, ModuleSpec("mlflow", None)], ids=["nothing", "a folder of that name"])
def test_a_tracker_that_is_not_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None
) -> None:
    folder = write_study(tmp_path, the_records())
    monkeypatch.setattr("orchestrator.reporting.track.tracker.find_spec", lambda _: spec)
    with pytest.raises(InputError, match="the library of the tracker mlflow is not installed") as caught:
        export(folder, "mlflow", None, lambda _: None)
    assert "pip install mlflow" in caught.value.remedy


pytest_tensorboard = pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")


@pytest_tensorboard
def test_beside_a_study_a_process_hands_it_on(tmp_path: Path) -> None:
    written, warnings = the_records(), list[str]()
    folder = write_study(tmp_path, written[:60])
    with companions(folder, ["tensorboard"], warnings.append):
        write_study(tmp_path, written[60:], segment=2)
    assert {name: len(run.losses) for name, run in read_tensorboard(tmp_path / "tensorboard").items()} == {
        name: len(losses) for name, losses in losses_of(written).items()
    } | {"summary-headless-vs-vanilla": 0}
    assert warnings == []


@pytest_tensorboard
def test_a_tracker_that_fails_is_a_warning(tmp_path: Path) -> None:
    folder = write_study(tmp_path, the_records())
    (tmp_path / "tensorboard").write_text("this is no folder")
    warnings: list[str] = []
    with companions(folder, ["tensorboard"], warnings.append):
        pass
    (warning,) = warnings
    assert warning.startswith("the tracker tensorboard gets no more of this study, which goes on: tensorboard did not")
    assert warning.endswith(f"h2h track {folder} --to tensorboard")


@pytest_tensorboard
def test_the_process_ends_when_its_study_is_killed(tmp_path: Path) -> None:
    folder = write_study(tmp_path, the_records()[:60])
    program = """
import sys, time
from orchestrator.reporting.track.companion import Companion
from trainables.storage import Location
print(Companion(Location(sys.argv[1]), "tensorboard", print)._process.pid, flush=True)
time.sleep(600)
"""
    study = subprocess.Popen([sys.executable, "-c", program, folder.uri], stdout=subprocess.PIPE, text=True)
    assert study.stdout is not None
    companion = int(study.stdout.readline())
    study.send_signal(signal.SIGKILL)
    study.wait()
    until = time.monotonic() + 60
    while Path(f"/proc/{companion}").exists() and "Z" not in Path(f"/proc/{companion}/stat").read_text().split()[2]:
        assert time.monotonic() < until, "it goes on without its study"
        time.sleep(0.2)
    assert read_tensorboard(tmp_path / "tensorboard"), "what there was is handed on"
