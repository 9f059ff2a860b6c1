// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/token_sampler.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

void require(bool good, const char* name, double value, const char* range) {
  if (!good) throw JobError(std::string(name) + " = " + number_text(value) + " is out of range; it is " + range);
}

/// Returns the sum of exp(logit - largest).
double sum_of_exponentials(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{largest});
  return sum;
}

}  // namespace

TokenSampler::TokenSampler(const SamplingOptions& options) : options_(options), random_(options.seed) {
  require(options.repetition_penalty > 0, "repetition_penalty", options.repetition_penalty, "above 0");
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature", options.temperature,
          "0 (greedy) or above");
  require(options.top_k >= 0, "top_k", static_cast<double>(options.top_k), "0 (all tokens) or above");
  require(options.top_p > 0 && options.top_p <= 1, "top_p", options.top_p, "above 0 and at most 1");
}

std::span<const float> TokenSampler::penalised(std::span<const float> logits, std::span<const std::int32_t> sequence) {
  if (options_.repetition_penalty == 1) return logits;
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  penalised_.assign(logits.begin(), logits.end());
  for (const std::int32_t token : sequence) {
    if (token < 0 || token >= std::ssize(logits)) continue;  // an image's row
    const auto at = static_cast<std::size_t>(token);
    penalised_[at] = logits[at] < 0 ? logits[at] * penalty : logits[at] / penalty;
  }
  return penalised_;
}

TokenSampler::Choice TokenSampler::choose(std::span<const float> logits, std::span<const std::int32_t> sequence) {
  assert(!logits.empty());
  if (std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); })) {
    throw JobError("a logit of the next token is not a number; the weights may be damaged", ErrorCode::corrupt);
  }
  logits = penalised(logits, sequence);
  const auto largest = std::ranges::max_element(logits);
  if (options_.temperature == 0) {
    return {static_cast<std::int32_t>(largest - logits.begin()),
            options_.log_probabilities ? -std::log(sum_of_exponentials(logits, *largest)) : 0.0};
  }
  collect(logits, *largest);
  keep_nucleus();
  double sum = 0;
  for (const Candidate& each : candidates_) sum += each.weight;
  double left = random_.uniform() * sum;
  for (const Candidate& each : candidates_) {
    left -= each.weight;
    if (left < 0) return {each.token, std::log(each.weight / sum)};
  }
  return {candidates_.front().token, std::log(candidates_.front().weight / sum)};  // rounding left a rest
}

void TokenSampler::collect(std::span<const float> logits, float largest) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double distance = double{logits[i]} - double{largest};
    const double weight = logits[i] == largest ? 1.0 : std::exp(distance / options_.temperature);
    candidates_.push_back({weight, static_cast<std::int32_t>(i)});
  }
  const auto kept = static_cast<std::size_t>(options_.top_k);
  if (kept == 0 || kept >= candidates_.size()) return;
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), likelier);
  candidates_.resize(kept);
  std::ranges::sort(candidates_, {}, &Candidate::token);
}

void TokenSampler::keep_nucleus() {
  if (options_.top_p == 1) return;
  double wanted = 0;
  for (const Candidate& each : candidates_) wanted += each.weight;
  wanted *= options_.top_p;
  // A heap: the nucleus is usually small compared with the vocabulary.
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
  };
  std::ranges::make_heap(candidates_, less_likely);
  auto rest = candidates_.end();
  double kept = 0;
  while (rest != candidates_.begin() && kept < wanted) {
    std::pop_heap(candidates_.begin(), rest, less_likely);
    kept += (--rest)->weight;
  }
  candidates_.erase(candidates_.begin(), rest);
}

}  // namespace maestro
