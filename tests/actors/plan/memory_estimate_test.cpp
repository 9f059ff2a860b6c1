// SPDX-License-Identifier: Apache-2.0
#include "actors/plan/memory_estimate.hpp"

#include <gtest/gtest.h>

#include "runtime/core/result.hpp"

namespace maestro {
namespace {

MemoryDemand student() {
  MemoryDemand demand;
  demand.parameters = 1 << 20;
  demand.trained = demand.keeps_activations = true;
  demand.sample_bytes = 1 << 20;
  demand.micro_batch = 8;
  demand.in_flight = 2;
  return demand;
}

std::string refusal(const MemoryDemand& demand, std::int64_t memory_mib) {
  try {
    check_memory("student", demand, memory_mib);
  } catch (const JobError& error) {
    return error.what();
  }
  return "fits";
}

TEST(MemoryEstimate, counts_values_gradients_moments_packed_weights_and_activations_in_flight) {
  EXPECT_EQ(parameter_bytes(student()), (1 << 20) * 24.0);
  EXPECT_EQ(activation_bytes(student()), (1 << 20) * 16.0);
  MemoryDemand sharded = student();
  sharded.moment_shards = 4;
  EXPECT_EQ(parameter_bytes(sharded), (1 << 20) * 18.0);
}

TEST(MemoryEstimate, a_frozen_section_keeps_no_activations_unless_gradients_pass_through) {
  MemoryDemand frozen = student();
  frozen.trained = frozen.keeps_activations = false;
  EXPECT_EQ(activation_bytes(frozen), 0.0);
  EXPECT_EQ(parameter_bytes(frozen), (1 << 20) * 8.0);
  frozen.keeps_activations = true;
  EXPECT_GT(activation_bytes(frozen), 0.0);
  EXPECT_EQ(parameter_bytes(frozen), (1 << 20) * 12.0) << "packed for both directions";
}

TEST(MemoryEstimate, weights_below_adapters_are_their_packed_forms) {
  MemoryDemand adapted = student();
  adapted.weights_below = 1 << 20;
  adapted.precision = DType::bf16;
  EXPECT_EQ(parameter_bytes(adapted), (1 << 20) * (20.0 + 4.0));
}

TEST(MemoryEstimate, a_micro_batch_that_cannot_fit_is_refused_with_the_largest_that_does) {
  EXPECT_EQ(refusal(student(), 40), "fits");
  EXPECT_EQ(refusal(student(), 0), "fits");  // no limit
  EXPECT_EQ(refusal(student(), 35),
            "student.micro_batch = 8 needs about 40 MiB on each device (parameters 24 MiB, activations of 2 "
            "micro-batches in flight 16 MiB), more than memory_mib = 35; nearest that fits: micro_batch = 5");
  MemoryDemand fitting = student();
  fitting.micro_batch = 5;
  EXPECT_EQ(refusal(fitting, 35), "fits");
  EXPECT_NE(refusal(student(), 27).find("nearest that fits: micro_batch = 1"), std::string::npos);
}

TEST(MemoryEstimate, parameters_that_leave_no_room_for_one_sample_ask_for_another_layout) {
  EXPECT_NE(refusal(student(), 25).find("not even one sample fits: raise tensor, pipeline or memory_mib"),
            std::string::npos);
}

}  // namespace
}  // namespace maestro
