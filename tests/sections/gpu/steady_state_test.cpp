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

/// The calls of the fake since the training began, counted at the end of each step.
struct CallsOfSteps {
  std::vector<std::size_t> waits;
  std::vector<std::size_t> pinned;  // allocations of pinned memory
};

CallsOfSteps calls_of_steps(const TrainingSettings& settings) {
  cuda::Poller poller;
  cuda::DeviceParts parts(0, cuda::GreenContextCalls{});
  DeviceOptions options;
  options.name = "cuda:0";
  BenchDevice device(std::make_unique<cuda::CudaDevice>(options, poller, parts, cuda::cuda_tables()));
  Training training(settings, device);
  CallsOfSteps calls;
  const std::size_t waits = fake_cuda::waits();
  const std::size_t pinned = fake_cuda::pinned_allocations();
  training.run([&](std::int64_t) {
    calls.waits.push_back(fake_cuda::waits() - waits);
    calls.pinned.push_back(fake_cuda::pinned_allocations() - pinned);
  });
  return calls;
}

TEST(SteadyState, no_call_of_a_step_waits_for_the_device_once_its_shapes_are_known) {  // CD-1, RU-5, GR-4, GT-1, LP-1
  for (const char* model :
       {"gpt2-tiny", "llama-tiny", "experts-tiny", "sinks-tiny", "delta-tiny", "latent-tiny", "convolution-tiny"}) {
    for (const char* precision : {"bf16", "fp32"}) {
      SCOPED_TRACE(std::string(model) + " " + precision);
      TrainingSettings settings;
      settings.model = model;
      settings.precision = precision;
      settings.batch = 2;
      settings.sequence = 9;
      settings.micro_batches = 2;
      settings.steps = 8;
      const CallsOfSteps calls = calls_of_steps(settings);
      ASSERT_EQ(calls.waits.size(), 8u);
      EXPECT_GT(calls.waits.front(), 0u);  // at least for memory
      EXPECT_EQ(calls.waits.back(), calls.waits[1]);
      // Recorded passes with many values of the host take pinned memory for them, for each micro-batch in flight. How
      // many are in flight depends on the time: one at least, two at most. Memory for each micro-batch anew would be
      // four times as much after eight steps as after two.
      EXPECT_LE(calls.pinned.back(), 2 * calls.pinned[1]);
    }
  }
}

}  // namespace
}  // namespace maestro::bench
