"""TensorBoard: an event file for each run.

A file's content follows from the run alone, byte by byte. One that is a beginning of it is gone on with, as TensorBoard
reads files that grow; another is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

from google.protobuf.struct_pb2 import Value
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from orchestrator.reporting.table import to_markdown
from orchestrator.reporting.track.projection import Run, axes_of, on_axis
from search_spaces import Setting
from trainables.errors import InputError
from trainables.storage import Location, space_for

FAILURES = (OSError,)

_REPORT = "report.html"


class TensorBoard:
    """Event files, a folder for each run: below ``folder``, where ``shared`` with other studies below a folder for each
    study."""

    def __init__(self, folder: Path, *, shared: bool) -> None:
        self._folder, self._shared = folder, shared
        self.place = f"{folder}   (tensorboard --logdir {folder})"

    def put(self, run: Run) -> bool:
        study = self._folder / f"{run.study}-{run.origin[:6]}" if self._shared else self._folder
        folder = study / run.name
        content = b"".join(map(_framed, _events(run)))
        before = sorted(folder.glob("events.out.tfevents.*")) if folder.is_dir() else []
        whole = before[0].read_bytes() if len(before) == 1 else None
        if run.answer is not None:
            page = run.answer.page.encode()
            if whole == content and (folder / _REPORT).exists() and (folder / _REPORT).read_bytes() == page:
                return False
            Location(folder / _REPORT).write_bytes(page)
        if whole == content:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        if whole is not None and content.startswith(whole):
            file = before[0]
        else:  # under another name: TensorBoard goes on reading a file that it knows where it stopped
            number = max([int(name.name.split(".")[4]) for name in before], default=0) + 1
            file = folder / f"events.out.tfevents.{run.began:.0f}.{number}.headtohead"
            whole = b""
        with space_for(file), file.open("ab") as end:
            end.write(content[len(whole) :])
        for old in before:
            if old != file:
                old.unlink()
        return True


def open_tracker(study: Location, at: str | None) -> TensorBoard:
    """Into ``at``, else into the study's folder. Raises InputError where that is not on this machine."""
    folder = Location(at) if at is not None else study / "tensorboard"
    if folder.local is None:
        raise InputError(
            "event files are written on this machine alone",
            where=str(folder),
            why="they grow while a study runs, which an object store's files do not",
            remedy="--at FOLDER, a folder here",
        )
    return TensorBoard(folder.local, shared=at is not None)


def _events(run: Run) -> Iterator[Event]:
    """What the file holds; the beginning does not change when the run goes on."""
    yield Event(wall_time=run.began, file_version="brain.Event:2")
    if run.answer is None:
        yield Event(wall_time=run.began, summary=_settings(run))
    for step in run.steps:
        for axis, place in axes_of(run, step):
            values = {on_axis(name, axis): value for name, value in sorted(step.values.items())}
            yield Event(wall_time=step.time, step=place, summary=_numbers(values))
    if run.final:
        last = run.began if run.ended is None else run.ended
        texts = {name: value for name, value in run.said.items() if isinstance(value, str) and value}
        if run.answer is not None:
            texts |= {name: to_markdown(table) for name, table in run.answer.tables.items()}
        numbers = {name: value for name, value in run.said.items() if not isinstance(value, str)}
        yield Event(wall_time=last, summary=_numbers(numbers))
        yield Event(wall_time=last, summary=Summary(value=[_text(name, text) for name, text in texts.items()]))


def _numbers(values: Mapping[str, float]) -> Summary:
    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])


def _settings(run: Run) -> Summary:
    """For the table of hyperparameters."""
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=run.began)
    for name, value in {"arm": run.group, "phase": run.job_type, **run.settings}.items():
        start.hparams[name].CopyFrom(_value(value))
    data = plugin_data_pb2.HParamsPluginData(session_start_info=start, version=0)
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString(deterministic=True))
    return Summary(
        value=[Summary.Value(tag="_hparams_/session_start_info", metadata=SummaryMetadata(plugin_data=plugin))]
    )


def _value(setting: Setting) -> Value:
    if isinstance(setting, bool):
        return Value(bool_value=setting)
    if isinstance(setting, int | float):
        return Value(number_value=setting)
    return Value(string_value=str(setting))


def _text(name: str, text: str) -> Summary.Value:
    tensor = TensorProto(
        dtype=DT_STRING, string_val=[text.encode()], tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    )
    plugin = SummaryMetadata.PluginData(plugin_name="text")
    return Summary.Value(tag=f"{name}/text_summary", metadata=SummaryMetadata(plugin_data=plugin), tensor=tensor)


def _framed(event: Event) -> bytes:
    """As a record of a file of records: its length, the digest of that, itself, its digest."""
    file = BytesIO()
    RecordWriter(file).write(event.SerializeToString(deterministic=True))
    return file.getvalue()
