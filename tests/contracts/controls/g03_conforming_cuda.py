"""Row sums of tiles that one thread adds up in their order."""

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

constexpr int THREADS = 256;
constexpr int TILE = 1024;

// The sum of TILE elements of a row, by a tree over the threads.
__device__ float tile_sum(const float* row, long columns, long tile) {
  __shared__ float parts[THREADS];
  float mine = 0.0f;
  for (long i = tile * TILE + threadIdx.x; i < min(columns, (tile + 1) * (long)TILE); i += THREADS) mine += row[i];
  parts[threadIdx.x] = mine;
  for (int half = THREADS / 2; half; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  return parts[0];
}

__global__ void add_up(const float* x, float* partial, long columns) {
  float total = tile_sum(x + blockIdx.y * columns, columns, blockIdx.x);
  if (threadIdx.x == 0) partial[blockIdx.y * (long)gridDim.x + blockIdx.x] = total;
}

__global__ void add_up_tiles(const float* partial, float* out, long tiles) {
  float total = 0.0f;
  for (long tile = 0; tile < tiles; ++tile) total += partial[blockIdx.x * tiles + tile];
  out[blockIdx.x] = total;
}

torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(), "contiguous float32 on a device");
  auto out = torch::zeros({x.size(0)}, x.options());
  long columns = x.size(1), tiles = (columns + TILE - 1) / TILE;
  if (x.numel()) {
    auto partial = torch::empty({x.size(0), tiles}, x.options());
    auto stream = at::cuda::getCurrentCUDAStream();
    add_up<<<dim3(tiles, x.size(0)), THREADS, 0, stream>>>(x.data_ptr<float>(), partial.data_ptr<float>(), columns);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_up_tiles<<<x.size(0), 1, 0, stream>>>(partial.data_ptr<float>(), out.data_ptr<float>(), tiles);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  return out;
}
"""


@functools.cache
def extension() -> ModuleType:
    declared = "torch::Tensor run(torch::Tensor x);"
    return load_inline("amk_g03_conforming", declared, cuda_sources=SOURCE, functions=["run"])


class Total(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.shape = x.shape
        return extension().run(x.contiguous())

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        return slope[:, None].expand(context.shape)


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        extension()

    def forward(self, x: Tensor) -> Tensor:
        return Total.apply(x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(3, 70000)]


def get_init_inputs() -> list[int]:
    return []
