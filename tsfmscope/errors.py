"""Exceptions of `tasks`, all picklable because they cross process borders.

TsfmscopeError
├── DataError           a series, file or folder cannot be used
├── ModelError          a checkpoint or family cannot be used
│   └── HubError        the model hub does not answer, or refuses
│       └── MissingOnHubError  the hub has no such repository, revision or file
├── HealthError         hidden states or forecasts are invalid (NaN, all zero, wrong count)
├── StaleInputError     an input changed between planning and the start of a job
├── EnvironmentFailed   a model's own packages could not be installed
├── QueryError          a query, or the database that it reads, cannot be used
└── SweepError          the cluster, or the code on it, would make every further job fail
"""


class TsfmscopeError(Exception):
    """Root of the tree. The message states what was expected, what was found, where, and how to fix it."""


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


class EnvironmentFailed(TsfmscopeError):
    """The environment that a job requests could not be built."""


class QueryError(TsfmscopeError):
    """A query, or the database that it reads, cannot be used."""

    exit_code = 2


class SweepError(TsfmscopeError):
    """The cluster, or the code on it, would make every further job fail."""
