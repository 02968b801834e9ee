"""The mean loss of a trial is the same to the bit whichever worker has which part of it."""

from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.training.meters import LossMeter

ALONE = SimpleNamespace(sum_float=lambda value: value)
PARTS = st.tuples(*[st.floats(2**-10, 32.0, width=32)] * 2)


def meter(losses):
    found = LossMeter(torch.device("cpu"))
    for loss in losses:
        found.add(torch.tensor(loss, dtype=torch.float32))
    return found


def beside(other):
    """The world of one of two workers, whose sums the other's are added to."""
    return SimpleNamespace(sum_float=lambda value: value + other.state(ALONE)[0])


@given(st.lists(PARTS, min_size=1, max_size=200), st.data())
def test_a_run_of_two_workers_that_was_cut_off_reports_the_same(steps, data):
    cut = data.draw(st.integers(0, len(steps)))
    first, second = (meter(own) for own in zip(*steps, strict=True))
    whole = first.mean(beside(second))
    assert whole == float(np.float64([part for step in steps for part in step]).sum()) / len(steps)

    saved = [meter([step[worker] for step in steps[:cut]]) for worker in (0, 1)]
    total, count = saved[0].state(beside(saved[1]))
    again = [LossMeter(torch.device("cpu")) for _ in range(2)]
    for worker, own in enumerate(again):
        own.restore(total if worker == 0 else 0.0, count)
        for step in steps[cut:]:
            own.add(torch.tensor(step[worker], dtype=torch.float32))
    assert again[0].mean(beside(again[1])) == whole
