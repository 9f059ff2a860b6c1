// SPDX-License-Identifier: Apache-2.0
// A plug-in's operator with kernels of its own (clamp.cu), on a CPU and on a device.
#include <gtest/gtest.h>

#include "benchmarks/gpu/bench_device.hpp"
#include "runtime/core/arena.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/ops/functions.hpp"

namespace mine {
maestro::Var clamped(maestro::Tape& tape, const maestro::Var& x, double low, double high);
}

namespace maestro::bench {
namespace {

class PlugInKernel : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() != std::string("cpu") && cuda_status().devices() == 0) GTEST_SKIP() << cuda_status().missing;
  }
};

TEST_P(PlugInKernel, cuts_values_and_gradients_outside_its_range) {
  BenchDevice device(GetParam());
  const std::vector<float> x{-2, -0.5F, 0.25F, 0.5F, 3};
  std::vector<float> y(x.size()), dx(x.size());
  const Shape shape{static_cast<std::int64_t>(x.size()), 1};
  device.run([&] {
    const OperatorTable& ops = device.ops();
    Arena arena(std::size_t{1} << 20, ops.memory());
    Tape tape(ops, arena, DType::f32, true);
    const Var in = tape.output(shape, DType::f32, true);
    ops.put(std::as_bytes(std::span(x)), in.value());
    const Var result = mine::clamped(tape, in, -0.5, 0.5);
    ops.download(result.value(), Tensor(y.data(), DType::f32, shape));
    (void)sum_loss(tape, result, 2);
    tape.backward();
    ops.download(in.gradient(), Tensor(dx.data(), DType::f32, shape));
  });
  EXPECT_EQ(y, (std::vector<float>{-0.5F, -0.5F, 0.25F, 0.5F, 0.5F}));
  EXPECT_EQ(dx, (std::vector<float>{0, 2, 2, 2, 0}));
}

INSTANTIATE_TEST_SUITE_P(cpu, PlugInKernel, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(gpu, PlugInKernel, ::testing::Values("cuda:0"));

}  // namespace
}  // namespace maestro::bench
