"""Exceptions, all picklable because they cross process borders. `stages` and `store` add their own.

TsfmscopeError
├── ArgumentError       a name, file or value that the caller gave is not valid
├── DataError           a series, file or folder cannot be used
├── ModelError          a checkpoint or family cannot be used
│   └── HubError        the model hub does not answer, or refuses
│       └── MissingOnHubError  the hub has no such repository, revision or file
├── HealthError         hidden states or forecasts are invalid (NaN, all zero, wrong count)
├── StaleInputError     an input changed between planning and the start of a job
├── QueryError          a query, or the database that it reads, cannot be used
└── SweepError          the cluster, or the code on it, would make every further job fail
"""


class TsfmscopeError(Exception):
    """Root of the tree. The message states what was expected, what was found, where, and how to fix it."""

    # Exit code of a command that ends with the error: 1 if the work failed, 2 if the command must be fixed.
    exit_code = 1


class ArgumentError(TsfmscopeError, ValueError):
    """A name, file or value that the caller gave is not valid."""

    exit_code = 2


class DataError(TsfmscopeError):
    """A series, file or folder cannot be used."""


class ModelError(TsfmscopeError):
    """A checkpoint or family cannot be used."""


class HubError(ModelError):
    """The model hub does not answer, or refuses."""


class MissingOnHubError(HubError):
    """The model hub has no such repository, revision or file."""


class HealthError(TsfmscopeError):
    """Hidden states or forecasts are invalid: NaN, all zero, or the wrong count."""


class StaleInputError(TsfmscopeError):
    """An input changed between planning and the start of a job."""


class QueryError(TsfmscopeError):
    """A query, or the database that it reads, cannot be used."""

    exit_code = 2


class SweepError(TsfmscopeError):
    """The cluster, or the code on it, would make every further job fail."""


class StillRunning(KeyboardInterrupt):
    """Interrupt of a statement that DuckDB did not stop in time; its connection stays busy."""
