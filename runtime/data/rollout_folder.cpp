// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/rollout_folder.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/files/safetensors.hpp"
#include "runtime/record/run_log.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr const char* format = "maestro rollouts 1";
constexpr const char* extension = ".safetensors";

/// The tensors of a file.
struct Columns {
  std::vector<std::int32_t> numbers, prompt_lengths, completion_lengths, prompts, completions;
  std::vector<std::int64_t> seeds;
  std::vector<std::uint8_t> stopped;
  std::vector<float> log_probabilities;

  /// Calls `each` with each tensor's name and values.
  template <class Each>
  void for_all(const Each& each) {
    each("numbers", numbers);
    each("seeds", seeds);
    each("stopped", stopped);
    each("prompt_lengths", prompt_lengths);
    each("completion_lengths", completion_lengths);
    each("prompts", prompts);
    each("completions", completions);
    each("log_probabilities", log_probabilities);
  }
};

Columns columns_of(const RecordedRollout& rollout) {
  Columns columns;
  for (const auto& [number, seed, stopped, sample] : rollout.samples) {
    columns.numbers.push_back(static_cast<std::int32_t>(number));
    columns.seeds.push_back(std::bit_cast<std::int64_t>(seed));
    columns.stopped.push_back(stopped ? 1 : 0);
    columns.prompt_lengths.push_back(static_cast<std::int32_t>(sample.prompt.size()));
    columns.completion_lengths.push_back(static_cast<std::int32_t>(sample.completion.size()));
    const auto append = [](auto& to, const auto& more) { to.insert(to.end(), more.begin(), more.end()); };
    append(columns.prompts, sample.prompt);
    append(columns.completions, sample.completion);
    append(columns.log_probabilities, sample.log_probabilities);
  }
  return columns;
}

/// Returns whether `lengths` are positive and add up to `tokens`.
bool add_up(const std::vector<std::int32_t>& lengths, std::size_t tokens) {
  if (std::ranges::any_of(lengths, [](std::int32_t length) { return length < 1; })) return false;
  return std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}) == tokens;
}

/// Returns what is wrong with the columns of a file; empty: nothing.
std::string fault_of(const Columns& columns) {
  const std::size_t samples = columns.numbers.size();
  const bool sizes = columns.seeds.size() == samples && columns.stopped.size() == samples &&
                     columns.prompt_lengths.size() == samples && columns.completion_lengths.size() == samples;
  if (samples == 0 || !sizes) return "its tensors have other sizes than its samples";
  if (columns.numbers.front() < 0 ||
      std::ranges::adjacent_find(columns.numbers, std::greater_equal<>()) != columns.numbers.end()) {
    return "its numbers do not rise";
  }
  if (!add_up(columns.prompt_lengths, columns.prompts.size()) ||
      !add_up(columns.completion_lengths, columns.completions.size()) ||
      columns.log_probabilities.size() != columns.completions.size()) {
    return "its lengths do not add up to its tokens";
  }
  return "";
}

std::vector<RecordedSample> samples_of(const Columns& columns) {
  std::vector<RecordedSample> samples;
  auto prompt = columns.prompts.begin();
  auto completion = columns.completions.begin();
  auto log_probability = columns.log_probabilities.begin();
  for (std::size_t at = 0; at < columns.numbers.size(); ++at) {
    RecordedSample& out = samples.emplace_back();
    out.number = static_cast<std::uint32_t>(columns.numbers[at]);
    out.seed = std::bit_cast<std::uint64_t>(columns.seeds[at]);
    out.stopped = columns.stopped[at] != 0;
    out.sample.prompt.assign(prompt, prompt + columns.prompt_lengths[at]);
    out.sample.completion.assign(completion, completion + columns.completion_lengths[at]);
    out.sample.log_probabilities.assign(log_probability, log_probability + columns.completion_lengths[at]);
    prompt += columns.prompt_lengths[at];
    completion += columns.completion_lengths[at];
    log_probability += columns.completion_lengths[at];
  }
  return samples;
}

/// Returns why a recorded sample is not the expected one; empty: it is.
std::string misfit_of(const RecordedSample& found, const ExpectedSample& wanted, std::int64_t vocabulary) {
  if (!std::ranges::equal(found.sample.prompt, wanted.prompt)) {
    return "has another prompt than this job gives it; read it with the data, train.seed, train.global_batch and "
           "[generator] of the run that made it";
  }
  if (std::ssize(found.sample.completion) > wanted.most_tokens) {
    return "has a continuation of " + std::to_string(found.sample.completion.size()) + " tokens, and this job allows " +
           std::to_string(wanted.most_tokens) + " (generator.max_tokens, data.sequence)";
  }
  const auto unknown = std::ranges::find_if(found.sample.completion,
                                            [&](std::int32_t token) { return token < 0 || token >= vocabulary; });
  if (unknown == found.sample.completion.end()) return "";
  return "has token " + std::to_string(*unknown) + ", and the data have " + std::to_string(vocabulary) + " tokens";
}

}  // namespace

Result<RolloutFolder> RolloutFolder::find(const fs::path& given) {
  const auto has_steps = [](const fs::path& folder) {
    std::error_code failure;
    fs::directory_iterator entries(folder, failure);
    for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
      if (entries->path().extension() == extension) return true;
    }
    return false;
  };
  for (const fs::path& folder : {given, given / record_folder / rollouts_folder}) {
    if (has_steps(folder)) return RolloutFolder(folder);
  }
  return Error{ErrorCode::not_found, given.string() + " lacks recorded samples: name the folder of a run with " +
                                         "generator.record = true, or its record/rollouts"};
}

fs::path RolloutFolder::file_of(StepId step) const {
  std::string number = std::to_string(step.value());
  number.insert(0, number.size() < 8 ? 8 - number.size() : 0, '0');
  return folder_ / (number + extension);
}

bool RolloutFolder::has(StepId step) const {
  std::error_code failure;
  return fs::exists(file_of(step), failure);
}

Status RolloutFolder::write(const RecordedRollout& rollout) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) return system_error("cannot create folder", folder_, failure.value());
  Columns columns = columns_of(rollout);
  std::vector<NamedTensor> tensors;
  columns.for_all([&]<class T>(const char* name, const std::vector<T>& values) {
    tensors.push_back({name, {values.data(), dtype_of<T>, Shape{std::ssize(values)}}});
  });
  const auto written = write_safetensors(file_of(rollout.step), std::move(tensors),
                                         {{"format", format},
                                          {"step", std::to_string(rollout.step.value())},
                                          {"version", std::to_string(rollout.version.value())}});
  return written ? Status() : written.error();
}

Result<RecordedRollout> RolloutFolder::read(StepId step, std::span<const ExpectedSample> expected,
                                            std::int64_t vocabulary) const {
  const fs::path path = file_of(step);
  const std::string of_step = "step " + std::to_string(step.value());
  if (!has(step)) {
    return Error{ErrorCode::not_found, folder_.string() + " lacks the samples of " + of_step + ": " +
                                           path.filename().string() + " is missing"};
  }
  const auto damaged = [&](const std::string& what) { return Error{ErrorCode::corrupt, path.string() + ": " + what}; };
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file) return file.error();
  const auto fact = [&](const char* name) {
    const auto found = file->metadata().find(name);
    return found == file->metadata().end() ? std::string() : found->second;
  };
  if (fact("format") != format) return damaged("this program does not read its format");
  if (fact("step") != std::to_string(step.value())) return damaged("it has the samples of step " + fact("step"));
  Columns columns;
  std::string fault;
  columns.for_all([&]<class T>(const char* name, std::vector<T>& values) {
    const Result<ConstTensor> tensor = file->tensor(name);
    if (tensor && tensor->dtype() == dtype_of<T>) {
      const auto elements = tensor->template span<T>();
      values.assign(elements.begin(), elements.end());
    } else if (fault.empty()) {
      fault = tensor ? std::string("its tensor ") + name + " has another dtype" : tensor.error().message;
    }
  });
  if (fault.empty()) fault = fault_of(columns);
  if (!fault.empty()) return damaged(fault);
  RecordedRollout rollout{step, StepId(std::strtoull(fact("version").c_str(), nullptr, 10)), samples_of(columns)};

  const auto refused = [&](std::uint32_t number, const std::string& why) {
    return Error{ErrorCode::invalid_argument,
                 path.string() + ": " + of_step + ", sample " + std::to_string(number) + " " + why};
  };
  auto wanted = expected.begin();
  for (const RecordedSample& found : rollout.samples) {
    if (wanted != expected.end() && wanted->number < found.number) break;
    if (wanted == expected.end() || wanted->number > found.number) {
      return refused(found.number,
                     "is one that this job reads from the data (generator.on_policy, from_step, "
                     "train.global_batch)");
    }
    if (const std::string misfit = misfit_of(found, *wanted, vocabulary); !misfit.empty()) {
      return refused(found.number, misfit);
    }
    ++wanted;
  }
  if (wanted != expected.end()) return refused(wanted->number, "is missing");
  return rollout;
}

}  // namespace maestro
