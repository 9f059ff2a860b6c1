// SPDX-License-Identifier: Apache-2.0
#include "apps/plan/section_profiler.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <set>
#include <span>

#include "actors/job/job_probes.hpp"
#include "actors/services/device_groups.hpp"
#include "apps/plan/generator_prices.hpp"
#include "apps/plan/machine_load.hpp"
#include "runtime/collective/thread_group.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int most_rounds = 50;
constexpr int most_repeats = 12;    // rounds of a micro-batch that are measured again
constexpr std::size_t settled = 3;  // last unobserved passes that count: the first choose algorithms and record graphs

using Groups = std::vector<std::unique_ptr<Communicator>>;

/// A rank that is measured, with the groups of its replica.
struct MeasuredRank {
  ParallelContext parallel;  // has the groups
  Groups groups;
  std::unique_ptr<PassProbe> probe;  // uses the groups
  std::vector<ObservedPasses> passes;
  std::vector<ObservedStepEnd> ends;
  std::vector<double> whole_ms;
  double core_share = 1;  // CPU time per wall time of the latest round
};

/// Drops the latest round of a single rank.
void drop_round(MeasuredRank& rank, std::size_t passes) {
  rank.passes.resize(rank.passes.size() - passes);
  if (!rank.ends.empty()) rank.ends.pop_back();
}

using MakeGroup = std::function<Groups(const std::vector<std::int64_t>& members)>;

/// The ranks of replicas that are measured at once, with their groups.
std::vector<MeasuredRank> ranks_of(const Layout& layout, std::int64_t copies, const MakeGroup& make) {
  std::vector<MeasuredRank> ranks(static_cast<std::size_t>(copies * layout.ranks()));
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    for (const RankGroup& group : rank_groups(layout)) {
      std::vector<std::int64_t> members;
      for (std::int64_t member = 0; member < group.size; ++member) {
        members.push_back(copy * layout.ranks() + group.first + member * group.stride);
      }
      Groups made = make(members);
      for (std::size_t member = 0; member < members.size(); ++member) {
        MeasuredRank& rank = ranks[static_cast<std::size_t>(members[member])];
        rank.parallel.*group.member = rank.groups.emplace_back(std::move(made[member])).get();
      }
    }
  }
  return ranks;
}

/// Calls `work(at)` on the threads of the first `count` devices, and waits for all. `failed` ends calls of groups that
/// would wait for a rank that fails.
void on_all(const std::vector<std::unique_ptr<Device>>& devices, std::size_t count,
            const std::function<void(std::size_t at)>& work, const std::function<void(const char* why)>& failed) {
  std::vector<std::future<void>> done;
  for (std::size_t at = 0; at < count; ++at) {
    done.push_back(call_on(*devices[at], [&work, &failed, at] {
      try {
        work(at);
      } catch (const std::exception& failure) {
        failed(failure.what());
        throw;
      }
    }));
  }
  for (auto& each : done) each.wait();
  for (auto& each : done) each.get();
}

void add_calls(const std::vector<ObservedCall>& calls, CallPrices& prices) {
  for (const ObservedCall& observed : calls) prices.add(observed.call, observed.ms);
}

/// Adds a rank's times, without its first pass, which maps memory.
void add_times(const MeasuredRank& rank, CallPrices& prices) {
  for (const ObservedPasses& passes : std::span(rank.passes).subspan(1)) {
    add_calls(passes.forward, prices);
    add_calls(passes.backward, prices);
    add_calls(passes.packs, prices);
    if (!rank.whole_ms.empty() || passes.whole) continue;
    prices.add_glue(passes.forward.size(), passes.forward_ms - sum_ms(passes.forward));
    prices.add_glue(passes.backward.size(), passes.backward_ms - sum_ms(passes.backward));
  }
  for (const ObservedStepEnd& end : rank.ends) {
    add_calls(end.add_ranks, prices);
    add_calls(end.norm, prices);
    add_calls(end.step, prices);
  }
  const ObservedPasses& last = rank.passes.back();
  if (last.whole) return;
  const double observed_ms = last.forward_ms + last.backward_ms;
  for (std::size_t pass = rank.whole_ms.size() - std::min(rank.whole_ms.size(), settled); pass < rank.whole_ms.size();
       ++pass) {
    prices.add_glue(last.forward.size() + last.backward.size(), rank.whole_ms[pass] - observed_ms);
  }
}

/// Measures a sum of gradients over replicas, which is not a section's call: CPUs add up in each other's memory.
void add_sums(const OperatorTable& table, std::size_t elements, CallPrices& prices) {
  std::vector<float> into(elements), values(elements);
  const AddInto op{into, values};
  table.run(op);
  const auto begin = Clock::now();
  table.run(op);
  prices.add(call_of(op, true), std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
}

}  // namespace

SectionProfiler::SectionProfiler(PlannedMachine machine, ProfilerOptions options)
    : machine_(std::move(machine)), options_(options), table_(std::make_unique<cpu::CpuOperatorTable>()) {
  if (machine_.devices < 1) throw JobError("no device to measure on");
  at_once_ = machine_.cores == 0 ? machine_.devices : std::min<std::int64_t>(machine_.devices, machine_.cores);
  devices_ = open_devices(machine_, *table_, options_.deterministic, 1);
}

SectionProfiler::~SectionProfiler() {
  for (const auto& device : devices_) device->stop();
}

Groups SectionProfiler::make_group(const std::vector<Device*>& members, std::int64_t ranks) const {
  if (machine_.gpus == nullptr) return make_thread_group(std::ssize(members), ranks);
  return join_devices(*machine_.gpus, members, std::make_shared<AbortReason>());
}

void SectionProfiler::add(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches, MachinePrices& prices) {
  const GraphNode& node = plan.graph.node(batches.front().section);
  const std::int64_t ranks = node.layout.ranks();
  if (ranks > devices()) {
    throw JobError(node.section_name() + ": a replica of " + std::to_string(ranks) + " ranks cannot be measured on " +
                   std::to_string(devices()) + " devices");
  }
  const std::int64_t copies = std::max<std::int64_t>(1, at_once_ / ranks);
  std::vector<CallPrices*> alone{&prices.alone};
  if (copies == 1) alone.push_back(&prices.busy);
  measure(devices_, plan, batches, 1, alone);
  if (copies > 1) measure(devices_, plan, batches, copies, {&prices.busy});
}

void SectionProfiler::add_shares(const ResolvedJob& plan, std::span<const MicroBatchPlan> batches,
                                 MachinePrices& prices) {
  for (std::size_t part = 0; part < measured_shares.size(); ++part) {
    const Devices cut = open_devices(machine_, *table_, options_.deterministic, measured_shares[part]);
    measure(cut, plan, batches, 1, {&prices.parts[part]});
    for (const auto& device : cut) device->stop();
  }
}

void SectionProfiler::add_generation(const ResolvedJob& plan, MachinePrices& prices) {
  const GeneratorPrices generator(plan);
  GenerationProbeOptions options = generator.probe();
  options.rounds = std::max(options.rounds, options_.rounds);
  const auto measure = [&](std::size_t copies, const std::vector<CallPrices*>& into) {
    std::vector<std::vector<TimedGeneration>> times(copies);
    const auto time = [&](std::size_t at) {
      const OperatorTable& table = devices_[at]->ops();
      PassProbe probe(probed_section(plan, *plan.rollouts->section), LayoutRank(0), {&table});
      const auto section = std::dynamic_pointer_cast<Generator>(probe.runner().shared_section());
      times[at] = time_generation(table, section, probe.runner().context().precision, options);
    };
    on_all(devices_, copies, time, [](const char*) {});
    for (CallPrices* const of : into) {
      for (const auto& each : times) generator.add(each, *of);
    }
  };
  std::vector<CallPrices*> alone{&prices.alone};
  if (at_once_ == 1) alone.push_back(&prices.busy);
  measure(1, alone);
  if (at_once_ > 1) measure(static_cast<std::size_t>(at_once_), {&prices.busy});
}

void SectionProfiler::measure(const Devices& devices, const ResolvedJob& plan, std::span<const MicroBatchPlan> batches,
                              std::int64_t copies, const std::vector<CallPrices*>& prices) {
  const SectionId section = batches.front().section;
  const GraphNode& node = plan.graph.node(section);
  const std::int64_t all = copies * node.layout.ranks();
  const auto make = [&](const std::vector<std::int64_t>& members) {
    std::vector<Device*> joined;
    for (const std::int64_t member : members) joined.push_back(devices[static_cast<std::size_t>(member)].get());
    return make_group(joined, all);
  };
  std::vector<MeasuredRank> ranks = ranks_of(node.layout, copies, make);
  const auto end_groups = [&](const char* why) {
    for (const MeasuredRank& rank : ranks) {
      for (const auto& group : rank.groups) group->abort(why);
    }
  };
  const auto each = [&](const std::function<void(MeasuredRank&, std::size_t at)>& work) {
    try {
      on_all(
          devices, ranks.size(), [&](std::size_t at) { work(ranks[at], at); }, end_groups);
    } catch (const JobError&) {
      throw;
    } catch (const std::exception& failure) {
      throw JobError(node.section_name() + ": a measured pass fails: " + failure.what());
    }
  };
  each([&](MeasuredRank& rank, std::size_t at) {
    const LayoutRank of_layout(static_cast<std::uint32_t>(at % static_cast<std::size_t>(node.layout.ranks())));
    ProbeSite site{&devices[at]->ops(), rank.parallel};
    if (machine_.gpus != nullptr) site.device = devices[at].get();
    if (machine_.devices > at_once_) site.now = thread_cpu_ms;
    rank.probe = std::make_unique<PassProbe>(probed_section(plan, section), of_layout, site);
  });
  // Replicas may take turns, as code in Python does, which the first passes after a common start do not show.
  const int passes = plan.meta_sections[section.value()]->runs_dry() ? 1 : 4;
  const bool repeats = passes == 1 && node.layout.ranks() == 1 && machine_.gpus == nullptr &&
                       machine_.devices <= at_once_;  // other passes wait for each other
  for (const MicroBatchPlan& batch : batches) {
    const Clock::time_point begin = Clock::now();
    int repeated = 0;
    for (int round = 0; round < most_rounds && (round <= options_.rounds || Clock::now() - begin < options_.least);
         ++round) {
      each([&](MeasuredRank& rank, std::size_t) {
        const Clock::time_point from = Clock::now();
        const double cpu_ms = thread_cpu_ms();
        for (int pass = 0; pass < passes; ++pass) rank.passes.push_back(rank.probe->pass(batch));
        if (node.trained()) rank.ends.push_back(rank.probe->step_end());
        rank.core_share =
            (thread_cpu_ms() - cpu_ms) / std::chrono::duration<double, std::milli>(Clock::now() - from).count();
      });
      const bool quiet = std::ranges::all_of(
          ranks, [](const MeasuredRank& rank) { return allows_measuring({.core_share = rank.core_share}); });
      if (!repeats || quiet || round == 0 || repeated == most_repeats) continue;
      for (MeasuredRank& rank : ranks) drop_round(rank, 1);
      ++repeated;
      --round;
    }
    ++measured_;
    repeated_ += static_cast<std::size_t>(repeated);
    if (repeated == most_repeats) ++disturbed_;
    if (machine_.gpus != nullptr) {
      each([&](MeasuredRank& rank, std::size_t) {
        rank.whole_ms = rank.probe->whole_passes(batch, 2 * options_.rounds + 2);
      });
    }
    for (MeasuredRank& rank : ranks) {
      for (CallPrices* const of : prices) add_times(rank, *of);
      rank.passes.clear();
      rank.ends.clear();
    }
  }
  const std::size_t gradients = node.trained() ? ranks.front().probe->runner().gradients().size() : 0;
  each([](MeasuredRank& rank, std::size_t) {
    rank.probe.reset();
    for (auto& group : rank.groups) group.reset();  // members leave a group of GPUs at the same time
  });
  if (gradients == 0) return;
  for (CallPrices* const of : prices) {
    machine_.gpus == nullptr ? add_sums(*table_, gradients, *of) : measure_sums(gradients, *of);
  }
}

void SectionProfiler::measure_sums(std::size_t gradients, CallPrices& prices) {
  const std::size_t bytes = gradients * sizeof(float);
  std::set<std::int64_t> sizes;
  for (std::int64_t members = 2; members < devices(); members *= 2) sizes.insert(members);
  if (devices() > 1) sizes.insert(devices());
  for (const std::int64_t members : sizes) {
    OperatorCall call{"reduce_scatter", DType::f32, {static_cast<std::int64_t>(bytes), members}, 0};
    call.bytes = static_cast<double>(bytes);
    if (prices.has(call)) continue;
    OperatorCall gather = call;
    gather.op = "all_gather";
    std::vector<Device*> joined;
    for (std::int64_t member = 0; member < members; ++member) {
      joined.push_back(devices_[static_cast<std::size_t>(member)].get());
    }
    Groups groups = make_group(joined, members);
    const auto end_group = [&](const char* why) {
      for (const auto& group : groups) group->abort(why);
    };
    const auto measure = [&](std::size_t at) {
      const SpaceMemory memory(devices_[at]->ops().memory(), bytes);
      const std::span<float> values(reinterpret_cast<float*>(memory.data()), gradients);
      for (int round = 0; round <= options_.rounds; ++round) {
        const std::unique_ptr<WorkTimer> timer = devices_[at]->timer();
        timer->mark();
        groups[at]->reduce_to_shards(values);
        timer->mark();
        groups[at]->gather_shards(values);
        timer->mark();
        complete(*devices_[at]);
        if (at > 0 || round == 0) continue;  // the first round sets the group up
        prices.add(call, timer->milliseconds(0, 1));
        prices.add(gather, timer->milliseconds(1, 2));
      }
    };
    on_all(devices_, groups.size(), measure, end_group);
    on_all(
        devices_, groups.size(), [&](std::size_t at) { groups[at].reset(); }, [](const char*) {});
  }
}

}  // namespace maestro
