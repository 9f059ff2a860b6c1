// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/generation_probe.hpp"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/rehearsal/rehearsed_rollouts.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {
namespace {

using ::testing::ElementsAre;
using WorkKind = TimedGeneration::Kind;
constexpr std::int64_t vocabulary = 40;

class GenerationProbe : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<Generator> generator(std::int64_t positions) {
    DecoderConfig config;
    config.family = DecoderFamily::llama;
    config.layers = 2;
    config.width = 16;
    config.heads = config.kv_heads = 2;
    config.ffn = 24;
    config.vocabulary = vocabulary;
    config.positions = positions;
    auto section =
        std::make_shared<Generator>(bench_.context("generator", false, DType::f32), Generator::Options{config, {}});
    randomise(*section, 3);
    return section;
  }
  Bench bench_;
};

TEST_F(GenerationProbe, times_every_kind_of_work_of_a_generator) {
  GenerationProbeOptions options;
  options.slots = 6;
  options.positions = 700;
  options.prompt = 100;
  options.vocabulary = vocabulary;
  const auto times = time_generation(*bench_.ops, generator(700), DType::f32, options);
  std::map<WorkKind, std::set<std::int64_t>> sequences;
  std::map<std::int64_t, std::set<std::int64_t>> rows;  // of decode steps, by sequences
  std::set<std::int64_t> blocks;
  std::map<WorkKind, int> counts;
  for (const TimedGeneration& each : times) {
    EXPECT_GT(each.ms, 0);
    sequences[each.kind].insert(each.sequences);
    ++counts[each.kind];
    if (each.kind == WorkKind::decode) rows[each.sequences].insert(each.rows);
    if (each.kind == WorkKind::prefill) blocks.insert(each.rows);
  }
  EXPECT_THAT(sequences[WorkKind::decode], ElementsAre(1, 2, 4, 6));
  EXPECT_THAT(rows[1], ElementsAre(32 + 2, 100 + 2, 512 + 2));
  EXPECT_THAT(rows[6], ElementsAre(6 * (32 + 2)));
  EXPECT_THAT(blocks, ElementsAre(32, 100, 512));
  EXPECT_EQ(counts[WorkKind::take], options.rounds);
  EXPECT_EQ(counts[WorkKind::publish], options.rounds);
}

TEST_F(GenerationProbe, fits_sequences_of_a_few_rows) {
  GenerationProbeOptions options;
  options.slots = 2;
  options.positions = 5;
  options.prompt = 4;
  options.vocabulary = vocabulary;
  for (const TimedGeneration& each : time_generation(*bench_.ops, generator(5), DType::f32, options)) {
    EXPECT_LE(each.rows, 2 * 5);
  }
}

TEST_F(GenerationProbe, completions_do_the_work_that_a_rehearsal_plays) {  // ON-1
  const std::shared_ptr<Generator> section = generator(700);
  Generation generation(*bench_.ops, section, DType::f32);
  generation.reserve(3, 700);
  Completions completions(generation, {100, {}, vocabulary}, {});
  const std::vector<MadeLengths> samples{{4, 9}, {600, 3}, {1, 1}, {30, 20}, {520, 2}, {2, 6}, {7, 12}};
  std::vector<std::vector<std::int32_t>> prompts;
  for (const MadeLengths& each : samples) prompts.emplace_back(static_cast<std::size_t>(each.prompt), 5);
  for (std::size_t at = 0; at < samples.size(); ++at) {
    completions.add({.tokens = prompts[at], .max_tokens = samples[at].completion});
  }
  std::vector<bool> read;
  std::vector<bool> wrote;
  while (!completions.idle()) {
    read.push_back(completions.read());
    wrote.push_back(completions.write());
  }
  std::size_t blocks = 0;
  std::size_t steps = 0;
  std::int64_t tokens = 0;
  GenerationTimes times;
  times.prefill = [&](std::int64_t) { return static_cast<double>(++blocks > 0); };
  times.decode = [&](std::int64_t sequences, std::int64_t) {
    tokens += sequences;
    return static_cast<double>(++steps > 0);
  };
  const double ms = rollout_ms({1, 3, Generation::block_rows, 100}, times, 0, samples);
  EXPECT_EQ(blocks, std::ranges::count(read, true));
  EXPECT_EQ(steps, std::ranges::count(wrote, true));
  EXPECT_EQ(ms, static_cast<double>(blocks + steps));
  std::int64_t made = 0;
  for (const Completion& each : completions.all()) made += std::ssize(each.tokens);
  EXPECT_EQ(tokens + std::ssize(samples), made);  // a prompt's last row is that of its first token
}

}  // namespace
}  // namespace maestro::testing
