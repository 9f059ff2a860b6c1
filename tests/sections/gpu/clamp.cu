// SPDX-License-Identifier: Apache-2.0
// An operator of a plug-in, with its kernels: y = x, but at least low and at most high. The gradient passes where x is
// inside.
#include <cuda_runtime.h>

#include <algorithm>
#include <maestro/functions.hpp>

namespace mine {

namespace {

using maestro::Custom;

__host__ __device__ float clamped_value(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}
__host__ __device__ float clamped_gradient(float dy, float x, float low, float high) {
  return x < low || x > high ? 0.0F : dy;
}

/// Tensors: x, y, or dy, x, dx. Numbers: low, high.
struct Call {
  explicit Call(const Custom& call)
      : count(call.tensors[0].elements()),
        low(static_cast<float>(call.numbers[0])),
        high(static_cast<float>(call.numbers[1])) {
    for (int i = 0; i < 3; ++i) data[i] = call.tensors[i].data<float>();
  }
  __host__ __device__ void forward(std::int64_t i) const { data[1][i] = clamped_value(data[0][i], low, high); }
  __host__ __device__ void backward(std::int64_t i) const {
    data[2][i] = clamped_gradient(data[0][i], data[1][i], low, high);
  }
  std::int64_t count;
  float low, high;
  float* data[3];
};

template <bool Backward>
__global__ void clamp_kernel(Call call) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < call.count) Backward ? call.backward(i) : call.forward(i);
}

template <bool Backward>
void on_cpu(const Custom& custom) {
  const Call call(custom);
  for (std::int64_t i = 0; i < call.count; ++i) Backward ? call.backward(i) : call.forward(i);
}
template <bool Backward>
void on_cuda(const Custom& custom, void* stream) {
  const Call call(custom);
  const auto blocks = static_cast<unsigned>((call.count + 255) / 256);
  if (blocks > 0) clamp_kernel<Backward><<<blocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(call);
}

const maestro::CustomOperator clamp_forward{"clamp", on_cpu<false>, on_cuda<false>, 2};
const maestro::CustomOperator clamp_backward{"clamp_backward", on_cpu<true>, on_cuda<true>, 2};

}  // namespace

/// Returns x (M, C) f32 with its values in [low, high].
maestro::Var clamped(maestro::Tape& tape, const maestro::Var& x, double low, double high) {
  maestro::Var y = tape.output(x.value().shape(), maestro::DType::f32, x.needs_gradient());
  tape.ops().run(Custom{&clamp_forward, {x.value(), y.value()}, {low, high}});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, low, high] {
    const maestro::Block dx = tape.scratch(x.value().shape(), maestro::DType::f32);
    tape.ops().run(Custom{&clamp_backward, {y.gradient(), x.value(), dx.tensor()}, {low, high}});
    tape.add_gradient(x, dx);
  });
  return y;
}

}  // namespace mine
