"""Contract files: what they say, and errors with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.contracts.decode import contract_for, load_prompts
from amk.contracts.errors import ContractFileError, PromptFileError
from amk.contracts.spec import Contract
from amk.errors import UnreadableInputError

GOOD = """\
contract: test/decode
version: 1
scope:
  op: decode
  dtype: [bf16]
  kv_dtype: [float32]
  arch: [cpu]
  context: [1, 64]
numerical:
  oracle: float32
  logit_range_max: 0.01
"""


def load(folder: Path, text: str) -> Contract:
    path = folder / "contract.yaml"
    path.write_text(text)
    return Contract.load(path)


def test_a_contract_is_read(tmp_path: Path) -> None:
    contract = load(tmp_path, GOOD)
    assert contract.contract == "test/decode"
    assert contract.scope.context == (1, 64)
    assert contract.numerical.logit_range_max == 0.01


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        ("  oracle: float32", "  oracel: float32", 10, "oracel"),
        ("  oracle: float32", "  oracle: float16", 10, "float16"),
        ("  logit_range_max: 0.01", "  logit_range_max: -1", 11, "> 0"),
        ("  logit_range_max: 0.01", "  logit_range_max: wide", 11, "float"),
        ("  arch: [cpu]", "  arch: [cpu, sm_70]", 7, "sm_70"),
        ("version: 1", "version: 2", 2, "2"),
        ("  op: decode", "  op: [decode", 5, ""),
        ("scope:", "scope: &a", 4, ""),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, old: str, new: str, line: int, why: str) -> None:
    if new == "scope: &a":  # a key that is missing is named at the mapping that lacks it
        new, why = "scope:\n  colour: red", "colour"
    with pytest.raises(ContractFileError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert f"contract.yaml:{line}:" in str(caught.value)
    assert why in str(caught.value)


def test_a_missing_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInputError, match=r"contract\.yaml"):
        Contract.load(tmp_path / "contract.yaml")


def test_models_have_contracts() -> None:
    assert contract_for("SmolLM2-135M").contract == "smollm2-135m/decode"
    assert contract_for("SmolLM2-135M-Instruct").contract == "smollm2-135m/decode"
    assert contract_for("some/other").contract == "default/decode"


def test_the_bundled_prompts_are_sixteen_chats() -> None:
    prompts = load_prompts(None)
    assert len(prompts) == 16
    assert all(prompt[-1]["role"] == "user" for prompt in prompts)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[3]", '["a", ""]', '[["a"]]', "[[1, 2.5]]"])
def test_prompt_files_are_checked(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    with pytest.raises(PromptFileError, match=r"prompts\.json"):
        load_prompts(path)


def test_prompt_files_hold_texts_chats_and_ids(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('["hello", [1, 2, 3], [{"role": "user", "content": "hi"}]]')
    assert load_prompts(path) == ["hello", [1, 2, 3], [{"role": "user", "content": "hi"}]]
