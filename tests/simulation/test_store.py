"""The store of the histories keeps the rules of a real one."""

from __future__ import annotations

import random

from obstore.exceptions import BaseError
from obstore.store import MemoryStore

from tests.simulation.store import Objects


def test_the_store_writes_on_condition_as_obstore_does():
    """Step by step with obstore's own store in memory."""
    made, real = Objects(), MemoryStore()
    chance, made_tags, real_tags = random.Random(1), ["none"], ["none"]
    for _ in range(400):
        path, number = chance.choice(["a/x", "a/y", "b"]), chance.randrange(len(made_tags))
        kind = chance.choice(["create", "overwrite", "known", "delete"])
        outcomes = []
        for store, tags in ((made, made_tags), (real, real_tags)):
            try:
                if kind == "delete":
                    store.delete([path])
                else:
                    done = store.put(path, b"data", mode={"e_tag": tags[number]} if kind == "known" else kind)
                    tags.append(done["e_tag"])
                outcomes.append("done")
            except (BaseError, FileNotFoundError) as error:
                outcomes.append(type(error).__name__)
        assert outcomes[0] == outcomes[1] or kind == "delete", (path, kind)
    listed = [entry["path"] for entries in real.list() for entry in entries]
    assert sorted(listed) == sorted(made.data)
