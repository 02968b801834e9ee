"""What a training step costs on this machine, found by making a few."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from trainables.corpora.stream.token_stream import TokenStream
from trainables.corpora.stream.zipf import zipf_corpus
from trainables.training.config import TrialConfig
from trainables.training.loop import make_learner
from trainables.training.stepper import Stepper
from trainables.training.world import World

LEAST_STEPS = 2  # timed, after one that is not: it pays what is paid once


class Calibration(NamedTuple):
    """A step of one worker, on token ids drawn by Zipf's law."""

    step_seconds: float  # median
    steps: int  # that were timed
    memory_bytes: int | None  # most that weights, optimiser state and a step took on a GPU; on a CPU none can tell
    device: str  # ``cpu``, or the GPU's name
    cpu_share: float = 1.0  # processor time a second on a CPU: below 1 it waited for what else runs on the machine


def calibrate(
    config: TrialConfig, vocabulary_size: int, sequence_length: int, seconds: float, device: torch.device
) -> Calibration:
    """Make some steps of a trial, whose batch is one worker's, for so many seconds, at least :data:`LEAST_STEPS`."""
    batch = config.training.batch_sequences
    with tempfile.TemporaryDirectory() as folder:
        corpus = zipf_corpus(Path(folder) / "corpus", vocabulary_size, sequence_length, 4 * batch)
        cuda = device.type == "cuda"
        if cuda:
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
        stream = TokenStream(corpus, config.seed, 1.0, 1.0)
        learner = make_learner(config, stream).to(device)
        stepper = Stepper(learner, stream, config.training, World(device=device))
        if stepper.micro_batch_sequences == "auto":
            stepper.micro_batch_sequences = None
        stepper.learner.train()
        found: list[float] = []
        shares: list[float] = []
        while len(found) <= LEAST_STEPS or sum(found) < seconds:
            start, worked = time.perf_counter(), time.process_time()
            first = batch * len(found)
            prepared = stepper.prepare(stream.take(first + torch.arange(batch).numpy()), first)
            stepper.step(prepared, config.training.learning_rate)
            if cuda:
                torch.cuda.synchronize(device)
            found.append(time.perf_counter() - start)
            shares.append((time.process_time() - worked) / found[-1])
        memory = torch.cuda.max_memory_allocated(device) - before if cuda else None
    name = torch.cuda.get_device_name(device) if cuda else "cpu"
    share = 1.0 if cuda else statistics.median(shares[1:])
    return Calibration(statistics.median(found[1:]), len(found) - 1, memory, name, share)
