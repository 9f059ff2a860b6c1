// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/generation_probe.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <set>
#include <utility>

#include "runtime/core/random.hpp"
#include "sections/weight_version.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
using WorkKind = TimedGeneration::Kind;
constexpr std::int64_t short_prompt = 32;
constexpr std::int64_t long_prompt = 512;

double ms_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class Probe {
 public:
  Probe(const OperatorTable& ops, const std::shared_ptr<Generator>& section, DType precision,
        const GenerationProbeOptions& options)
      : section_(section), precision_(precision), options_(options), generation_(ops, section, precision) {
    generation_.reserve(options.slots, options.positions);
  }

  std::vector<TimedGeneration> times() {
    std::set<std::int64_t> counts{options_.slots};
    for (std::int64_t count = 1; count < options_.slots; count *= 2) counts.insert(count);
    const std::int64_t most = std::max<std::int64_t>(1, options_.positions - options_.rounds - 1);
    const std::int64_t shortest = std::min(most, short_prompt);
    continue_all(1, shortest);  // maps memory
    times_.clear();
    for (const std::int64_t length :
         std::set{std::clamp(options_.prompt, shortest, most), std::min(most, long_prompt)}) {
      if (length > shortest) continue_all(1, length);
    }
    for (const std::int64_t count : counts) continue_all(count, shortest);
    copy_weights_of_version();
    return std::move(times_);
  }

 private:
  void continue_all(std::int64_t count, std::int64_t length) {
    Random random(static_cast<std::uint64_t>(length));
    std::vector<std::int32_t> prompt(static_cast<std::size_t>(length));
    const auto tokens = static_cast<std::uint64_t>(options_.vocabulary);
    for (std::int32_t& token : prompt) token = static_cast<std::int32_t>(random.below(tokens));
    const std::int64_t most = options_.rounds + 2;
    Completions completions(generation_, {most, {}, options_.vocabulary}, options_.sampling);
    for (std::int64_t number = 0; number < count; ++number) {
      completions.add({.tokens = prompt, .seed = static_cast<std::uint64_t>(number)});
      std::int64_t left = length;
      while (left > 0) {
        const std::int64_t rows = std::min(left, Generation::block_rows);
        times_.push_back({WorkKind::prefill, 1, rows, ms_of([&] { completions.read(); })});
        left -= rows;
      }
    }
    const std::int64_t steps = std::min<std::int64_t>(options_.rounds, options_.positions - length);
    for (std::int64_t step = 0; step < steps; ++step) {
      const double ms = ms_of([&] { completions.write(); });
      times_.push_back({WorkKind::decode, count, count * (length + 1 + steps / 2), ms});
    }
  }

  void copy_weights_of_version() {
    VersionMap map({{SectionId(0), LayoutRank(0), 1, sent_weights(*section_, {})}});
    const std::size_t bytes = static_cast<std::size_t>(map.elements()) * size_of(precision_);
    const AlignedMemory version(bytes), taken(bytes);
    const WeightPiece& whole = map.pieces().front();
    const std::vector<WeightPart> parts = sent_weights(*section_, {});
    const ConstTensor tensor = ConstTensor(taken.data(), precision_, Shape{map.elements(), 1});
    for (int round = 0; round < options_.rounds; ++round) {
      const auto copy = [&] { copy_weights(*section_, parts, whole.own, precision_, version.data()); };
      times_.push_back({WorkKind::publish, 1, 0, ms_of(copy)});
      const auto take = [&] {
        std::memcpy(taken.data(), version.data(), bytes);
        take_weights(*section_, map, tensor);
      };
      times_.push_back({WorkKind::take, 1, 0, ms_of(take)});
    }
  }

  std::shared_ptr<Generator> section_;
  DType precision_;
  const GenerationProbeOptions& options_;
  Generation generation_;
  std::vector<TimedGeneration> times_;
};

}  // namespace

std::vector<TimedGeneration> time_generation(const OperatorTable& ops, const std::shared_ptr<Generator>& section,
                                             DType precision, const GenerationProbeOptions& options) {
  return Probe(ops, section, precision, options).times();
}

}  // namespace maestro
