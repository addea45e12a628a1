"""The exceptions of `store`, all picklable because workers raise some of them.

StoreError
├── StaleInput      what a job reads is not what was planned with
├── StoreBusy       another driver holds the store, or has taken it over
├── PlaceError      the bucket or folder of a store cannot be used
├── StoreFull       the disk of a store is full, or may not be written
├── DamagedPart     a part could not be read at the end of a run; it was set aside
├── CheckFailed     a query of store/sql/checks returned rows
└── QueryError      a query, or the database it asks, cannot be used
"""


class StoreError(Exception):
    """Root of the tree; the message says expected, got, where, and what to do."""


class StaleInput(StoreError):
    """An input of a job is not what it was when the job was planned."""


class StoreBusy(StoreError):
    """Another driver holds the store."""


class StoreFull(StoreError, OSError):
    """A file could not be written, nor could the next. Has the errno of the OSError that it stands for."""

    def __str__(self) -> str:
        return str(self.args[-1])


class PlaceError(StoreError):
    """Where a store lies cannot be used: no bucket, no credentials, no answer, or rows that nobody expects there."""


class DamagedPart(StoreError):
    """A stored part could not be read; it was set aside, and the next run redoes its jobs."""


class CheckFailed(StoreError):
    """The catalogue holds rows that may not exist."""


class QueryError(StoreError):
    """A query, or the database that it asks, cannot be used."""
