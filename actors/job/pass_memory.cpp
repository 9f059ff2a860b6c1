// SPDX-License-Identifier: Apache-2.0
#include "actors/job/pass_memory.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <span>

#include "actors/job/job_probes.hpp"
#include "actors/job/planning_options.hpp"
#include "runtime/schedule/port_sizes.hpp"

namespace maestro {
namespace {

/// Returns the micro-batch with the most rows that the section makes of `samples`.
std::optional<MicroBatchPlan> largest_batch(const ResolvedJob& plan, SectionId section,
                                            std::span<const SampleRef> samples) {
  const Axis axis = plan.graph.node(section).axis();
  std::vector<MicroBatchPlan> batches = batches_of(plan, section, samples);
  const auto largest =
      std::ranges::max_element(batches, {}, [&](const MicroBatchPlan& batch) { return batch.rows(axis); });
  if (largest == batches.end() || largest->rows(axis) == 0) return std::nullopt;
  return std::move(*largest);
}

double bytes_of(const ResolvedJob& plan, SectionId section, std::span<const SampleRef> samples, PortValues& values) {
  const std::optional<MicroBatchPlan> batch = largest_batch(plan, section, samples);
  if (!batch) return -1;
  ProbeSite dry;
  dry.own_memory = find_place(plan.places, section, ReplicaIndex(0))->devices.front().is_cuda();
  PassProbe probe(probed_section(plan, section, values), LayoutRank(0), dry);
  for (int pass = 0; pass < 2; ++pass) (void)probe.pass(*batch);  // the second may find gaps in its arena (AR-3)
  const Axis axis = plan.graph.node(section).axis();
  const std::int64_t most = PortSizes(plan.graph, {section, {}}, plan.largest, flow_limits(plan)).max_rows(axis);
  return static_cast<double>(probe.working_bytes()) * static_cast<double>(most) /
         static_cast<double>(batch->rows(axis));
}

}  // namespace

void add_pass_bytes(ResolvedJob& plan) {
  PortValues values;
  add_pass_bytes(plan, values);
}

void add_pass_bytes(ResolvedJob& plan, PortValues& values) {
  if (!plan.pass_bytes.empty()) return;
  plan.pass_bytes.assign(plan.sections.size(), -1);
  // A sample that cannot be read, or a lack of memory even for this: the run reports it again.
  const auto or_note = [&plan](const std::string& whose, const auto& measure) {
    try {
      measure();
    } catch (const JobError& problem) {
      plan.notes.push_back(whose + "memory is estimated without a dry pass: " + problem.what());
    } catch (const std::bad_alloc&) {
      plan.notes.push_back(whose + "memory is estimated without a dry pass: out of memory");
    }
  };
  or_note("", [&] {
    const std::vector<TracedUnit> steps = first_steps(plan, 1);
    for (std::size_t index = 0; index < plan.sections.size(); ++index) {
      if (!plan.meta_sections[index]->runs_dry() || plan.sections[index].config.emulated()) continue;
      const SectionId section(static_cast<std::uint32_t>(index));
      or_note(plan.graph.node(section).name + ": ",
              [&] { plan.pass_bytes[index] = bytes_of(plan, section, steps.front().samples, values); });
    }
  });
}

}  // namespace maestro
