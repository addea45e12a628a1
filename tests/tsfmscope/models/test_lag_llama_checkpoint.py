"""The released file's form, and files that would do harm: what is loaded, what is refused, and that nothing is run."""

from __future__ import annotations

import functools
import os
import pickle
import resource
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tsfmscope.conformance.checkpoints import OF_FILES, Checkpoint, every_tensor_is_read
from tsfmscope.conformance.subject import judge
from tsfmscope.errors import ModelError
from tsfmscope.models import registry
from tsfmscope.models.common.attention import Widths, shapes
from tsfmscope.models.lag_llama import LAGS, LagLlama, read_lightning

TINY = {"context_length": 8, "n_layer": 1, "n_head": 2, "n_embd_per_head": 4, "lags": [0, 1, 5]}
HEADS = {"weight": (1, 144), "bias": (1,)}
HEAD, LOSS = "gluonts.torch.distributions.studentT.StudentTOutput", "gluonts.torch.modules.loss.NegativeLogLikelihood"


def released_shapes(layers: int = 8) -> dict[str, tuple[int, ...]]:
    """Names and shapes of science.md, section 8."""
    block = {f"rms_{n}.scale": (144,) for n in (1, 2)} | {f"attn.{n}_proj.weight": (144, 144) for n in "qc"}
    block |= {"attn.kv_proj.weight": (288, 144), "mlp.c_proj.weight": (144, 512)}
    block |= {f"mlp.c_fc{n}.weight": (512, 144) for n in (1, 2)}
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (144, 92), "wte.bias": (144,), "ln_f.scale": (144,)}
    shapes |= {f"h.{i}.{name}": shape for i in range(layers) for name, shape in block.items()}
    heads = {f"model.param_proj.proj.{i}.{kind}": shape for i in range(3) for kind, shape in HEADS.items()}
    return {f"model.transformer.{name}": shape for name, shape in shapes.items()} | heads


@pytest.fixture
def gluonts_object(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], Any]:
    """An object that pickles under a name of gluonts 0.14, with a state, as the release's hyper-parameters do."""

    def make(name: str, state: Any) -> Any:
        module, _, attribute = name.rpartition(".")
        cls = type(attribute, (), {"__module__": module, "__getstate__": lambda self: state})
        fake = ModuleType(module)
        setattr(fake, attribute, cls)
        monkeypatch.setitem(sys.modules, module, fake)
        return cls()

    return make


@pytest.fixture
def contents(gluonts_object: Callable[[str, Any], Any]) -> dict[str, Any]:
    """What a Lightning checkpoint of the release holds, weights drawn here."""
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(shape, generator=generator) * 0.05 for name, shape in released_shapes().items()}
    model_kwargs = {
        "input_size": 1, "context_length": 32, "max_context_length": 2048, "lags_seq": list(LAGS), "n_layer": 8,
        "n_embd_per_head": 16, "n_head": 9, "scaling": "robust", "num_parallel_samples": 100, "rope_scaling": None,
        "distr_output": gluonts_object(HEAD, {"__init_args__": OrderedDict()}), "time_feat": True, "dropout": 0.0,
    }  # fmt: skip
    hidden = {"__dict__": {"beta": 0.0}, "__fields_set__": set(), "__private_attribute_values__": {}}
    loss = gluonts_object(LOSS, hidden)
    return {
        "epoch": 1, "global_step": 100, "pytorch-lightning_version": "2.0.4", "state_dict": OrderedDict(state),
        "callbacks": {"ModelCheckpoint{'monitor': 'val_loss'}": {"best_model_score": torch.tensor(1.5)}},
        "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-4}]}],
        "lr_schedulers": [], "hparams_name": "kwargs",
        "hyper_parameters": {"model_kwargs": model_kwargs, "loss": loss, "lr": 1e-4, "data_id_to_name_map": {}},
    }  # fmt: skip


@pytest.fixture
def folder(contents: dict[str, Any], tmp_path: Path) -> Path:
    found = tmp_path / "released"
    found.mkdir()
    torch.save(contents, found / "lag-llama.ckpt")
    return found


def test_a_state_dict_with_the_released_names_goes_there_and_back(
    folder: Path, contents: dict[str, Any], tmp_path: Path
) -> None:
    family = LagLlama.load(folder)
    assert (family.layers, family.width, family.tokens, family.max_context) == ({"decoder": 8}, 144, 32, 1124)
    assert (family.config["lags"], family.config["missing"], family.config["rope_scaling"]) == (LAGS, "zero", None)
    family.save(tmp_path / "ours")
    kept = load_file(tmp_path / "ours" / "model.safetensors")
    assert {name: tuple(value.shape) for name, value in kept.items()} == released_shapes()
    assert all(torch.equal(kept[name], value) for name, value in contents["state_dict"].items())
    again = LagLlama.load(tmp_path / "ours")
    assert again.config == family.config
    assert all(
        torch.equal(a, b)
        for a, b in zip(again.network.state_dict().values(), family.network.state_dict().values(), strict=True)
    )


def test_a_released_file_has_no_block_and_is_compressed_and_saved_like_our_own(folder: Path, tmp_path: Path) -> None:
    model = LagLlama.load(folder)
    assert model.compression is None
    for layer in model.attentions():
        layer.write(layer.read().slice_heads(Widths(16, 5)))
    model.compression = {"widths": shapes(model.attentions())}
    model.save(tmp_path / "narrow")
    state = load_file(tmp_path / "narrow" / "model.safetensors")
    assert state["model.transformer.h.7.attn.kv_proj.weight"].shape == (144 + 9 * 5, 144)
    again = LagLlama.load(tmp_path / "narrow")
    assert again.compression == model.compression
    for name, value in model.network.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], value)


def test_verify_compares_a_released_file_with_the_model_that_is_saved(folder: Path, tmp_path: Path) -> None:
    checkpoint = Checkpoint("lag-llama", folder, tmp_path, 48, 12)
    findings = [judge(check, checkpoint) for check in (*OF_FILES, every_tensor_is_read)]
    assert {finding.verdict for finding in findings} == {"pass"}, findings


def test_the_registry_counts_and_fingerprints_the_released_file(folder: Path) -> None:
    assert registry.family_class("lag-llama") is LagLlama
    found = registry.resolve(str(folder))
    size = (folder / "lag-llama.ckpt").stat().st_size
    assert registry.facts(folder) == {"parameters": 2_449_299, "bytes": size, "license": None}
    (folder / "other.ckpt").write_bytes(b"not part of the model")
    assert registry.fingerprint(folder) == found.fingerprint
    with (folder / "lag-llama.ckpt").open("ab") as file:
        file.write(b"\0")
    assert registry.fingerprint(folder) != found.fingerprint
    with pytest.raises(ModelError, match="not a checkpoint: got "):
        registry.fingerprint(folder.parent)


def test_safetensors_are_taken_where_both_are_there(folder: Path) -> None:
    LagLlama.new(TINY, seed=0).save(folder)
    assert LagLlama.load(folder).width == 8


class Does:
    """Pickles as a call."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call, self.args


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("place", ["hyper_parameters", "state_dict", "anew"])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_file_that_calls_something_is_refused_and_nothing_is_run(
    folder: Path, contents: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, legacy: bool,
    forced: bool,
) -> None:  # fmt: skip
    if forced:  # torch would then load everything, where a call does not say otherwise
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    mark = tmp_path / "mark"
    harm = [
        (Does(os.system, f"touch {mark}"), "posix.system"),
        (Does(eval, f"open({str(mark)!r}, 'w')"), "eval"),
        (Does(open, str(mark), "w"), r"\S*open"),
        (functools.partial(os.mkdir, str(mark)), "functools.partial"),
        (Does(getattr, "text", "upper"), "getattr"),
    ]
    for harmful, name in harm:
        held = contents | {place: {**contents.get(place, {}), "harm": harmful}}
        torch.save(held, folder / "lag-llama.ckpt", _use_new_zipfile_serialization=not legacy)
        for read in (lambda: LagLlama.load(folder), lambda: registry.facts(folder)):
            with pytest.raises(ModelError, match=f"lag-llama.ckpt: holds {name}, which is refused.*{HEAD}, {LOSS}"):
                read()
        assert not mark.exists()


def test_an_allowed_name_runs_nothing_and_keeps_nothing(folder: Path, contents: dict[str, Any]) -> None:
    _, hyper_parameters = read_lightning(folder / "lag-llama.ckpt")
    loss = hyper_parameters["loss"]
    assert (type(loss).__module__, vars(loss)) == ("tsfmscope.models.lag_llama", {})
    head = type(contents["hyper_parameters"]["model_kwargs"]["distr_output"])
    contents["hyper_parameters"]["loss"] = Does(head, 1, 2)
    torch.save(contents, folder / "lag-llama.ckpt")
    with pytest.raises(ModelError, match=r"lag-llama.ckpt: cannot be read .*TypeError"):
        LagLlama.load(folder)


def test_nothing_stays_allowed_after_a_load(folder: Path) -> None:
    before = set(torch.serialization.get_safe_globals())
    LagLlama.load(folder)
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: c.pop("hyper_parameters"), "expected a Lightning checkpoint with state_dict and hyper_parameters"),
        (lambda c: c["hyper_parameters"].pop("model_kwargs"), "no model_kwargs; this is no lag-llama checkpoint"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].update(scaling="mean"), "got {'scaling': 'mean'}, expected"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].update(distr_output="normal"), "and a StudentTOutput"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].pop("n_head"), r"keys \['n_head'\] are missing"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].update(lags_seq=7), "lags: got 7, expected a list"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].update(n_layer=10**9), "n_layer: got 1000000000"),
        (lambda c: c["hyper_parameters"]["model_kwargs"].update(n_layer=9), r"missing \['model.transformer.h.8"),
        (lambda c: c["state_dict"].update(extra=torch.zeros(1)), r"not known \['extra'\]"),
        (lambda c: c["state_dict"].update(extra="text"), r"state_dict holds \['extra'\], which are no tensors"),
        (
            lambda c: c["state_dict"].update({"model.transformer.wte.weight": torch.zeros(144, 91)}),
            r"of another shape \['model.transformer.wte.weight'\]",
        ),
    ],
)
def test_a_wrong_released_file_is_named_with_what_is_wrong(
    folder: Path, contents: dict[str, Any], change: Callable[[dict[str, Any]], Any], text: str
) -> None:
    change(contents)
    torch.save(contents, folder / "lag-llama.ckpt")
    with pytest.raises(ModelError, match=text):
        LagLlama.load(folder)


@pytest.mark.parametrize("read", [LagLlama.load, registry.facts])
def test_a_small_zip_that_unpacks_to_far_more_is_refused_before_it_is_unpacked(
    folder: Path, read: Callable[[Path], object]
) -> None:
    path = folder / "lag-llama.ckpt"
    with zipfile.ZipFile(path) as original:
        parts = {name: original.read(name) for name in original.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
        packed.writestr("archive/data/999", bytes(2**28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelError, match=r"lag-llama.ckpt: got .* bytes that unpack to .*, expected no compression"):
        read(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17


@pytest.mark.parametrize("content", [b"", b"text", pickle.dumps([1, 2]), b"PK\x03\x04 cut"])
def test_a_file_that_is_no_checkpoint_is_named(folder: Path, content: bytes) -> None:
    (folder / "lag-llama.ckpt").write_bytes(content)
    with pytest.raises(ModelError, match=r"lag-llama.ckpt: (cannot be read|is refused|expected|got)"):
        LagLlama.load(folder)
