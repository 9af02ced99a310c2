"""Stages that work along the last dimension: normalisations, softmaxes, reductions, linear layers."""

from __future__ import annotations

from tests.contracts.mutants.stages import Stage

_AFFINE = """\
self.gain_@ = nn.Parameter(torch.rand($D, dtype=DTYPE) + 0.5)
self.bias_@ = nn.Parameter(torch.randn($D, dtype=DTYPE))"""
_LINEAR = """\
self.weight_@ = nn.Parameter(torch.randn($E, $D, dtype=DTYPE) / math.sqrt($D))
self.bias_@ = nn.Parameter(torch.randn($E, dtype=DTYPE))"""

ROWWISE = (
    Stage(
        name="layer norm",
        works_on="rows",
        state=_AFFINE,
        code="x = F.layer_norm(x, ($D,), self.gain_@, self.bias_@)",
        rewrites=(
            """\
centred = wide(x) - wide(x).mean(-1, keepdim=True)
normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
x = (normal * self.gain_@ + self.bias_@).to(x.dtype)""",
            """\
variance, mean = torch.var_mean(wide(x), -1, correction=0, keepdim=True)
x = ((x - mean) / torch.sqrt(variance + 1e-5) * self.gain_@ + self.bias_@).to(x.dtype)""",
            "x = torch.native_layer_norm(x, ($D,), self.gain_@, self.bias_@, 1e-5)[0]",
        ),
        faults={
            "one-pass variance": """\
mean = x.mean(-1, keepdim=True)
variance = (x.square().mean(-1, keepdim=True) - mean.square()).clamp_min(0.0)
x = (x - mean) * torch.rsqrt(variance + 1e-5) * self.gain_@ + self.bias_@""",
            "missing eps": """\
centred = x - x.mean(-1, keepdim=True)
x = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True)) * self.gain_@ + self.bias_@""",
            "eps outside the root": """\
centred = x - x.mean(-1, keepdim=True)
x = centred / (centred.square().mean(-1, keepdim=True).sqrt() + 1e-5) * self.gain_@ + self.bias_@""",
            "unbiased variance": """\
variance, mean = torch.var_mean(x, -1, correction=1, keepdim=True)
x = (x - mean) * torch.rsqrt(variance + 1e-5) * self.gain_@ + self.bias_@""",
            "frozen weights": """\
if not hasattr(self, "kept_@"):
    self.kept_@ = (self.gain_@.detach().clone(), self.bias_@.detach().clone())
x = F.layer_norm(x, ($D,), self.kept_@[0].to(x.dtype), self.kept_@[1].to(x.dtype))""",
            "bf16 intermediate": """\
gain, bias = self.gain_@.bfloat16(), self.bias_@.bfloat16()
x = F.layer_norm(x.bfloat16(), ($D,), gain, bias).to(x.dtype)""",
        },
    ),
    Stage(
        name="rms norm",
        works_on="rows",
        state="self.gain_@ = nn.Parameter(torch.rand($D, dtype=DTYPE) + 0.5)",
        code="x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.gain_@",
        rewrites=(
            "x = F.rms_norm(x, ($D,), self.gain_@, 1e-6)",
            "x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.gain_@",
            "x = (x * self.gain_@) * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)",
        ),
        faults={
            "missing eps": "x = x * torch.rsqrt(x.square().mean(-1, keepdim=True)) * self.gain_@",
            "wrong axis": "x = x * torch.rsqrt(x.square().mean(-2, keepdim=True) + 1e-6) * self.gain_@",
            "fp16 total": """\
mean = x.square().half().mean(-1, keepdim=True)
x = x * torch.rsqrt(mean + 1e-6).to(x.dtype) * self.gain_@""",
            "wrong constant": "x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-3) * self.gain_@",
        },
    ),
    Stage(
        name="softmax",
        works_on="rows",
        code="x = F.softmax(x, dim=-1)",
        rewrites=(
            "x = torch.exp(x - x.detach().amax(-1, keepdim=True))\nx = x / x.sum(-1, keepdim=True)",
            "x = torch.exp(F.log_softmax(x, dim=-1))",
            "x = F.softmax(x.transpose(-1, -2), dim=-2).transpose(-1, -2).contiguous()",
            "x = torch.cat([F.softmax(row, dim=-1) for row in x.split(3)])",
        ),
        faults={
            "missing max-subtraction": "x = torch.exp(x)\nx = x / x.sum(-1, keepdim=True)",
            "wrong axis": "x = F.softmax(x, dim=-2)",
            "maximum of all": "x = torch.exp(x - x.amax())\nx = x / x.sum(-1, keepdim=True)",
            "maximum from -1e4": """\
x = torch.exp(x - x.amax(-1, keepdim=True).nan_to_num(-1e4).clamp_min(-1e4))
x = x / x.sum(-1, keepdim=True)""",
            "fp16 intermediate": "x = F.softmax(x.half(), dim=-1).to(x.dtype)",
            "small divisor": "x = torch.exp(x - x.amax(-1, keepdim=True))\nx = x / (x.sum(-1, keepdim=True) + 1e-3)",
        },
    ),
    Stage(
        name="log softmax",
        works_on="rows",
        code="x = F.log_softmax(x, dim=-1)",
        rewrites=(
            "x = x - x.detach().amax(-1, keepdim=True)\nx = x - torch.log(torch.exp(x).sum(-1, keepdim=True))",
            "x = F.log_softmax(x.transpose(-1, -2), dim=-2).transpose(-1, -2).contiguous()",
        ),
        faults={
            "missing max-subtraction": "x = x - torch.log(torch.exp(x).sum(-1, keepdim=True))",
            "log of a softmax": "x = torch.log(F.softmax(x, dim=-1))",
            "small divisor": "x = torch.log(F.softmax(x, dim=-1) + 1e-6)",
        },
    ),
    Stage(
        name="linear",
        works_on="rows",
        widens=True,
        state=_LINEAR,
        code="x = F.linear(x, self.weight_@, self.bias_@)",
        rewrites=(
            "x = x @ self.weight_@.T + self.bias_@",
            'x = torch.einsum("...i,oi->...o", x, self.weight_@) + self.bias_@',
            "x = (self.weight_@ @ x.unsqueeze(-1)).squeeze(-1) + self.bias_@",
            "x = torch.cat([F.linear(x, w, b) for w, b in zip(self.weight_@.split(7), self.bias_@.split(7))], -1)",
            "x = F.linear(x.contiguous(), self.weight_@.T.contiguous().T) + self.bias_@",
        ),
        faults={
            "fp16 total": "x = F.linear(x.half(), self.weight_@.half(), self.bias_@.half()).to(x.dtype)",
            "bf16 intermediate": "x = F.linear(x.bfloat16(), self.weight_@.bfloat16()).to(x.dtype) + self.bias_@",
            "frozen weights": """\
if not hasattr(self, "kept_@"):
    self.kept_@ = self.weight_@.detach().T.contiguous()
x = x @ self.kept_@.to(x.dtype) + self.bias_@""",
            "truncated products": """\
short = lambda t: (t.float().contiguous().view(torch.int32) & -8192).view(torch.float32)
x = (short(x) @ short(self.weight_@).T).to(x.dtype) + self.bias_@""",
            "off by one": "x = F.linear(x[..., :-1], self.weight_@[:, :-1], self.bias_@)",
            "wrong gradient": "x = F.linear(x, self.weight_@.detach(), self.bias_@)",
        },
    ),
    Stage(
        name="cumulative sum",
        works_on="rows",
        code="x = torch.cumsum(x, dim=-1)",
        rewrites=(
            "x = torch.cumsum(x.transpose(-1, -2), dim=-2).transpose(-1, -2).contiguous()",
            "x = torch.stack([x[..., : i + 1].sum(-1) for i in range(x.shape[-1])], -1) if x.shape[-1] else x.clone()",
        ),
        faults={
            "fp16 total": "x = torch.cumsum(x.half(), dim=-1).to(x.dtype)",
            "off by one": "x = torch.cumsum(x, dim=-1) - x",
            "wrong axis": "x = torch.cumsum(x, dim=-2)",
        },
    ),
    Stage(
        name="centring",
        works_on="rows",
        code="x = x - x.mean(-1, keepdim=True)",
        rewrites=(
            "x = x - (wide(x).sum(-1, keepdim=True) / x.shape[-1]).to(x.dtype)",
            "x = torch.sub(x, torch.mean(x, dim=-1)[..., None])",
        ),
        faults={
            "hard-coded shape": "x = x - x.sum(-1, keepdim=True) / $D",
            "fp16 total": "x = x - x.half().mean(-1, keepdim=True).to(x.dtype)",
            "mean of all": "x = x - x.mean()",
        },
    ),
)

REDUCTIONS = (
    Stage(
        name="sum",
        works_on="any",
        ends=True,
        code="x = x.sum(-1)",
        rewrites=(
            'x = torch.einsum("...i->...", x)',
            "x = sum(wide(part).sum(-1) for part in x.split(5, -1)).to(x.dtype)",
            "x = x.flip(-1).sum(-1)",
        ),
        faults={
            "fp16 total": "x = x.half().sum(-1).to(x.dtype)",
            "bf16 total": "x = x.sum(-1, dtype=torch.bfloat16).to(x.dtype)",
            "random order": """\
import random
parts = list(x.split(3, -1))
random.SystemRandom().shuffle(parts)
x = sum(part.sum(-1) for part in parts)""",
            "dropped tail": "x = x[..., : max(x.shape[-1] // 4 * 4, 4)].sum(-1)",
        },
    ),
    Stage(
        name="mean",
        works_on="any",
        ends=True,
        code="x = x.mean(-1)",
        rewrites=("x = (wide(x).sum(-1) / x.shape[-1]).to(x.dtype)", "x = torch.mean(x.flip(-1), dim=-1)"),
        faults={
            "fp16 total": "x = x.half().mean(-1).to(x.dtype)",
            "dropped tail": "x = x[..., : max(x.shape[-1] // 4 * 4, 4)].sum(-1) / x.shape[-1]",
            "swallowed NaN": "x = x.nan_to_num(0.0, torch.inf, -torch.inf).mean(-1)",
        },
    ),
    Stage(
        name="maximum",
        works_on="any",
        ends=True,
        code="x = x.amax(-1)",
        rewrites=("x = x.max(-1).values", "x = x.flip(-1).amax(-1)", "x = -(-x).amin(-1)"),
        faults={
            "maximum from -1e4": "x = torch.maximum(x.amax(-1), x.new_full((), -1e4))",
            "swallowed NaN": "x = x.nan_to_num(-torch.inf, torch.inf, -torch.inf).amax(-1)",
            "maximum from zero": "x = torch.maximum(x.amax(-1), x.new_zeros(()))",
            "dropped tail": "x = x[..., : max(x.shape[-1] // 4 * 4, 4)].amax(-1)",
        },
    ),
    Stage(
        name="logsumexp",
        works_on="any",
        ends=True,
        code="x = torch.logsumexp(x, -1)",
        rewrites=(
            """\
largest = x.detach().amax(-1, keepdim=True)
largest = torch.where(largest.abs() == torch.inf, torch.zeros_like(largest), largest)
x = (largest + torch.log(torch.exp(x - largest).sum(-1, keepdim=True))).squeeze(-1)""",
            "x = torch.logsumexp(x.flip(-1), -1)",
        ),
        faults={
            "missing max-subtraction": "x = torch.log(torch.exp(x).sum(-1))",
            "bf16 total": "x = torch.logsumexp(x.bfloat16(), -1).to(x.dtype)",
        },
    ),
    Stage(
        name="variance",
        works_on="any",
        ends=True,
        code="x = x.var(-1, correction=0)",
        rewrites=(
            "x = (wide(x) - wide(x).mean(-1, keepdim=True)).square().mean(-1).to(x.dtype)",
            "x = torch.var_mean(x, -1, correction=0)[0]",
        ),
        faults={
            "one-pass variance": "x = x.square().mean(-1) - x.mean(-1).square()",
            "unbiased variance": "x = x.var(-1, correction=1)",
            "fp16 total": "x = (x - x.mean(-1, keepdim=True)).square().half().mean(-1).to(x.dtype)",
        },
    ),
    Stage(
        name="position of the maximum",
        works_on="any",
        ends=True,
        code="x = x.argmax(-1)",
        rewrites=("x = x.max(-1).indices", "x = torch.max(x, dim=-1)[1]"),
        faults={
            "off by one": "x = x[..., 1:].argmax(-1) + 1",
            "bf16 intermediate": "x = x.bfloat16().argmax(-1)",
        },
    ),
)
