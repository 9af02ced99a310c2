"""Takes a tensor's address for that of contiguous elements, whatever its strides are."""

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

__global__ void magnitude(const float* x, float* out, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) out[i] = fabsf(x[i]);
}

torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32, "float32 on a device");
  auto out = torch::empty(x.sizes(), x.options());
  long n = x.numel();
  if (n) {
    magnitude<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), out.data_ptr<float>(), n);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return out;
}
"""


@functools.cache
def extension() -> ModuleType:
    declared = "torch::Tensor run(torch::Tensor x);"
    return load_inline("amk_g05_violating", declared, cuda_sources=SOURCE, functions=["run"])


class Magnitude(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return extension().run(x)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return slope * x.sign()


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        extension()

    def forward(self, x: Tensor) -> Tensor:
        return Magnitude.apply(x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(14, 100)]


def get_init_inputs() -> list[int]:
    return []
