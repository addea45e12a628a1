"""The exceptions of `tasks`, all picklable because they cross process borders.

TsfmLensError
├── DataError           a series, file or folder cannot be used
├── ModelError          a checkpoint or family cannot be used
│   └── HubError        the model hub does not answer, or refuses
├── HealthError         hidden states or forecasts are not what they must be (NaN, all zero, wrong count)
├── StaleInputError     an input changed between planning and the start of a job
├── EnvironmentFailed   packages of a model's own could not be installed
└── SweepError          the cluster or the code on it is such that every further job would fail
"""


class TsfmLensError(Exception):
    """Root of the tree; the message says expected, got, where, and what to do."""


class DataError(TsfmLensError):
    """A series, file or folder cannot be used."""


class ModelError(TsfmLensError):
    """A checkpoint or family cannot be used."""


class HubError(ModelError):
    """The model hub does not answer, or refuses."""


class HealthError(TsfmLensError):
    """Hidden states or forecasts are not what they must be."""


class StaleInputError(TsfmLensError):
    """An input changed between planning and the start of a job."""


class EnvironmentFailed(TsfmLensError):
    """The environment that a job asks for could not be made."""


class SweepError(TsfmLensError):
    """The cluster, or the code on it, is such that every further job would fail."""
