// SPDX-License-Identifier: Apache-2.0
#include "sections/served/served_section.hpp"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/core/result.hpp"

namespace maestro {

namespace {

using std::chrono::milliseconds;

constexpr int most_repeats = 3;  // limit for repeating a pass if servers end repeatedly

JobError run_ended() {
  return JobError("the run has ended", ErrorCode::cancelled);
}

/// Makes a call; throws ServiceLost instead of a missing server's error.
template <class Call>
auto or_lost(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const JobError& error) {
    if (server_missing(error)) throw ServiceLost(error.what());
    throw;
  }
}

ServedTensor named(const std::string& port, const Tensor& tensor, std::int64_t columns) {
  return {port, tensor.reshaped({tensor.elements() / columns, columns})};
}

}  // namespace

/// A pass between forward and backward, with the inputs and outputs that have gradients.
class ServedSection::KeptPass {
 public:
  KeptPass(std::int64_t number, std::vector<std::pair<Port, Var>> inputs, std::vector<std::pair<Port, Var>> outputs)
      : number_(number), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  void backward(Tape& tape, ServedSection& section) const {
    std::vector<ServedTensor> given, wanted;
    for (const auto& [port, var] : outputs_) {
      if (port.differentiable && var.gradient().defined()) {
        given.push_back(named(port.name, var.gradient(), port.columns));
      }
    }
    std::vector<Block> received;
    for (const auto& [port, var] : inputs_) {
      if (!port.differentiable) continue;
      received.push_back(tape.scratch(var.value().shape(), var.value().dtype()));
      wanted.push_back(named(port.name, received.back().tensor(), port.columns));
    }
    section.go_back(number_, given, wanted);
    std::size_t at = 0;
    for (const auto& [port, var] : inputs_) {
      if (!port.differentiable) continue;
      if (var.needs_gradient()) tape.add_gradient(var, received[at]);
      ++at;
    }
  }

 private:
  std::int64_t number_;
  std::vector<std::pair<Port, Var>> inputs_;
  std::vector<std::pair<Port, Var>> outputs_;
};

ServedSection::ServedSection(const SectionContext& context, ServedOptions options)
    : options_(std::move(options)),
      name_(context.name),
      replica_(context.replica),
      trained_(context.trained),
      backward_(context.trained || context.passes_gradient) {
  if (context.for_cuda || !context.memory().host()) {
    throw JobError(name_ + ".devices: a served section is computed by its server, and waits on a core here; leave " +
                   "devices out, or name cpu:K");
  }
  if (context.precision != DType::f32) {
    throw JobError(name_ + ".precision: the server of a served section chooses its arithmetic; leave precision out");
  }
  if (options_.module == nullptr) return;
  if (trained_ && module().parameters.empty()) {
    throw JobError(name_ + ".trained: the served module has no parameters to train; set " + name_ + ".trained = false");
  }
  if (!context.meta) {
    address_ = options_.addresses[static_cast<std::size_t>(replica_) % options_.addresses.size()];
    connect(options_.reconnect);
  }
  if (trained_) add_parameters(context);
}

ServedSection::~ServedSection() = default;

const ServedModule& ServedSection::module() const {
  static const ServedModule none;
  return options_.module == nullptr ? none : *options_.module;
}

void ServedSection::add_parameters(const SectionContext& context) {
  for (const ServedParameter& each : module().parameters) {
    parameters_.add({each.name, each.shape, each.decayed,
                     [this, name = each.name](std::span<float> values) { read_initial_values(name, values); }});
  }
  context.allocate(parameters_);
}

ServedSession ServedSection::session() const {
  return {name_, replica_, trained_, backward_};
}

void ServedSection::connect_once() {
  auto made = options_.connect(address_);
  {
    const std::lock_guard lock(mutex_);
    if (interrupted_) throw run_ended();
    connection_ = std::move(made);
  }
  const std::string other = difference(connection_->open(session()), module(), !trained_);
  if (!other.empty()) {
    throw JobError("the served module at " + address_ + " is not the one that section '" + name_ +
                   "' was checked with: " + other);
  }
  stale_ = true;
}

void ServedSection::connect(milliseconds patience) {
  connect_within(
      patience, [this] { connect_once(); },
      [this](milliseconds pause) {
        std::unique_lock lock(mutex_);
        if (interruption_.wait_for(lock, pause, [this] { return interrupted_; })) throw run_ended();
      });
}

/// Every replica begins with the values of the first server (SE-3, reproducible).
void ServedSection::read_initial_values(const std::string& parameter, std::span<float> values) {
  const std::string& first = options_.addresses.front();
  if (address_ == first) return connection_->read_initial_values(parameter, values);
  if (initial_ == nullptr) {
    initial_ = options_.connect(first);
    (void)initial_->open(session());
  }
  initial_->read_initial_values(parameter, values);
}

void ServedSection::write_values() {
  if (!trained_ || !stale_) return;
  initial_.reset();
  for (const Parameter& parameter : parameters_.all()) {
    connection_->write_values(parameter.name(), parameter.value().span<float>());
  }
  stale_ = false;
}

std::vector<MetricSum> ServedSection::compute(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                              std::span<const ServedTensor> outputs) {
  for (int repeats = 0;; ++repeats) {
    try {
      write_values();
      return connection_->forward(pass, inputs, outputs);
    } catch (const JobError& error) {
      if (!server_missing(error)) throw;
      const bool silent = error.code() == ErrorCode::timeout;  // another server would take as long
      if (backward_ || silent || repeats == most_repeats) throw ServiceLost(error.what());
    }
    or_lost([this] { connect(options_.reconnect); });
  }
}

void ServedSection::go_back(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                            std::span<const ServedTensor> input_gradients) {
  or_lost([&] { connection_->backward(pass, output_gradients, input_gradients); });
  summed_ = trained_;
}

void ServedSection::fetch_gradients() {
  or_lost([this] {
    if (!std::exchange(summed_, false)) return;
    for (const Parameter& parameter : parameters_.all()) {
      connection_->read_gradients(parameter.name(), parameter.gradient().span<float>());
    }
    connection_->clear_gradients();
  });
  stale_ = true;  // the optimizer's step follows
}

void ServedSection::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  ServedPass pass;
  pass.number = ++passes_;
  pass.keep = tape.recording();
  pass.training = inputs.pass() == Pass::train;
  for (const SampleId sample : inputs.samples()) pass.samples.push_back(static_cast<std::int64_t>(sample.value()));
  pass.tokens = inputs.lengths();
  pass.patches = inputs.lengths(Axis::patches);
  pass.visual = inputs.lengths(Axis::visual);
  pass.loss_scale = inputs.loss_scale();
  std::vector<ServedTensor> given, wanted;
  std::vector<std::pair<Port, Var>> from, to;
  for (const Port& port : module().ports.inputs) {
    from.emplace_back(port, inputs[port.name]);
    given.push_back(named(port.name, from.back().second.value(), port.columns));
  }
  for (const Port& port : module().ports.outputs) {
    const std::int64_t rows = inputs.layout(port.axis).rows();
    to.emplace_back(port, tape.output({rows, port.columns}, port.dtype, port.differentiable && backward_));
    wanted.push_back({port.name, to.back().second.value()});
  }
  for (const MetricSum& metric : compute(pass, given, wanted)) outputs.metric(metric.name, metric.sum, metric.weight);
  for (const auto& [port, var] : to) outputs.set(port.name, var);
  if (!pass.keep) return;
  tape.record_root(
      [this, &tape, kept = KeptPass(pass.number, std::move(from), std::move(to))] { kept.backward(tape, *this); });
}

Cost ServedSection::cost(const SampleShape& sample) const {
  const Ports& at = module().ports;
  const Axis axis = at.inputs.empty() ? Axis::tokens : at.inputs.front().axis;
  double bytes = 0;
  for (const auto* ports : {&at.inputs, &at.outputs}) {
    for (const Port& port : *ports) {
      const std::int64_t rows = sample.rows(port.axis);
      bytes += static_cast<double>(rows * port.columns) * static_cast<double>(size_of(port.dtype));
    }
  }
  Cost cost{module().flops_per_row * static_cast<double>(sample.rows(axis)), 0};
  cost.working = 2 * bytes;  // messages and frames
  return cost;
}

std::vector<StateEntry> ServedSection::state() {
  std::vector<StateEntry> entries;
  for (Parameter& parameter : parameters_.all()) entries.push_back({parameter.name(), &parameter, 0, 0, false});
  return entries;
}

std::string ServedSection::config_json() const {
  return nlohmann::json{{"model_type", served_type}, {"description", module().description}}.dump(2);
}

std::string ServedSection::description() const {
  if (options_.module == nullptr) return {};
  std::string text = "served at " + options_.addresses.front();
  for (std::size_t at = 1; at < options_.addresses.size(); ++at) text += ", " + options_.addresses[at];
  return text + (module().description.empty() ? "" : ": " + module().description);
}

void ServedSection::interrupt() noexcept {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  if (connection_ != nullptr) connection_->interrupt();
  interruption_.notify_all();
}

}  // namespace maestro
