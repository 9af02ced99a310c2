"""The bars on the real checkpoint. `make setup` prepares it; without it these tests fail, they do not skip."""

from __future__ import annotations

import pytest
import torch

import amk
from amk.contracts.decode import contract_for, decode_parity, encode_prompts, load_prompts
from amk.pipeline import CompiledModel
from amk.runtime.session import Session

NAME = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return amk.compile(NAME, arch="cpu", max_context=512, progress=False)


def test_every_token_equals_huggingface(model: CompiledModel) -> None:
    prompts = encode_prompts(model, load_prompts(None)[:8])
    report = decode_parity(model, contract_for(NAME), prompts, tokens=64)
    print(f"r {report.logit_range_max:.3g}, {report.ties} ties")
    assert report.failure == ""
    assert report.tokens == 8 * 64


def test_it_answers_a_question(model: CompiledModel) -> None:
    answer = model.generate([{"role": "user", "content": "What is the capital of France?"}], max_new_tokens=48)
    assert "Paris" in answer.text
    assert answer.finish_reason == "eos"


def test_an_h200_schedule_in_three_legal_orders_has_the_same_bits() -> None:
    planned = amk.compile(NAME, arch="sm_90", max_context=512, progress=False)
    assert len(planned.schedule.queues) == 132
    prompt = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649]

    def decode(session: Session) -> list[torch.Tensor]:
        session.prefill(prompt)
        first = session.logits()
        list(session.decode(1))
        return [first, session.logits()]

    sessions = [planned.machine_session(seed=seed) for seed in (1, 2, 3)]
    runs = [decode(session) for session in sessions]
    orders = {tuple(order.digest for order in session.backend.orders) for session in sessions}
    print(f"{len(orders)} distinct orders of {sessions[0].backend.orders[-1].tasks} tasks a step")
    assert len(orders) == 3
    for run in runs[1:]:
        for ours, theirs in zip(run, runs[0], strict=True):
            assert torch.equal(ours, theirs)
    assert bool(torch.isfinite(runs[0][0]).all())
