// SPDX-License-Identifier: Apache-2.0
#include "linear_server.hpp"

#include <cstring>

namespace maestro::testing {

namespace {

std::vector<float> floats_of(const std::string& data) {
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}

std::string bytes_of(const float* values, std::size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(float)};
}

AcceptorOptions at(const std::string& address) {
  AcceptorOptions options;
  options.address = address;
  options.largest_message = 64 << 20;
  return options;
}

}  // namespace

std::vector<float> linear_values() {
  return {0.5F, -0.25F, 1.0F, -1.5F, 0.75F, 0.125F};
}

served::Tensor wire_tensor(const std::string& port, std::int64_t columns, const std::vector<float>& values) {
  served::Tensor tensor;
  tensor.port = port;
  tensor.dtype = served::DataType::FP32;
  tensor.rows = static_cast<std::int64_t>(values.size()) / columns;
  tensor.columns = columns;
  tensor.data = bytes_of(values.data(), values.size());
  return tensor;
}

served::Module linear_module(bool output) {
  served::Module module;
  served::Port x;
  x.name = "x";
  x.dtype = served::DataType::FP32;
  x.columns = linear_inputs;
  x.differentiable = true;
  module.inputs = {x};
  served::Port y = x;
  y.name = "y";
  y.columns = linear_outputs;
  if (output) module.outputs = {y};
  served::Parameter weight;
  weight.name = "weight";
  weight.shape = {linear_outputs, linear_inputs};
  weight.decayed = true;
  module.parameters = {weight};
  module.flops_per_row = 2.0 * linear_inputs * linear_outputs;
  module.fingerprint = "linear";
  module.description = "a linear module";
  return module;
}

void LinearSession::open(served::Module& module, const served::Session& /*session*/) {
  module = linear_module(output_);
}

void LinearSession::forward(served::PassResult& result, const served::MicroBatch& batch) {
  Kept pass{floats_of(batch.inputs.at(0).data), {}, batch.loss_scale};
  const std::size_t rows = pass.x.size() / linear_inputs;
  double loss = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t out = 0; out < linear_outputs; ++out) {
      double sum = 0;
      for (std::size_t in = 0; in < linear_inputs; ++in) {
        sum += static_cast<double>(pass.x[row * linear_inputs + in]) *
               static_cast<double>(values_[out * linear_inputs + in]);
      }
      pass.y.push_back(static_cast<float>(sum));
      loss += 0.5 * sum * sum;
    }
  }
  if (output_) {
    result.outputs = {wire_tensor("y", linear_outputs, pass.y)};
  } else {
    served::Metric metric;
    metric.name = "loss";
    metric.sum = loss;
    metric.weight = static_cast<double>(rows);
    result.metrics = {metric};
  }
  if (batch.keep) kept_[batch.number] = std::move(pass);
}

void LinearSession::backward(std::vector<served::Tensor>& input_gradients, std::int64_t number,
                             const std::vector<served::Tensor>& gradients) {
  const Kept pass = kept_.at(number);
  kept_.erase(number);
  std::vector<float> of_y = pass.y;  // the gradient of the loss is scale * y
  for (float& each : of_y) each = static_cast<float>(each * pass.scale);
  if (output_) of_y = gradients.empty() ? std::vector<float>(pass.y.size()) : floats_of(gradients[0].data);
  std::vector<float> of_x(pass.x.size());
  for (std::size_t row = 0; row < pass.x.size() / linear_inputs; ++row) {
    for (std::size_t out = 0; out < linear_outputs; ++out) {
      const float slope = of_y[row * linear_outputs + out];
      for (std::size_t in = 0; in < linear_inputs; ++in) {
        gradients_[out * linear_inputs + in] += slope * pass.x[row * linear_inputs + in];
        of_x[row * linear_inputs + in] += slope * values_[out * linear_inputs + in];
      }
    }
  }
  input_gradients = {wire_tensor("x", linear_inputs, of_x)};
}

void LinearSession::initial_values(std::string& values, const std::string& /*parameter*/, std::int64_t first,
                                   std::int64_t count) {
  values = bytes_of(linear_values().data() + first, static_cast<std::size_t>(count));
}

void LinearSession::set_values(const std::string& /*parameter*/, std::int64_t first, const std::string& values) {
  std::memcpy(values_.data() + first, values.data(), values.size());
}

void LinearSession::gradients(std::string& gradients, const std::string& /*parameter*/, std::int64_t first,
                              std::int64_t count) {
  gradients = bytes_of(gradients_.data() + first, static_cast<std::size_t>(count));
}

void LinearSession::clear_gradients() {
  gradients_.assign(gradients_.size(), 0);
}

LinearServer::LinearServer(const std::string& address, Make make)
    : server_(at(address), RpcServer::MakeProcessor([make = std::move(make)](Visitor& visitor) {
                visitor.admit();
                return std::make_shared<served::ServedModuleProcessor>(make());
              })) {}

}  // namespace maestro::testing
