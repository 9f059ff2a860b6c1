// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/sample_store.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"

namespace maestro {

namespace {

std::string text_of(const MadeSampleId& id) {
  return "sample " + std::to_string(id.number) + " of step " + std::to_string(id.step.value());
}

}  // namespace

void SampleStore::put(const MadeSampleId& id, MadeSample sample) {
  const std::lock_guard lock(mutex_);
  const auto [known, added] = samples_.try_emplace(id, sample);
  if (added || known->second == sample) return;
  throw JobError(text_of(id) + " was made twice, with different tokens", ErrorCode::internal);
}

const MadeSample& SampleStore::at(const MadeSampleId& id) const {
  const auto found = samples_.find(id);
  if (found == samples_.end()) throw std::out_of_range(text_of(id) + " is not there");
  return found->second;
}

std::int64_t SampleStore::length(const MadeSampleId& id) const {
  const std::lock_guard lock(mutex_);
  return at(id).positions();
}

std::int64_t SampleStore::targets(const MadeSampleId& id) const {
  const std::lock_guard lock(mutex_);
  return std::ssize(at(id).completion);
}

const MadeSample& SampleStore::at(const MadeSampleId& id, std::size_t positions) const {
  const MadeSample& sample = at(id);
  if (sample.positions() == static_cast<std::int64_t>(positions)) return sample;
  throw std::invalid_argument(text_of(id) + " has " + std::to_string(sample.positions()) + " positions, not " +
                              std::to_string(positions));
}

void SampleStore::read(const MadeSampleId& id, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
  const std::lock_guard lock(mutex_);
  const MadeSample& sample = at(id, tokens.size());
  (void)at(id, targets.size());
  const auto rest = std::ranges::copy(sample.prompt, tokens.begin()).out;
  std::copy(sample.completion.begin(), sample.completion.end() - 1, rest);
  const auto learned = std::fill_n(targets.begin(), sample.prompt.size() - 1, ignored_target);
  std::ranges::copy(sample.completion, learned);
}

MadeSample SampleStore::sample(const MadeSampleId& id) const {
  const std::lock_guard lock(mutex_);
  return at(id);
}

void SampleStore::sampled(const MadeSampleId& id, std::span<float> log_probabilities) const {
  const std::lock_guard lock(mutex_);
  const MadeSample& sample = at(id, log_probabilities.size());
  if (sample.log_probabilities.size() != sample.completion.size()) {
    throw std::invalid_argument(text_of(id) + " has " + std::to_string(sample.log_probabilities.size()) +
                                " log-probabilities for " + std::to_string(sample.completion.size()) + " tokens");
  }
  const auto learned = std::fill_n(log_probabilities.begin(), sample.prompt.size() - 1, 0.0F);
  std::ranges::copy(sample.log_probabilities, learned);
}

void SampleStore::clear() {
  const std::lock_guard lock(mutex_);
  samples_.clear();
}

void SampleStore::drop(StepId step) {
  const std::lock_guard lock(mutex_);
  samples_.erase(samples_.lower_bound({step, 0}), samples_.lower_bound({StepId(step.value() + 1), 0}));
}

std::size_t SampleStore::size() const {
  const std::lock_guard lock(mutex_);
  return samples_.size();
}

}  // namespace maestro
