"""amk generate: text from a model, as it is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from amk.cli.options import (
    Arch,
    Chip,
    Dtype,
    GroupSize,
    Json,
    KvDtype,
    LocalFilesOnly,
    MaxContext,
    Model,
    Revision,
    open_model,
)
from amk.cli.output import ERR, OUT, print_json
from amk.errors import UnreadableInputError


def generate(
    model: Model,
    prompts: Annotated[list[str] | None, typer.Argument(help="Prompts; standard input when there is none.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("-n", "--max-new-tokens", help="Most tokens to make.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Give the text to the model as it is, without chat template.")
    ] = False,
    system: Annotated[str | None, typer.Option(help="A system message before each prompt.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Read one prompt from a file.")] = None,
    arch: Arch = None,
    target: Chip = None,
    dtype: Dtype = "bf16",
    group_size: GroupSize = 0,
    kv_dtype: KvDtype = "float32",
    max_context: MaxContext = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> None:
    """Generate from MODEL, greedily. A model with a chat template gets each prompt as a user's message."""
    texts = list(prompts or [])
    if file is not None:
        texts.append(_read(file))
    if not texts:
        texts.append(sys.stdin.read())
    compiled = open_model(
        model,
        arch=arch,
        target=target,
        dtype=dtype,
        group_size=group_size,
        kv_dtype=kv_dtype,
        max_context=max_context,
        revision=revision,
        local_files_only=local_files_only,
        progress=not as_json,
    )
    tokenizer = compiled.tokenizer
    chat = not raw and tokenizer is not None and bool(tokenizer.chat_template)
    ERR.print(compiled.origin)
    ERR.print(compiled.certificate.one_line())
    answers = []
    for text in texts:
        messages = [{"role": "system", "content": system}] if system else []
        prompt = [*messages, {"role": "user", "content": text}] if chat and text else text
        if as_json:
            answer = compiled.generate(prompt, max_new_tokens=max_new_tokens)
            answers.append(
                {
                    "prompt": text,
                    "text": answer.text,
                    "token_ids": list(answer.token_ids),
                    "finish_reason": answer.finish_reason,
                    "tokens_per_s": answer.timings.tokens_per_s,
                }
            )
            continue
        for token in compiled.stream(prompt, max_new_tokens=max_new_tokens):
            OUT.file.write(token.text)
            OUT.file.flush()
        OUT.print()
    if as_json:
        print_json({"model": compiled.manifest.model, "source": compiled.origin, "answers": answers})


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableInputError(path=path, why=error, fix="pass the path of a text file") from error
