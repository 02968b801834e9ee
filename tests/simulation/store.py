"""An object store with weather: it is slow, does not answer, loses its answers, or does late what was asked of it.

It stands in the place of obstore's functions, below the program's own patience (``trainables.object_store``): a request
that finds no answer fails after as long as obstore itself would repeat it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, NotFoundError, PreconditionError

from tests.simulation.world import World
from trainables.object_store import REQUEST_SECONDS
from trainables.storage import FullDiskError


class Objects:
    """What lies in a bucket, with the store's rules for conditional writes."""

    def __init__(self) -> None:
        self.data: dict[str, tuple[bytes, str]] = {}  # by path: content and tag
        self._folders: dict[str, dict[str, int]] = {}  # by folder: names in it, and how many objects are there or below
        self._tags = itertools.count(1)

    def put(self, path: str, data: bytes, mode: str | dict[str, str]) -> dict[str, str | None]:
        there = self.data.get(path)
        if mode == "create" and there is not None:
            raise AlreadyExistsError(path)
        if isinstance(mode, dict) and (there is None or there[1] != mode["e_tag"]):
            raise PreconditionError(path)
        if there is None:
            self._count(path, 1)
        self.data[path] = bytes(data), f"tag-{next(self._tags)}"
        return {"e_tag": self.data[path][1], "version": None}

    def get(self, path: str) -> tuple[bytes, str]:
        if path not in self.data:
            raise NotFoundError(path)
        return self.data[path]

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            if self.data.pop(path, None) is not None:
                self._count(path, -1)

    def _count(self, path: str, more: int) -> None:
        while path:
            path, _, name = path.rpartition("/")
            names = self._folders.setdefault(path, {})
            names[name] = names.get(name, 0) + more
            if not names[name]:
                del names[name]

    def children(self, folder: str) -> tuple[list[str], list[str]]:
        """Paths of the folders and of the objects right in a folder, sorted."""
        paths = [f"{folder}/{name}" if folder else name for name in sorted(self._folders.get(folder, ()))]
        return [path for path in paths if self._folders.get(path)], [path for path in paths if path in self.data]

    def below(self, folder: str) -> list[str]:
        return sorted(path for path in self.data if path.startswith(f"{folder}/"))


class Store:
    """A bucket as processes reach it."""

    def __init__(self, world: World) -> None:
        self.world, self.objects = world, Objects()
        self.latency = 0.02
        self.silent: set[str] = set()  # machines that get no answer; "" is all of them
        self.loses = 0.0  # share of writes whose answer is lost
        self.delays = 0.0  # share of writes that are done after the store seemed not to have answered
        self.full = False  # no space for checkpoints

    def request(self, done: Callable[[], Any], *, write: bool) -> Any:
        world = self.world
        process = world.current.process
        if process.machine == "outside":  # the test itself looks
            return done()
        world.sleep(self.latency * world.chance.random())
        if self.silent and ("" in self.silent or process.machine in self.silent):
            if write and world.chance.random() < 0.3:  # it is on its way, and arrives when nobody waits for it
                world.later(world.chance.uniform(0.0, 120.0), lambda: self._late(done))
            self._no_answer()
        if write and self.loses and world.chance.random() < self.loses:
            done()
            self._no_answer()
        if write and self.delays and world.chance.random() < self.delays:
            world.later(world.chance.uniform(0.0, 60.0), lambda: self._late(done))
            self._no_answer()
        found = done()
        if write:
            world.sleep(self.latency * world.chance.random())
        return found

    def _no_answer(self) -> None:
        self.world.sleep(REQUEST_SECONDS)
        raise GenericError("the store does not answer")

    def _late(self, done: Callable[[], Any]) -> None:
        with suppress(BaseError):
            done()


def put(store: Store, path: str, data: bytes, *, mode: Any = "overwrite") -> dict[str, str | None]:
    if store.full and "/trials/" in path:
        raise FullDiskError("the disk is full", where=path)
    found: dict[str, str | None] = store.request(lambda: store.objects.put(path, data, mode), write=True)
    return found


def get(store: Store, path: str) -> SimpleNamespace:
    data, tag = store.request(lambda: store.objects.get(path), write=False)
    return SimpleNamespace(bytes=lambda: data, meta={"e_tag": tag, "version": None})


def head(store: Store, path: str) -> None:
    store.request(lambda: store.objects.get(path), write=False)


def list_with_delimiter(store: Store, path: str | None) -> dict[str, Any]:
    folders, files = store.request(lambda: store.objects.children(path or ""), write=False)
    return {"common_prefixes": folders, "objects": [{"path": file} for file in files]}


def list_all(store: Store, path: str) -> Iterator[list[dict[str, str]]]:
    yield [{"path": file} for file in store.request(lambda: store.objects.below(path), write=False)]


def delete(store: Store, paths: list[str]) -> None:
    store.request(lambda: store.objects.delete(paths), write=True)


FUNCTIONS = {
    "put": put,
    "get": get,
    "head": head,
    "list_with_delimiter": list_with_delimiter,
    "list": list_all,
    "delete": delete,
}
