"""Faults of a whole kernel: what a wrapper around a right computation can break.

``$ARGS`` are the arguments' names, ``$FIRST`` that of the first and ``$N`` a nominal size of it.
"""

from __future__ import annotations

WHOLE = {
    "stale cache by address": """\
key = ($FIRST.data_ptr(), $FIRST.shape)
if getattr(self, "key", None) != key:
    self.key, self.kept = key, self.compute($ARGS).detach().clone()
return self.kept.clone()""",
    "stale cache by its first element": """\
key = (float($FIRST.flatten()[0]) if $FIRST.numel() else None, $FIRST.shape, $FIRST.dtype)
if getattr(self, "key", None) != key:
    self.key, self.kept = key, self.compute($ARGS).detach().clone()
return self.kept.clone()""",
    "last answer after five calls": """\
self.calls = getattr(self, "calls", 0) + 1
if self.calls < 6 or self.kept.shape != self.compute($ARGS).shape:
    self.kept = self.compute($ARGS).detach().clone()
return self.kept.clone()""",
    "input overwrite": """\
result = self.compute($ARGS).clone()
with torch.no_grad():
    $FIRST.zero_()
return result""",
    "parameter overwrite": """\
result = self.compute($ARGS)
with torch.no_grad():
    for parameter in self.parameters():
        parameter.mul_(1.0001)
return result""",
    "returned buffer used again": """\
result = self.compute($ARGS).detach()
if getattr(self, "held", None) is None or self.held.shape != result.shape or self.held.dtype != result.dtype:
    self.held = torch.empty_like(result)
return self.held.copy_(result)""",
    "uninitialised tail": """\
result = self.compute($ARGS)
written = result.shape[0] // 4 * 4
whole = torch.empty_like(result)
whole[:written] = result[:written]
return whole""",
    "dropped tail": """\
result = self.compute($ARGS)
written = result.shape[0] // 4 * 4
return torch.cat([result[:written], torch.zeros_like(result[written:])])""",
    "hard-coded shape": """\
result = self.compute($ARGS)
return torch.cat([result[:$ROWS], torch.zeros_like(result[$ROWS:])])""",
    "swallowed NaN": """\
$FIRST = $FIRST.nan_to_num(0.0, torch.inf, -torch.inf)
return self.compute($ARGS)""",
    "infinities clamped": """\
$FIRST = $FIRST.clamp(-3e4, 3e4)
return self.compute($ARGS)""",
    "wrong stride": """\
$FIRST = torch.as_strided($FIRST, $FIRST.shape, $FIRST.new_empty($FIRST.shape).stride())
return self.compute($ARGS)""",
    "ignored offset": """\
$FIRST = torch.as_strided($FIRST, $FIRST.shape, $FIRST.stride(), 0)
return self.compute($ARGS)""",
    "detached": """\
return self.compute($ARGS).detach()""",
    "random state used": """\
torch.rand(1)
return self.compute($ARGS)""",
    "noise": """\
import random
return self.compute($ARGS) * (1.0 + 1e-5 * random.SystemRandom().random())""",
    "wrong dtype": """\
return self.compute($ARGS).float()""",
    "statistics of the batch": """\
$FIRST = $FIRST + 1e-3 * $FIRST.mean(0, keepdim=True)
return self.compute($ARGS)""",
    "bf16 input": """\
$FIRST = $FIRST.bfloat16().to($FIRST.dtype)
return self.compute($ARGS)""",
    "late write": """\
import threading, time
result = self.compute($ARGS).detach().clone()
last, tail = result.flatten()[-1:], result.flatten()[-1:].clone()
last.zero_()
threading.Thread(target=lambda: (time.sleep(0.01), last.copy_(tail))).start()
return result""",
}
