// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/section_profiler.hpp"

#include <algorithm>
#include <chrono>
#include <future>

#include "actors/layouts/job_probes.hpp"
#include "actors/services/device_groups.hpp"
#include "runtime/collective/thread_group.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int least_rounds = 3;
constexpr int most_rounds = 50;

/// A rank that is measured, with the groups of its replica.
struct MeasuredRank {
  Communicator* tensor_group = nullptr;
  Communicator* context_group = nullptr;
  std::unique_ptr<PassProbe> probe;
  std::vector<ObservedPasses> passes;
  std::vector<ObservedStepEnd> ends;
};

/// The ranks of replicas that are measured at once; `groups` owns their groups.
std::vector<MeasuredRank> ranks_of(const Layout& layout, std::int64_t copies,
                                   std::vector<std::unique_ptr<Communicator>>& groups) {
  std::vector<MeasuredRank> ranks(static_cast<std::size_t>(copies * layout.ranks()));
  const auto join = [&](std::int64_t first, std::int64_t stride, std::int64_t size,
                        Communicator* MeasuredRank::*group) {
    if (size == 1) return;
    auto made = make_thread_group(size, copies * layout.ranks());
    for (std::int64_t member = 0; member < size; ++member) {
      groups.push_back(std::move(made[static_cast<std::size_t>(member)]));
      ranks[static_cast<std::size_t>(first + member * stride)].*group = groups.back().get();
    }
  };
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    const std::int64_t base = copy * layout.ranks();
    for (std::int64_t context = 0; context < layout.context; ++context) {
      join(base + context * layout.tensor, 1, layout.tensor, &MeasuredRank::tensor_group);
    }
    for (std::int64_t tensor = 0; tensor < layout.tensor; ++tensor) {
      join(base + tensor, layout.tensor, layout.context, &MeasuredRank::context_group);
    }
  }
  return ranks;
}

void add_calls(const std::vector<ObservedCall>& calls, CallPrices& prices) {
  for (const ObservedCall& observed : calls) prices.add(observed.call, observed.ms);
}

/// Sums of gradients over replicas are no calls of a section.
void add_sums(const OperatorTable& table, std::size_t elements, CallPrices& prices) {
  std::vector<float> into(elements), values(elements);
  const AddInto op{into, values};
  table.run(op);
  const auto begin = Clock::now();
  table.run(op);
  prices.add(call_of(op, true), std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
}

}  // namespace

SectionProfiler::SectionProfiler(std::int64_t devices, std::chrono::milliseconds least)
    : table_(std::make_unique<cpu::CpuOperatorTable>()), least_(least) {
  if (devices < 1) throw JobError("no processor to measure on");
  const std::int64_t cores = std::ssize(usable_cores());
  at_once_ = std::min(devices, cores);
  for (std::int64_t device = 0; device < devices; ++device) {
    devices_.push_back(
        std::make_unique<CpuDevice>("cpu:" + std::to_string(device), static_cast<int>(device % cores), *table_));
  }
}

SectionProfiler::~SectionProfiler() {
  for (const auto& device : devices_) device->stop();
}

void SectionProfiler::add(const JobPlan& plan, const MicroBatchPlan& batch, MachinePrices& prices) {
  const std::int64_t ranks = plan.graph.node(batch.section).layout.ranks();
  if (ranks > devices()) {
    throw JobError(plan.graph.node(batch.section).section_name() + ": a replica of " + std::to_string(ranks) +
                   " ranks cannot be measured on " + std::to_string(devices()) + " devices");
  }
  measure(plan, batch, 1, prices.alone);
  measure(plan, batch, std::max<std::int64_t>(1, at_once_ / ranks), prices.busy);
}

void SectionProfiler::measure(const JobPlan& plan, const MicroBatchPlan& batch, std::int64_t copies,
                              CallPrices& prices) {
  const GraphNode& node = plan.graph.node(batch.section);
  std::vector<std::unique_ptr<Communicator>> groups;
  std::vector<MeasuredRank> ranks = ranks_of(node.layout, copies, groups);
  const auto on_all = [&](const std::function<void(MeasuredRank&, std::size_t)>& work) {
    std::vector<std::future<void>> done;
    for (std::size_t at = 0; at < ranks.size(); ++at) {
      done.push_back(call_on(*devices_[at], [&work, &ranks, &groups, at] {
        try {
          work(ranks[at], at);
        } catch (const std::exception& failed) {
          for (const auto& group : groups) group->abort(failed.what());
          throw;
        }
      }));
    }
    for (auto& each : done) each.wait();
    for (auto& each : done) each.get();
  };
  const MsClock now = devices() > at_once_ ? thread_cpu_ms : steady_ms;
  on_all([&](MeasuredRank& rank, std::size_t at) {
    const LayoutRank of_layout(static_cast<std::uint32_t>(at % static_cast<std::size_t>(node.layout.ranks())));
    rank.probe = std::make_unique<PassProbe>(probed_section(plan, batch.section), of_layout,
                                             ProbeSite{table_.get(), rank.tensor_group, rank.context_group, {}, now});
  });
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < most_rounds && (round <= least_rounds || Clock::now() - begin < least_); ++round) {
    on_all([&](MeasuredRank& rank, std::size_t) {
      rank.passes.push_back(rank.probe->pass(batch));
      if (node.trained()) rank.ends.push_back(rank.probe->step_end());
    });
  }
  for (MeasuredRank& rank : ranks) {
    rank.passes.erase(rank.passes.begin());  // it maps its memory
    for (const ObservedPasses& passes : rank.passes) {
      add_calls(passes.forward, prices);
      add_calls(passes.backward, prices);
      add_calls(passes.packs, prices);
      prices.add_glue(passes.forward.size(), passes.forward_ms - sum_ms(passes.forward));
      prices.add_glue(passes.backward.size(), passes.backward_ms - sum_ms(passes.backward));
    }
    for (const ObservedStepEnd& end : rank.ends) {
      add_calls(end.add_ranks, prices);
      add_calls(end.norm, prices);
      add_calls(end.step, prices);
    }
  }
  if (node.trained()) add_sums(*table_, ranks.front().probe->runner().gradients().size(), prices);
  on_all([](MeasuredRank& rank, std::size_t) { rank.probe.reset(); });
}

}  // namespace maestro
