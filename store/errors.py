"""Exceptions of `store`; all are picklable, because workers raise some of them.

StoreError
├── StaleInput      an input of a job has changed since the job was planned
├── StoreBusy       another driver holds the store
├── StoreFull       the disk of a store is full or not writable
├── DamagedFile     a file is not as it was written: its checksum differs
├── DamagedPart     a part could not be read at the end of a run and was moved out of the store
└── CheckFailed     a check of the schema or of store/sql/checks returned rows
"""

from tsfmscope.errors import TsfmscopeError


class StoreError(TsfmscopeError):
    """Base class of all errors of `store`.

    The message states what was expected, what was found, where, and how to fix it.
    """


class StaleInput(StoreError):
    """An input of a job has changed since the job was planned."""


class StoreBusy(StoreError):
    """Another driver holds the store."""


class StoreFull(StoreError, OSError):
    """A file could not be written, as the disk is full or not writable; has the errno of the OSError."""

    def __str__(self) -> str:
        return str(self.args[-1])


class DamagedFile(StoreError):
    """The bytes of a file are not those that were written."""


class DamagedPart(StoreError):
    """A stored part could not be read; it was moved away, and the next run repeats its jobs."""


class CheckFailed(StoreError):
    """The catalogue contains rows that must not exist."""
