// SPDX-License-Identifier: Apache-2.0
#include "actors/job/prompt_drawer.hpp"

#include <algorithm>
#include <utility>

#include "runtime/core/random.hpp"

namespace maestro {

namespace {

constexpr std::uint64_t choice_stream = 0x6d616465;  // "made"
constexpr std::uint64_t draw_stream = 0x726f6c6c;    // "roll"

}  // namespace

std::vector<DrawnSample> PromptDrawer::draw(StepId step) const {
  const auto size = static_cast<std::uint64_t>(data_.global_batch);
  const std::uint64_t first = data_.cursor.position(step.value(), size);
  const auto samples_per_prompt = static_cast<std::uint64_t>(generator_.samples_per_prompt);
  const bool begun = step.value() >= static_cast<std::uint64_t>(generator_.from_step);
  std::vector<DrawnSample> drawn;
  for (std::uint64_t at = 0; at < size; ++at) {
    const bool made = begun && is_made_at(first + at, generator_.on_policy, mix64(seed_, choice_stream));
    if (!made) {
      drawn.push_back({sampler_.at(first + at), {}});
      continue;
    }
    const SampleId sample = sampler_.at((first + at) / samples_per_prompt);
    std::vector<std::int32_t> prompt = prompt_of(sample);
    PromptOrder order;
    order.step = step;
    order.version = version_of(step, generator_.staleness);
    order.number = static_cast<std::uint32_t>(at);
    order.seed = mix64(mix64(seed_, draw_stream), first + at);
    order.most_tokens = std::min(generator_.max_tokens, corpus_->max_length() + 1 - std::ssize(prompt));
    order.tokens = std::move(prompt);
    drawn.push_back({sample, std::move(order)});
  }
  return drawn;
}

std::vector<std::int32_t> PromptDrawer::prompt_of(SampleId sample) const {
  const auto length = static_cast<std::size_t>(corpus_->length(Split::train, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  corpus_->read(Split::train, sample, tokens, targets);
  tokens.resize(static_cast<std::size_t>(prompt_length(targets, generator_.prompt_tokens)));
  return tokens;
}

}  // namespace maestro
