// SPDX-License-Identifier: Apache-2.0
#include "apps/emulate/workload_corpus.hpp"

#include <algorithm>

#include "runtime/core/result.hpp"

namespace maestro {

WorkloadCorpus::WorkloadCorpus(Workload workload, std::string file)
    : workload_(std::move(workload)), file_(std::move(file)), partial_(workload_.sections.size()) {
  std::map<std::int64_t, std::size_t> place;  // sample in the file -> here
  for (std::size_t task = 0; task < workload_.tasks.size(); ++task) {
    const WorkloadTask& given = workload_.tasks[task];
    const auto [found, fresh] = place.try_emplace(given.sample, task_of_.size());
    if (fresh) task_of_.emplace_back(workload_.sections.size(), -1);
    task_of_[found->second][given.section] = static_cast<std::int64_t>(task);
  }
  cost_.assign(workload_.sections.size(), std::vector<PassCost>(task_of_.size()));
  for (const WorkloadTask& given : workload_.tasks) {
    cost_[given.section][place[given.sample]] = {given.forward_ms, given.backward_ms};
  }
  std::vector<bool> pattern;
  for (std::size_t section = 0; section < partial_.size(); ++section) {
    std::vector<bool> entered;
    for (const auto& tasks : task_of_) entered.push_back(tasks[section] >= 0);
    partial_[section] = std::ranges::find(entered, false) != entered.end();
    if (!partial_[section]) continue;
    if (pattern.empty()) pattern = entered;
    patches_ = patches_ && pattern == entered;
  }
  for (const auto& tasks : task_of_) {
    std::vector<bool> enters;
    for (const std::int64_t task : tasks) enters.push_back(task >= 0);
    const auto known = std::ranges::find(patterns_, enters);
    source_.push_back(static_cast<std::uint32_t>(known - patterns_.begin()));
    if (known == patterns_.end()) patterns_.push_back(std::move(enters));
  }
}

SourceSet WorkloadCorpus::sources_of(std::size_t section) const {
  std::vector<bool> enter;
  for (const std::vector<bool>& pattern : patterns_) enter.push_back(pattern[section]);
  return SourceSet(std::move(enter));
}

std::uint32_t WorkloadCorpus::source(Split /*split*/, SampleId sample) const {
  return patches_ ? 0 : source_[sample.value()];
}

PassCost WorkloadCorpus::cost(std::string_view name, const SampleRef& sample) const {
  for (std::size_t section = 0; section < workload_.sections.size(); ++section) {
    if (workload_.sections[section].name != name) continue;
    return cost_[section][sample.id.value()];
  }
  return {};  // the source
}

std::uint64_t WorkloadCorpus::samples(Split split) const {
  return split == Split::train ? task_of_.size() : 0;
}

std::int64_t WorkloadCorpus::length(Split /*split*/, SampleId sample) const {
  if (sample.value() >= task_of_.size()) throw std::out_of_range("no sample " + std::to_string(sample.value()));
  return 1;
}

SamplePictures WorkloadCorpus::pictures(Split /*split*/, SampleId sample) const {
  for (std::size_t section = 0; patches_ && section < partial_.size(); ++section) {
    if (partial_[section]) return task_of_[sample.value()][section] >= 0 ? SamplePictures{1, 1, 1} : SamplePictures{};
  }
  return {};
}

void WorkloadCorpus::read_pictures(Split /*split*/, SampleId /*sample*/, std::span<float> pixels,
                                   std::span<std::int32_t> places) const {
  std::ranges::fill(pixels, 0.0f);
  std::ranges::fill(places, 0);
}

void WorkloadCorpus::read_exact(Split /*split*/, SampleId /*sample*/, std::span<std::int32_t> tokens,
                                std::span<std::int32_t> targets) const {
  std::ranges::fill(tokens, 0);
  std::ranges::fill(targets, 0);
}

std::string WorkloadCorpus::describe() const {
  return file_ + ": " + std::to_string(task_of_.size()) + " samples with times for " +
         std::to_string(workload_.sections.size()) + " sections";
}

}  // namespace maestro
