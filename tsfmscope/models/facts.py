"""Facts that stand on a family's class: its released checkpoints and its own package."""

from __future__ import annotations

from dataclasses import dataclass

# Licence of the code of this project, and of most released weights.
APACHE = "apache-2.0"
# A public registry of released models that is checked against the hub's metadata: for checkpoints whose own page was
# not at hand when the licence was looked up (2026-11-27).
TOLLAMA = "github.com/tollama/tollama, src/tollama/model_registry/registry.yaml"


@dataclass(frozen=True)
class Released:
    """Released checkpoints of a family.

    checkpoints: names on the hub, ORG/NAME. license: that of the weights, as the hub writes it; None: none is known.
    source: where the licence was read.
    """

    checkpoints: tuple[str, ...] = ()
    license: str | None = None
    source: str = ""


@dataclass(frozen=True)
class Package:
    """Package of others that reads checkpoints of a family.

    name: as pip installs it. loader: "module:Class" whose `from_pretrained` reads a folder; "module" alone: the class
    is the one that config.json names. options: further arguments of it, as code. has_our_network: the family's network
    is the package's, not one that we wrote. network: "module:Class" of the network that ours is compared with; None:
    the package does not forecast as the family does, or needs an environment of its own. inner: name of the part of
    that network that has the names of ours; "": all of it. wants_all_steps: the network reads contexts of its full
    length only. first_rows: rows that it adds stand after ours, not in front of them. rows_first: its states are
    [T, W, d].
    """

    name: str
    loader: str
    options: str = ""
    has_our_network: bool = True
    network: str | None = None
    inner: str = ""
    wants_all_steps: bool = False
    first_rows: bool = False
    rows_first: bool = False


def page(checkpoint: str) -> str:
    """Return the hub's page of a checkpoint."""
    return f"huggingface.co/{checkpoint}"
