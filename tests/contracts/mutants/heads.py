"""Stages that begin a chain: they say what the inputs are. ``$N``, ``$M``, ``$D`` and ``$E`` are sizes."""

from __future__ import annotations

from tests.contracts.mutants.stages import Stage


def normal(*shapes: str) -> str:
    """Expressions that make normally distributed tensors of these shapes."""
    return ", ".join(f"torch.randn({shape}, dtype=DTYPE)" for shape in shapes)


ROWS = (
    Stage(
        name="matrix",
        works_on="rows",
        takes="x",
        makes=normal("$N, $D"),
        code="",
        rewrites=("",),
    ),
    Stage(
        name="batch of matrices",
        works_on="rows",
        takes="x",
        makes=normal("$M, $N, $D"),
        code="",
        rewrites=("",),
    ),
    Stage(
        name="residual",
        works_on="rows",
        takes="x, y",
        makes=normal("$N, $D", "$N, $D"),
        code="x = x + y",
        rewrites=("x = torch.add(y, x)", "x = torch.stack([x, y]).sum(0)"),
        faults={
            "input overwrite": "x = y.add_(x)",
            "bf16 intermediate": "x = (x.bfloat16() + y.bfloat16()).to(x.dtype)",
            "swallowed NaN": "x = x + y.nan_to_num(0.0, torch.inf, -torch.inf)",
        },
    ),
    Stage(
        name="gate",
        works_on="rows",
        takes="x, y",
        makes=normal("$N, $D", "$N, $D"),
        code="x = F.silu(x) * y",
        rewrites=("x = y * (x * torch.sigmoid(x))", "x = torch.mul(y, F.silu(x))"),
        faults={
            "bf16 intermediate": "x = (F.silu(x.bfloat16()) * y.bfloat16()).to(x.dtype)",
            "input overwrite": "x = y.mul_(F.silu(x))",
            "wrong constant": "x = x * torch.sigmoid(1.003 * x) * y",
        },
    ),
    Stage(
        name="masking",
        works_on="rows",
        takes="x, mask",
        makes="torch.randn($N, $D, dtype=DTYPE), torch.rand($N, $D) < 0.7",
        code="x = torch.where(mask, x, torch.full_like(x, -4.0))",
        rewrites=("x = x.masked_fill(~mask, -4.0)", "x = torch.where(~mask, x.new_full((), -4.0), x)"),
        faults={
            "mask by product": "x = x * mask - 4.0 * ~mask",
            "wrong constant": "x = x.masked_fill(~mask, -4.004)",
        },
    ),
    Stage(
        name="product",
        works_on="rows",
        takes="x, y",
        makes="torch.randn($N, $E, dtype=DTYPE), torch.randn($E, $D, dtype=DTYPE) / math.sqrt($E)",
        code="x = x @ y",
        rewrites=(
            'x = torch.einsum("ik,kj->ij", x, y)',
            "x = (y.T @ x.T).T.contiguous()",
            "x = (wide(x)[:, :, None] * wide(y)[None]).sum(1).to(x.dtype)",
            "x = torch.cat([x @ part for part in y.split(6, 1)], 1)",
        ),
        faults={
            "fp16 total": "x = (x.half() @ y.half()).to(x.dtype)",
            "bf16 intermediate": "x = (x.bfloat16() @ y.bfloat16()).to(x.dtype)",
            "truncated products": """\
short = lambda t: (t.float().contiguous().view(torch.int32) & -8192).view(torch.float32)
x = (short(x) @ short(y)).to(x.dtype)""",
            "off by one": "x = x[:, :-1] @ y[:-1]",
            "hard-coded shape": "x = x[:, :$E] @ y[:$E]",
            "wrong stride": "x = x @ torch.as_strided(y, y.shape, (y.shape[1], 1))",
        },
    ),
    Stage(
        name="batched product",
        works_on="rows",
        takes="x, y",
        makes="torch.randn($M, $N, $E, dtype=DTYPE), torch.randn($M, $E, $D, dtype=DTYPE) / math.sqrt($E)",
        code="x = torch.bmm(x, y)",
        rewrites=(
            'x = torch.einsum("bik,bkj->bij", x, y)',
            "x = torch.matmul(y.mT, x.mT).mT.contiguous()",
            "x = torch.stack([a @ b for a, b in zip(x, y)]) if len(x) else torch.bmm(x, y)",
        ),
        faults={
            "fp16 total": "x = torch.bmm(x.half(), y.half()).to(x.dtype)",
            "dropped tail": """\
n = x.shape[1] // 4 * 4
x = torch.cat([torch.bmm(x[:, :n], y), torch.bmm(x[:, n:] * 0.0, y)], 1)""",
            "first batch's matrix": "x = torch.matmul(x, y[:1])",
        },
    ),
    Stage(
        name="attention",
        works_on="rows",
        takes="x, k, v",
        makes=normal("$M, $N, $D", "$M, $E, $D", "$M, $E, $D"),
        code="x = F.softmax(x @ k.mT / math.sqrt(x.shape[-1]), dim=-1) @ v",
        rewrites=(
            "x = torch.cat([F.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1) @ v for q in x.split(5, 1)], 1)",
            """\
scores = torch.bmm(x, k.mT) * (1.0 / math.sqrt(x.shape[-1]))
powers = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
x = torch.bmm(powers / powers.sum(-1, keepdim=True), v)""",
            "x = torch.bmm(F.softmax(torch.bmm(k, x.mT) / math.sqrt(x.shape[-1]), dim=1).mT, v)",
        ),
        faults={
            "missing max-subtraction": """\
powers = torch.exp(x @ k.mT / math.sqrt(x.shape[-1]))
x = powers / powers.sum(-1, keepdim=True) @ v""",
            "hard-coded shape": "x = F.softmax(x @ k.mT / math.sqrt($D), dim=-1) @ v",
            "fp16 intermediate": """\
powers = F.softmax(x.half() @ k.half().mT / math.sqrt(x.shape[-1]), dim=-1)
x = (powers @ v.half()).to(x.dtype)""",
            "bf16 intermediate": """\
powers = F.softmax(x @ k.mT / math.sqrt(x.shape[-1]), dim=-1)
x = (powers.bfloat16() @ v.bfloat16()).to(x.dtype)""",
            "dropped tail": """\
n = max(k.shape[1] // 4 * 4, 4)
x = F.softmax(x @ k[:, :n].mT / math.sqrt(x.shape[-1]), dim=-1) @ v[:, :n]""",
        },
    ),
    Stage(
        name="causal attention",
        works_on="rows",
        takes="x, k, v",
        makes=normal("$M, $N, $D", "$M, $N, $D", "$M, $N, $D"),
        code="""\
scores = x @ k.mT / math.sqrt(x.shape[-1])
hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
x = F.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ v""",
        rewrites=(
            """\
scores = torch.bmm(x, k.mT) * (1.0 / math.sqrt(x.shape[-1]))
rows = torch.arange(scores.shape[-2], device=x.device)[:, None]
hidden = torch.arange(scores.shape[-1], device=x.device) > rows
x = torch.bmm(torch.softmax(torch.where(hidden, -torch.inf, scores), -1), v)""",
            """\
scores = x @ k.mT / math.sqrt(x.shape[-1])
shown = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).tril()
powers = torch.where(shown, scores, scores.new_full((), -torch.inf))
powers = torch.exp(powers - powers.detach().amax(-1, keepdim=True))
x = (powers / powers.sum(-1, keepdim=True)) @ v""",
        ),
        faults={
            "off-by-one mask": """\
scores = x @ k.mT / math.sqrt(x.shape[-1])
hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(2)
x = F.softmax(scores.masked_fill(hidden, -torch.inf), dim=-1) @ v""",
            "mask of -1e4": """\
scores = x @ k.mT / math.sqrt(x.shape[-1])
hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
x = F.softmax(scores.masked_fill(hidden, -1e4), dim=-1) @ v""",
            "mask by addition": """\
bias = torch.full((x.shape[1], k.shape[1]), -torch.inf, dtype=x.dtype, device=x.device).triu(1)
x = F.softmax(torch.bmm(x, k.mT) / math.sqrt(x.shape[-1]) + bias, dim=-1) @ v""",
            "mask behind the softmax": """\
powers = F.softmax(x @ k.mT / math.sqrt(x.shape[-1]), dim=-1).tril()
x = powers / powers.sum(-1, keepdim=True) @ v""",
        },
    ),
    Stage(
        name="embedding",
        works_on="rows",
        takes="index",
        makes="torch.randint(0, 40, ($N, $M))",
        state="self.table_@ = nn.Parameter(torch.randn(40, $D, dtype=DTYPE))",
        code="x = F.embedding(index, self.table_@)",
        rewrites=(
            "x = self.table_@[index]",
            "x = self.table_@.index_select(0, index.reshape(-1)).view(*index.shape, $D)",
        ),
        faults={
            "frozen weights": """\
if not hasattr(self, "kept_@"):
    self.kept_@ = self.table_@.detach().clone()
x = F.embedding(index, self.kept_@.to(self.table_@.dtype))""",
            "wrong stride": "x = self.table_@[torch.as_strided(index, index.shape, (index.shape[1], 1))]",
            "bf16 intermediate": "x = F.embedding(index, self.table_@.bfloat16()).to(self.table_@.dtype)",
        },
    ),
)

LOSSES = (
    Stage(
        name="mean squared error",
        works_on="rows",
        ends=True,
        takes="x, y",
        makes=normal("$N, $D", "$N, $D"),
        code="x = F.mse_loss(x, y)",
        rewrites=("x = (x - y).square().mean()", "x = (wide((x - y) * (x - y)).sum() / x.numel()).to(x.dtype)"),
        faults={
            "hard-coded shape": "x = (x - y).square().sum() / ($N * $D)",
            "fp16 total": "x = (x - y).square().half().mean().to(x.dtype)",
            "expanded square": "x = (x * x - 2 * x * y + y * y).mean()",
            "swallowed NaN": "x = (x - y).square().nan_to_num(0.0, torch.inf).mean()",
        },
    ),
    Stage(
        name="cross entropy",
        works_on="rows",
        ends=True,
        takes="x, target",
        makes="torch.randn($N, $D, dtype=DTYPE), torch.randint(0, $D, ($N,))",
        code="x = F.cross_entropy(x, target)",
        rewrites=(
            "x = F.nll_loss(F.log_softmax(x, dim=-1), target)",
            "x = -F.log_softmax(x, dim=-1).gather(1, target[:, None]).mean()",
            "x = F.cross_entropy(x, target, reduction='none').mean()",
        ),
        faults={
            "missing max-subtraction": """\
totals = torch.log(torch.exp(x).sum(-1))
x = (totals - x.gather(1, target[:, None])[:, 0]).mean()""",
            "log of a softmax": "x = -torch.log(F.softmax(x, dim=-1).gather(1, target[:, None])).mean()",
            "hard-coded shape": "x = F.cross_entropy(x, target, reduction='sum') / $N",
            "small divisor": "x = -torch.log(F.softmax(x, dim=-1).gather(1, target[:, None]) + 1e-4).mean()",
        },
    ),
    Stage(
        name="cosine similarity",
        works_on="rows",
        ends=True,
        takes="x, y",
        makes=normal("$N, $D", "$N, $D"),
        code="x = (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1) + 1e-6).sqrt()",
        rewrites=("x = torch.einsum('nd,nd->n', x, y) / torch.sqrt((x * x).sum(-1) * (y * y).sum(-1) + 1e-6)",),
        faults={
            "fp16 total": """\
dots = (x * y).half().sum(-1).to(x.dtype)
x = dots / (x.square().sum(-1) * y.square().sum(-1) + 1e-6).sqrt()""",
            "wrong constant": "x = (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1) + 1e-1).sqrt()",
        },
    ),
)

_KERNEL = """\
self.kernel_@ = nn.Parameter(torch.randn($E, $D, 3, 3, dtype=DTYPE) / 6.0)
self.bias_@ = nn.Parameter(torch.randn($E, dtype=DTYPE))"""

IMAGES = (
    Stage(
        name="convolution",
        works_on="image",
        widens=True,
        takes="x",
        makes=normal("$M, $D, $N, $N"),
        state=_KERNEL,
        code="x = F.conv2d(x, self.kernel_@, self.bias_@, padding=1)",
        rewrites=(
            """\
columns = F.unfold(x, 3, padding=1)
x = (self.kernel_@.flatten(1) @ columns + self.bias_@[:, None]).view(len(x), $E, *x.shape[2:])""",
            """\
padded, kernel = F.pad(wide(x), (1, 1, 1, 1)), wide(self.kernel_@)
total = sum(
    torch.einsum("ncij,oc->noij", padded[:, :, r : r + x.shape[2], c : c + x.shape[3]], kernel[:, :, r, c])
    for r in range(3) for c in range(3)
)
x = (total + self.bias_@[:, None, None]).to(x.dtype)""",
            "x = F.conv2d(x, self.kernel_@, padding=1) + self.bias_@.view(1, -1, 1, 1)",
        ),
        faults={
            "fp16 total": """\
sums = F.conv2d(x.half(), self.kernel_@.half(), padding=1)
x = sums.to(x.dtype) + self.bias_@[:, None, None]""",
            "wrong border": "x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode='replicate'), self.kernel_@, self.bias_@)",
            "hard-coded shape": "x = F.conv2d(x[:, :, :$N, :$N], self.kernel_@, self.bias_@, padding=1)",
            "frozen weights": """\
if not hasattr(self, "kept_@"):
    self.kept_@ = self.kernel_@.detach().clone()
x = F.conv2d(x, self.kept_@.to(x.dtype), self.bias_@, padding=1)""",
        },
    ),
    Stage(
        name="pooling",
        works_on="image",
        takes="x",
        makes=normal("$M, $D, $N, $N"),
        code="x = F.max_pool2d(x, 2, ceil_mode=True)",
        rewrites=(
            """\
padded = F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2), value=-torch.inf)
rows = torch.maximum(padded[:, :, ::2], padded[:, :, 1::2])
x = torch.maximum(rows[..., ::2], rows[..., 1::2])""",
            "x = -F.max_pool2d(x, (2, 1), ceil_mode=True)\nx = F.max_pool2d(-x, (1, 2), ceil_mode=True)",
        ),
        faults={
            "dropped tail": "x = F.max_pool2d(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2)",
            "swallowed NaN": "x = F.max_pool2d(x.nan_to_num(-torch.inf, torch.inf, -torch.inf), 2, ceil_mode=True)",
            "maximum from -1e4": "x = F.max_pool2d(x, 2, ceil_mode=True).clamp_min(-1e4)",
        },
    ),
    Stage(
        name="batch norm",
        works_on="image",
        takes="x",
        makes=normal("$M, $D, $N, $N"),
        state="""\
self.gain_@ = nn.Parameter(torch.rand($D, dtype=DTYPE) + 0.5)
self.register_buffer("mean_@", torch.randn($D, dtype=DTYPE))
self.register_buffer("variance_@", torch.rand($D, dtype=DTYPE) + 0.5)""",
        code="x = F.batch_norm(x, self.mean_@, self.variance_@, self.gain_@)",
        rewrites=(
            """\
scale = (self.gain_@ * torch.rsqrt(self.variance_@ + 1e-5))[:, None, None]
x = (x - self.mean_@[:, None, None]) * scale""",
            """\
centred = x - self.mean_@[:, None, None]
x = centred / (self.variance_@ + 1e-5).sqrt()[:, None, None] * self.gain_@[:, None, None]""",
        ),
        faults={
            "missing eps": "x = F.batch_norm(x, self.mean_@, self.variance_@, self.gain_@, eps=1e-3)",
            "statistics of the batch": "x = F.batch_norm(x, None, None, self.gain_@, training=True)",
            "frozen weights": """\
if not hasattr(self, "kept_@"):
    self.kept_@ = (self.gain_@ * torch.rsqrt(self.variance_@ + 1e-5)).detach()[:, None, None]
x = (x - self.mean_@[:, None, None]) * self.kept_@.to(x.dtype)""",
        },
    ),
    Stage(
        name="group norm",
        works_on="image",
        takes="x",
        makes=normal("$M, $D, $N, $N"),
        code="x = F.group_norm(x, $D // 2)",
        rewrites=(
            """\
groups = wide(x).reshape(len(x), $D // 2, x[0].numel() // ($D // 2) if len(x) else 0)
variance, mean = torch.var_mean(groups, -1, correction=0, keepdim=True)
x = ((groups - mean) * torch.rsqrt(variance + 1e-5)).to(x.dtype).view(x.shape)""",
        ),
        faults={
            "one-pass variance": """\
groups = x.reshape(len(x), $D // 2, -1)
mean = groups.mean(-1, keepdim=True)
variance = (groups.square().mean(-1, keepdim=True) - mean.square()).clamp_min(0.0)
x = ((groups - mean) * torch.rsqrt(variance + 1e-5)).view(x.shape)""",
            "hard-coded shape": """\
groups = x.reshape(len(x), $D // 2, -1)
centred = groups - groups.sum(-1, keepdim=True) / (2 * $N * $N)
x = (centred * torch.rsqrt(centred.square().sum(-1, keepdim=True) / (2 * $N * $N) + 1e-5)).view(x.shape)""",
        },
    ),
)
