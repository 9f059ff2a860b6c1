// SPDX-License-Identifier: Apache-2.0
#include "actors/layouts/job_probes.hpp"

#include <cstring>

#include "actors/plan/corpus_section.hpp"
#include "actors/plan/section_context.hpp"
#include "runtime/data/sampler.hpp"

namespace maestro {

namespace {

/// Reads the value of a port of the corpus, as its section does.
void read_port(const JobPlan& plan, const std::string& port, const MicroBatchPlan& batch, const Tensor& value) {
  std::vector<SampleId> samples;
  std::vector<std::int32_t> offsets{0}, patch_offsets{0};
  for (const SampleRef& sample : batch.samples) {
    samples.push_back(sample.id);
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(sample.tokens));
    patch_offsets.push_back(patch_offsets.back() + static_cast<std::int32_t>(sample.patches));
  }
  Arena arena;
  Tape tape(*plan.meta_ops, arena, DType::f32, false);
  CorpusSection source(plan.corpus);
  Outputs outputs;
  source.forward(tape, Inputs(batch.pass, samples, {offsets, {}, {}}, 1, {patch_offsets, {}, {}}), outputs);
  if (const Var* const read = outputs.find(port)) std::memcpy(value.raw(), read->value().raw(), value.bytes());
}

}  // namespace

ProbedSection probed_section(const JobPlan& plan, SectionId section) {
  const PlannedSection& planned = plan.sections[section.value()];
  ProbedSection probed;
  probed.graph = &plan.graph;
  probed.section = section;
  probed.factory = planned.factory;
  probed.context = planned_context(plan, planned, plan.graph.node(section));
  probed.optimizer = planned.config.optimizer;
  probed.zero = planned.config.zero;
  probed.read = [&plan](const std::string& port, const MicroBatchPlan& batch, const Tensor& value) {
    read_port(plan, port, batch, value);
  };
  return probed;
}

std::vector<TracedUnit> first_steps(const JobPlan& plan, std::size_t steps) {
  const Corpus& corpus = *plan.corpus;
  const Sampler sampler(static_cast<std::uint64_t>(plan.train.seed), corpus.sources());
  std::vector<TracedUnit> units;
  for (std::size_t step = 0; step < steps; ++step) {
    TracedUnit& unit = units.emplace_back();
    unit.step = StepId(step + 1);
    for (std::int64_t at = 0; at < plan.train.global_batch; ++at) {
      const SampleId id =
          sampler.at(step * static_cast<std::uint64_t>(plan.train.global_batch) + static_cast<std::uint64_t>(at));
      if (const Status ready = corpus.prepare(Split::train, id); !ready) continue;  // a run leaves it out
      const SamplePictures pictures = corpus.pictures(Split::train, id);
      SampleRef& sample = unit.samples.emplace_back();
      sample = {id, corpus.length(Split::train, id), pictures.patches, pictures.images};
      sample.source = corpus.source(Split::train, id);
    }
  }
  return units;
}

std::vector<MicroBatchPlan> batches_of(const JobPlan& plan, SectionId section) {
  const GraphNode& node = plan.graph.node(section);
  std::vector<MicroBatchPlan> batches;
  std::int64_t rows = 0;
  for (const TracedUnit& unit : first_steps(plan, 1)) {
    for (const SampleRef& sample : unit.samples) {
      const std::int64_t more = sample.rows(node.axis());
      if (!node.sources.has(sample.source) || more == 0) continue;
      const bool full = batches.empty() ||
                        static_cast<std::int64_t>(batches.back().samples.size()) >= node.micro_batch ||
                        (node.micro_batch_rows > 0 && rows + more > node.micro_batch_rows);
      if (full) {
        MicroBatchPlan& batch = batches.emplace_back();
        batch.section = section;
        batch.step = unit.step;
        batch.index = static_cast<std::uint32_t>(batches.size() - 1);
        batch.loss_scale = 1;
        rows = 0;
      }
      rows += more;
      batches.back().samples.push_back(sample);
    }
  }
  return batches;
}

}  // namespace maestro
