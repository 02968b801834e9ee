"""Checkpoints: written in the background, by any workers, read by any others, and what happens to damaged ones."""

from __future__ import annotations

import errno
import json
import shutil
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import DTensor

from tests.helpers.trials import make_measure, make_state, newest_model
from tests.helpers.workers import Model, full, join, make_model, tokens
from trainables.errors import InputError
from trainables.storage import FullDiskError, Location
from trainables.training import checkpoint, checkpoint_record
from trainables.training.checkpoint import KEPT, Checkpoints
from trainables.training.checkpoint_record import AttemptOrder, SupersededError
from trainables.training.checkpoint_tensors import module_tensors
from trainables.training.parallel import wrap
from trainables.training.state import Spending
from trainables.training.world import World

FAMILY = "bert"


def step(model, optimiser, number=0):
    model(tokens(number)).backward()
    optimiser.step()
    optimiser.zero_grad()


def trained(number=2):
    learner = make_model(FAMILY)
    optimiser = torch.optim.AdamW(learner.parameters(), lr=1e-2)
    for index in range(number):
        step(learner, optimiser, index)
    return learner, optimiser


def moments(optimiser):
    """The optimiser's tensors under names, as the checkpoint wants them."""
    return {
        f"{index}.{name}": value
        for index, values in optimiser.state_dict()["state"].items()
        for name, value in values.items()
    }


def layout(model):
    """How the moments are sharded: as their parameters."""
    return {
        f"{index}.{name}": parameter
        for index, parameter in enumerate(model.parameters())
        for name in ("exp_avg", "exp_avg_sq")
    }


def groups_of(model, optimiser):
    return {"model": module_tensors(model), "optimiser": moments(optimiser)}


def wanted_by(model):
    return lambda state: {"model": module_tensors(model), "optimiser": layout(model)}


@cache
def writer(folder):
    """The one start of a trial's workers."""
    return Checkpoints(Location(folder))


def save(folder, number, model, optimiser, world=None, **state):
    writer(folder).save(number, groups_of(model, optimiser), make_state(**state), world)
    writer(folder).wait()


def load(folder, model, optimiser, world=None):
    found, messages = Checkpoints(Location(folder)).load_newest(wanted_by(model), world)
    if found is None:
        return None, messages
    model.load_state_dict(found.tensors["model"], strict=False)
    states = {}
    for key, value in found.tensors["optimiser"].items():
        index, name = key.split(".")
        states.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({**optimiser.state_dict(), "state": states})
    return found, messages


def assert_same(model, optimiser, other, its_optimiser):
    for name, tensor in module_tensors(model).items():
        assert torch.equal(full(tensor), module_tensors(other)[name]), name
    expected = moments(its_optimiser)
    assert moments(optimiser).keys() == expected.keys()
    for name, tensor in moments(optimiser).items():
        assert torch.equal(full(tensor), expected[name]), name


# --- one worker ---------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded(tmp_path):
    model, optimiser = trained()
    save(tmp_path, 2, model, optimiser, loss_sum=1.5)
    torch_state = torch.get_rng_state()
    files = {path.name for path in (tmp_path / "start-0001" / "step-00000002").iterdir()}
    assert files == {"model.safetensors", "optimiser.safetensors", "state.json"}
    torch.rand(3)
    other = Model(FAMILY)
    fresh = torch.optim.AdamW(other.parameters(), lr=1e-2)
    found, messages = load(tmp_path, other, fresh)
    assert (found.step, found.finished, found.state.loss_sum, messages) == (2, False, 1.5, [])
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert_same(other, fresh, model, optimiser)
    step(model, optimiser, 5)
    step(other, fresh, 5)
    assert_same(other, fresh, model, optimiser)


def test_tied_weights_are_written_once(tmp_path):
    model, optimiser = trained()
    save(tmp_path, 2, model, optimiser)
    written = safetensors.torch.load_file(tmp_path / "start-0001" / "step-00000002" / "model.safetensors")
    assert written.keys() == {name for name, _ in model.named_parameters()}
    assert len(written) == len(model.state_dict()) - 1
    whole = newest_model(tmp_path)
    assert all(torch.equal(whole[name], tensor) for name, tensor in written.items())


def test_no_checkpoint(tmp_path):
    model, optimiser = trained(0)
    assert load(tmp_path, model, optimiser) == (None, [])


def test_a_finished_run_has_no_optimiser(tmp_path):
    model, _ = trained()
    checkpoints = Checkpoints(Location(tmp_path))
    checkpoints.save(2, {"model": module_tensors(model)}, make_state())
    checkpoints.wait()
    found, _ = checkpoints.load_newest(wanted_by(model))
    assert found.finished
    assert found.tensors.keys() == {"model"}
    assert not (tmp_path / "start-0001" / "step-00000002" / "optimiser.safetensors").exists()


def test_the_newest_are_kept_and_pieces_are_swept_up(tmp_path):
    model, optimiser = trained()
    for number in (1, 2, 3):
        save(tmp_path, number, model, optimiser)
    (tmp_path / "start-0001" / "step-00000002" / "state.json").unlink()
    save(tmp_path, 4, model, optimiser)
    assert KEPT == 2
    start = tmp_path / "start-0001"
    assert sorted(p.name for p in start.iterdir()) == ["start.json", "step-00000003", "step-00000004"]
    assert Checkpoints(Location(tmp_path)).steps() == [3, 4]


# --- the writer ---------------------------------------------------------------------------------------------


@pytest.fixture
def gate(monkeypatch):
    """Holds up the writing of files until it is opened."""
    opened, write = threading.Event(), Location.write_bytes

    def held(self, data):
        assert opened.wait(20)
        write(self, data)

    monkeypatch.setattr(Location, "write_bytes", held)
    yield opened
    opened.set()


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, gate):
    model, optimiser = trained()
    before = {name: tensor.clone() for name, tensor in module_tensors(model).items()}
    checkpoints = Checkpoints(Location(tmp_path))
    state = make_state(spent=Spending(steps=1))
    checkpoints.save(2, groups_of(model, optimiser), state)
    step(model, optimiser, 7)
    state.spent.steps = 2
    assert checkpoints.steps() == []
    gate.set()
    checkpoints.wait()
    assert checkpoints.steps() == [2]
    found, _ = checkpoints.load_newest(wanted_by(model))
    assert found.state.spent.steps == 1
    for name, tensor in before.items():
        assert torch.equal(found.tensors["model"][name], tensor)


@pytest.mark.parametrize("surfaces", ["save", "wait"])
def test_a_writers_error_surfaces(tmp_path, monkeypatch, surfaces):
    def full_disk(self, data):
        raise OSError(28, "No space left on device")

    model, optimiser = trained()
    checkpoints = Checkpoints(Location(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Location, "write_bytes", full_disk)
        checkpoints.save(2, groups_of(model, optimiser), make_state())
        arguments = (3, groups_of(model, optimiser), make_state()) if surfaces == "save" else ()
        with pytest.raises(OSError, match="No space left"):
            getattr(checkpoints, surfaces)(*arguments)
    checkpoints.save(4, groups_of(model, optimiser), make_state())
    checkpoints.wait()
    assert checkpoints.steps() == [4]


def test_closing_finishes_what_one_worker_can(tmp_path):
    model, optimiser = trained()
    checkpoints = Checkpoints(Location(tmp_path))
    checkpoints.save(2, groups_of(model, optimiser), make_state())
    checkpoints.close()
    assert checkpoints.steps() == [2]


class Lonely(World):
    """The first of two workers of which the second never answers."""

    def sum_integers(self, value):
        return value


def test_a_checkpoint_that_another_worker_left_unfinished_does_not_count(tmp_path):
    """Nor does that worker's record of an earlier attempt at the same step."""
    model, optimiser = trained()
    (tmp_path / "start-0001" / "step-00000002").mkdir(parents=True)
    (tmp_path / "start-0001" / "step-00000002" / "worker-1.json").write_text(
        json.dumps({"save": 1, "files": {}, "random": {}})
    )
    checkpoints = Checkpoints(Location(tmp_path))
    checkpoints.save(2, groups_of(model, optimiser), make_state(), Lonely(0, 2))
    checkpoints.close()
    assert checkpoints.steps() == []
    with pytest.raises(TimeoutError, match=r"worker-1\.json"):
        checkpoints.wait()


# --- processes that were thought dead -----------------------------------------------------------------------


def a_second_start(folder):
    """A trial whose workers saved two checkpoints, and were started again while they still run."""
    model, optimiser = trained()
    for number in (1, 2):
        save(folder, number, model, optimiser)
    again = Checkpoints(Location(folder))
    found, _ = again.load_newest(wanted_by(model))
    assert found.step == 2
    return again, groups_of(model, optimiser)


def test_what_was_thought_dead_writes_nothing_that_counts(tmp_path):
    again, groups = a_second_start(tmp_path)
    writer(tmp_path).save(3, groups, make_state())
    with pytest.raises(SupersededError, match="started again elsewhere"):
        writer(tmp_path).wait()
    assert again.steps() == [1, 2], "and removes nothing"
    again.save(4, groups, make_state())
    again.wait()
    assert [(place.step, place.start) for place in again.whole()] == [(2, 1), (4, 2)]


def test_what_it_wrote_at_the_same_moment_does_not_count_either(tmp_path, monkeypatch):
    """It had looked just before."""
    again, groups = a_second_start(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "require_newest", lambda self: None)
        writer(tmp_path).save(3, groups, make_state())
        writer(tmp_path).wait()
    assert again.steps() == [1, 2]
    third = Checkpoints(Location(tmp_path))
    found, messages = third.load_newest(lambda state: {"model": groups["model"]})
    assert (found.step, messages) == (2, [])


def test_of_two_that_start_at_once_one_is_the_newer(tmp_path, monkeypatch):
    again, groups = a_second_start(tmp_path)
    other = Checkpoints(Location(tmp_path))
    seen_before_the_other(monkeypatch, other, {1: other.claims()[1]})
    other.load_newest(lambda state: {"model": groups["model"]})
    other.require_newest()
    with pytest.raises(SupersededError):
        again.require_newest()


def seen_before_the_other(monkeypatch, checkpoints, claims):
    """What these see when they read, and when they claim a start for the first time."""
    now, answers = checkpoints.claims, iter([claims, claims])

    def seen():
        answer = next(answers, None)
        return now() if answer is None else answer

    monkeypatch.setattr(checkpoints, "claims", seen)


def save_each(checkpoints, groups, *steps):
    for step in steps:
        checkpoints.save(step, groups, make_state())
        checkpoints.wait()


FIRST, SECOND, NEXT_SESSION = AttemptOrder(1, 1), AttemptOrder(1, 2), AttemptOrder(2, 1)


@pytest.mark.parametrize("later", [SECOND, NEXT_SESSION])
@pytest.mark.parametrize("hung", ["before it read", "before it claimed", "before it saved"])
def test_an_attempt_that_hung_and_was_replaced_takes_nothing_over(tmp_path, monkeypatch, hung, later):
    """Attempts are in the order in which the study began them, not in that in which they come to write."""
    model, optimiser = trained()
    groups = groups_of(model, optimiser)
    dead, living = Checkpoints(Location(tmp_path), FIRST), Checkpoints(Location(tmp_path), later)
    if hung == "before it claimed":
        seen_before_the_other(monkeypatch, dead, {})
    elif hung == "before it saved":
        dead.load_newest(wanted_by(model))
    living.load_newest(wanted_by(model))
    living.save(300, groups, make_state())
    living.wait()
    if hung != "before it saved":
        with pytest.raises(SupersededError):
            dead.load_newest(wanted_by(model))
    else:
        dead.save(50, groups, make_state())
        with pytest.raises(SupersededError):
            dead.wait()
    assert living.steps() == [300]
    living.save(900, {"model": groups["model"]}, make_state())
    living.wait()
    assert Checkpoints(Location(tmp_path)).steps() == [300, 900]


@pytest.mark.parametrize("when", ["before it is read", "before it is claimed", "while it is read"])
def test_what_was_thought_dead_removes_nothing_that_is_being_read(tmp_path, monkeypatch, when):
    """It saves twice meanwhile, and removes what is older than its last two."""
    model, optimiser = trained()
    groups = groups_of(model, optimiser)
    dead, living = Checkpoints(Location(tmp_path), FIRST), Checkpoints(Location(tmp_path), SECOND)
    dead.load_newest(wanted_by(model))
    save_each(dead, groups, 100, 200)
    place, name = {
        "before it is read": (checkpoint, "_record"),
        "before it is claimed": (living, "_claim"),
        "while it is read": (checkpoint, "GroupReader"),
    }[when]
    read, left = getattr(place, name), [(300, 400)]

    def overtaken(*arguments):
        if left:
            with suppress(SupersededError):
                save_each(dead, groups, *left.pop())
        return read(*arguments)

    monkeypatch.setattr(place, name, overtaken)
    found, _ = living.load_newest(wanted_by(model))
    assert found.step == (200 if when == "while it is read" else 400)
    assert living.steps()[-1] == found.step


def test_a_start_that_led_to_nothing_takes_nothing_away(tmp_path, monkeypatch):
    """It had hung before it claimed; the first attempt had gone on meanwhile, and the third one had seen how far."""
    model, optimiser = trained()
    groups = groups_of(model, optimiser)
    first, hung, third = (Checkpoints(Location(tmp_path), AttemptOrder(1, number)) for number in (1, 2, 3))
    save_each(first, groups, 100, 200)
    seen, claim = hung.whole()[-1], third._claim
    assert seen.step == 200
    save_each(first, groups, 300, 400)

    def claim_after_the_hung(place):
        hung._begin(seen, World())
        return claim(place)

    monkeypatch.setattr(third, "_claim", claim_after_the_hung)
    assert third.load_newest(wanted_by(model))[0].step == 400
    assert sorted(third.claims()) == [1, 2, 3]
    assert Checkpoints(Location(tmp_path), AttemptOrder(1, 4)).load_newest(wanted_by(model))[0].step == 400


def test_what_a_trial_begins_with_is_in_the_order_of_the_attempts_that_leave_it(tmp_path):
    model, optimiser = trained()
    groups = groups_of(model, optimiser)
    dead, living = (Checkpoints(Location(tmp_path), order.as_beginning()) for order in (SECOND, NEXT_SESSION))
    living.save(10, groups, make_state())
    living.wait()
    with pytest.raises(SupersededError):
        dead.save(10, groups, make_state())
    branch = Checkpoints(Location(tmp_path), FIRST)
    assert branch.load_newest(wanted_by(model))[0].step == 10


def test_what_a_trial_begins_with_is_not_written_again_once_it_has_begun(tmp_path):
    """A run that goes through the point again where another branches off."""
    model, optimiser = trained()
    groups = groups_of(model, optimiser)
    for _ in range(2):
        beginning = Checkpoints(Location(tmp_path))
        beginning.save(10, groups, make_state())
        beginning.wait()
    branch = Checkpoints(Location(tmp_path), FIRST)
    branch.load_newest(wanted_by(model))
    branch.save(20, groups, make_state())
    branch.wait()
    with pytest.raises(SupersededError):
        Checkpoints(Location(tmp_path)).save(10, groups, make_state())
    assert branch.steps() == [10, 20]


@pytest.mark.parametrize("fault", ["killed", "disk full"])
def test_a_start_that_was_not_claimed_takes_nothing_away(tmp_path, monkeypatch, fault):
    model, optimiser = trained()
    for number in (1, 2):
        save(tmp_path, number, model, optimiser)
    if fault == "killed":  # its folder was made, the record in it was not
        (tmp_path / "start-0002").mkdir()
    else:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", raises(OSError(errno.ENOSPC, "no space")))
            with pytest.raises(FullDiskError):
                Checkpoints(Location(tmp_path)).load_newest(wanted_by(model))
        assert (tmp_path / "start-0002").exists()
    again = Checkpoints(Location(tmp_path))
    assert again.steps() == [1, 2]
    assert again.load_newest(wanted_by(model))[0].step == 2
    again.save(3, groups_of(model, optimiser), make_state())
    again.wait()
    assert [(place.step, place.start) for place in again.whole()] == [(2, 1), (3, 2)]


def raises(error):
    def call(*_):
        raise error

    return call


# --- damage -------------------------------------------------------------------------------------------------


def flip(content):
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


DAMAGES = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flipped bit": flip,
    "gone": None,
}


def damage(path, kind):
    change = DAMAGES[kind]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


@pytest.mark.parametrize("file", ["model.safetensors", "optimiser.safetensors", "state.json"])
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_passed_over(tmp_path, file, kind):
    if file == "state.json" and kind == "flipped bit":
        pytest.skip("the last bytes of a JSON file are a bracket and a line's end")
    early, early_optimiser = trained(1)
    save(tmp_path, 1, early, early_optimiser)
    save(tmp_path, 2, *trained(2))
    newest = tmp_path / "start-0001" / "step-00000002"
    damage(newest / file, kind)
    model = Model(FAMILY)
    optimiser = torch.optim.AdamW(model.parameters())
    found, messages = load(tmp_path, model, optimiser)
    assert found.step == 1
    assert_same(model, optimiser, early, early_optimiser)
    if (file, kind) == ("state.json", "gone"):
        assert messages == []  # as a kill amid its writing leaves it
    else:
        assert len(messages) == 1
        assert "step 2 was damaged" in messages[0]
        assert file in messages[0]
        assert "going on from step 1" in messages[0]
        assert not newest.exists()


@pytest.mark.parametrize("kind", ["cut", "flipped bit", "gone"])
def test_where_all_are_damaged_the_remedy_leads_on(tmp_path, kind):
    save(tmp_path, 1, *trained(1))
    save(tmp_path, 2, *trained(2))
    model, optimiser = trained(0)
    for number in (1, 2):
        damage(tmp_path / "start-0001" / f"step-{number:08d}" / "model.safetensors", kind)
    with pytest.raises(InputError, match="cannot be loaded") as error:
        load(tmp_path, model, optimiser)
    assert error.value.where == str(tmp_path / "start-0001" / "step-00000002")
    assert "model.safetensors" in error.value.why
    with pytest.raises(InputError, match="cannot be loaded"):
        newest_model(tmp_path)
    for number in (2, 1):
        Location(tmp_path / "start-0001" / f"step-{number:08d}").delete()
    assert load(tmp_path, model, optimiser) == (None, [])


def test_what_does_not_fit_is_refused(tmp_path):
    model, optimiser = trained()
    save(tmp_path, 2, model, optimiser)
    checkpoints = Checkpoints(Location(tmp_path))
    tensors = module_tensors(model)

    def refused(match, **groups):
        with pytest.raises(InputError, match=match) as error:
            checkpoints.load_newest(lambda state: groups)
        assert error.value.where == str(tmp_path / "start-0001" / "step-00000002")
        assert "configuration that made it" in error.value.remedy
        return error.value.why

    assert "bias_V" in refused("another model", model={**tensors, "bias_V": torch.zeros(54)})
    assert "more" in refused("another model", model={**tensors, "more": torch.zeros(1)})
    assert "bias_V" in refused("another model", model={k: v for k, v in tensors.items() if k != "bias_V"})
    muon = {"0.momentum_buffer": next(model.parameters())}
    assert "momentum_buffer" in refused("another optimiser", model=tensors, optimiser=muon)
    assert "average" in refused("another configuration", model=tensors, average=tensors)
    assert checkpoints.steps() == [2], "nothing was removed"


def edits(content):
    """Bytes that a file may turn into: any at all, or what it was with a piece cut out, put in or written over."""
    return st.one_of(
        st.binary(max_size=200),
        st.sampled_from([b"{}", b"[]", b"null", b"0", b"[" * 100_000, b'{"checksum": 1}', b'{"a":' * 100_000]),
        st.tuples(
            st.integers(0, len(content)), st.integers(0, 40), st.one_of(st.binary(max_size=8), st.just(b"9"))
        ).map(lambda edit: content[: edit[0]] + edit[2] + content[edit[0] + edit[1] :]),
    )


def values_in(content, path=()):
    """Where the values of a record are."""
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from values_in(value, (*path, key))


@pytest.fixture(scope="module")
def two_saved(tmp_path_factory):
    """The folder of two checkpoints, and the newer one's record."""
    folder = tmp_path_factory.mktemp("checkpoints")
    measure = make_measure()
    for number in (1, 2):
        save(folder, number, *trained(number), seen=(3, 4), reports=(measure,))
    return folder, (folder / "start-0001" / "step-00000002" / "state.json").read_bytes()


def load_or_refuse(two_saved, content, folder):
    """Whatever the newer record is: a checkpoint is read, or refused in our own words."""
    source, _ = two_saved
    shutil.copytree(source, folder)
    (folder / "start-0001" / "step-00000002" / "state.json").write_bytes(content)
    model, optimiser = trained(0)
    try:
        found, messages = load(folder, model, optimiser)
    except InputError as error:
        return None if str(folder) in error.where else pytest.fail(str(error))
    if found.step == 1:
        assert "step 2 was damaged" in messages[0]
        return None
    return found


@pytest.mark.timeout(300)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_bytes_for_a_record(two_saved, data):
    with tempfile.TemporaryDirectory() as folder:
        found = load_or_refuse(two_saved, data.draw(edits(two_saved[1])), Path(folder) / "trial")
    if found is not None:
        assert (found.state.seen, found.state.reports) == ((3, 4), (make_measure(),))


@pytest.mark.timeout(300)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_record_of_other_code_is_refused_or_fits(two_saved, data):
    """Its checksum is right, one of its values is not what this code writes."""
    content = json.loads(two_saved[1])
    del content["checksum"]
    *path, key = data.draw(st.sampled_from(list(values_in(content))))
    place = content
    for name in path:
        place = place[name]
    if isinstance(place, dict) and data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(
            st.sampled_from([None, -1, 10**30, 1.5, "x", "../../etc/passwd", [], {}, [None], {"a": 1}])
        )
    checksum = checkpoint_record.checksum(json.dumps(content, sort_keys=True).encode())
    with tempfile.TemporaryDirectory() as folder:
        encoded = json.dumps({"checksum": checksum, **content}).encode()
        load_or_refuse(two_saved, encoded, Path(folder) / "trial")


# --- several workers ----------------------------------------------------------------------------------------


def _start(parallelism, world):
    learner = make_model(FAMILY)
    model = wrap(learner, world, parallelism)
    return model, learner, torch.optim.AdamW(learner.parameters(), lr=1e-2)


def _save_as(rank, folder, size, parallelism):
    world = join(rank, folder, size)
    model, learner, optimiser = _start(parallelism, world)
    for index in range(2):
        step(model, optimiser, index)  # all workers see the same: the average is what one alone finds
    torch.manual_seed(100 + rank)
    save(f"{folder}/trial", 2, learner, optimiser, world)
    (Location(folder) / f"random-{rank}").write_bytes(torch.rand(4).numpy().tobytes())
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


def _load_as(rank, folder, size, source, *parallelisms):
    world = join(rank, folder, size)
    read = []
    read_bytes = Location.read_bytes
    Location.read_bytes = lambda self: read.append(self.name) or read_bytes(self)
    for parallelism in parallelisms:
        _, learner, optimiser = _start(parallelism, world)
        read.clear()
        load(f"{folder}/trial", learner, optimiser, world)
        if rank < 2:
            assert torch.rand(4).numpy().tobytes() == read_bytes(Location(folder) / f"random-{rank}")
        if parallelism == "fsdp":
            assert all(isinstance(tensor, DTensor) for tensor in module_tensors(learner).values())
            if source == "fsdp" and size == 2 and rank == 1:
                assert "model-00002-of-00002.safetensors" in read
                assert "model-00001-of-00002.safetensors" not in read, "only the files with this worker's rows"
        values = {**module_tensors(learner), **moments(optimiser)}
        values = {name: full(tensor).clone() for name, tensor in values.items()}
        if rank == 0:
            safetensors.torch.save_file(values, f"{folder}/found-{parallelism}.safetensors")
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


def spawn(work, folder, size, *arguments):
    (folder / "meeting").unlink(missing_ok=True)
    torch.multiprocessing.spawn(work, (str(folder), size, *arguments), nprocs=size)


def assert_found(folder, parallelism, model, optimiser):
    found = safetensors.torch.load_file(folder / f"found-{parallelism}.safetensors")
    for name, tensor in {**module_tensors(model), **moments(optimiser)}.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=2e-5, msg=name)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_any_workers_load_what_others_saved(tmp_path):
    expected, its_optimiser = trained(2)
    spawn(_save_as, tmp_path, 2, "fsdp")
    files = sorted(path.name for path in (tmp_path / "trial" / "start-0001" / "step-00000002").iterdir())
    assert files == [
        *(f"model-{part:05d}-of-00002.safetensors" for part in (1, 2)),
        *(f"optimiser-{part:05d}-of-00002.safetensors" for part in (1, 2)),
        "state.json",
    ]
    # One process.
    model = Model(FAMILY)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    load(tmp_path / "trial", model, optimiser)
    for name, tensor in module_tensors(expected).items():
        torch.testing.assert_close(module_tensors(model)[name], tensor, rtol=1e-4, atol=2e-5)
    for name, tensor in moments(its_optimiser).items():
        torch.testing.assert_close(moments(optimiser)[name], tensor, rtol=1e-4, atol=2e-5)
    whole = newest_model(tmp_path / "trial")
    assert whole.keys() == module_tensors(model).keys()
    assert all(torch.equal(whole[name], tensor) for name, tensor in module_tensors(model).items())
    # Others.
    spawn(_load_as, tmp_path, 2, "fsdp", "fsdp", "ddp")
    for parallelism in ("fsdp", "ddp"):
        assert_found(tmp_path, parallelism, expected, its_optimiser)
    spawn(_load_as, tmp_path, 3, "fsdp", "fsdp")
    assert_found(tmp_path, "fsdp", expected, its_optimiser)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_shards_are_loaded_from_a_whole_checkpoint(tmp_path):
    expected, its_optimiser = trained(2)
    spawn(_save_as, tmp_path, 2, "ddp")
    files = {path.name for path in (tmp_path / "trial" / "start-0001" / "step-00000002").iterdir()}
    assert files == {"model.safetensors", "optimiser.safetensors", "state.json"}
    spawn(_load_as, tmp_path, 2, "ddp", "fsdp")
    assert_found(tmp_path, "fsdp", expected, its_optimiser)


def _damaged_shard(rank, folder, size):
    world = join(rank, folder, size)
    model, learner, optimiser = _start("fsdp", world)
    for number in (1, 2):
        step(model, optimiser, number)
        save(f"{folder}/trial", number, learner, optimiser, world)
    torch.distributed.barrier()
    if rank == 0:
        path = Location(folder) / "trial" / "start-0001" / "step-00000002" / "model-00002-of-00002.safetensors"
        path.write_bytes(flip(path.read_bytes()))
    torch.distributed.barrier()
    found, messages = load(f"{folder}/trial", learner, optimiser, world)
    assert found.step == 1, "on both workers, though only one reads that file"
    assert len(messages) == 1
    torch.distributed.barrier()  # a peer that is gone aborts the others
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_all_workers_pass_over_what_one_cannot_read(tmp_path):
    spawn(_damaged_shard, tmp_path, 2)
    assert Checkpoints(Location(tmp_path / "trial")).steps() == [1]
