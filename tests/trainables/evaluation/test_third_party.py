"""A yardstick of another package keeps what the shipped ones do."""

from __future__ import annotations

import torch

from tests.helpers.extensions import documented_code, members
from tests.helpers.yardsticks import YardstickConformance

torch.set_num_threads(1)


class TestMedianRank(YardstickConformance):
    """As the documentation has it."""

    name = "median_rank"
    yardstick = members(documented_code()[1])["MedianRank"]()
