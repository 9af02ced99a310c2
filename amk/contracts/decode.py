"""The decode-parity contract: which contract holds for a model, on which prompts, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from amk.contracts.errors import OutOfScopeError, PromptFileError
from amk.contracts.spec import Contract
from amk.errors import UnreadableInputError
from amk.frontend.aliases import models_folder
from amk.parity.compare import HuggingFaceOracle, ParityReport, PromptParity, compare, summarise
from amk.runtime.generate import Message, Prompt
from amk.runtime.model import CompiledModel


def contract_for(name: str) -> Contract:
    """The contract of a model by alias; an ``-instruct`` model shares its base's; else the default one."""
    alias = name.lower().rsplit("/", 1)[-1]
    for folder in (alias, alias.removesuffix("-instruct")):
        path = models_folder() / folder / "contract.yaml"
        if path.is_file():
            return Contract.load(path)
    with resources.as_file(resources.files("amk.contracts") / "default.yaml") as path:
        return Contract.load(path)


def load_prompts(path: Path | None) -> list[Prompt]:
    """Prompts of a JSON file; the bundled chat prompts when ``path`` is None.

    Raises
    ------
    UnreadableInputError, PromptFileError
    """
    if path is None:
        data = (resources.files("amk.contracts") / "prompts.json").read_bytes()
    else:
        try:
            data = path.read_bytes()
        except OSError as error:
            why = error.strerror or str(error)
            raise UnreadableInputError(path=path, why=why, fix="pass the path of a JSON file of prompts") from error
    try:
        prompts = [_prompt(entry) for entry in msgspec.json.decode(data, type=list[str | list[object]])]
    except msgspec.MsgspecError as error:
        raise PromptFileError(path=path, why=error) from error
    if not prompts or not all(prompts):
        raise PromptFileError(path=path, why="it has no prompts" if not prompts else "one of its prompts is empty")
    return prompts


def _prompt(entry: str | list[object]) -> Prompt:
    """Text as it is; a list is one of messages if its first entry is, else of token ids."""
    if isinstance(entry, str):
        return entry
    if entry and isinstance(entry[0], dict):
        return msgspec.convert(entry, type=list[dict[str, str]])
    return msgspec.convert(entry, type=list[int])


def encode_prompts(model: CompiledModel, prompts: Sequence[Prompt]) -> list[tuple[str, list[int]]]:
    """(name, token ids) of each prompt; chat messages become their text where the tokenizer has no chat template."""
    tokenizer = model.tokenizer
    chats = tokenizer is not None and bool(tokenizer.chat_template)

    def plain(prompt: Prompt) -> Prompt:
        if chats or isinstance(prompt, str) or not isinstance(prompt[0], dict):
            return prompt
        return "\n".join(message["content"] for message in prompt if isinstance(message, Mapping))

    return [(_title(prompt), model.generator.encode(plain(prompt))) for prompt in prompts]


def decode_parity(
    model: CompiledModel,
    contract: Contract,
    prompts: Sequence[tuple[str, Sequence[int]]],
    *,
    tokens: int,
    seed: int | None = None,
    on_prompt: Callable[[PromptParity], None] = lambda prompt: None,
) -> ParityReport:
    """Hold ``model`` to the numerical clause of ``contract``.

    Parameters
    ----------
    prompts
        (name, token ids) pairs.
    tokens
        New tokens a prompt.
    seed
        Shuffles the legal order in which the reference machine runs the tasks.
    on_prompt
        Called with each prompt's outcome as it is known.

    Raises
    ------
    OutOfScopeError
        The contract does not speak of this model's arch, precision or context.
    """
    _check_scope(model, contract)
    bound = contract.numerical.logit_range_max
    session = model.session if seed is None else model.open_session(seed=seed)
    oracle = HuggingFaceOracle(model.checkpoint.config, model.checkpoint.load, quantization=model.quantization)
    done = []
    for prompt in compare(session, oracle, prompts, tokens=tokens, bound=bound):
        on_prompt(prompt)
        done.append(prompt)
    return summarise(done, bound=bound)


def _check_scope(model: CompiledModel, contract: Contract) -> None:
    scope = contract.scope
    covers: list[tuple[str, object, Sequence[object]]] = [
        ("arch", model.arch, scope.arch),
        ("dtype", model.manifest.dtype, scope.dtype),
        ("kv_dtype", model.manifest.kv_dtype, scope.kv_dtype),
    ]
    for field, value, covered in covers:
        if value not in covered:
            listed = ", ".join(map(str, covered))
            raise OutOfScopeError(contract=contract.contract, field=field, value=value, covered=listed)
    low, high = scope.context
    if not low <= model.schedule.max_context <= high:
        raise OutOfScopeError(
            contract=contract.contract, field="context", value=model.schedule.max_context, covered=f"{low} to {high}"
        )


def _title(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    last: Message | int = prompt[-1]
    return f"{len(prompt)} ids" if isinstance(last, int) else last["content"]
