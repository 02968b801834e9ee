"""Records that carry their own checksum, and so say of themselves whether they are whole."""

from typing import Self

from pydantic import ConfigDict, ValidationError

from trainables.config import Config
from trainables.hashing import checksum
from trainables.storage import Location


class Sealed(Config):
    """A record in a file of JSON; bytes are written in base64."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    checksum: str = ""  # of all the rest

    def sealed(self) -> Self:
        """The same with its checksum."""
        rest = self.model_copy(update={"checksum": ""}).model_dump_json()
        return self.model_copy(update={"checksum": checksum(rest.encode())})

    @classmethod
    def read(cls, file: Location) -> Self | None:
        """The record in a file; None where there is none, or it is damaged: then what it is of is made again."""
        try:
            record = cls.model_validate_json(file.read_bytes()) if file.exists() else None
        except ValidationError:
            return None
        return record if record is not None and record == record.sealed() else None
