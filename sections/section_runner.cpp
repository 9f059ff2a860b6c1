// SPDX-License-Identifier: Apache-2.0
#include "sections/section_runner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>

#include "runtime/core/nearest_name.hpp"
#include "runtime/ops/functions.hpp"
#include "sections/expert_balance.hpp"
#include "sections/parameter_holders.hpp"

namespace maestro {

namespace {

/// The first row of each sample on an axis, and each row's position in its sample.
class RowLayout {
 public:
  /// Fills the tables in the tape's memory.
  SequenceLayout fill(const MicroBatchPlan& plan, Axis axis, Tape& tape) {
    offsets_.assign(1, 0);
    positions_.clear();
    for (const SampleRef& sample : plan.samples) {
      positions_.resize(positions_.size() + static_cast<std::size_t>(sample.rows(axis)));
      std::iota(positions_.begin() + offsets_.back(), positions_.end(), 0);
      offsets_.push_back(static_cast<std::int32_t>(positions_.size()));
    }
    if (tape.ops().memory().host() || positions_.empty()) return {offsets_, positions_, {}};
    device_offsets_ = tape.indices(offsets_);
    device_positions_ = tape.indices(positions_);
    return {offsets_, device_positions_.tensor().span<std::int32_t>(), device_offsets_.tensor().span<std::int32_t>()};
  }
  void retire() {
    device_offsets_ = Block();
    device_positions_ = Block();
  }

 private:
  std::vector<std::int32_t> offsets_;
  std::vector<std::int32_t> positions_;
  Block device_offsets_;
  Block device_positions_;
};

std::vector<bool> taken(const MicroBatchPlan& plan, const SourceSet& sources) {
  std::vector<bool> taken;
  for (const SampleRef& sample : plan.samples) taken.push_back(sources.has(sample.source));
  return taken;
}

/// Returns a port's value in memory that the section can use: the value itself, or a copy in its device's memory.
Var input_of(Tape& tape, const PortTensor& input, bool needs_gradient) {
  if (input.memory == MemoryKind::device || tape.ops().memory().host()) return tape.input(input.tensor, needs_gradient);
  Var var = tape.output(input.tensor.shape(), input.tensor.dtype(), needs_gradient);
  tape.ops().upload(input.tensor, var.value());
  return var;
}

void seed(Tape& tape, const Var& var, const PortTensor& gradient) {
  if (gradient.memory == MemoryKind::device || tape.ops().memory().host()) return tape.seed(var, gradient.tensor);
  const Block block = tape.scratch(gradient.tensor.shape(), gradient.tensor.dtype());
  tape.ops().upload(gradient.tensor, block.tensor());
  tape.add_gradient(var, block);
}

/// Returns an input in the dtype of its port, which an edge in bf16 may have rounded (GraphNode::sends_bf16).
Var as_port(Tape& tape, const Var& input, const std::vector<Port>& ports, const std::string& name) {
  const auto port = std::ranges::find(ports, name, &Port::name);
  return port == ports.end() ? input : converted(tape, input, port->dtype);
}

/// Returns an output in the dtype of its edge: an edge in bf16 takes outputs of ports in f32.
Var as_edge(Tape& tape, const Var& output, const std::vector<Port>& ports, const PortTensor& edge) {
  const auto port = std::ranges::find(ports, edge.port, &Port::name);
  const bool rounds = port != ports.end() && port->dtype == DType::f32 && output.value().dtype() == DType::f32 &&
                      edge.tensor.dtype() == DType::bf16;
  return rounds ? converted(tape, output, DType::bf16) : output;
}

std::string text_of(const Tensor& tensor) {
  return std::string(name_of(tensor.dtype())) + " " + tensor.shape().to_string();
}

void give(const OperatorTable& ops, const Tensor& value, const PortTensor& to) {
  if (to.memory == MemoryKind::device) {
    ops.copy(value, to.tensor);
  } else {
    ops.download(value, to.tensor);
  }
}

/// Returns `spans` without `hole`, a part of a single span.
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

/// Returns the parts of `range`, elements of `flat`, that lie in `spans`.
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
      : arena(arena_chunk(ops), ops.memory()),
        recording(ops, arena, compute, true),
        passing(ops, arena, compute, false) {}
  /// Returns larger pieces for device memory, as a request may take a millisecond there.
  static std::size_t arena_chunk(const OperatorTable& ops) {
    return std::size_t{ops.memory().host() ? 32U : 256U} << 20;
  }
  Arena arena;
  Tape recording;                               // trained passes
  Tape passing;                                 // forward-only passes
  std::array<RowLayout, all_axes.size()> rows;  // by axis
  std::vector<SampleId> samples;
  std::vector<std::pair<std::string, Var>> inputs;
  std::vector<std::pair<std::string, Var>> outputs;
  void retire() {
    inputs.clear();
    outputs.clear();
    for (RowLayout& each : rows) each.retire();
    recording.clear();
    passing.clear();
  }
};

SectionRunner::SectionRunner(std::shared_ptr<Section> section, const SectionContext& context,
                             const OptimizerConfig& optimizer, AdamWOptimizer::Span span)
    : context_(context), section_(std::move(section)), ports_(section_->ports()), optimizer_(optimizer, span) {
  if (context.ops == nullptr || section_->parameters().elements() == 0) return;
  if (section_->parameters().values().empty() || &section_->parameters().memory() == &context.ops->memory()) return;
  throw std::logic_error("section '" + context.name +
                         "' keeps its parameters where its device does not compute: call " +
                         "SectionContext::allocate()");
}

SectionRunner::~SectionRunner() {
  for (auto& [key, batch] : in_flight_) batch->retire();
}

std::size_t SectionRunner::working_bytes() const {
  std::size_t sum = 0;
  for (const auto& batch : free_) sum += batch->arena.held_bytes();
  for (const auto& [key, batch] : in_flight_) sum += batch->arena.held_bytes();
  return sum;
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

namespace {

/// Throws std::logic_error for NaN and infinity; minus infinity is the logarithm of 0. Values on a device are not read:
/// the loss shows them.
void check_numbers(const PortTensor& output) {
  constexpr std::uint16_t bf16_exponent = 0x7f80, bf16_minus_infinity = 0xff80;
  if (output.memory != MemoryKind::host) return;
  const auto is_bad = [](float value) { return !(value <= std::numeric_limits<float>::max()); };
  const auto is_bad_half = [](bfloat16 value) {
    return (value.bits & bf16_exponent) == bf16_exponent && value.bits != bf16_minus_infinity;
  };
  const Tensor& values = output.tensor;
  const bool bad = (values.dtype() == DType::f32 && std::ranges::any_of(values.span<float>(), is_bad)) ||
                   (values.dtype() == DType::bf16 && std::ranges::any_of(values.span<bfloat16>(), is_bad_half));
  if (!bad) return;
  throw std::logic_error("output port '" + output.port +
                         "' has values that are not numbers in the first pass (NaN or infinity); check its weights and "
                         "its inputs");
}

}  // namespace

void SectionRunner::check_results(const Outputs& results, bool trains) const {
  for (auto at = results.values().begin(); at != results.values().end(); ++at) {
    const std::string& name = at->first;
    if (std::ranges::find(ports_.outputs, name, &Port::name) == ports_.outputs.end()) {
      std::vector<std::string> declared;
      for (const Port& port : ports_.outputs) declared.push_back(port.name);
      const auto nearest = nearest_name(name, declared);
      throw std::logic_error("output '" + name + "' is set, but is not declared in ports()" +
                             (nearest ? "; the nearest is '" + *nearest + "'" : ""));
    }
    const auto again =
        std::ranges::find(std::next(at), results.values().end(), name, &std::pair<std::string, Var>::first);
    if (again != results.values().end()) throw std::logic_error("output '" + name + "' is set twice in a pass");
  }
  if (!trains || std::ranges::any_of(ports_.outputs, &Port::differentiable) || results.pass_metrics().may_have_loss()) {
    return;
  }
  throw std::logic_error(
      "the section is trained, but its pass reports no loss and none of its outputs is differentiable: call "
      "Outputs::losses(), or Outputs::metric(\"loss\", sum, weight), or set trained = false");
}

PassMetrics SectionRunner::forward(const MicroBatchPlan& plan, std::span<const PortTensor> inputs,
                                   std::span<const PortTensor> outputs) {
  std::unique_ptr<MicroBatch> batch = take(plan);
  const bool keep = (context_.trained || context_.passes_gradient) && plan.pass == Pass::train;
  Tape& tape = keep ? batch->recording : batch->passing;
  const OperatorTable& ops = tape.ops();
  Outputs results;
  {
    Inputs given(plan.pass, batch->samples, {}, plan.loss_scale);
    given.set_token_scale(1 / static_cast<double>(plan.step_tokens));
    for (const Axis axis : all_axes) {
      RowLayout& rows = batch->rows[static_cast<std::size_t>(axis)];
      given.set_layout(axis, rows.fill(plan, axis_in(context_.reading, axis), tape));
    }
    for (const PortTensor& input : inputs) {
      const Var arrived = input_of(tape, input, input.differentiable && keep);
      if (keep) batch->inputs.emplace_back(input.port, arrived);
      Var var = as_port(tape, arrived, ports_.inputs, input.port);
      const bool same = var.value().dtype() == input.tensor.dtype();
      const bool on_host = same ? input.memory == MemoryKind::host : ops.memory().host();
      const Tensor host = !on_host ? Tensor() : same ? input.tensor : var.value();
      given.set(input.port, std::move(var), host);
      if (!input.sources.all()) given.set_taken(input.port, taken(plan, input.sources));
    }
    repeat(keep ? PassKind::forward_kept : PassKind::forward_only, [&] { section_->forward(tape, given, results); });
  }
  check_results(results, keep && context_.trained && context_.parallel.rank == 0);  // other ranks may report nothing
  std::vector<std::pair<std::string, Var>> sent = results.values();
  for (const PortTensor& output : outputs) {
    const auto value = std::ranges::find(sent, output.port, &std::pair<std::string, Var>::first);
    if (value == sent.end()) throw std::logic_error("section gave no value for its output port '" + output.port + "'");
    value->second = as_edge(tape, value->second, ports_.outputs, output);
    const Tensor& given = value->second.value();
    if (given.dtype() != output.tensor.dtype() || given.elements() != output.tensor.elements() ||
        given.columns() != output.tensor.columns()) {
      throw std::logic_error("output port '" + output.port + "' gave " + text_of(given) + ", its edge carries " +
                             text_of(output.tensor));
    }
    give(ops, given, output);
    if (!outputs_checked_ && context_.memory().holds_values()) check_numbers(output);
  }
  outputs_checked_ = true;
  if (keep) batch->outputs = std::move(sent);  // also values that other ranks send: their gradient comes to every rank
  PassMetrics metrics = results.pass_metrics();
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
      if (port == gradient.port) seed(batch->recording, var, gradient);
    }
  }
  batch->outputs.clear();
  section_->parameters().begin_backward(plan.index);
  repeat(PassKind::backward, [&] { batch->recording.backward(); });
  for (const PortTensor& wanted : input_gradients) {
    for (const auto& [port, var] : batch->inputs) {
      if (port != wanted.port) continue;
      if (var.gradient().defined()) {
        give(*context_.ops, var.gradient(), wanted);
      } else if (wanted.memory == MemoryKind::device) {
        context_.ops->zero(wanted.tensor);
      } else {
        std::memset(wanted.tensor.raw(), 0, wanted.tensor.bytes());
      }
    }
  }
  batch->retire();
  free_.push_back(std::move(batch));
}

void SectionRunner::repeat(PassKind kind, const std::function<void()>& calls) const {
  if (context_.parallel.layout.ranks() > 1) return calls();  // groups work in the order of the calls
  context_.ops->repeat(reinterpret_cast<std::uintptr_t>(this) + static_cast<std::uintptr_t>(kind), calls);
}

void SectionRunner::add_over_ranks() {
  section_->fetch_gradients();
  sum_over_holders(section_->parameters(), context_.parallel);
}

void SectionRunner::spread_to_parts() {
  Communicator* const group = context_.parallel.context_group;
  if (group == nullptr) return;
  const std::span<float> gradients = section_->parameters().gradients();
  const Tensor all(reinterpret_cast<std::byte*>(gradients.data()), DType::f32,
                   {1, static_cast<std::int64_t>(gradients.size())});
  const TensorBlock whole{0, 1, 0, static_cast<std::int64_t>(gradients.size())};
  std::vector<BlockTransfer> sends, receives;
  if (group->rank() > 0) receives.push_back({0, whole});
  for (std::int64_t part = 1; group->rank() == 0 && part < group->size(); ++part) sends.push_back({part, whole});
  group->exchange(all, sends, all, receives);
}

std::vector<std::span<float>> SectionRunner::counted_gradients() const {
  const Parameters& parameters = section_->parameters();
  std::vector<std::span<float>> spans;
  if (context_.parallel.layout.holders() == 1 && context_.parallel.rank == 0) {
    spans = {parameters.gradients()};
  } else {
    for (const HeldGradients& held : held_gradients(parameters, context_.parallel)) {
      if (held.counted) spans.insert(spans.end(), held.spans.begin(), held.spans.end());
    }
  }
  const Parameter* tied = context_.stage.first() ? nullptr : section_->tied();
  if (tied != nullptr && tied->trained()) spans = without(spans, tied->gradient().span<float>());
  const std::size_t learned = parameters.learned_elements();
  if (learned < parameters.gradients().size()) spans = without(spans, parameters.gradients().subspan(learned));
  if (!parameters.optimizer_sharded()) return spans;
  return within(spans, parameters.gradients(), parameters.kept_moments());
}

PendingSum SectionRunner::gradient_sum_of_squares() const {
  PendingSum sum;
  for (const std::span<float> span : counted_gradients()) sum.add(context_.ops->run(SumOfSquares{.values = span}));
  sum.add(row_sum_of_squares());
  return sum;
}

double SectionRunner::row_sum_of_squares() const {
  double sum = 0;
  for (const Parameter* table : section_->parameters().row_tables()) sum += table->row_gradients()->sum_of_squares();
  return sum;
}

PassMetrics SectionRunner::step_figures() const {
  Parameters& parameters = section_->parameters();
  const bool counts = parameters.learned_elements() < static_cast<std::size_t>(parameters.elements());
  return counts && context_.parallel.rank == 0 ? load_figures(*context_.ops, parameters) : PassMetrics();
}

Result<OptimizerStep> SectionRunner::step(StepId step, double norm, std::int64_t tokens) {
  const Result<double> factor = optimizer_.clip_factor(norm);
  if (!factor) return factor.error();
  const auto number = static_cast<std::int64_t>(step.value());
  Parameters& parameters = section_->parameters();
  const bool counts = parameters.learned_elements() < static_cast<std::size_t>(parameters.elements());
  if (counts && tokens > UpdateRule::most_counted) {
    return Error{ErrorCode::invalid_argument, "the step has " + std::to_string(tokens) +
                                                  " tokens; counts of experts' routes are exact up to " +
                                                  std::to_string(UpdateRule::most_counted) +
                                                  ": lower global_batch, or set balance = \"none\" in the section"};
  }
  optimizer_.step(*context_.ops, parameters, number, *factor, tokens, context_.parallel.tensor_group);
  if (parameters.optimizer_sharded()) parameters.stage_shard(*context_.ops, ParameterBuffer::values);
  return OptimizerStep{optimizer_.learning_rate(number), norm};
}

}  // namespace maestro
