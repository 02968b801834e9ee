"""Objects of S3 and Google Cloud Storage: one request each, repeated while the store does not answer.

The clients are obstore's (https://developmentseed.org/obstore), of Apache Arrow's ``object_store``. A write can be made
to happen only if the object is as it was last seen: of two writers one is told that the other was there.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion
    from obstore.store import (
        BackoffConfig,
        ClientConfig,
        GCSConfig,
        GCSStore,
        RetryConfig,
        S3Config,
        S3CredentialProvider,
        S3Store,
    )

SCHEMES = ("s3", "gs", "gcs")
REQUEST_SECONDS = 6.0  # a request is repeated for so long before this program has its turn: Ctrl-C waits as long
_TRANSFER_SECONDS = 30.0  # of one request, to the last of its bytes: what is large goes in parts
_LONGEST_PAUSE = 5.0  # seconds between two tries
_NO_BUCKET = "<Code>NoSuchBucket</Code>"  # in what S3 and Google answer to a list; obstore takes it for an error as any

_Result = TypeVar("_Result")
_Pairs = tuple[tuple[str, str], ...]


class ChangedError(Exception):
    """The object is not as it was last seen: somebody else wrote it."""


class Patience:
    """For how long this process waits for a store that does not answer: what trains or leads a study has minutes, as
    what it did would be lost; what only looks at one has seconds."""

    seconds = REQUEST_SECONDS
    FOR_STUDIES = 300.0
    of_this_thread: ContextVar[float | None] = ContextVar("patience", default=None)
    """Of one that only looks, in a process that leads a study; None: the process's."""


class Version(NamedTuple):
    """Which writing of an object was seen."""

    e_tag: str | None
    version: str | None


class StoredObject:
    """What lies, or may lie, under a key of a bucket. Methods raise OSError once the store has not answered for
    :class:`Patience`; FileNotFoundError and PermissionError at once."""

    def __init__(self, store: S3Store | GCSStore, key: str) -> None:
        self._store, self._key = store, key

    def read(self) -> tuple[bytes, Version]:
        """The whole object, and which writing of it that is."""
        return _patiently(self._get)

    def write(self, data: bytes) -> None:
        """Write the object, whatever was there."""
        import obstore

        _patiently(lambda: obstore.put(self._store, self._key, data))

    def replace(self, data: bytes, seen: Version | None, seconds: float) -> Version:
        """Write the object if it is as it was ``seen``, None: if there is none. Waits so many ``seconds`` for a store
        that does not answer. Raises ChangedError."""
        return _patiently(lambda: self._put_if(data, seen), seconds)

    def exists(self) -> bool:
        """Whether there is such an object."""
        import obstore

        try:
            _patiently(lambda: obstore.head(self._store, self._key))
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """Of the objects and folders right in a folder, sorted."""
        import obstore

        found = _patiently(lambda: obstore.list_with_delimiter(self._store, self._key or None))
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        names = {path.rstrip("/").removeprefix(self._key).strip("/") for path in paths}
        return sorted(names - {""})  # an object of the folder's own name marks it, for some programs

    def delete(self) -> None:
        """Remove the object, and all whose names go on from it with a slash; nothing where there is none."""
        import obstore

        def below() -> list[str]:
            return [entry["path"] for entries in obstore.list(self._store, self._key) for entry in entries]

        paths = [*_patiently(below), *([self._key] if self.exists() else [])]
        if paths:
            _patiently(lambda: obstore.delete(self._store, paths))

    def _get(self) -> tuple[bytes, Version]:
        import obstore

        found = obstore.get(self._store, self._key)
        return bytes(found.bytes()), Version(found.meta["e_tag"], found.meta["version"])

    def _put_if(self, data: bytes, seen: Version | None) -> Version:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: PutMode = "create"
        if seen is not None:
            known: UpdateVersion = {}  # a store uses one of them, or both
            if seen.e_tag is not None:
                known["e_tag"] = seen.e_tag
            if seen.version is not None:
                known["version"] = seen.version
            mode = known
        try:
            done = obstore.put(self._store, self._key, data, mode=mode)
        except (AlreadyExistsError, PreconditionError) as error:
            found, version = self._get()
            if found == data:  # written by an earlier try, whose answer was lost on its way
                return version
            raise ChangedError(self._key) from error
        return Version(done["e_tag"], done["version"])


def stored_object(scheme: str, authority: str, key: str, region: str | None, query: str) -> StoredObject:
    """The object of a URI of one of :data:`SCHEMES`: its ``authority`` is the bucket, before which the keys of an
    account may stand; its ``query`` is of the store. ``region``: of S3, as it was found out."""
    said = ((name, value) for name, value in os.environ.items() if name.startswith(("AWS_", "GOOGLE_")))
    return StoredObject(_store(scheme, authority, region, query, tuple(sorted(said))), key)


@lru_cache
def _store(scheme: str, authority: str, region: str | None, query: str, environment: _Pairs) -> S3Store | GCSStore:
    """One client for all that is asked of a bucket in the same environment."""
    account, _, name = authority.rpartition("@")
    options = dict(parse_qsl(query))
    endpoint = options.get("endpoint_override", "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{options.get('scheme', 'https')}://{endpoint}"
    if scheme == "s3":
        return _s3(name, account, region, endpoint)
    return _google(name, endpoint, anonymous=account == "anonymous")


_CLIENT: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=_TRANSFER_SECONDS)}


def _retries() -> RetryConfig:
    backoff: BackoffConfig = {"max_backoff": timedelta(seconds=2)}
    return {"max_retries": 100, "retry_timeout": timedelta(seconds=REQUEST_SECONDS), "backoff": backoff}


def _s3(name: str, account: str, region: str | None, endpoint: str) -> S3Store:
    from obstore.store import S3Store

    config: S3Config = {}
    if region:
        config["region"] = region
    if endpoint:
        config["endpoint"] = endpoint
    key, _, secret = map(unquote, account.partition(":"))
    if key:
        config |= {"access_key_id": key, "secret_access_key": secret}
    provider = None if key or "AWS_ACCESS_KEY_ID" in os.environ else _profile()
    return S3Store(name, config=config, credential_provider=provider, client_options=_CLIENT, retry_config=_retries())


def _profile() -> S3CredentialProvider | None:
    """The user's, where AWS's own library is installed; else those of the machine are asked for."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider()
    except (ImportError, ValueError):  # the second: there is none
        return None


def _google(name: str, endpoint: str, *, anonymous: bool) -> GCSStore:
    from obstore.store import GCSStore

    config: GCSConfig = {}
    if endpoint:
        config["base_url"] = endpoint
    if anonymous:
        config["skip_signature"] = True
    return GCSStore(name, config=config, client_options=_CLIENT, retry_config=_retries())


def _patiently(request: Callable[[], _Result], seconds: float | None = None) -> _Result:
    """Make a request, again and again while the store does not answer, for so many ``seconds``."""
    from obstore.exceptions import BaseError

    own = Patience.of_this_thread.get()
    longest = next(given for given in (seconds, own, Patience.seconds) if given is not None)
    began, pause = time.monotonic(), 0.1
    while True:
        try:
            return request()
        except BaseError as error:
            problem = as_os_error(error)
            if type(problem) is not OSError or time.monotonic() - began + pause > longest:
                raise problem from error
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def as_os_error(error: Exception) -> OSError:
    """What the store says, as the operating system's error of that meaning; OSError itself where trying again helps."""
    from obstore import exceptions

    text = " ".join(str(error).split("\n\nDebug source")[0].split())
    if _NO_BUCKET in text:
        named = re.search("<BucketName>(.*?)</BucketName>", text)
        return FileNotFoundError(f"there is no bucket{f' {named[1]}' if named else ' of that name'} (NoSuchBucket)")
    if isinstance(error, exceptions.NotFoundError):
        return FileNotFoundError(text)
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return PermissionError(f"Access Denied: {text}")
    return OSError(text)
