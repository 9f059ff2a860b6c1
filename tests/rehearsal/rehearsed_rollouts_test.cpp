// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/rehearsed_rollouts.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "runtime/core/random.hpp"
#include "runtime/rehearsal/generation_costs.hpp"

namespace maestro {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr double read_ms = 2;    // for a token of a prompt
constexpr double step_ms = 10;   // for a decode step
constexpr double write_ms = 1;   // for a sequence of a decode step
constexpr double row_ms = 0.01;  // for a kept row

GenerationTimes simple_times() {
  GenerationTimes times;
  times.prefill = [](std::int64_t rows) { return read_ms * static_cast<double>(rows); };
  times.decode = [](std::int64_t sequences, std::int64_t rows) {
    return step_ms + write_ms * static_cast<double>(sequences) + row_ms * static_cast<double>(rows);
  };
  return times;
}

GeneratorShape shape_of(std::size_t replicas, std::int64_t slots, std::int64_t block_rows = 512) {
  return {replicas, slots, block_rows, slots + 2};
}

TEST(RehearsedRollouts, a_sample_takes_its_prompt_and_a_step_for_each_token_after_the_first) {
  const double ms = rollout_ms(shape_of(1, 4), simple_times(), 0, {{5, 4}});
  EXPECT_NEAR(ms, 5 * read_ms + 3 * (step_ms + write_ms) + row_ms * (6 + 7 + 8), 1e-9);
  EXPECT_NEAR(rollout_ms(shape_of(1, 4), simple_times(), 0, {{5, 1}}), 5 * read_ms, 1e-9);
}

TEST(RehearsedRollouts, blocks_of_prompts_alternate_with_tokens_of_open_sequences) {  // ON-1
  GenerationTimes times = simple_times();
  std::vector<std::int64_t> blocks;
  std::vector<std::int64_t> steps;
  times.prefill = [&](std::int64_t rows) {
    blocks.push_back(rows);
    return 1.0;
  };
  times.decode = [&](std::int64_t sequences, std::int64_t) {
    steps.push_back(sequences);
    return 1.0;
  };
  EXPECT_NEAR(rollout_ms(shape_of(1, 2, 4), times, 0, {{4, 6}, {10, 3}, {2, 2}}), 5 + 6, 1e-9);
  EXPECT_THAT(blocks, ElementsAre(4, 4, 4, 2, 2));  // the third waits for a slot
  EXPECT_THAT(steps, ElementsAre(1, 1, 1, 2, 2, 1));
}

TEST(RehearsedRollouts, a_prompt_goes_to_the_replica_that_holds_the_fewest) {
  // Two replicas with a slot each: the long sample keeps one busy, the other makes the rest.
  GenerationTimes times = simple_times();
  times.decode = [](std::int64_t, std::int64_t) { return 1.0; };
  times.prefill = [](std::int64_t) { return 0.0; };
  const std::vector<MadeLengths> samples{{1, 101}, {1, 11}, {1, 11}, {1, 11}, {1, 11}, {1, 11}, {1, 11}, {1, 11}};
  // Each holds three prompts at most, so two short ones are held by the busy replica.
  EXPECT_NEAR(rollout_ms(shape_of(2, 1), times, 0, samples), 120, 1e-9);
  EXPECT_NEAR(rollout_ms(shape_of(1, 1), times, 0, samples), 170, 1e-9);
  EXPECT_NEAR(rollout_ms(shape_of(1, 8), times, 0, samples), 100, 1e-9);
}

TEST(RehearsedRollouts, hops_count_between_jobs_and_for_both_messages) {
  const double ms = rollout_ms(shape_of(1, 1), simple_times(), 0.5, {{1, 3}});
  // The ends of two jobs, of which the first reads and writes, and the answer.
  EXPECT_NEAR(ms, read_ms + 2 * (step_ms + write_ms) + row_ms * (2 + 3) + 3 * 0.5, 1e-9);
}

TEST(RehearsedRollouts, a_rollout_lasts_at_least_as_long_as_its_work_on_full_slots_and_as_its_longest_sample) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    const auto draw = [&](std::uint64_t most) { return static_cast<std::int64_t>(1 + random.next() % most); };
    const GeneratorShape shape = shape_of(static_cast<std::size_t>(draw(3)), draw(6), draw(8));
    std::vector<MadeLengths> samples(static_cast<std::size_t>(draw(40)));
    double longest = 0;
    std::int64_t tokens = 0;
    double reads = 0;
    for (MadeLengths& sample : samples) {
      sample = {draw(20), draw(30)};
      const double read = read_ms * static_cast<double>(sample.prompt);
      const double alone = read + (step_ms + write_ms) * static_cast<double>(sample.completion - 1);
      longest = std::max(longest, alone);
      reads += read;
      tokens += sample.completion - 1;
    }
    const double steps = static_cast<double>(tokens) / static_cast<double>(shape.slots);
    const double work =
        (reads + steps * step_ms + static_cast<double>(tokens) * write_ms) / static_cast<double>(shape.replicas);
    const double ms = rollout_ms(shape, simple_times(), 0, samples);
    EXPECT_GE(ms, std::max(longest, work) - 1e-9) << round;
    double alone = 0;  // one after the other
    for (const MadeLengths& sample : samples) alone += rollout_ms(shape_of(1, 1), simple_times(), 0, {sample});
    EXPECT_LE(ms, alone + 1e-9) << round;
  }
}

TEST(RehearsedRollouts, a_version_is_awaited_and_taken_once_by_each_replica) {  // ON-2
  VirtualClock clock;
  GenerationTimes times = simple_times();
  times.take_ms = 100;
  std::vector<double> jobs;
  RehearsedRollouts rollouts(clock, shape_of(2, 2), times, 0, [&](std::size_t, double ms, VirtualClock::Event done) {
    jobs.push_back(ms);
    clock.after(ms, std::move(done));
  });
  std::vector<double> ends;
  const std::vector<MadeLengths> samples(4, MadeLengths{1, 1});
  const auto ended = [&] { ends.push_back(clock.now_ms()); };
  rollouts.begin({StepId(1), samples}, [&] {
    ended();
    rollouts.begin({StepId(1), samples}, [&] {
      ended();
      rollouts.begin({StepId(3), samples}, ended);
    });
  });
  clock.after(1000, [&] { rollouts.published(StepId(2)); });
  clock.after(2000, [&] { rollouts.published(StepId(3)); });
  while (clock.next()) {
  }
  EXPECT_THAT(ends, ElementsAre(DoubleNear(104, 1e-9), DoubleNear(108, 1e-9), DoubleNear(2104, 1e-9)));
  EXPECT_NEAR(std::accumulate(jobs.begin(), jobs.end(), 0.0), 4 * times.take_ms + 12 * read_ms, 1e-9);
  EXPECT_THAT(rollouts.rollouts_ms(), ElementsAre(DoubleNear(104, 1e-9), DoubleNear(4, 1e-9), DoubleNear(104, 1e-9)));
}

TEST(GenerationCosts, measured_points_are_kept_and_numbers_of_sequences_are_interpolated) {  // MA-1
  GenerationCosts costs;
  EXPECT_FALSE(costs.complete());
  EXPECT_EQ(costs.decode(2, 10), 0);
  for (const std::int64_t rows : {8, 64}) {
    costs.add_prefill(rows, 3 + 0.5 * static_cast<double>(rows));
    costs.add_decode(1, rows, 10 + 0.1 * static_cast<double>(rows));
  }
  costs.add_decode(4, 32, 16 + 3.2);
  EXPECT_TRUE(costs.complete());
  EXPECT_NEAR(costs.prefill(8), 7, 1e-9);
  EXPECT_NEAR(costs.prefill(20), 13, 1e-9);
  EXPECT_NEAR(costs.decode(1, 30), 13, 1e-9);
  EXPECT_NEAR(costs.decode(4, 32), 19.2, 1e-9);
  EXPECT_NEAR(costs.decode(4, 120), 28, 1e-9);
  EXPECT_NEAR(costs.decode(2, 60), 18, 1e-9);
  EXPECT_NEAR(costs.decode(8, 240), 32 + 24, 1e-9);
}

}  // namespace
}  // namespace maestro
