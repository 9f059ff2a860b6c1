// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_record.hpp"

#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/core/random.hpp"

namespace maestro {

using Json = nlohmann::ordered_json;

MadeSamples summary_of(const RecordedRollout& rollout) {
  MadeSamples made;
  made.version = rollout.version;
  const auto mix = [&](std::uint64_t word) { made.digest = mix64(made.digest, word); };
  for (const auto& [number, seed, stopped, sample] : rollout.samples) {
    made.lengths.push_back(static_cast<std::int32_t>(sample.completion.size()));
    made.prompt_tokens += std::ssize(sample.prompt);
    made.stopped += stopped ? 1 : 0;
    for (const std::int32_t token : sample.prompt) mix(static_cast<std::uint64_t>(token));
    for (const std::int32_t token : sample.completion) mix(static_cast<std::uint64_t>(token));
    for (const float drawn : sample.log_probabilities) mix(std::bit_cast<std::uint32_t>(drawn));
  }
  return made;
}

RolloutRecord::RolloutRecord(const RolloutRecordOptions& options) : show_(static_cast<std::size_t>(options.show)) {
  if (!options.keep.empty()) keep_.emplace(options.keep);
  if (!options.read.empty()) read_ = RolloutFolder::find(options.read).value_or_throw();
  if (show_ > 0 && !options.tokenizer.empty()) tokenizer_ = make_tokenizer(options.tokenizer);
}

void RolloutRecord::keep(const RecordedRollout& rollout) {
  if (keep_) keep_->write(rollout).or_throw();
  last_.step = rollout.step;
  last_.version = rollout.version;
  last_.samples.assign(rollout.samples.begin(),
                       rollout.samples.begin() + static_cast<std::ptrdiff_t>(std::min(show_, rollout.samples.size())));
}

std::string RolloutRecord::take_shown() {
  const RecordedRollout last = std::exchange(last_, {});
  if (last.samples.empty()) return "";
  Json line{{"step", last.step.value()}, {"version", last.version.value()}, {"samples", Json::array()}};
  for (const auto& [number, seed, stopped, sample] : last.samples) {
    const double sum = std::accumulate(sample.log_probabilities.begin(), sample.log_probabilities.end(), 0.0);
    Json shown{{"number", number},
               {"seed", std::to_string(seed)},
               {"finish", stopped ? "stop" : "length"},
               {"tokens", sample.completion.size()},
               {"log_probability", sum / static_cast<double>(sample.completion.size())},
               {"prompt_ids", sample.prompt},
               {"ids", sample.completion}};
    if (tokenizer_) {
      std::span<const std::int32_t> text = sample.completion;
      if (stopped) text = text.first(text.size() - 1);
      shown["prompt"] = tokenizer_->decode(sample.prompt);
      shown["text"] = tokenizer_->decode(text);
    }
    line["samples"].push_back(std::move(shown));
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace maestro
