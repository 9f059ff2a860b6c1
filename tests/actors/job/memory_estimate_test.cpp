// SPDX-License-Identifier: Apache-2.0
#include "actors/job/memory_estimate.hpp"

#include <gtest/gtest.h>

#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/isa.hpp"

namespace maestro {
namespace {

MemoryDemand student() {
  MemoryDemand demand;
  demand.held = {.all = 1 << 20, .matrices = 1 << 19, .table = 1 << 18};
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

constexpr double mebi = 1 << 20;

/// Returns how many bf16 copies of a matrix this CPU's products of both directions take.
double copies() {
  return cpu::best_products_pack_once() ? 1 : 2;
}

TEST(MemoryEstimate, a_trained_rank_has_values_gradients_two_moments_and_activations_in_flight) {
  const MemoryUse use = use_of(student());
  EXPECT_EQ(use.parameters, 4 * mebi);
  EXPECT_EQ(use.gradients, 4 * mebi);
  EXPECT_EQ(use.optimizer, 8 * mebi);
  EXPECT_EQ(use.activations, 16 * mebi);
  EXPECT_EQ(use.sum(), 32 * mebi);
  MemoryDemand more = student();
  more.moment_shards = 4;
  more.exchange_bytes = mebi;
  more.working_bytes = mebi / 2;
  EXPECT_EQ(use_of(more).optimizer, 2 * mebi);
  EXPECT_EQ(use_of(more).gradients, 5 * mebi);
  EXPECT_EQ(use_of(more).activations, 24 * mebi);
  more.pass_bytes = 3 * mebi;
  EXPECT_EQ(use_of(more).activations, 6 * mebi) << "measured for a micro-batch";
}

TEST(MemoryEstimate, moments_in_bf16_take_half_the_memory) {
  MemoryDemand wide;
  wide.held.all = 1000;
  wide.trained = true;
  MemoryDemand narrow = wide;
  narrow.moments = DType::bf16;
  EXPECT_EQ(use_of(wide).optimizer, 8000);
  EXPECT_EQ(use_of(narrow).optimizer, 4000);
  EXPECT_EQ(use_of(narrow).sum(), use_of(wide).sum() - 4000);
}

TEST(MemoryEstimate, bf16_packs_matrices_and_a_gpu_rounds_all_values_once) {
  MemoryDemand narrow = student();
  narrow.precision = DType::bf16;
  EXPECT_EQ(use_of(narrow).parameters, (4 + copies() * 0.5 * 2) * mebi);
  narrow.on_cuda = true;
  EXPECT_EQ(use_of(narrow).parameters, (4 + 2) * mebi);
  EXPECT_EQ(use_of(narrow).activations, 2 * 256 * mebi) << "in whole pieces of an arena";
}

TEST(MemoryEstimate, a_frozen_rank_keeps_packed_forms_and_no_activations_unless_gradients_pass_through) {
  MemoryDemand frozen = student();
  frozen.trained = frozen.keeps_activations = false;
  EXPECT_EQ(use_of(frozen).sum(), 4 * mebi);
  frozen.precision = DType::bf16;
  EXPECT_EQ(use_of(frozen).parameters, (0.5 * 2 + 0.25 * 4 + 0.25 * 4) * mebi) << "a table that bf16 rounds stays";
  frozen.from_file = true;
  EXPECT_EQ(use_of(frozen).parameters, (0.5 * 2 + 0.25 * 2 + 0.25 * 4) * mebi);
  frozen.held.tied = true;
  frozen.held.extra_bytes = 3 * mebi;
  EXPECT_EQ(use_of(frozen).parameters, (0.5 * 2 + 0.5 * 4 + 3) * mebi);
  frozen.shared = true;
  EXPECT_EQ(use_of(frozen).parameters, 3 * mebi) << "the values are those of an earlier replica";
  frozen.shared = false;
  frozen.keeps_activations = true;
  EXPECT_EQ(use_of(frozen).activations, 16 * mebi);
  EXPECT_EQ(use_of(frozen).parameters, (4 + copies() * 0.5 * 2 + 3) * mebi);
}

TEST(MemoryEstimate, blocks_of_frozen_matrices_take_four_bits_and_a_scale) {
  MemoryDemand frozen = student();
  frozen.trained = frozen.keeps_activations = false;
  frozen.held.blocks = 1 << 18;
  constexpr double blocks = 0.25 * 17 / 32;
  EXPECT_EQ(use_of(frozen).parameters, (0.75 * 4 + blocks) * mebi);
  frozen.precision = DType::bf16;
  frozen.from_file = true;
  EXPECT_EQ(use_of(frozen).parameters, (blocks + 0.25 * 2 + 0.25 * 2 + 0.25 * 4) * mebi);
}

TEST(MemoryEstimate, weights_below_adapters_are_their_packed_forms) {
  MemoryDemand adapted = student();
  const double plain = use_of(adapted).sum();
  adapted.below = {.all = 1 << 20, .matrices = 1 << 19, .table = 1 << 18};
  EXPECT_EQ(use_of(adapted).sum(), plain + 4 * mebi) << "products read the values";
  adapted.precision = DType::bf16;
  adapted.from_file = true;
  const double below = (copies() * 0.5 * 2 + 0.25 * 2 + 0.25 * 4) * mebi;
  EXPECT_EQ(use_of(adapted).parameters, (4 + copies() * 0.5 * 2) * mebi + below);
}

TEST(MemoryEstimate, a_micro_batch_that_cannot_fit_is_refused_with_the_largest_that_does) {
  EXPECT_EQ(refusal(student(), 32), "fits");
  EXPECT_EQ(refusal(student(), 0), "fits");  // no limit
  EXPECT_EQ(refusal(student(), 27),
            "student.micro_batch = 8 needs about 32 MiB on each device (parameters 16 MiB, activations of 2 "
            "micro-batches in flight 16 MiB), more than memory_mib = 27; nearest that fits: micro_batch = 5");
  MemoryDemand fitting = student();
  fitting.micro_batch = 5;
  EXPECT_EQ(refusal(fitting, 27), "fits");
  EXPECT_NE(refusal(student(), 19).find("nearest that fits: micro_batch = 1"), std::string::npos);
}

TEST(MemoryEstimate, parameters_that_leave_no_room_for_one_sample_ask_for_another_layout) {
  EXPECT_NE(refusal(student(), 17).find("not even one sample fits: raise tensor, pipeline or memory_mib"),
            std::string::npos);
}

TEST(MemoryEstimate, sizes_are_in_megabytes_below_a_gigabyte) {
  EXPECT_EQ(text_of_bytes(0.2e6), "1 MB");
  EXPECT_EQ(text_of_bytes(999e6), "999 MB");
  EXPECT_EQ(text_of_bytes(1234e6), "1.2 GB");
}

}  // namespace
}  // namespace maestro
