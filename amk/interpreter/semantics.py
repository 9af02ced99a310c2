"""What each task kind means, in torch. The kernel, the host build and the reference machine all answer to this file.

``compile_task`` turns a task into a function of (pos, tokens), with every slice that does not depend on them taken
once. Sums are float32. Activations that enter a product with bf16 weights are rounded to a bf16 pair hi + lo, others
are not rounded.

Legend: T rows of the step, K columns, N rows of the weight, G query heads of a KV head, D head_dim, S splits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from amk.interpreter.memory import Memory
from amk.ir.activation import Activation
from amk.ir.tasks import (
    AddNorm,
    AddResidual,
    AnyKind,
    Argmax,
    Attention,
    Begin,
    Epilogue,
    GatedMul,
    Gemv,
    HeadNorm,
    LayerNorm,
    MergeSplits,
    Norm,
    Sample,
    Store,
    split_rows,
)

Step = Callable[[int, int], bool | None]
"""Runs a task at (pos, tokens); True when the worker is to leave the launch."""


def compile_task(op: AnyKind, memory: Memory) -> Step:
    """The task ``op`` as a function of (pos, tokens)."""
    match op:
        case Begin():
            return _begin(op, memory)
        case Gemv():
            return _gemv(op, memory)
        case Attention():
            return _attention(op, memory)
        case AddNorm():
            return _add_norm(op, memory)
        case Sample():
            return _sample(op, memory)


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
}


def softcapped(x: Tensor, cap: float | None) -> Tensor:
    """cap * tanh(x / cap); x where there is no cap."""
    return x if cap is None else torch.tanh(x / cap) * cap


def hi_lo(x: Tensor) -> Tensor:
    """x rounded to the sum of two bf16 values, hi = bf16(x) and lo = bf16(x - hi): a 16-bit significand."""
    hi = x.to(torch.bfloat16).to(torch.float32)
    lo = (x - hi).to(torch.bfloat16).to(torch.float32)
    # Where hi is infinite or NaN the difference is NaN; the value itself is what the matrix unit would see.
    return torch.where(torch.isfinite(hi), hi + lo, hi)


def _begin(op: Begin, memory: Memory) -> Step:
    stop = memory[op.stop.buffer]

    def run(pos: int, tokens: int) -> bool:
        return bool(stop[0] == 1)

    return run


def _gemv(op: Gemv, memory: Memory) -> Step:
    low, high = op.rows
    multiply = _product(op, memory)
    bias_N = 0.0 if op.bias is None else memory[op.bias][low:high]
    read_x = _prologue(op, memory)
    finish = _epilogue(op.epilogue, op.rows, memory)
    skipped = _skip(op.epilogue, op.rows, memory) if isinstance(op.epilogue, Argmax) else None

    def run(pos: int, tokens: int) -> None:
        if skipped is not None and skipped(pos + tokens):
            return
        rows = slice(0 if op.x_rows == "all" else tokens - 1, tokens)
        x_TK, scale_T1 = read_x(rows)
        y_TN = multiply(x_TK)
        finish(rows, (y_TN if scale_T1 is None else y_TN * scale_T1) + bias_N)

    return run


def _product(op: Gemv, memory: Memory) -> Callable[[Tensor], Tensor]:
    """x [T, K] -> x times the weight's rows."""
    low, high = op.rows
    weight_NK = memory[op.weight][low:high, : op.k]
    if op.scales is None:
        return lambda x_TK: hi_lo(x_TK) @ weight_NK.T
    scale_NG = memory[op.scales][low:high]
    if not op.group:
        return lambda x_TK: (x_TK @ weight_NK.T) * scale_NG[:, 0]
    weight_NK = weight_NK * _spread(scale_NG, op.group, op.k)
    return lambda x_TK: x_TK @ weight_NK.T


def _spread(scale_NG: Tensor, group: int, columns: int) -> Tensor:
    """The scale of each column."""
    return scale_NG.repeat_interleave(group or columns, dim=1)[:, :columns]


def _prologue(op: Gemv, memory: Memory) -> Callable[[slice], tuple[Tensor, Tensor | None]]:
    """Rows -> (x, scale): y is the product with x, times scale where there is one."""
    x = memory[op.x.buffer]
    match op.prologue:
        case None:
            return lambda rows: (x[rows, : op.k], None)
        case Norm(gain=name, eps=eps):
            gain_K = memory[name][: op.k]

            def norm(rows: slice) -> tuple[Tensor, Tensor]:
                x_TK = x[rows, : op.k]
                return x_TK * gain_K, torch.rsqrt((x_TK * x_TK).mean(dim=1, keepdim=True) + eps)

            return norm
        case LayerNorm(gain=name, eps=eps, bias=bias):
            gain_K = memory[name][: op.k]
            bias_K = None if bias is None else memory[bias][: op.k]

            def layer_norm(rows: slice) -> tuple[Tensor, None]:
                return torch.nn.functional.layer_norm(x[rows, : op.k], (op.k,), gain_K, bias_K, eps), None

            return layer_norm
        case MergeSplits(stats=stats, heads=heads):
            partials = memory[stats.buffer]
            return lambda rows: (merge_splits(x[:, rows, : op.k], partials[:, rows], heads), None)


def merge_splits(x_STK: Tensor, stats_STH2: Tensor, heads: int) -> Tensor:
    """Partial attention results to finished rows [T, K], splits taken in order."""
    splits, rows, width = x_STK.shape
    maximum_STH, total_STH = stats_STH2.unbind(dim=-1)
    top_TH = maximum_STH.amax(dim=0)
    weight_STH = torch.exp(maximum_STH - top_TH)
    parts = x_STK.reshape(splits, rows, heads, width // heads)
    out = torch.zeros_like(parts[0])
    total_TH = torch.zeros_like(top_TH)
    for split in range(splits):
        out += parts[split] * weight_STH[split].unsqueeze(-1)
        total_TH += total_STH[split] * weight_STH[split]
    return (out / total_TH.unsqueeze(-1)).reshape(rows, width)


def _epilogue(op: Epilogue, span: tuple[int, int], memory: Memory) -> Callable[[slice, Tensor], None]:
    """(rows, y) -> stores."""
    low, high = span
    match op:
        case Store(out=out):
            stored = memory[out.buffer]

            def store(rows: slice, y_TN: Tensor) -> None:
                stored[rows, low:high] = y_TN

            return store
        case AddResidual(residual=residual, out=out, scale=scale):
            old, new = memory[residual.buffer], memory[out.buffer]

            def add(rows: slice, y_TN: Tensor) -> None:
                new[rows, low:high] = old[rows, low:high] + y_TN * scale

            return add
        case GatedMul(out=out, activation=activation):
            gated, activate = memory[out.buffer], ACTIVATIONS[activation]

            def gated_mul(rows: slice, y_TN: Tensor) -> None:
                gated[rows, low // 2 : high // 2] = activate(y_TN[:, 0::2]) * y_TN[:, 1::2]

            return gated_mul
        case Argmax(scale=scale, softcap=cap):
            logits, value, index = (memory[operand.buffer] for operand in (op.logits, op.value, op.index))
            slot = op.slot

            def argmax(rows: slice, y_TN: Tensor) -> None:
                made_N = softcapped(y_TN[0] * scale, cap)
                best = int(torch.argmax(made_N))
                logits[low:high] = made_N
                value[slot] = made_N[best]
                index[slot] = low + best

            return argmax


def _skip(op: Argmax, span: tuple[int, int], memory: Memory) -> Callable[[int], bool]:
    """Next position -> True, with the neutral element written, where the prompt gives the token there."""
    logits, value, index = (memory[operand.buffer] for operand in (op.logits, op.value, op.index))
    length = memory[op.prompt_length]

    def skipped(following: int) -> bool:
        if following >= int(length[0]):
            return False
        logits[slice(*span)] = 0.0
        value[op.slot] = -torch.inf
        index[op.slot] = 0
        return True

    return skipped


def rotate(x_THD: Tensor, rope_T2D: Tensor) -> Tensor:
    """Rotary embedding of the first R elements, i paired with i + R/2; ``rope_T2D`` holds cos and sin of R/2 angles."""
    cos, sin = rope_T2D[:, 0].unsqueeze(1), rope_T2D[:, 1].unsqueeze(1)
    half = cos.shape[-1]
    first, second, rest = x_THD[..., :half], x_THD[..., half : 2 * half], x_THD[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def _attention(op: Attention, memory: Memory) -> Step:
    qkv, out = memory[op.qkv.buffer], memory[op.out.buffer]
    rope = torch.empty(0) if op.rope is None else memory[op.rope]
    k_cache_PD, v_cache_PD = memory[op.k_cache][op.kv_head], memory[op.v_cache][op.kv_head]
    stats = memory[op.stats.buffer][op.split] if op.stats else None
    (q0, q1), (v0, v1) = op.q_columns, op.v_columns
    q_width, kv_width = op.heads * op.head_dim, op.kv_heads * op.head_dim
    read_q = _heads(op.q_norm, qkv, 0, q_width, op.q_columns, op.head_dim, memory)
    read_k = _heads(op.k_norm, qkv, q_width, q_width + kv_width, op.k_columns, op.head_dim, memory)
    h0, h1 = op.q_heads
    result = out[op.split] if op.stats else out

    def run(pos: int, tokens: int) -> None:
        def turned(x_THD: Tensor) -> Tensor:
            return x_THD if op.rope is None else rotate(x_THD, rope[pos : pos + tokens])

        q_GTD = turned(read_q(tokens)).transpose(0, 1)
        low, high = split_rows(pos, op.split, op.splits, window=op.window)
        k_PD, v_PD = k_cache_PD[low:high].to(torch.float32), v_cache_PD[low:high].to(torch.float32)
        if op.split == 0:
            k_new = turned(read_k(tokens))[:, 0]
            v_new = qkv[:tokens, v0:v1]
            k_cache_PD[pos : pos + tokens] = k_new
            v_cache_PD[pos : pos + tokens] = v_new
            # Not rounded as the cache rounds them: a step's own rows are read before they are kept.
            k_PD, v_PD = torch.cat((k_PD, k_new)), torch.cat((v_PD, v_new))
        scores_GTP = softcapped(q_GTD * op.scale @ k_PD.T, op.softcap)
        if tokens > 1:  # a single row sees all that it was given
            own = tokens if op.split == 0 else 0
            positions = torch.cat((torch.arange(low, high), torch.arange(pos, pos + own)))
            _hide(scores_GTP, positions, pos, op.window)
        o_GTD, maximum_GT, total_GT = _partial(scores_GTP, v_PD)
        if stats is None:
            o_GTD = o_GTD / total_GT.unsqueeze(-1)
        else:
            stats[:tokens, h0:h1, 0] = maximum_GT.T
            stats[:tokens, h0:h1, 1] = total_GT.T
        result[:tokens, q0:q1] = o_GTD.transpose(0, 1).reshape(tokens, -1)

    return run


def _heads(
    norm: HeadNorm | None,
    qkv: Tensor,
    row_begin: int,
    row_end: int,
    columns: tuple[int, int],
    head_dim: int,
    memory: Memory,
) -> Callable[[int], Tensor]:
    """Rows -> [T, heads, D]: the queries or keys in ``columns``, of a row of all of them, behind their norm."""
    low, high = columns

    def plain(tokens: int) -> Tensor:
        return qkv[:tokens, low:high].reshape(tokens, -1, head_dim)

    if norm is None:
        return plain
    gain, eps = memory[norm.gain], norm.eps
    if norm.over == "row":
        gain = gain[low - row_begin : high - row_begin].reshape(-1, head_dim)

    def normed(tokens: int) -> Tensor:
        x_THD = plain(tokens)
        of = x_THD if norm.over == "head" else qkv[:tokens, None, row_begin:row_end]
        return x_THD * torch.rsqrt((of * of).mean(dim=-1, keepdim=True) + eps) * gain

    return normed


def _hide(scores_GTP: Tensor, positions_P: Tensor, pos: int, window: int | None) -> None:
    """Minus infinity where row t of the step, at pos + t, does not see a position: later, or out of its window."""
    own_T1 = pos + torch.arange(scores_GTP.shape[1]).unsqueeze(1)
    hidden = positions_P > own_T1
    if window is not None:
        hidden |= positions_P <= own_T1 - window
    scores_GTP.masked_fill_(hidden, -torch.inf)


def _partial(scores_GTP: Tensor, v_PD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax-weighted sum over the rows of v, its maximum and its total; neutral for a row that sees none of them."""
    group, tokens, rows = scores_GTP.shape
    if rows == 0:
        neutral = torch.full((group, tokens), -torch.inf)
        return torch.zeros(group, tokens, v_PD.shape[1]), neutral, torch.zeros(group, tokens)
    maximum_GT = scores_GTP.amax(dim=-1)
    # Where every score is minus infinity, so is the maximum, and the weights are to be 0.
    shift_GT1 = maximum_GT.masked_fill(maximum_GT == -torch.inf, 0.0).unsqueeze(-1)
    weights_GTP = torch.exp(scores_GTP - shift_GT1)
    return weights_GTP @ v_PD, maximum_GT, weights_GTP.sum(dim=-1)


def _add_norm(op: AddNorm, memory: Memory) -> Step:
    x, gain = memory[op.x.buffer], memory[op.gain]
    old, new = memory[op.residual.buffer], memory[op.out.buffer]
    low, high = op.columns

    def run(pos: int, tokens: int) -> None:
        x_TK = x[:tokens, : op.k]
        scale_T1 = torch.rsqrt((x_TK * x_TK).mean(dim=1, keepdim=True) + op.eps)
        new[:tokens, low:high] = old[:tokens, low:high] + x_TK[:, low:high] * scale_T1 * gain[low:high] * op.scale

    return run


def embed(op: Sample, memory: Memory, ids: list[int]) -> None:
    """Set the first rows of the residual stream to the embedding of ``ids``."""
    rows_TK = memory[op.table][torch.tensor(ids)]
    if op.scales is not None:
        rows_TK = rows_TK * _spread(memory[op.scales][torch.tensor(ids)], op.group, op.hidden)
    memory[op.next_hidden.buffer][: len(ids)] = rows_TK * op.scale


def _sample(op: Sample, memory: Memory) -> Step:
    value, index = memory[op.value.buffer], memory[op.index.buffer]
    prompt, length, eos = memory[op.prompt], memory[op.prompt_length], memory[op.eos]
    token, stop = memory[op.token.buffer], memory[op.stop.buffer]

    def run(pos: int, tokens: int) -> None:
        following, given = pos + tokens, int(length[0])
        # NaN counts as the largest, as in torch.argmax.
        best = value[: op.slots].amax()
        is_best = value[: op.slots].isnan() if bool(best.isnan()) else value[: op.slots] == best
        sampled = int(index[: op.slots][is_best].amin())
        chosen = int(prompt[following]) if following < given else sampled
        ids = [int(prompt[p]) if p < given else chosen for p in range(following, following + tokens)]
        token[following] = chosen
        stop[0] = int(following >= given and bool((eos == chosen).any()))
        embed(op, memory, ids)

    return run
