// SPDX-License-Identifier: Apache-2.0
// What JobPlanner measures.
#include <algorithm>
#include <map>
#include <utility>

#include "actors/layouts/job_planner.hpp"
#include "actors/layouts/job_probes.hpp"
#include "actors/layouts/section_profiler.hpp"

namespace maestro {

namespace {

/// Returns whether two micro-batches make the same calls, as far as lengths decide.
bool same_lengths(const MicroBatchPlan& a, const MicroBatchPlan& b) {
  return std::ranges::equal(a.samples, b.samples,
                            [](const SampleRef& left, const SampleRef& right) { return left.same_size(right); });
}

/// Returns the micro-batches whose calls stand for all: the first, and another where lengths differ.
std::vector<MicroBatchPlan> measured_of(const std::vector<MicroBatchPlan>& batches) {
  const MicroBatchPlan& other = batches[batches.size() / 2];
  if (same_lengths(batches.front(), other)) return {batches.front()};
  return {batches.front(), other};
}

}  // namespace

bool JobPlanner::has_prices(const JobPlan& plan, const MicroBatchPlan& batch, bool on_shares) {
  const ObservedPasses passes = dry_sections(plan)->probe(batch.section).pass(batch);
  const auto known = [&](const ObservedCall& observed) {
    return on_shares ? prices_->parts.front().has(observed.call)
                     : prices_->alone.has(observed.call) && prices_->busy.has(observed.call);
  };
  return std::ranges::all_of(passes.forward, known) && std::ranges::all_of(passes.backward, known);
}

void JobPlanner::measure(SectionProfiler& profiler, const Progress& progress) {
  /// Layouts for which a section is built alike, and so once: building it takes longer than its passes.
  struct Measured {
    const JobPlan* plan;
    std::vector<MicroBatchPlan> batches;
    std::string samples;
  };
  for (const Choices& choices : choices_) {
    std::map<std::pair<std::int64_t, std::int64_t>, Measured> built;
    for (const Choice& choice : choices.layouts) {
      // A stage makes calls of its section, and replicas make the same calls.
      if (choice.layout.pipeline > 1 || choice.layout.replicas > 1) continue;
      const SectionId section = *choice.plan.graph.find(choices.section);
      const std::vector<MicroBatchPlan> batches = batches_of(choice.plan, section, units_.front().samples);
      const auto priced = [&](bool on_shares) { return has_prices(choice.plan, batches.front(), on_shares); };
      if (batches.empty() || (priced(false) && (!gives_shares() || priced(true)))) continue;
      Measured& of = built.try_emplace({choice.layout.tensor, choice.layout.context}, Measured{&choice.plan, {}, {}})
                         .first->second;
      of.samples += (of.samples.empty() ? "" : ", ") + std::to_string(batches.front().samples.size());
      const std::vector<MicroBatchPlan> measured = measured_of(batches);
      of.batches.insert(of.batches.end(), measured.begin(), measured.end());
    }
    for (const auto& [degrees, of] : built) {
      progress(choices.section + ": micro-batches of " + of.samples + ", tensor " + std::to_string(degrees.first) +
               ", context " + std::to_string(degrees.second));
      profiler.add(*of.plan, of.batches, *prices_);
      if (gives_shares()) profiler.add_shares(*of.plan, of.batches, *prices_);
    }
  }
}

bool JobPlanner::measure_shares(const JobPlan& plan, const std::string& section, SectionProfiler* profiler,
                                const Progress& progress) {
  for (const SectionId stage : plan.graph.stages_of(section)) {
    const std::vector<MicroBatchPlan> batches = batches_of(plan, stage, units_.front().samples);
    if (batches.empty() || has_prices(plan, batches.front(), true)) continue;
    if (profiler == nullptr) return false;
    progress(plan.graph.node(stage).name + ": micro-batches of " + std::to_string(batches.front().samples.size()) +
             " on shares of a GPU");
    profiler->add_shares(plan, measured_of(batches), *prices_);
  }
  return true;
}

}  // namespace maestro
