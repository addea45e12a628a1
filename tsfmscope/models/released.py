"""Published facts of every built-in family: released checkpoints, licences and their sources, tests of parity."""

from __future__ import annotations

from dataclasses import dataclass

from tsfmscope import hub

# Licence of the code of this project, which holds the networks of families without a package.
APACHE = "apache-2.0"
# A public registry of released models that is checked against the hub's metadata: for checkpoints whose own page was
# not at hand when the licence was looked up (2026-11-27).
TOLLAMA = "github.com/tollama/tollama, src/tollama/model_registry/registry.yaml"


@dataclass(frozen=True)
class Released:
    """Published facts of a family.

    checkpoints: names on the hub, ORG/NAME. package: package whose network it is; None: this project has its own.
    code: licence of that code. weights: licence of the released weights, as the hub writes it; None: none is known.
    source: where the licence of the weights was read. parity: test module of this repository, and the beginning of the
    names of the tests that compare states and forecasts with the package; None: there is no package to compare with.
    """

    checkpoints: tuple[str, ...] = ()
    package: str | None = None
    code: str = APACHE
    weights: str | None = None
    source: str = ""
    parity: tuple[str, ...] = ()


def _page(checkpoint: str) -> str:
    return f"huggingface.co/{checkpoint}"


RELEASED = {
    "chronos-t5": Released(
        tuple(f"amazon/chronos-t5-{size}" for size in ("tiny", "mini", "small", "base", "large")),
        "chronos-forecasting",
        weights=APACHE,
        source="github.com/amazon-science/chronos-forecasting, README.md",
        parity=("t5/test_chronos_t5.py", "t5/test_shared.py"),
    ),
    "chronos-bolt": Released(
        tuple(f"amazon/chronos-bolt-{size}" for size in ("tiny", "mini", "small", "base")),
        "chronos-forecasting",
        weights=APACHE,
        source=_page("amazon/chronos-bolt-base"),
        parity=("test_chronos_bolt.py",),
    ),
    "chronos-2": Released(
        ("amazon/chronos-2",), "chronos-forecasting", weights=APACHE, source=TOLLAMA, parity=("test_chronos_2.py",)
    ),
    # The first commits of 1.0 had apache-2.0; "Update license" of 28 March 2024 changed it.
    "moirai": Released(
        tuple(
            f"Salesforce/moirai-{version}-R-{size}" for version in ("1.0", "1.1") for size in ("small", "base", "large")
        ),
        "uni2ts",
        weights="cc-by-nc-4.0",
        source=f"{_page('Salesforce/moirai-1.0-R-large')} and {_page('Salesforce/moirai-1.1-R-small')}",
        parity=("moirai/test_family.py",),
    ),
    "moirai-2": Released(
        ("Salesforce/moirai-2.0-R-small",),
        "uni2ts",
        weights="cc-by-nc-4.0",
        source=TOLLAMA,
        parity=("moirai/test_version_2.py",),
    ),
    "lag-llama": Released(
        ("time-series-foundation-models/Lag-Llama",),
        weights=APACHE,
        source=_page("time-series-foundation-models/Lag-Llama"),
    ),
    "timesfm": Released(
        ("google/timesfm-2.0-500m-pytorch",),
        "transformers",
        weights=APACHE,
        source=_page("google/timesfm-2.0-500m-pytorch"),
        parity=("timesfm/test_versions.py",),
    ),
    # The page of the same weights in the layout of Google's package.
    "timesfm-2.5": Released(
        ("google/timesfm-2.5-200m-transformers",),
        "transformers",
        weights=APACHE,
        source=f"{TOLLAMA} (google/timesfm-2.5-200m-pytorch)",
        parity=("timesfm/test_versions.py",),
    ),
    "time-moe": Released(
        ("Maple728/TimeMoE-50M", "Maple728/TimeMoE-200M"), weights=APACHE, source=_page("Maple728/TimeMoE-50M")
    ),
    "visionts": Released(
        ("facebook/vit-mae-base",),
        "transformers",
        weights=APACHE,
        source=_page("facebook/vit-mae-base"),
        parity=("visionts/test_family.py",),
    ),
    "patchtst": Released(
        ("ibm-granite/granite-timeseries-patchtst",),
        "transformers",
        weights=APACHE,
        source=_page("ibm-granite/granite-timeseries-patchtst"),
        parity=("test_patchtst.py",),
    ),
    # ibm-research/patchtst-fm-r1 holds other weights, under cc-by-nc-sa-4.0.
    "patchtst-fm": Released(
        ("ibm-granite/granite-timeseries-patchtst-fm-r1",),
        weights=APACHE,
        source="github.com/unit8co/darts, darts/models/forecasting/patchtst_fm_model.py",
        parity=("patchtst_fm/test_against_package.py",),
    ),
    "toto-2": Released(
        tuple(f"Datadog/Toto-2.0-{size}" for size in ("4m", "22m", "313m", "1B", "2.5B")),
        weights=APACHE,
        source=_page("Datadog/Toto-2.0-2.5B"),
        parity=("toto_2/test_against_package.py", "toto_2/test_recorded.py"),
    ),
    # The weights of ibm-research/ttm-research-r2 are for research only.
    "ttm": Released(
        ("ibm-granite/granite-timeseries-ttm-r1", "ibm-granite/granite-timeseries-ttm-r2"),
        weights=APACHE,
        source="arxiv.org/abs/2401.03955, abstract",
        parity=("ttm/test_against_package.py",),
    ),
    "moment": Released(
        tuple(f"AutonLab/MOMENT-1-{size}" for size in ("small", "base", "large")),
        weights="mit",
        source=_page("AutonLab/MOMENT-1-small"),
        parity=("moment/test_against_package.py",),
    ),
    # The page of ibm-research/flowstate says: for research use only.
    "flowstate": Released(
        ("ibm-granite/granite-timeseries-flowstate-r1",),
        weights=APACHE,
        source=_page("ibm-granite/granite-timeseries-flowstate-r1"),
        parity=("flowstate/test_against_package.py",),
    ),
    "wavetoken": Released(),
    "totem": Released(),
    "t5-text": Released(
        ("google-t5/t5-base",),
        "transformers",
        weights=APACHE,
        source=_page("google-t5/t5-base"),
        parity=("t5/test_shared.py",),
    ),
    "vit": Released(package="transformers", parity=("test_vit.py",)),
    "tabular": Released(),
}


def family_of_release(reference: str) -> str | None:
    """Return the family of a released checkpoint, hub:ORG/NAME[@REVISION]; None for any other reference."""
    if not reference.startswith(hub.PREFIX):
        return None
    name = reference.removeprefix(hub.PREFIX).partition("@")[0]
    return next((family for family, released in RELEASED.items() if name in released.checkpoints), None)
