"""Stages that work on each element alone."""

from __future__ import annotations

from tests.contracts.mutants.stages import Stage

ELEMENTWISE = (
    Stage(
        name="relu",
        works_on="any",
        code="x = F.relu(x)",
        rewrites=(
            "x = torch.where(x <= 0, torch.zeros_like(x), x)",
            "x = x.clamp_min(0.0)",
            "x = torch.relu(x)",
            "x = torch.maximum(x, x.new_zeros(()))",
        ),
        faults={
            "swallowed NaN": "x = torch.where(x > 0, x, torch.zeros_like(x))",
            "swallowed NaN by fmax": "x = torch.fmax(x, torch.zeros_like(x))",
            "saturated": "x = x.clamp(0.0, 1e3)",
            "bf16 intermediate": "x = F.relu(x.bfloat16()).to(x.dtype)",
        },
    ),
    Stage(
        name="leaky relu",
        works_on="any",
        code="x = F.leaky_relu(x, 0.125)",
        rewrites=(
            "x = torch.where(x >= 0, x, 0.125 * x)",
            "x = torch.maximum(x, 0.125 * x)",
            "x = torch.where(x < 0, 0.125 * x, x)",
        ),
        faults={
            "wrong constant": "x = F.leaky_relu(x, 0.126)",
            "swallowed NaN": "x = torch.fmax(x, torch.zeros_like(x)) + 0.125 * torch.fmin(x, torch.zeros_like(x))",
        },
    ),
    Stage(
        name="gelu",
        works_on="any",
        code="x = F.gelu(x)",
        rewrites=(
            "x = 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))",
            "x = x * torch.special.ndtr(x)",
            "x = x * (0.5 * torch.special.erfc(x * -math.sqrt(0.5)))",
        ),
        faults={
            "wrong GELU": 'x = F.gelu(x, approximate="tanh")',
            "bf16 intermediate": "x = F.gelu(x.bfloat16()).to(x.dtype)",
            "fp16 intermediate": "x = F.gelu(x.half()).to(x.dtype)",
            "wrong constant": "x = 0.5 * x * (1.0 + torch.erf(x * 0.7075))",
        },
    ),
    Stage(
        name="gelu by tanh",
        works_on="any",
        code='x = F.gelu(x, approximate="tanh")',
        rewrites=(
            "x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))",
            "x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * x * (1.0 + 0.044715 * x * x)))",
        ),
        faults={
            "wrong GELU": "x = F.gelu(x)",
            "wrong constant": "x = 0.5 * x * (1.0 + torch.tanh(0.797 * (x + 0.044715 * x * x * x)))",
        },
    ),
    Stage(
        name="silu",
        works_on="any",
        code="x = F.silu(x)",
        rewrites=(
            "x = x * torch.sigmoid(x)",
            "x = 0.5 * x * (1.0 + torch.tanh(0.5 * x))",
        ),
        faults={
            "overflowing exponential": "x = x * torch.exp(x) / (1.0 + torch.exp(x))",
            "bf16 intermediate": "x = F.silu(x.bfloat16()).to(x.dtype)",
            "wrong constant": "x = x * torch.sigmoid(1.002 * x)",
        },
    ),
    Stage(
        name="sigmoid",
        works_on="any",
        code="x = torch.sigmoid(x)",
        rewrites=("x = torch.special.expit(x)", "x = 0.5 * (1.0 + torch.tanh(0.5 * x))", "x = F.sigmoid(x)"),
        faults={
            "overflowing exponential": "x = torch.exp(x) / (1.0 + torch.exp(x))",
            "fp16 intermediate": "x = torch.sigmoid(x.half()).to(x.dtype)",
            "saturated": "x = torch.sigmoid(x).clamp(1e-3, 1.0 - 1e-3)",
        },
    ),
    Stage(
        name="tanh",
        works_on="any",
        code="x = torch.tanh(x)",
        rewrites=("x = -torch.tanh(-x)", "x = x.tanh()"),
        faults={
            "overflowing exponential": "x = (torch.exp(2 * x) - 1.0) / (torch.exp(2 * x) + 1.0)",
            "fp16 intermediate": "x = torch.tanh(x.half()).to(x.dtype)",
        },
    ),
    Stage(
        name="softplus",
        works_on="any",
        code="x = F.softplus(x)",
        rewrites=(
            "x = torch.logaddexp(x, torch.zeros_like(x))",
            "x = -F.logsigmoid(-x)",
        ),
        faults={
            "overflowing exponential": "x = torch.log(1.0 + torch.exp(x))",
            "bf16 intermediate": "x = F.softplus(x.bfloat16()).to(x.dtype)",
            "wrong constant": "x = F.softplus(x, beta=1.01)",
        },
    ),
    Stage(
        name="elu",
        works_on="any",
        code="x = F.elu(x)",
        rewrites=(
            "x = torch.where(x > 0, x, torch.expm1(x.clamp_max(0.0)))",
            "x = torch.where(x <= 0, torch.expm1(x.clamp_max(0.0)), x)",
        ),
        faults={
            "wrong constant": "x = F.elu(x, alpha=1.003)",
            "swallowed NaN": "x = torch.fmax(x, torch.zeros_like(x)) + torch.expm1(torch.fmin(x, torch.zeros_like(x)))",
        },
    ),
    Stage(
        name="hardtanh",
        works_on="any",
        code="x = F.hardtanh(x, -2.0, 2.0)",
        rewrites=("x = x.clamp(-2.0, 2.0)", "x = x.clamp_max(2.0).clamp_min(-2.0)"),
        faults={
            "swallowed NaN": "x = torch.fmin(torch.fmax(x, x.new_full((), -2.0)), x.new_full((), 2.0))",
            "wrong constant": "x = x.clamp(-2.0, 2.003)",
        },
    ),
    Stage(
        name="scale and shift",
        works_on="any",
        code="x = x * 0.75 + 0.25",
        rewrites=(
            "x = 0.25 + 0.75 * x",
            "x = torch.add(x.new_full((), 0.25), x, alpha=0.75)",
            "x = torch.addcmul(x.new_full((), 0.25), x, x.new_full((), 0.75))",
        ),
        faults={
            "wrong constant": "x = x * 0.7503 + 0.25",
            "bf16 intermediate": "x = (x.bfloat16() * 0.75 + 0.25).to(x.dtype)",
            "saturated": "x = (x * 0.75 + 0.25).clamp(-1e4, 1e4)",
        },
    ),
    Stage(
        name="square root",
        works_on="any",
        code="x = torch.sqrt(x.abs() + 1.0)",
        rewrites=(
            "x = (x.abs() + 1.0) ** 0.5",
            "x = (1.0 + x.abs()).sqrt()",
            "x = torch.sqrt(torch.maximum(x, -x) + 1.0)",
        ),
        faults={
            "missing term": "x = torch.sqrt(x.abs() + 1.004)",
            "bf16 intermediate": "x = torch.sqrt(x.abs().bfloat16() + 1.0).to(x.dtype)",
            "swallowed NaN": "x = torch.sqrt(torch.fmax(x, -x).nan_to_num(0.0, torch.inf) + 1.0)",
        },
    ),
    Stage(
        name="copy",
        works_on="any",
        code="x = x.clone()",
        rewrites=("x = x * 1.0", "x = torch.empty_like(x).copy_(x)", "x = x.contiguous().clone()"),
        faults={
            "small values flushed": "x = torch.where(x.abs() < 1e-15, torch.zeros_like(x), x)",
            "wrong stride": "x = torch.as_strided(x, x.shape, x.new_empty(x.shape).stride()).clone()",
            "fp16 intermediate": "x = x.half().to(x.dtype)",
            "non-finite values replaced": "x = torch.nan_to_num(x)",
            "returned alias": "x = x.view_as(x)",
        },
    ),
    Stage(
        name="scaling down",
        works_on="any",
        code="x = x * 0.001",
        rewrites=("x = 0.001 * x", "x = torch.mul(x, 0.001)"),
        faults={"constant answer": "x = torch.zeros_like(x)", "missing scale": "x = x * 0.0013"},
    ),
)
