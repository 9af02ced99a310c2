"""amk parity: hold a model to its decode-parity contract, against HuggingFace at float32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
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
from amk.cli.output import OUT, print_json
from amk.errors import EXIT_FAILED

if TYPE_CHECKING:
    from amk.parity.compare import ParityReport, PromptParity

TITLE_WIDTH = 44


def parity(
    model: Model,
    tokens: Annotated[int, typer.Option(min=1, help="New tokens a prompt.")] = 64,
    prompts: Annotated[Path | None, typer.Option(help="JSON list of prompts. Default: the bundled set.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first prompts.")] = None,
    contract: Annotated[Path | None, typer.Option(help="A contract file. Default: the model's own.")] = None,
    seed: Annotated[int | None, typer.Option(help="Shuffle tasks (arch cpu) or threads (arch host).")] = None,
    arch: Arch = None,
    target: Chip = None,
    dtype: Dtype = "bf16",
    group_size: GroupSize = 0,
    kv_dtype: KvDtype = "float32",
    max_context: MaxContext = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> int:
    """Compare MODEL with HuggingFace token by token; exit 1 when the contract is violated."""
    from amk.contracts.decode import contract_for, decode_parity, encode_prompts, load_prompts
    from amk.contracts.spec import Contract

    wanted = load_prompts(prompts)[:limit]
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
    terms = Contract.load(contract) if contract else contract_for(compiled.manifest.model)
    if not as_json:
        OUT.print(compiled.origin)
        OUT.print(compiled.certificate.one_line())
        OUT.print(
            f"contract {terms.contract}: every token as HuggingFace float32, r <= {terms.numerical.logit_range_max}"
        )
    report = decode_parity(
        compiled,
        terms,
        encode_prompts(compiled, wanted),
        tokens=tokens,
        seed=seed,
        on_prompt=(lambda prompt: None) if as_json else _print_prompt,
    )
    if as_json:
        print_json(
            {
                "model": compiled.manifest.model,
                "source": compiled.origin,
                "certificate": msgspec.to_builtins(compiled.certificate),
                "contract": terms.contract,
                **msgspec.to_builtins(report),
            }
        )
    else:
        OUT.print(_verdict(report))
    return EXIT_FAILED if report.verdict == "fail" else 0


def _print_prompt(prompt: PromptParity) -> None:
    title = " ".join(prompt.name.split())
    title = title if len(title) <= TITLE_WIDTH else f"{title[: TITLE_WIDTH - 3]}..."
    outcome = f"FAIL {prompt.failure}" if prompt.failure else "equal"
    if prompt.ties and not prompt.failure:
        named = ", ".join(
            f"token {tie.position}: {tie.amk} for {tie.oracle}, margin {tie.margin:.2g}" for tie in prompt.ties
        )
        outcome = f"equal but for ties ({named})"
    OUT.print(
        f"{title:<{TITLE_WIDTH}} {prompt.prompt_tokens:>4} + {prompt.compared} tokens  "
        f"r {prompt.logit_range_max:.2g}  error {prompt.relative_error_max:.2g}  {outcome}"
    )


def _verdict(report: ParityReport) -> str:
    if report.verdict == "fail":
        return f"FAIL: {report.failure}"
    return (
        f"PASS: {report.tokens} tokens of {len(report.prompts)} prompts equal HuggingFace float32, "
        f"{report.ties} named ties, r {report.logit_range_max:.2g} (bound {report.logit_range_bound:g})"
    )
