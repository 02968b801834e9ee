"""Checkpoints of a very small trial, changed at random, and loaded as a resumed trial and an export load them."""

from __future__ import annotations

import copy
import json
import random
import shutil
import struct
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.helpers.corpus import write_corpus
from tests.helpers.fuzzing import places_in, require_readable
from tests.helpers.mutations import mutated
from tests.helpers.trials import make_config, make_trial, stop_after
from trainables.corpora.stream.packed import PackedCorpus
from trainables.errors import InputError
from trainables.hashing import checksum
from trainables.storage import Location
from trainables.training.checkpoint import Checkpoints

STEPS = (8, 16)
VALUES: list[Any] = [
    *[None, True, False, 0, 1, -1, 1.5, 10**30, -(10**30), 1e300, float("inf"), "", "x", "\0", "../../etc/passwd"],
    *["auto", "00", "0" * 16, "f" * 32, "\x1b[2J", "x" * 70_000, [], [[]], [None], [0], [10**30], {}, {"x": 1}],
    *[{"x": {}}, {"model.safetensors": {}}],
]


@cache
def corpus(folder: Path) -> PackedCorpus:
    return write_corpus(folder / "corpus", {"en": 40, "sw": 40})


_made: list[Path] = []


def prepare(folder: Path) -> None:
    """A trial with two checkpoints, the newer one of a run that goes on or of one that is finished."""
    torch.set_num_threads(1)
    _made.append(folder)
    for name in ("running", "finished"):
        for stop in (STEPS[0], STEPS[1] - STEPS[0]):
            limit = {} if name == "finished" and stop != STEPS[0] else {"should_stop": stop_after(stop)}
            list(make_trial(corpus(folder), config(), folder / name, **limit).run())
        assert len(Checkpoints(Location(folder / name)).steps()) == 2
        shutil.copytree(folder / name, folder / "check")
        load(folder / "check")
        shutil.rmtree(folder / "check")


def config() -> Any:
    return make_config("mlm", yardsticks=["recovery_accuracy"])


def damaged_bytes(folder: Path, generator: random.Random) -> None:
    """Bytes of a file; of state.json or of tensors, of the newer checkpoint or of both."""
    trial = copied(folder, generator)
    for checkpoint in some(trial, generator):
        file = generator.choice(sorted(checkpoint.iterdir()))
        file.write_bytes(mutated(file.read_bytes(), generator))
    load(trial)


def damaged_files(folder: Path, generator: random.Random) -> None:
    """Files are missing, cut short, empty, changed places with, or the other checkpoint's; folders are renamed."""
    trial = copied(folder, generator)
    for checkpoint in some(trial, generator):
        files = sorted(checkpoint.iterdir())
        file, other = generator.choice(files), generator.choice(files)
        elsewhere = generator.choice(sorted(trial.glob("start-*/step-*"))) / file.name
        kind = generator.randrange(6)
        content = file.read_bytes()
        if kind == 0:
            file.unlink()
        elif kind == 1:
            file.write_bytes(content[: generator.randrange(len(content))])
        elif kind == 2:
            file.write_bytes(generator.choice([b"", b"{}", b"null", b"[]", b"0"]))
        elif kind == 3:
            file.write_bytes(other.read_bytes())
            other.write_bytes(content)
        elif kind == 4 and elsewhere.is_file():
            file.write_bytes(elsewhere.read_bytes())
        else:
            name = generator.choice(["step-00000099", "step-99999999999999999", "step-0000000x", "step-00000000"])
            shutil.rmtree(checkpoint.parent / name, ignore_errors=True)
            checkpoint.rename(checkpoint.parent / name)
    load(trial)


def damaged_record(folder: Path, generator: random.Random) -> None:
    """Values of state.json, with a checksum that is right again, as of other code or another's hand."""
    trial = copied(folder, generator)
    for checkpoint in some(trial, generator):
        content = json.loads((checkpoint / "state.json").read_bytes())
        del content["checksum"]
        for _ in range(generator.choice([1, 1, 2, 4])):
            change(content, generator)
        write_record(checkpoint, content)
    load(trial)


def damaged_tensors(folder: Path, generator: random.Random) -> None:
    """A file of tensors, with its checksum in the record right again."""
    trial = copied(folder, generator)
    for checkpoint in some(trial, generator):
        file = generator.choice(sorted(checkpoint.glob("*.safetensors")))
        data = file.read_bytes()
        if generator.random() < 0.5:
            (length,) = struct.unpack("<Q", data[:8])
            header = json.loads(data[8 : 8 + length])
            change(header, generator)
            words = json.dumps(header).encode()
            data = struct.pack("<Q", len(words)) + words + data[8 + length :]
        else:
            data = mutated(data, generator)
        file.write_bytes(data)
        content = json.loads((checkpoint / "state.json").read_bytes())
        del content["checksum"]
        content["files"][file.name]["checksum"] = checksum(data)
        write_record(checkpoint, content)
    load(trial)


def damaged_starts(folder: Path, generator: random.Random) -> None:
    """What says from where workers went on is missing or anything at all; their folders have other names."""
    trial = copied(folder, generator)
    starts = sorted(trial.iterdir())
    for start in generator.choice([starts, starts[:1], starts[1:]]):
        record = start / "start.json"
        kind = generator.randrange(4)
        if kind == 0:
            record.unlink()
        elif kind == 1:
            record.write_bytes(mutated(record.read_bytes(), generator))
        elif kind == 2:
            content = json.loads(record.read_bytes())
            change(content, generator)
            record.write_text(json.dumps(content))
        else:
            name = generator.choice(["start-0003", "start-0000", "start-99999999999999999999", "start-000x"])
            shutil.rmtree(trial / name, ignore_errors=True)
            start.rename(trial / name)
    load(trial)


CASES = [damaged_bytes, damaged_files, *[damaged_record] * 2, damaged_tensors, damaged_starts]


def copied(folder: Path, generator: random.Random) -> Path:
    """A trial's folder, to be damaged."""
    shutil.copytree(_made[0] / generator.choice(["running", "finished"]), folder / "trial")
    return folder / "trial"


def some(trial: Path, generator: random.Random) -> list[Path]:
    """The newer checkpoint, the older one or both."""
    older, newer = sorted(trial.glob("start-*/step-*"))
    return generator.choice([[newer], [newer], [older], [older, newer]])


def change(content: Any, generator: random.Random) -> None:
    """One value of JSON, or a key."""
    places = places_in(content)
    if not places:
        return
    owner, key = generator.choice(places)
    known, value = owner[key], copy.deepcopy(generator.choice(VALUES))
    kind = generator.random()
    if kind < 0.3 and isinstance(known, int | float) and not isinstance(known, bool):
        owner[key] = generator.choice([known + 1, known - 1, -known, known * 1000, known / 3])
    elif kind < 0.4 and isinstance(known, str) and known:
        owner[key] = generator.choice([known[:-1], known + known[-1], known[::-1], known.upper()])
    elif kind < 0.6:
        del owner[key]
    elif kind < 0.7 and isinstance(owner, dict):
        owner[generator.choice(["x", "", "model", "en"])] = value
    else:
        owner[key] = value


def write_record(checkpoint: Path, content: Any) -> None:
    text = json.dumps(content, sort_keys=True).encode()
    whole = {"checksum": checksum(text), **content}
    (checkpoint / "state.json").write_text(json.dumps(whole))


def load(trial: Path) -> None:
    """As an export does, then as a resumed trial, which trains on to its end.

    Raises:
        InputError: of either, the first.
    """
    errors = []
    checkpoints = Checkpoints(Location(trial))
    for step in (export, resume):
        try:
            step(checkpoints)
        except InputError as error:
            require_readable(error)
            errors.append(error)
    if errors:
        raise errors[0]


def export(checkpoints: Checkpoints) -> None:
    if places := checkpoints.whole():
        assert all(
            isinstance(tensor, torch.Tensor) for tensor in checkpoints.read_model(places[-1]).tensors["model"].values()
        )


def resume(checkpoints: Checkpoints) -> None:
    trial = make_trial(corpus(_made[0]), config(), checkpoints.folder.local)
    for message in trial.messages:
        assert message.isprintable()
        assert len(message) < 10_000
    reports = list(trial.run())
    json.dumps([report.record() for report in reports], allow_nan=False)
