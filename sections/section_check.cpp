// SPDX-License-Identifier: Apache-2.0
#include "sections/section_check.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <span>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/section_runner.hpp"

namespace maestro {

namespace {

/// Values of a port and its gradient, or its factors.
struct PortValues {
  Port port;
  std::vector<float> values;
  std::vector<std::int32_t> indices;  // instead of values
  std::vector<float> gradient;

  [[nodiscard]] PortTensor tensor(std::int64_t rows) {
    const Shape shape{rows, port.columns};
    const bool integers = port.dtype == DType::i32;
    return {port.name, integers ? Tensor(indices.data(), DType::i32, shape) : Tensor(values.data(), DType::f32, shape),
            port.differentiable};
  }
  [[nodiscard]] PortTensor gradient_tensor(std::int64_t rows) {
    return {port.name, Tensor(gradient.data(), DType::f32, {rows, port.columns})};
  }
};

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t at = 0; at < a.size(); ++at) sum += static_cast<double>(a[at]) * static_cast<double>(b[at]);
  return sum;
}

class Checked {
 public:
  Checked(const SectionFactory& factory, const GradientCheckOptions& options)
      : options_(options), random_(options.seed), runner_(factory(context()), context(), OptimizerConfig(), 1) {
    plan_.step = StepId(1);
    plan_.loss_scale = 1;
    for (std::size_t at = 0; at < options.rows.size(); ++at) {
      plan_.samples.push_back({SampleId(at), options.rows[at], options.rows[at], options.rows[at], 1});
    }
    const Ports ports = runner_.section().ports();
    for (const Port& port : ports.inputs) inputs_.push_back(drawn(port));
    for (const Port& port : ports.outputs) outputs_.push_back(drawn(port));
    for (PortValues& output : outputs_) output.gradient = normal(output.values.size());
  }

  std::vector<GradientCheck> run() {
    pass_back();
    std::vector<GradientCheck> checks;
    for (Parameter& parameter : runner_.section().parameters().all()) {
      checks.push_back(along(parameter.name(), parameter.value().span<float>(), parameter.gradient().span<float>()));
    }
    for (PortValues& input : inputs_) {
      if (input.port.differentiable) checks.push_back(along(input.port.name, input.values, input.gradient));
    }
    if (checks.empty()) throw JobError("the section has neither parameters nor differentiable inputs to check");
    return checks;
  }

 private:
  [[nodiscard]] SectionContext context() const {
    SectionContext context;
    context.name = "checked";
    context.seed = options_.seed;
    context.trained = true;
    context.ops = &ops_;
    return context;
  }

  std::vector<float> normal(std::size_t count) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random_);
    return values;
  }

  PortValues drawn(const Port& port) {
    if (port.columns <= 0 || (port.dtype != DType::i32 && port.dtype != DType::f32)) {
      throw JobError("port " + port.name + " cannot be checked: fp32 and i32 with a fixed number of columns can");
    }
    const auto count = static_cast<std::size_t>(plan_.rows(port.axis) * port.columns);
    PortValues values{port, {}, {}, std::vector<float>(count)};
    if (port.dtype == DType::f32) {
      values.values = normal(count);
      return values;
    }
    std::uniform_int_distribution<std::int32_t> index(0, static_cast<std::int32_t>(options_.below) - 1);
    values.indices.resize(count);
    for (std::int32_t& value : values.indices) value = index(random_);
    return values;
  }

  PassMetrics pass(Pass pass) {
    plan_.pass = pass;
    std::vector<PortTensor> inputs, outputs;
    for (PortValues& input : inputs_) inputs.push_back(input.tensor(plan_.rows(input.port.axis)));
    for (PortValues& output : outputs_) outputs.push_back(output.tensor(plan_.rows(output.port.axis)));
    return runner_.forward(plan_, inputs, outputs);
  }

  void pass_back() {
    (void)pass(Pass::train);
    std::vector<PortTensor> from, to;
    for (PortValues& output : outputs_) {
      if (output.port.differentiable) from.push_back(output.gradient_tensor(plan_.rows(output.port.axis)));
    }
    for (PortValues& input : inputs_) {
      if (input.port.differentiable) to.push_back(input.gradient_tensor(plan_.rows(input.port.axis)));
    }
    runner_.backward(plan_, from, to);
  }

  double value() {
    double sum = 0;
    for (const MetricSum& metric : pass(Pass::evaluate).get()) {
      if (metric.name == "loss") sum += metric.sum;
    }
    for (const PortValues& output : outputs_) {
      if (output.port.differentiable) sum += dot(output.values, output.gradient);
    }
    return sum;
  }

  /// Leaves the values as they were.
  GradientCheck along(const std::string& name, std::span<float> values, std::span<const float> gradient) {
    std::vector<float> direction = normal(values.size());
    const double length = std::sqrt(dot(direction, direction));
    for (float& part : direction) part = static_cast<float>(part / length);
    const std::vector<float> before(values.begin(), values.end());
    const auto value_at = [&](double distance) {
      for (std::size_t at = 0; at < values.size(); ++at) {
        values[at] = static_cast<float>(before[at] + distance * direction[at]);
      }
      runner_.section().parameters().values_changed();
      return value();
    };
    const double difference = value_at(options_.distance) - value_at(-options_.distance);
    std::ranges::copy(before, values.begin());
    runner_.section().parameters().values_changed();
    return {name, dot(gradient, direction), difference / (2 * options_.distance)};
  }

  GradientCheckOptions options_;
  std::mt19937_64 random_;
  cpu::CpuOperatorTable ops_;
  SectionRunner runner_;
  MicroBatchPlan plan_;
  std::vector<PortValues> inputs_;
  std::vector<PortValues> outputs_;
};

}  // namespace

bool GradientCheck::agrees(double tolerance) const {
  const double size = std::max({std::abs(backward), std::abs(forward), 1e-4});
  return std::abs(backward - forward) <= tolerance * size;
}

std::string GradientCheck::text() const {
  return name + ": " + number_text(backward) + " by the backward pass, " + number_text(forward) +
         " by differences of the forward pass";
}

std::vector<GradientCheck> check_gradients(const SectionFactory& factory, const GradientCheckOptions& options) {
  return Checked(factory, options).run();
}

}  // namespace maestro
