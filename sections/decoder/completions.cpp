// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/completions.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

ContinuationLimits continuation_limits(std::vector<std::int32_t> stop_tokens, const Tokenizer& tokenizer,
                                       std::int64_t max_tokens) {
  ContinuationLimits limits{max_tokens, std::move(stop_tokens), tokenizer.vocabulary()};
  if (limits.stop_tokens.empty() && tokenizer.end_of_text()) limits.stop_tokens = {*tokenizer.end_of_text()};
  return limits;
}

void Completions::add(const Prompt& prompt) {
  if (const std::string reason = generation_.refusal(prompt.tokens, prompt.images); !reason.empty()) {
    throw JobError(reason);
  }
  prompts_.push_back(prompt);
  completions_.emplace_back();
}

bool Completions::read() {
  begin_next();
  const auto reading = slot_in(Work::State::reading);
  if (reading && generation_.advance(*reading)) {
    work_[static_cast<std::size_t>(*reading)].state = Work::State::writing;
    choose(*reading, 0);
  }
  return reading.has_value();
}

std::optional<std::int64_t> Completions::slot_in(Work::State state) const {
  const auto found = std::ranges::find(work_, state, &Work::state);
  if (found == work_.end()) return std::nullopt;
  return found - work_.begin();
}

void Completions::begin_next() {
  if (slot_in(Work::State::reading)) return;
  const auto slot = slot_in(Work::State::free);
  if (!slot || next_ == prompts_.size()) return;
  const Prompt& prompt = prompts_[next_];
  Work& work = work_[static_cast<std::size_t>(*slot)];
  SamplingOptions sampling = sampling_;
  sampling.seed = prompt.seed;
  work.state = Work::State::reading;
  work.prompt = next_++;
  work.sampler.emplace(sampling);
  work.sequence.assign(prompt.tokens.begin(), prompt.tokens.end());
  generation_.begin(*slot, prompt.tokens, prompt.images);
}

void Completions::choose(std::int64_t slot, std::int64_t row) {
  Work& work = work_[static_cast<std::size_t>(slot)];
  Completion& completion = completions_[work.prompt];
  const std::int64_t most = prompts_[work.prompt].max_tokens.value_or(limits_.max_tokens);
  if (most == 0) return finish(slot, FinishReason::length);
  std::span<const float> logits = generation_.logits(row);
  if (limits_.vocabulary > 0 && limits_.vocabulary < std::ssize(logits)) {
    logits = logits.first(static_cast<std::size_t>(limits_.vocabulary));
  }
  const TokenSampler::Choice choice = work.sampler->choose(logits, work.sequence);
  completion.log_probabilities.push_back(static_cast<float>(choice.log_probability));
  if (std::ranges::find(limits_.stop_tokens, choice.token) != limits_.stop_tokens.end()) {
    completion.stop_token = choice.token;
    return finish(slot, FinishReason::stop);
  }
  completion.tokens.push_back(choice.token);
  work.sequence.push_back(choice.token);
  if (std::ssize(completion.tokens) == most || generation_.full(slot)) return finish(slot, FinishReason::length);
  active_.push_back({slot, choice.token});
}

void Completions::finish(std::int64_t slot, FinishReason how) {
  Work& work = work_[static_cast<std::size_t>(slot)];
  completions_[work.prompt].finish = how;
  work.state = Work::State::free;
  ++ended_;
}

bool Completions::write() {
  if (active_.empty()) return false;
  const std::vector<NextToken> written = std::exchange(active_, {});
  generation_.append(written);
  for (std::size_t row = 0; row < written.size(); ++row) choose(written[row].slot, static_cast<std::int64_t>(row));
  return true;
}

std::vector<Completion> complete(Generation& generation, std::span<const Prompt> prompts,
                                 const ContinuationLimits& limits, const SamplingOptions& sampling, std::int64_t slots,
                                 const CompletionSink& sink) {
  if (prompts.empty()) return {};
  std::size_t longest = 0;
  for (const Prompt& prompt : prompts) longest = std::max(longest, prompt.tokens.size());
  const std::int64_t rows = static_cast<std::int64_t>(longest) + limits.max_tokens;
  generation.reserve(std::min(slots, std::ssize(prompts)), rows);
  Completions completions(generation, limits, sampling);
  for (const Prompt& prompt : prompts) completions.add(prompt);
  while (!completions.idle()) {
    completions.advance();
    if (sink) sink(completions.all());
  }
  return completions.all();
}

}  // namespace maestro
