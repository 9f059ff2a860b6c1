// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sample_index.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

constexpr std::int64_t shortest_sample = 2;

std::int64_t validation_tokens(std::int64_t tokens, double fraction) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(tokens) * fraction));
}

/// Returns whether the block is validation. The fraction is spread evenly: floor(n * fraction) of the first n blocks.
bool is_validation(std::int64_t block, double fraction) {
  return validation_tokens(block + 1, fraction) > validation_tokens(block, fraction);
}

std::int64_t tokens_needed(const SampleIndexOptions& options) {
  const double fraction = options.validation_fraction;
  const std::int64_t full = options.sequence + 1;  // positions, and a token for the last target
  if (fraction == 0.0) return full;
  if (options.mode == SplitMode::interleaved) {
    auto blocks = static_cast<std::int64_t>(1.0 / fraction);
    while (!is_validation(blocks - 1, fraction)) ++blocks;
    return std::max<std::int64_t>(blocks, 2) * 2 * options.sequence;
  }
  const double scarcer = std::min(fraction, 1.0 - fraction);
  auto needed = static_cast<std::int64_t>(std::ceil(static_cast<double>(full) / scarcer));
  while (validation_tokens(needed, fraction) < full || needed - validation_tokens(needed, fraction) < full) ++needed;
  return needed;
}

}  // namespace

void SampleIndex::check(const SampleIndexOptions& options) {
  if (options.sequence < shortest_sample) {
    throw JobError("[data] sequence = " + std::to_string(options.sequence) + " is too short; the least is 2");
  }
  if (!(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0)) {
    throw JobError("[data] validation_fraction = " + std::to_string(options.validation_fraction) +
                   " is out of range; it must be at least 0 and below 1");
  }
}

SampleIndex::SampleIndex(const SampleIndexOptions& options) : sequence_(options.sequence) {
  check(options);
  // If the fraction of all tokens is less than a token, the number needed may exceed an integer.
  const double least = 1.0 / static_cast<double>(std::max<std::int64_t>(options.tokens, 1));
  const bool too_fine = options.validation_fraction > 0.0 && options.validation_fraction < least;
  const std::int64_t needed = too_fine ? 0 : tokens_needed(options);
  if (too_fine || options.tokens < needed) {
    const std::string want = too_fine ? "far more" : std::to_string(needed);
    throw JobError(
        "too short: " + std::to_string(options.tokens) + " tokens, but " + want +
        " are needed for one training and one validation sample of sequence = " + std::to_string(options.sequence) +
        "; give more text, a smaller [data] sequence or another validation_fraction");
  }
  if (options.mode == SplitMode::tail || options.validation_fraction == 0.0) {
    lay_out_tail(options);
  } else {
    lay_out_blocks(options);
  }
}

void SampleIndex::lay_out_tail(const SampleIndexOptions& options) {
  const std::int64_t cut = options.tokens - validation_tokens(options.tokens, options.validation_fraction);
  add_run(Split::train, 0, cut);
  add_run(Split::validation, cut, options.tokens);
}

void SampleIndex::lay_out_blocks(const SampleIndexOptions& options) {
  std::int64_t block = 16 * options.sequence;
  while (block > 2 * options.sequence && validation_tokens(options.tokens / block, options.validation_fraction) < 4) {
    block /= 2;
  }
  std::int64_t run_begin = 0;
  Split run_split = Split::train;  // the first block is never validation: floor(fraction) == 0
  for (std::int64_t begin = 0; begin < options.tokens; begin += block) {
    const bool validation = is_validation(begin / block, options.validation_fraction);
    const Split split = validation ? Split::validation : Split::train;
    if (split == run_split) continue;
    add_run(run_split, run_begin, begin);
    run_begin = begin;
    run_split = split;
  }
  add_run(run_split, run_begin, options.tokens);
}

void SampleIndex::add_run(Split split, std::int64_t begin, std::int64_t end) {
  std::int64_t positions = end - begin - 1;  // the last token is a target only (IX-1, IX-3)
  if (positions <= 0) return;
  if (positions % sequence_ < shortest_sample) positions -= positions % sequence_;
  if (positions == 0) return;
  Side& target = split == Split::train ? train_ : validation_;
  const auto samples = static_cast<std::uint64_t>((positions + sequence_ - 1) / sequence_);
  target.runs.push_back({begin, target.samples, samples, positions});
  target.samples += samples;
}

std::uint64_t SampleIndex::samples(Split split) const {
  return side(split).samples;
}

SampleIndex::Window SampleIndex::window(Split split, SampleId sample) const {
  const Side& from = side(split);
  if (sample.value() >= from.samples) {
    throw std::out_of_range("sample " + std::to_string(sample.value()) + " of " + std::to_string(from.samples));
  }
  const auto after = std::upper_bound(from.runs.begin(), from.runs.end(), sample.value(),
                                      [](std::uint64_t id, const Run& run) { return id < run.first_sample; });
  const Run& run = *(after - 1);
  const std::int64_t offset = static_cast<std::int64_t>(sample.value() - run.first_sample) * sequence_;
  return {run.begin + offset, std::min(sequence_, run.positions - offset)};
}

}  // namespace maestro
