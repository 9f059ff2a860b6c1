// SPDX-License-Identifier: Apache-2.0
#include "actors/served/served_connection.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>

#include "actors/rpc/rpc_client.hpp"
#include "actors/served/ServedModule.h"
#include "actors/served/module_report.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {

using std::chrono::milliseconds;

constexpr std::int32_t protocol_version = 1;
constexpr std::int32_t largest_answer = 1 << 30;               // bytes
constexpr std::int64_t part_elements = std::int64_t{4} << 20;  // elements of a parameter in a message
constexpr std::size_t most_metrics = 64;
constexpr std::size_t longest_metric = 64;

ConnectionOptions connection_options(const ServedAddress& at) {
  ConnectionOptions options;
  options.address = at.address;
  options.service = "served module";
  options.keys = at.keys;
  options.connect_patience = std::min(options.connect_patience, at.patience);
  options.answer_patience = at.patience;
  options.largest_message = largest_answer;
  options.may_want_tls = false;
  return options;
}

std::vector<served::Tensor> on_wire(std::span<const ServedTensor> tensors) {
  std::vector<served::Tensor> sent(tensors.size());
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    const Tensor& tensor = tensors[at].tensor;
    sent[at].port = tensors[at].port;
    sent[at].dtype = wire_of(tensor.dtype());
    sent[at].rows = tensor.rows();
    sent[at].columns = tensor.columns();
    sent[at].data.assign(reinterpret_cast<const char*>(tensor.raw()), tensor.bytes());
  }
  return sent;
}

std::string form(std::string_view dtype, std::int64_t rows, std::int64_t columns) {
  return std::string(dtype) + " (" + std::to_string(rows) + ", " + std::to_string(columns) + ")";
}

/// Returns why `sent` is not the expected tensor; empty if it is.
std::string mismatch(const served::Tensor& sent, const Tensor& expected) {
  const auto dtype = dtype_of_wire(sent.dtype);
  const std::string is = form(dtype ? name_of(*dtype) : "an unknown dtype", sent.rows, sent.columns);
  const std::string wanted = form(name_of(expected.dtype()), expected.rows(), expected.columns());
  if (is != wanted) return "is " + is + ", expected " + wanted;
  if (sent.data.size() == expected.bytes()) return {};
  return "has " + std::to_string(sent.data.size()) + " bytes, expected " + std::to_string(expected.bytes());
}

/// Writes the tensors and returns an empty text, or returns the error and writes nothing.
std::string take(const std::vector<served::Tensor>& sent, std::span<const ServedTensor> wanted, const char* kind) {
  if (sent.size() != wanted.size()) {
    return "it sent " + std::to_string(sent.size()) + " " + kind + "s, expected " + std::to_string(wanted.size());
  }
  std::vector<const served::Tensor*> found;
  for (const ServedTensor& each : wanted) {
    const auto at = std::ranges::find(sent, each.port, &served::Tensor::port);
    const std::string which = std::string(kind) + " '" + each.port + "'";
    if (at == sent.end()) return which + " is missing";
    if (const std::string why = mismatch(*at, each.tensor); !why.empty()) return which + " " + why;
    found.push_back(&*at);
  }
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    if (!found[at]->data.empty()) std::memcpy(wanted[at].tensor.raw(), found[at]->data.data(), found[at]->data.size());
  }
  return {};
}

/// Returns whether the metric can be a column of the record.
bool usable(const served::Metric& metric) {
  const auto allowed = [](unsigned char each) { return std::isalnum(each) != 0 || each == '_'; };
  return !metric.name.empty() && metric.name.size() <= longest_metric && std::ranges::all_of(metric.name, allowed) &&
         std::isfinite(metric.weight) && metric.weight >= 0;
}

}  // namespace

struct ServedConnection::State {
  explicit State(const ServedAddress& at)
      : address(at.address), connection(connection_options(at)), client(connection.protocol()) {}
  std::string address;
  RpcClient connection;
  served::ServedModuleClient client;
};

ServedConnection::ServedConnection(const ServedAddress& at) : state_(std::make_unique<State>(at)) {}
ServedConnection::~ServedConnection() = default;

void ServedConnection::refuse(const std::string& reason) const {
  throw JobError("the served module at " + state_->address + ": " + reason);
}

template <class Call>
auto ServedConnection::call(Call&& made) {
  try {
    return state_->connection.invoke(std::forward<Call>(made));
  } catch (const served::Refused& refused) {
    refuse("it refuses: " + printable(refused.reason, 400));
  } catch (const std::bad_alloc&) {
    refuse("its answer does not fit in memory");
  }
}

ServedModule ServedConnection::open(const ServedSession& session) {
  served::Session sent;
  sent.version = protocol_version;
  sent.section = session.section;
  sent.replica = session.replica;
  sent.trained = session.trained;
  sent.backward = session.backward;
  served::Module module;
  call([&] { state_->client.open(module, sent); });
  try {
    return checked_module(module);
  } catch (const JobError& problem) {
    refuse(problem.what());
  }
}

std::vector<MetricSum> ServedConnection::forward(const ServedPass& pass, std::span<const ServedTensor> inputs,
                                                 std::span<const ServedTensor> outputs) {
  served::MicroBatch batch;
  batch.number = pass.number;
  batch.keep = pass.keep;
  batch.training = pass.training;
  batch.samples = pass.samples;
  batch.tokens = pass.tokens;
  batch.patches = pass.patches;
  batch.__set_visual(pass.visual);
  batch.loss_scale = pass.loss_scale;
  batch.inputs = on_wire(inputs);
  served::PassResult result;
  call([&] { state_->client.forward(result, batch); });
  if (result.metrics.size() > most_metrics) refuse("it sent " + std::to_string(result.metrics.size()) + " metrics");
  std::vector<MetricSum> metrics;
  for (const served::Metric& metric : result.metrics) {
    if (!usable(metric)) {
      refuse("metric \"" + printable(metric.name) + "\" with weight " + number_text(metric.weight) +
             " is invalid; a name is letters, digits and _, a weight 0 or more");
    }
    metrics.push_back({metric.name, metric.sum, metric.weight});
  }
  if (const std::string wrong = take(result.outputs, outputs, "output"); !wrong.empty()) refuse(wrong);
  return metrics;
}

void ServedConnection::backward(std::int64_t pass, std::span<const ServedTensor> output_gradients,
                                std::span<const ServedTensor> input_gradients) {
  std::vector<served::Tensor> gradients;
  call([&] { state_->client.backward(gradients, pass, on_wire(output_gradients)); });
  if (const std::string wrong = take(gradients, input_gradients, "input gradient"); !wrong.empty()) refuse(wrong);
}

namespace {

/// Calls part(first, count) until all elements are covered.
template <class Part>
void in_parts(std::size_t elements, Part part) {
  const auto all = static_cast<std::int64_t>(elements);
  for (std::int64_t first = 0; first < all; first += part_elements) part(first, std::min(part_elements, all - first));
}

/// Writes the part and returns an empty text, or returns the error.
std::string take_part(const std::string& sent, std::span<float> into, std::int64_t first, std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  if (sent.size() != bytes) return " has " + std::to_string(sent.size()) + " bytes, expected " + std::to_string(bytes);
  std::memcpy(into.data() + first, sent.data(), bytes);
  return {};
}

}  // namespace

void ServedConnection::read_initial_values(const std::string& parameter, std::span<float> values) {
  in_parts(values.size(), [&](std::int64_t first, std::int64_t count) {
    std::string sent;
    call([&] { state_->client.initial_values(sent, parameter, first, count); });
    const std::string wrong = take_part(sent, values, first, count);
    if (!wrong.empty()) refuse("parameter '" + parameter + "'" + wrong);
  });
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
    refuse("parameter '" + parameter + "' has initial values that are not finite");
  }
}

void ServedConnection::read_gradients(const std::string& parameter, std::span<float> gradients) {
  in_parts(gradients.size(), [&](std::int64_t first, std::int64_t count) {
    std::string sent;
    call([&] { state_->client.gradients(sent, parameter, first, count); });
    const std::string wrong = take_part(sent, gradients, first, count);
    if (!wrong.empty()) refuse("the gradient of parameter '" + parameter + "'" + wrong);
  });
}

void ServedConnection::write_values(const std::string& parameter, std::span<const float> values) {
  in_parts(values.size(), [&](std::int64_t first, std::int64_t count) {
    const std::string sent(reinterpret_cast<const char*>(values.data() + first),
                           static_cast<std::size_t>(count) * sizeof(float));
    call([&] { state_->client.set_values(parameter, first, sent); });
  });
}

void ServedConnection::clear_gradients() {
  call([&] { state_->client.clear_gradients(); });
}

void ServedConnection::interrupt() noexcept {
  state_->connection.shut_down();
}

}  // namespace maestro
