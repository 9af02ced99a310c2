"""A filter that multiplies the element behind the last one by zero instead of leaving it: of a NaN there, NaN comes."""

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

__global__ void smooth(const float* x, float* out, long n, float here, float next) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = here * x[i] + next * ((i + 1 < n ? 1.0f : 0.0f) * x[i + 1]);
}

torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "contiguous float32 on a device");
  auto out = torch::empty_like(x);
  long n = x.numel();
  if (n) {
    smooth<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n, 0.75f, 0.25f);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return out;
}
"""


@functools.cache
def extension() -> ModuleType:
    declared = "torch::Tensor run(torch::Tensor x);"
    return load_inline("amk_g09_violating", declared, cuda_sources=SOURCE, functions=["run"])


class Smooth(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return extension().run(x.contiguous().view(-1)).view(x.shape)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        flat = slope.reshape(-1)
        before = torch.cat([flat.new_zeros(min(1, flat.numel())), flat[:-1]])
        return (0.75 * flat + 0.25 * before).view(slope.shape)


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1)
        following = torch.cat([flat[1:], flat.new_zeros(min(1, flat.numel()))])
        return (0.75 * flat + 0.25 * following).view(x.shape)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        extension()

    def forward(self, x: Tensor) -> Tensor:
        return Smooth.apply(x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(10, 101)]


def get_init_inputs() -> list[int]:
    return []
