"""What a format costs: figures against arithmetic of the test's own, weights that cost nothing, weights that suffer."""

from __future__ import annotations

import gc
import json
import math
import weakref
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from amk.cli.app import main
from amk.errors import EXIT_FAILED, EXIT_USAGE, UnwritablePathError
from amk.frontend.checkpoint import resolve
from amk.measure import quality as room
from amk.measure.quality import ArmQuality, QualityReport, quality
from amk.measure.text import read_text
from tests.checkpoints import random_llama

CONTEXT, WINDOWS = 24, 8
ARMS = ["float32", "HF bf16", "amk bf16", "amk w8a16"]


def save(folder: Path, model: LlamaForCausalLM) -> Path:
    """``model`` with a tokenizer that has a token for each character of ASCII."""
    model.save_pretrained(folder)
    made = Tokenizer(WordLevel({chr(code): code for code in range(128)}, unk_token="?"))
    made.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(folder)
    return folder


def float32_llama() -> LlamaForCausalLM:
    """Weights that neither bf16 nor eight bits hold."""
    model = random_llama(seed=5).float()
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + 0.004 * torch.rand(parameter.shape, generator=generator))
    return model


def integer_llama() -> LlamaForCausalLM:
    """Rows of integers up to 127 times a power of two: bf16 and eight bits hold them as they are."""
    model = random_llama(seed=5).float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.copy_((parameter * 128).round().clamp(-126, 126) / 512)
                parameter[:, 3] = 127 / 512
    return model


def outlier_llama() -> LlamaForCausalLM:
    """In each row a weight so large that eight bits leave nothing of the others; the hidden state is small there."""
    model = random_llama(seed=5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter[:, 3] = 300 * parameter.abs().max()
            else:
                parameter[3] = 1e-4
    return model


@pytest.fixture(autouse=True)
def home(amk_home: Path) -> Path:
    return amk_home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "tiny", float32_llama())


def measured(folder: Path, **options: Any) -> QualityReport:
    return quality(resolve(folder), **{"context": CONTEXT, "tokens": CONTEXT * WINDOWS, **options})


def by_hand(weight: np.ndarray, group: int) -> np.ndarray:
    """Eight-bit weights, a row and a group at a time."""
    made = np.empty_like(weight)
    for row, values in enumerate(weight):
        for low in range(0, len(values), group or len(values)):
            some = values[low : low + (group or len(values))]
            scale = np.abs(some).max() / np.float32(127)
            made[row, low : low + len(some)] = np.rint(some / scale) * scale
    return made


def logits_of(model: LlamaForCausalLM, ids: list[list[int]]) -> np.ndarray:
    with torch.no_grad():
        return np.stack([model(torch.tensor([window])).logits[0, :-1].float().double().numpy() for window in ids])


@pytest.mark.parametrize("group", [0, 64])
def test_figures_are_those_of_another_computation(folder: Path, group: int) -> None:
    report = measured(folder, group_size=group)
    _, content = read_text(None)
    own = [ord(letter) if ord(letter) < 128 else ord("?") for letter in content]
    fits = len(own) // CONTEXT
    firsts = [fits * number // WINDOWS * CONTEXT for number in range(WINDOWS)]
    ids = [own[first : first + CONTEXT] for first in firsts]
    assert report.text_tokens == len(own)

    def model(change: Any = lambda weight: weight, dtype: Any = torch.float32) -> LlamaForCausalLM:
        made = LlamaForCausalLM.from_pretrained(folder, dtype=dtype)
        with torch.no_grad():
            for parameter in made.parameters():
                if parameter.dim() == 2:
                    parameter.copy_(change(parameter.clone()))
        return made.eval()

    models = [
        model(),
        model(dtype=torch.bfloat16),
        model(lambda weight: weight.bfloat16().float()),
        model(lambda weight: torch.from_numpy(by_hand(weight.numpy(), group))),
    ]
    all_logits = [logits_of(each, ids) for each in models]
    targets = np.array(ids)[:, 1:]
    probabilities = [np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True) for x in all_logits]
    perplexities = [
        math.exp(-np.mean(np.log(np.take_along_axis(p, targets[..., None], axis=-1)))) for p in probabilities
    ]
    assert [arm.arm for arm in report.arms] == ARMS
    for arm, x, p, perplexity in zip(report.arms, all_logits, probabilities, perplexities, strict=True):
        kl = (probabilities[0] * np.log(probabilities[0] / p)).sum(axis=-1)
        r = np.ptp(x - all_logits[0], axis=-1)
        found = arm.whole
        assert found.predictions == WINDOWS * (CONTEXT - 1)
        assert found.perplexity == pytest.approx(perplexity, rel=1e-5)
        assert found.perplexity_ratio == pytest.approx(perplexity / perplexities[0], rel=1e-5)
        assert found.agreement == pytest.approx(np.mean(x.argmax(axis=-1) == all_logits[0].argmax(axis=-1)))
        assert found.kl_mean == pytest.approx(kl.mean(), rel=1e-3, abs=1e-9)
        assert found.kl_p99 == pytest.approx(np.percentile(kl, 99), rel=1e-3, abs=1e-9)
        assert found.logit_range_max == pytest.approx(r.max(), rel=1e-3, abs=1e-4)
        assert found.logit_range_p99 == pytest.approx(np.percentile(r, 99), rel=1e-3, abs=1e-4)
    assert all(arm.whole.kl_mean > 1e-6 for arm in report.arms[1:]), "each of them costs something here"


def test_slices_make_up_the_whole(folder: Path) -> None:
    report = measured(folder)
    assert [part.windows for part in report.slices] == [2, 2, 1, 1, 1, 1]
    assert report.slices[0].first == 0
    assert all(low.end <= high.first for low, high in zip(report.slices, report.slices[1:], strict=False))
    for arm in report.arms:
        each = [part.predictions for part in arm.slices]
        assert sum(each) == arm.whole.predictions
        mean = np.average([math.log(part.perplexity) for part in arm.slices], weights=each)
        assert math.exp(mean) == pytest.approx(arm.whole.perplexity)
        assert np.average([part.agreement for part in arm.slices], weights=each) == pytest.approx(arm.whole.agreement)
        assert max(part.logit_range_max for part in arm.slices) == arm.whole.logit_range_max
        assert [part.ratio_error is None for part in arm.slices] == [False, False, True, True, True, True]


def test_the_error_of_a_ratio(folder: Path) -> None:
    """Of six windows, each a slice: what their ratios' spread says of the mean."""
    report = measured(folder, tokens=CONTEXT * 6)
    for arm in report.arms:
        logs = [math.log(part.perplexity_ratio) for part in arm.slices]
        error = arm.whole.perplexity_ratio * np.std(logs, ddof=1) / math.sqrt(6)
        assert arm.whole.ratio_error == pytest.approx(error)


def test_weights_that_the_formats_hold_cost_nothing(tmp_path: Path) -> None:
    report = measured(save(tmp_path / "integers", integer_llama()))
    assert report.verdict == "pass"
    for arm in (report.arms[0], report.arms[2], report.arms[3]):
        for found in (arm.whole, *arm.slices):
            assert (found.perplexity_ratio, found.agreement) == (1.0, 1.0), arm.arm
            assert (found.kl_mean, found.kl_p99, found.logit_range_max) == (0.0, 0.0, 0.0), arm.arm
    assert report.arms[1].whole.logit_range_max > 0, "bf16 arithmetic is not float32"


def test_a_harmful_format_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "outliers", outlier_llama())
    report = measured(folder)
    judged, unquantized = report.arms[-1].whole, report.arms[2].whole
    assert report.verdict == "fail"
    assert "the perplexity of amk w8a16" in report.failure
    assert judged.kl_mean > 100 * unquantized.kl_mean
    assert judged.agreement < 0.7 < unquantized.agreement
    words = ["quality", str(folder), "--context", str(CONTEXT), "--tokens", str(CONTEXT * WINDOWS)]
    assert main(words) == EXIT_FAILED
    assert f"FAIL: {report.failure}" in capsys.readouterr().out
    assert main([*words, "--dtype", "bf16"]) == 0
    assert "PASS: the perplexity of amk bf16" in capsys.readouterr().out


@pytest.mark.parametrize("ratio", [0.99, 1.006, math.nan])
def test_either_side_of_the_bar_fails(folder: Path, ratio: float) -> None:
    arm = measured(folder, dtype="bf16").arms[-1]
    changed = msgspec.structs.replace(arm.whole, perplexity_ratio=ratio)
    assert not room._failure(arm)
    assert room._failure(ArmQuality(arm="x", whole=changed, slices=()))


def test_one_model_at_a_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    real = room._arms

    def watched(make: Any) -> Any:
        def run() -> Any:
            assert all(model() is None for model in alive)
            model = make()
            alive.append(weakref.ref(model))
            return model

        return run

    monkeypatch.setattr(room, "_arms", lambda *given: {name: watched(make) for name, make in real(*given).items()})
    gc.disable()
    try:
        measured(folder)
    finally:
        gc.enable()
    assert len(alive) == len(ARMS)


def test_a_temporary_folder_that_is_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room.np, "save", full)
    with pytest.raises(UnwritablePathError, match=r"No space left.*\n.*TMPDIR"):
        measured(folder)


def test_the_report_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "quality",
        str(folder),
        "--context",
        str(CONTEXT),
        "--tokens",
        str(CONTEXT * WINDOWS),
        "--group-size",
        "64",
    ]
    code = main([*words, "--json"])
    written = json.loads(capsys.readouterr().out)
    report = msgspec.convert(written, QualityReport)
    assert set(written) == set(QualityReport.__struct_fields__)
    assert code == (0 if report.verdict == "pass" else EXIT_FAILED)
    assert (report.dtype, report.group_size, report.context) == ("w8a16", 64, CONTEXT)
    assert report.tokens == CONTEXT * WINDOWS
    assert report.text == read_text(None)[0]
    assert report.weights == resolve(folder).digest()
    assert all(len(arm.slices) == len(report.slices) == 6 for arm in report.arms)
    assert msgspec.structs.replace(measured(folder, group_size=64), model=report.model, source=report.source) == report
    assert main(words) == code
    shown = capsys.readouterr().out
    assert all(arm in shown for arm in ARMS)
    assert report.text.sha256 in shown


WRONG = {
    "no such format": (["--dtype", "int3"], "AMK-U104", "dtype='int3'"),
    "no such group": (["--group-size", "32"], "AMK-U104", "group_size=32"),
    "groups of bf16": (["--dtype", "bf16", "--group-size", "64"], "AMK-U104", "bf16 has no scales"),
    "no text there": (["--text", "none.txt"], "AMK-U110", "none.txt"),
    "no text inside": (["--text", "bytes.txt"], "AMK-U110", "UTF-8"),
    "a short text": (["--text", "short.txt"], "AMK-U104", "5 tokens are not a window of 24"),
    "an empty text": (["--text", "empty.txt"], "AMK-U104", "0 tokens are not a window of 24"),
    "a context beyond the model": (["--context", "257"], "AMK-U104", "made for 256 positions"),
    "fewer tokens than a window": (["--tokens", "23"], "AMK-U104", "tokens=23"),
    "a context of one": (["--context", "1"], "AMK-U100", "--context"),
}


@pytest.mark.parametrize(("words", "code", "said"), WRONG.values(), ids=WRONG)
def test_wrong_options(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: str,
    said: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("bytes.txt").write_bytes(b"\xff\xfe")
    Path("short.txt").write_text("short")
    Path("empty.txt").write_text("")
    assert main(["quality", str(folder), "--context", str(CONTEXT), *words]) == EXIT_USAGE
    err = capsys.readouterr().err
    assert code in err
    assert said in err
    assert "mend:" in err


def broken(kind: str, folder: Path) -> None:
    if kind == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif kind == "no weights":
        (folder / "model.safetensors").unlink()
    else:
        model = float32_llama()
        with torch.no_grad():
            weight = model.model.layers[1].mlp.down_proj.weight if kind == "a NaN weight" else model.model.norm.weight
            weight.view(-1)[7] = math.nan
        model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "exit_code", "code", "said"),
    [
        ("no tokenizer", EXIT_USAGE, "AMK-U108", "carries no tokenizer"),
        ("no weights", EXIT_USAGE, "AMK-C207", "holds no weights"),
        ("a NaN weight", EXIT_USAGE, "AMK-C225", "row 0 of model.layers.1.mlp.down_proj.weight"),
        ("a NaN gain", EXIT_FAILED, "AMK-P720", "float32 gives logits that are NaN"),
    ],
)
def test_wrong_checkpoints(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str, exit_code: int, code: str, said: str
) -> None:
    broken(kind, folder)
    assert main(["quality", str(folder), "--context", str(CONTEXT)]) == exit_code
    err = capsys.readouterr().err
    assert code in err
    assert said in err
    assert "mend:" in err


def test_a_table_that_only_embeds_is_no_integer(tmp_path: Path) -> None:
    """A row that is NaN, of a token that the text does not have, harms no arm."""
    model = random_llama(seed=5, tie_word_embeddings=False)
    with torch.no_grad():
        model.model.embed_tokens.weight[130] = math.nan
    report = measured(save(tmp_path / "untied", model))
    assert all(math.isfinite(arm.whole.perplexity) for arm in report.arms)


def test_a_tokenizer_of_another_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save(tmp_path / "small", random_llama(vocab_size=100))
    assert main(["quality", str(folder), "--context", str(CONTEXT)]) == EXIT_USAGE
    assert "AMK-U107" in capsys.readouterr().err


def test_a_compiled_file_is_no_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quality", "model.amk"]) == EXIT_USAGE
    assert "pass the checkpoint" in capsys.readouterr().err
