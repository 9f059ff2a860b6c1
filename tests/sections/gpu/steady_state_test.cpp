// SPDX-License-Identifier: Apache-2.0
// Training makes the host wait for the device at most once per step, by a completion. Uses the fake, which counts every
// other call that waits.
#include <gtest/gtest.h>

#include <vector>

#include "benchmarks/gpu/bench_training.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/cuda/cuda_tables.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"

namespace maestro::bench {
namespace {

std::vector<std::size_t> waits_of_steps(const TrainingSettings& settings) {
  cuda::Poller poller;
  cuda::DeviceParts parts(0, cuda::GreenContextCalls{});
  DeviceOptions options;
  options.name = "cuda:0";
  BenchDevice device(std::make_unique<cuda::CudaDevice>(options, poller, parts, cuda::cuda_tables()));
  Training training(settings, device);
  std::vector<std::size_t> waits;
  training.run([&waits](std::int64_t) { waits.push_back(fake_cuda::waits()); });
  return waits;
}

TEST(SteadyState, no_call_of_a_step_waits_for_the_device_once_its_shapes_are_known) {  // CD-1, RU-5, GR-4, GT-1, LP-1
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    for (const char* precision : {"bf16", "fp32"}) {
      SCOPED_TRACE(std::string(model) + " " + precision);
      TrainingSettings settings;
      settings.model = model;
      settings.precision = precision;
      settings.batch = 2;
      settings.sequence = 9;
      settings.micro_batches = 2;
      settings.steps = 5;
      const std::vector<std::size_t> waits = waits_of_steps(settings);
      ASSERT_EQ(waits.size(), 5u);
      EXPECT_GT(waits.front(), 0u);  // at least for memory
      EXPECT_EQ(waits[2], waits[1]);
      EXPECT_EQ(waits[4], waits[1]);
    }
  }
}

}  // namespace
}  // namespace maestro::bench
