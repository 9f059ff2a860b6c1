#include "sections/section_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace maestro {

namespace {

/// Where the samples' rows of one axis begin, and each row's position in its sample.
struct RowLayout {
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> positions;

  SequenceLayout fill(const MicroBatchPlan& plan, Axis axis) {
    offsets.assign(1, 0);
    positions.clear();
    for (const SampleRef& sample : plan.samples) {
      const std::int64_t rows = sample.rows(axis);
      for (std::int64_t at = 0; at < rows; ++at) positions.push_back(static_cast<std::int32_t>(at));
      offsets.push_back(static_cast<std::int32_t>(positions.size()));
    }
    return {offsets, positions};
  }
};

/// What is left of `spans` without `hole`, which lies in one of them.
std::vector<std::span<float>> without(const std::vector<std::span<float>>& spans, std::span<const float> hole) {
  const std::less<const float*> before;
  std::vector<std::span<float>> left;
  for (const std::span<float> span : spans) {
    const bool holds = !before(hole.data(), span.data()) && before(hole.data(), span.data() + span.size());
    if (!holds) {
      left.push_back(span);
      continue;
    }
    const auto first = static_cast<std::size_t>(hole.data() - span.data());
    left.push_back(span.first(first));
    left.push_back(span.subspan(first + hole.size()));
  }
  return left;
}

/// What `spans` have of `range`, elements of `flat`.
std::vector<std::span<float>> within(const std::vector<std::span<float>>& spans, std::span<const float> flat,
                                     ShardRange range) {
  std::vector<std::span<float>> parts;
  for (const std::span<float> span : spans) {
    const auto begin = static_cast<std::size_t>(span.data() - flat.data());
    const std::size_t first = std::max(begin, range.first);
    const std::size_t end = std::min(begin + span.size(), range.first + range.count);
    if (first < end) parts.push_back(span.subspan(first - begin, end - first));
  }
  return parts;
}

}  // namespace

struct SectionRunner::MicroBatch {
  MicroBatch(const OperatorTable& ops, DType compute)
      : recording(ops, arena, compute, true), passing(ops, arena, compute, false) {}
  Arena arena;
  Tape recording;  // trained passes
  Tape passing;    // forward-only passes
  RowLayout tokens;
  RowLayout patches;
  std::vector<SampleId> samples;
  std::vector<std::pair<std::string, Var>> inputs;
  std::vector<std::pair<std::string, Var>> outputs;
  void retire() {
    inputs.clear();
    outputs.clear();
    recording.clear();
    passing.clear();
  }
};

SectionRunner::SectionRunner(std::shared_ptr<Section> section, const SectionContext& context,
                             const OptimizerConfig& optimizer, std::int64_t total_steps)
    : context_(context), section_(std::move(section)), optimizer_(optimizer, total_steps) {}

SectionRunner::~SectionRunner() {
  for (auto& [key, batch] : in_flight_) batch->retire();
}

std::unique_ptr<SectionRunner::MicroBatch> SectionRunner::take(const MicroBatchPlan& plan) {
  std::unique_ptr<MicroBatch> batch;
  if (free_.empty()) {
    batch = std::make_unique<MicroBatch>(*context_.ops, context_.precision);
  } else {
    batch = std::move(free_.back());
    free_.pop_back();
  }
  batch->samples.clear();
  for (const SampleRef& sample : plan.samples) batch->samples.push_back(sample.id);
  return batch;
}

std::vector<MetricSum> SectionRunner::forward(const MicroBatchPlan& plan, std::span<const PortTensor> inputs,
                                              std::span<const PortTensor> outputs) {
  std::unique_ptr<MicroBatch> batch = take(plan);
  const bool keep = (context_.trained || context_.passes_gradient) && plan.pass == Pass::train;
  Tape& tape = keep ? batch->recording : batch->passing;
  const SequenceLayout tokens = batch->tokens.fill(plan, Axis::tokens);
  const SequenceLayout patches = batch->patches.fill(plan, Axis::patches);
  Outputs results;
  {
    Inputs given(plan.pass, batch->samples, tokens, plan.loss_scale, patches);
    for (const PortTensor& input : inputs) {
      Var var = tape.input(input.tensor, input.differentiable && keep);
      if (keep) batch->inputs.emplace_back(input.port, var);
      given.set(input.port, std::move(var));
    }
    section_->forward(tape, given, results);
  }
  for (const PortTensor& output : outputs) {
    const Var* value = results.find(output.port);
    if (value == nullptr) throw std::logic_error("section gave no value for its output port '" + output.port + "'");
    if (value->value().bytes() != output.tensor.bytes()) {
      throw std::logic_error("output port '" + output.port + "' gave " + value->value().shape().to_string() +
                             ", its edge carries " + output.tensor.shape().to_string());
    }
    std::memcpy(output.tensor.raw(), value->value().raw(), output.tensor.bytes());
  }
  if (keep) batch->outputs = results.values();  // those that others send, too: their gradient comes to every rank
  std::vector<MetricSum> metrics = results.metrics();
  results = Outputs();
  if (keep) {
    in_flight_[{plan.step.value(), plan.index}] = std::move(batch);
  } else {
    batch->retire();
    free_.push_back(std::move(batch));
  }
  return metrics;
}

void SectionRunner::backward(const MicroBatchPlan& plan, std::span<const PortTensor> output_gradients,
                             std::span<const PortTensor> input_gradients) {
  const auto found = in_flight_.find({plan.step.value(), plan.index});
  if (found == in_flight_.end()) throw std::logic_error("backward of a micro-batch that is not in flight");
  std::unique_ptr<MicroBatch> batch = std::move(found->second);
  in_flight_.erase(found);
  for (const PortTensor& gradient : output_gradients) {
    for (auto& [port, var] : batch->outputs) {
      if (port == gradient.port) batch->recording.seed(var, gradient.tensor);
    }
  }
  batch->outputs.clear();
  batch->recording.backward();
  for (const PortTensor& wanted : input_gradients) {
    for (const auto& [port, var] : batch->inputs) {
      if (port != wanted.port) continue;
      if (var.gradient().defined()) {
        std::memcpy(wanted.tensor.raw(), var.gradient().raw(), wanted.tensor.bytes());
      } else {
        std::memset(wanted.tensor.raw(), 0, wanted.tensor.bytes());
      }
    }
  }
  batch->retire();
  free_.push_back(std::move(batch));
}

void SectionRunner::add_over_ranks() {
  const ParallelContext& parallel = context_.parallel;
  const Parameters& parameters = section_->parameters();
  if (parallel.tensor_group != nullptr) {
    for (const std::span<float> partial : parameters.replicated_gradients()) {
      parallel.tensor_group->all_reduce_sum(partial);
    }
  }
  if (parallel.context_group != nullptr) parallel.context_group->all_reduce_sum(parameters.gradients());
}

std::vector<std::span<float>> SectionRunner::counted_gradients() const {
  const ParallelContext& parallel = context_.parallel;
  const Parameters& parameters = section_->parameters();
  std::vector<std::span<float>> spans;
  if (parallel.layout.ranks() == 1) {
    spans = {parameters.gradients()};
  } else if (parallel.context() == 0) {
    spans = parameters.sharded_gradients();
    const auto replicated = parameters.replicated_gradients();
    if (parallel.tensor() == 0) spans.insert(spans.end(), replicated.begin(), replicated.end());
  }
  const Parameter* tied = context_.stage.first() ? nullptr : section_->tied();
  if (tied != nullptr && tied->trained()) spans = without(spans, tied->gradient().span<float>());
  if (!parameters.shares_moments()) return spans;
  return within(spans, parameters.gradients(), parameters.kept_moments());
}

double SectionRunner::gradient_sum_of_squares() const {
  double sum = 0;
  for (const std::span<float> span : counted_gradients()) sum += context_.ops->sum_of_squares(span);
  return sum;
}

Result<OptimizerStep> SectionRunner::step(StepId step, double norm) {
  const Result<double> factor = optimizer_.clip_factor(norm);
  if (!factor) return factor.error();
  const auto number = static_cast<std::int64_t>(step.value());
  Parameters& parameters = section_->parameters();
  optimizer_.step(*context_.ops, parameters, number, *factor);
  if (parameters.shares_moments()) parameters.offer(ParameterBuffer::values);
  return OptimizerStep{optimizer_.learning_rate(number), norm};
}

}  // namespace maestro
