// SPDX-License-Identifier: Apache-2.0
#include "tests/sections/pipeline_bench.hpp"

#include <algorithm>
#include <cstring>

#include "sections/section_runner.hpp"

namespace maestro::testing {

namespace {

/// Returns copies of all tensors in a single snapshot.
TensorSnapshot joined(const std::vector<TensorSnapshot>& parts) {
  std::size_t bytes = 0;
  for (const TensorSnapshot& part : parts) {
    for (const NamedTensor& each : part.tensors) bytes += each.tensor.bytes();
  }
  TensorSnapshot all;
  all.memory = AlignedMemory(bytes);
  std::byte* at = all.memory.data();
  for (const TensorSnapshot& part : parts) {
    for (const NamedTensor& each : part.tensors) {
      std::memcpy(at, each.tensor.raw(), each.tensor.bytes());
      all.tensors.push_back({each.name, Tensor(at, each.tensor.dtype(), each.tensor.shape())});
      at += each.tensor.bytes();
    }
  }
  return all;
}

bool has_input(Section& section, const std::string& port) {
  const Ports ports = section.ports();
  return std::ranges::count(ports.inputs, port, &Port::name) > 0;
}

}  // namespace

SectionContext stage_context(SectionContext context, std::int64_t index, std::int64_t count, std::int64_t layers) {
  const RowRange own = row_part(layers, count, index);
  context.stage = {index, count, own.first, own.count};
  return context;
}

PipelineBench::PipelineBench(const Cut& cut, const SectionContext& context, const ParallelBench::Build& build)
    : context_(context), layout_(cut.layout) {
  for (std::int64_t index = 0; index < cut.stages; ++index) {
    stages_.emplace_back(cut.layout, stage_context(context, index, cut.stages, cut.layers), build);
  }
}

std::vector<Feed> PipelineBench::feeds_of(std::int64_t stage, const std::vector<Feed>& feeds,
                                          const ParallelPass* before) {
  std::vector<Feed> own;
  for (const Feed& feed : feeds) {
    if (has_input(this->stage(stage).section(0), feed.port)) own.push_back(feed);
  }
  if (before != nullptr) own.push_back({"stream", before->outputs.at("stream"), true});
  return own;
}

ParallelPass PipelineBench::run(const Batch& batch, Pass pass, const std::vector<Feed>& feeds,
                                const std::map<std::string, Tensor>& gradients) {
  std::vector<ParallelPass> forward;
  const auto fed = [&](std::int64_t index) {
    return feeds_of(index, feeds, index == 0 ? nullptr : &forward[static_cast<std::size_t>(index - 1)]);
  };
  for (std::int64_t index = 0; index < stages(); ++index) {
    forward.push_back(stage(index).run(batch, Pass::evaluate, fed(index)));
    if (index + 1 < stages()) {
      EXPECT_TRUE(forward.back().metrics.empty());
    }
  }
  if (pass == Pass::evaluate) return std::move(forward.back());
  const auto train = [&](std::int64_t index, std::map<std::string, Tensor> seeds) {
    for (const Port& port : stage(index).section(0).ports().outputs) {
      if (const auto found = gradients.find(port.name); found != gradients.end()) seeds.insert(*found);
    }
    return stage(index).run(batch, Pass::train, fed(index), seeds);
  };
  ParallelPass last = train(stages() - 1, {});
  for (std::int64_t index = stages() - 2; index >= 0; --index) {
    const auto stream = last.input_gradients.extract("stream");  // internal, not fed from outside
    ParallelPass current = train(index, {{"stream", stream.mapped()}});
    add_metrics(last.metrics, current.metrics);
    last.input_gradients.merge(current.input_gradients);
  }
  add_tied_gradients();
  return last;
}

void PipelineBench::add_tied_gradients() {
  for (std::int64_t rank = 0; rank < ranks() && stages() > 1; ++rank) {
    Parameter* first = stage(0).section(rank).tied();
    Parameter* last = stage(stages() - 1).section(rank).tied();
    ASSERT_EQ(first == nullptr, last == nullptr);
    if (first == nullptr) continue;
    const std::span<float> ours = first->gradient().span<float>(), theirs = last->gradient().span<float>();
    std::ranges::transform(ours, theirs, ours.begin(), std::plus());
    std::ranges::copy(ours, theirs.begin());
  }
}

TensorSnapshot PipelineBench::whole(ParameterBuffer which) {
  std::vector<TensorSnapshot> parts;
  for (ParallelBench& stage : stages_) parts.push_back(stage.whole(which));
  return by_name(joined(parts));
}

void PipelineBench::load(const TensorSnapshot& whole) {
  for (ParallelBench& stage : stages_) stage.load(whole);
}

double PipelineBench::gradient_sum_of_squares() {
  double sum = 0;
  for (std::int64_t index = 0; index < stages(); ++index) {
    for (std::int64_t rank = 0; rank < ranks(); ++rank) {
      SectionContext context = stage_context(context_, index, stages(), 1);
      context.parallel = {layout_, rank};
      // The bench keeps ownership of the section.
      const std::shared_ptr<Section> lent(std::shared_ptr<Section>(), &stage(index).section(rank));
      sum += SectionRunner(lent, context, OptimizerConfig(), 1).gradient_sum_of_squares();
    }
  }
  return sum;
}

TensorSnapshot by_name(TensorSnapshot snapshot) {
  std::ranges::sort(snapshot.tensors, {}, &NamedTensor::name);
  return snapshot;
}

}  // namespace maestro::testing
