"""Which group each held-out document is of: beside the manifest of a prepared corpus, in the order of its documents."""

import numpy as np
from numpy.typing import NDArray

from trainables.corpora.sealed import Sealed
from trainables.corpora.stream.manifest import Manifest, Split
from trainables.storage import Location

GROUPS_NAME = "groups.json"


class Groups(Sealed):
    """The file."""

    splits: dict[Split, dict[str, bytes]]
    """By language of each document of each shard its group, as 64-bit integers, little-endian: two documents of one
    group have the same, in whatever language."""

    def of(self, split: Split) -> dict[str, NDArray[np.int64]]:
        """By language the number of each document's group among all groups of the split."""
        groups = {language: np.frombuffer(content, "<u8") for language, content in self.splits[split].items()}
        number_D = np.unique(np.concatenate(list(groups.values())), return_inverse=True)[1]
        ends = np.cumsum([len(own) for own in groups.values()])
        return dict(zip(groups, np.split(number_D, ends[:-1]), strict=True))


def read_groups(folder: Location, manifest: Manifest) -> Groups | None:
    """Those of the corpus in the folder; None where its file is damaged or missing."""
    found = Groups.read(folder / GROUPS_NAME)
    return found if found is not None and found.checksum == manifest.groups else None
