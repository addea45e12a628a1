"""Stop of a training before a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from tsfmscope.training import pretraining


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """Stop a training before a step: `with dies_at(5): pretrain(...)`."""

    @contextmanager
    def stop(at: int) -> Iterator[None]:
        step = pretraining._step

        def stopped(*arguments: Any) -> Any:
            if arguments[3] == at:
                raise KeyboardInterrupt
            return step(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(pretraining, "_step", stopped)
            with pytest.raises(KeyboardInterrupt):
                yield

    return stop
