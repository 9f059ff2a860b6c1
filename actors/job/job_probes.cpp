// SPDX-License-Identifier: Apache-2.0
#include "actors/job/job_probes.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "actors/job/data_source.hpp"
#include "actors/job/prompt_drawer.hpp"
#include "actors/job/section_context.hpp"
#include "runtime/core/random.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/schedule/micro_batch_cut.hpp"
#include "sections/corpus_section.hpp"

namespace maestro {

namespace {

constexpr std::size_t most_bytes = 64 << 20;  // in a PortValues

/// Reads the value of a port of the corpus, as its section does.
void read_port(const ResolvedJob& plan, const std::string& port, const MicroBatchPlan& batch, const Tensor& value) {
  std::vector<SampleId> samples;
  for (const SampleRef& sample : batch.samples) samples.push_back(sample.id);
  Inputs inputs(batch.pass, samples, {}, 1);
  std::array<std::vector<std::int32_t>, all_axes.size()> offsets;
  for (const Axis axis : all_axes) {
    std::vector<std::int32_t>& rows = offsets[static_cast<std::size_t>(axis)];
    rows.push_back(0);
    for (const SampleRef& sample : batch.samples) {
      rows.push_back(rows.back() + static_cast<std::int32_t>(sample.rows(axis)));
    }
    inputs.set_layout(axis, {rows, {}, {}});
  }
  Arena arena;
  Tape tape(*plan.meta_ops, arena, DType::f32, false);
  CorpusSection source(plan.corpus, plan.samples);
  Outputs outputs;
  source.forward(tape, inputs, outputs);
  if (const Var* const read = outputs.find(port)) std::memcpy(value.raw(), read->value().raw(), value.bytes());
}

MicroBatchPlan batch_of(SectionId section, std::span<const SampleRef> samples, const CutBatch& cut, std::size_t index) {
  MicroBatchPlan batch;
  batch.section = section;
  batch.step = StepId(1);
  batch.index = static_cast<std::uint32_t>(index);
  batch.loss_scale = 1;
  for (const std::uint32_t sample : cut) batch.samples.push_back(samples[sample]);
  return batch;
}

/// Returns a step with made samples, whose completions are random.
TracedUnit unit_of(const ResolvedJob& plan, StepId step, const std::vector<DrawnSample>& drawn,
                   const BatchDrawer& drawer, const CompletionLengths& lengths) {
  std::vector<std::int64_t> most;
  for (const DrawnSample& each : drawn) {
    if (each.order) most.push_back(each.order->most_tokens);
  }
  const std::vector<std::int64_t> chosen = lengths.draw(std::move(most), step.value());
  BatchMetadata batch;
  RehearsedRollout rollout;
  Random random(step.value());
  for (const DrawnSample& each : drawn) {
    if (!each.order) {
      drawer.add(batch, Split::train, {each.sample});
      continue;
    }
    MadeSample made{each.order->tokens, {}, {}};
    made.completion.resize(static_cast<std::size_t>(chosen[rollout.samples.size()]));
    made.log_probabilities.resize(made.completion.size());
    for (std::int32_t& token : made.completion) {
      token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(plan.corpus->vocabulary())));
    }
    rollout.version = each.order->version;
    rollout.samples.push_back({std::ssize(made.prompt), std::ssize(made.completion)});
    SampleRef reference{sample_id({step, each.order->number}), made.positions()};
    reference.prompt = each.sample;
    reference.source = plan.corpus->source(Split::train, each.sample);
    batch.samples.push_back(reference);
    plan.samples->put({step, each.order->number}, std::move(made));
  }
  TracedUnit unit;
  unit.step = step;
  unit.samples = std::move(batch.samples);
  if (!rollout.samples.empty()) unit.rollout = std::move(rollout);
  return unit;
}

}  // namespace

void PortValues::fill(const std::string& port, const MicroBatchPlan& batch, const Tensor& value, const Read& read) {
  std::pair<std::string, std::vector<SampleId>> key{port, {}};
  for (const SampleRef& sample : batch.samples) key.second.push_back(sample.id);
  const std::scoped_lock lock(mutex_);
  const auto found = known_.find(key);
  if (found != known_.end() && found->second.size() == value.bytes()) {
    std::memcpy(value.raw(), found->second.data(), value.bytes());
    return;
  }
  read(value);
  if (bytes_ + value.bytes() > most_bytes) return;
  bytes_ += value.bytes();
  const std::byte* const first = value.raw();
  known_.insert_or_assign(std::move(key), std::vector<std::byte>(first, first + value.bytes()));
}

ProbedSection probed_section(const ResolvedJob& plan, SectionId section, PortValues& known) {
  ProbedSection probed = probed_section(plan, section);
  probed.read = [read = std::move(probed.read), &known](const std::string& port, const MicroBatchPlan& batch,
                                                        const Tensor& value) {
    known.fill(port, batch, value, [&](const Tensor& into) { read(port, batch, into); });
  };
  return probed;
}

ProbedSection probed_section(const ResolvedJob& plan, SectionId section) {
  const PlannedSection& planned = plan.sections[section.value()];
  ProbedSection probed;
  probed.graph = &plan.graph;
  probed.section = section;
  probed.factory = planned.factory;
  probed.context = planned_context(plan, planned, plan.graph.node(section));
  probed.optimizer = planned.config.optimizer;
  probed.zero = planned.config.zero;
  probed.described = plan.meta_sections[section.value()];
  probed.read = [&plan](const std::string& port, const MicroBatchPlan& batch, const Tensor& value) {
    read_port(plan, port, batch, value);
  };
  return probed;
}

bool same_work(const ResolvedJob& plan, const std::string& one, const std::string& other,
               std::span<const SampleRef> samples) {
  const auto keys = [&](const std::string& section) {
    std::map<std::string, std::string> keys;
    for (auto at = plan.settings.lower_bound(section + "."); at != plan.settings.end(); ++at) {
      if (!at->first.starts_with(section + ".")) break;
      keys.emplace(at->first.substr(section.size()), at->second);
    }
    return keys;
  };
  // What a stage has of its edges, and who is at their other ends.
  const auto edges = [&](SectionId id) {
    std::vector<std::tuple<SectionId, DType, std::int64_t, Axis, bool>> found;
    for (const EdgeId edge : plan.graph.inputs(id)) {
      const GraphEdge& in = plan.graph.edge(edge);
      found.emplace_back(in.from, in.dtype, in.columns, in.axis, in.gradient);
    }
    for (const EdgeId edge : plan.graph.outputs(id)) {
      const GraphEdge& out = plan.graph.edge(edge);
      found.emplace_back(out.to, out.dtype, out.columns, out.axis, out.gradient);
    }
    return found;
  };
  const auto calls = [&](SectionId id) {
    std::vector<OperatorCall> made;
    const std::vector<MicroBatchPlan> batches = batches_of(plan, id, samples);
    if (batches.empty()) return made;
    const ObservedPasses passes = PassProbe(probed_section(plan, id), LayoutRank(0), {}).pass(batches.front());
    for (const auto* const part : {&passes.forward, &passes.backward, &passes.packs}) {
      for (const ObservedCall& observed : *part) made.push_back(observed.call);
    }
    return made;
  };
  if (keys(one) != keys(other)) return false;
  return std::ranges::equal(plan.graph.stages_of(one), plan.graph.stages_of(other), [&](SectionId a, SectionId b) {
    const GraphNode& of_a = plan.graph.node(a);
    const GraphNode& of_b = plan.graph.node(b);
    return of_a.role == of_b.role && of_a.sources == of_b.sources && edges(a) == edges(b) && calls(a) == calls(b);
  });
}

std::vector<TracedUnit> first_steps(const ResolvedJob& plan, std::size_t steps, const CompletionLengths& lengths) {
  const auto seed = static_cast<std::uint64_t>(plan.train.seed);
  const Sampler sampler(seed, plan.corpus->sources());
  const BatchDrawer drawer(plan.corpus, sampler);
  std::vector<TracedUnit> units;
  if (plan.rollouts) {
    GeneratorConfig generator = plan.rollouts->config;
    generator.from_step = 1;
    const PromptDrawer prompts(plan.corpus, sampler, std::move(generator), seed, {plan.train.global_batch});
    for (std::uint64_t step = 1; step <= steps; ++step) {
      units.push_back(unit_of(plan, StepId(step), prompts.draw(StepId(step)), drawer, lengths));
    }
    return units;
  }
  for (std::uint64_t step = 1; step <= steps; ++step) {
    TracedUnit& unit = units.emplace_back();
    unit.step = StepId(step);
    unit.samples = drawer.training(unit.step, plan.train.global_batch).samples;
  }
  return units;
}

std::vector<MicroBatchPlan> batches_of(const ResolvedJob& plan, SectionId section, std::span<const SampleRef> samples) {
  std::vector<MicroBatchPlan> batches;
  for (const CutBatch& cut : cut_section(plan.graph, section, samples)) {
    batches.push_back(batch_of(section, samples, cut, batches.size()));
  }
  return batches;
}

std::vector<EqualBatches> equal_batches_of(const ResolvedJob& plan, SectionId section,
                                           std::span<const SampleRef> samples) {
  std::vector<EqualBatches> runs;
  std::size_t index = 0;
  for (const CutBatch& cut : cut_section(plan.graph, section, samples)) {
    const auto same = [&](std::uint32_t sample, const SampleRef& other) { return samples[sample].same_size(other); };
    if (runs.empty() || !std::ranges::equal(cut, runs.back().first.samples, same)) {
      runs.push_back({batch_of(section, samples, cut, index), 0});
    }
    ++runs.back().count;
    ++index;
  }
  return runs;
}

}  // namespace maestro
