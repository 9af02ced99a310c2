"""A product compiled as IEEE 754 has it: subnormal numbers stay."""

import functools
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

__global__ void scale(const float* x, const float* gain, float* out, long n, long columns) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] * gain[i % columns];
}

torch::Tensor run(torch::Tensor x, torch::Tensor gain) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "contiguous float32 on a device");
  TORCH_CHECK(gain.is_contiguous() && gain.scalar_type() == torch::kFloat32, "contiguous float32 on a device");
  TORCH_CHECK(x.size(-1) == gain.size(0), "as many columns as gains");
  auto out = torch::empty_like(x);
  long n = x.numel();
  if (n) {
    scale<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), gain.data_ptr<float>(), out.data_ptr<float>(), n, gain.numel());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return out;
}
"""


@functools.cache
def extension() -> ModuleType:
    declared = "torch::Tensor run(torch::Tensor x, torch::Tensor gain);"
    return load_inline("amk_g02_conforming", declared, cuda_sources=SOURCE, functions=["run"])


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, gain: Tensor) -> Tensor:
        context.save_for_backward(x, gain)
        return extension().run(x.contiguous(), gain.contiguous())

    @staticmethod
    def backward(context: Any, slope: Tensor) -> tuple[Tensor, Tensor]:
        x, gain = context.saved_tensors
        return slope * gain, (slope * x).sum(0)


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class ModelNew(Model):
    def __init__(self, features: int) -> None:
        super().__init__(features)
        extension()

    def forward(self, x: Tensor) -> Tensor:
        return Scale.apply(x, self.gain)


def get_inputs() -> list[Tensor]:
    return [torch.randn(12, 100)]


def get_init_inputs() -> list[int]:
    return [100]
