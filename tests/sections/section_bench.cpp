// SPDX-License-Identifier: Apache-2.0
#include "tests/sections/section_bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "runtime/model/decoder_config.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/cpu/thread.hpp"

namespace maestro::testing {

Batch::Batch(std::vector<std::int32_t> packed_tokens, std::vector<std::int32_t> packed_targets,
             std::vector<std::int32_t> sample_offsets)
    : tokens(std::move(packed_tokens)), targets(std::move(packed_targets)), offsets(std::move(sample_offsets)) {
  for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
    for (std::int32_t position = 0; position < offsets[sample + 1] - offsets[sample]; ++position) {
      positions.push_back(position);
    }
    samples.emplace_back(sample);
  }
  with_patches(std::vector<std::int32_t>(samples.size(), 0));
}

namespace {

/// Fills a layout's arrays.
void lay_out(const std::vector<std::int32_t>& counts, std::vector<std::int32_t>& offsets,
             std::vector<std::int32_t>& positions) {
  offsets.assign(1, 0);
  positions.clear();
  for (const std::int32_t count : counts) {
    for (std::int32_t position = 0; position < count; ++position) positions.push_back(position);
    offsets.push_back(offsets.back() + count);
  }
}

}  // namespace

Batch& Batch::with_patches(const std::vector<std::int32_t>& counts) {
  lay_out(counts, patch_offsets, patch_positions);
  return *this;
}

Batch& Batch::with_visual(const std::vector<std::int32_t>& counts) {
  lay_out(counts, visual_offsets, visual_positions);
  return *this;
}

Batch Batch::random(std::uint64_t seed, const std::vector<std::int32_t>& lengths, std::int64_t ids) {
  Random random(seed);
  const auto token = [&] { return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(ids))); };
  std::vector<std::int32_t> tokens, targets, offsets{0};
  for (const std::int32_t length : lengths) {
    offsets.push_back(offsets.back() + length);
    for (std::int32_t position = 0; position < length; ++position) {
      tokens.push_back(token());
      targets.push_back(tokens.size() % 7 == 0 ? -1 : token());
    }
  }
  return {tokens, targets, offsets};
}

double Batch::target_tokens() const {
  return static_cast<double>(std::ranges::count_if(targets, [](std::int32_t target) { return target >= 0; }));
}

Bench::Bench() : ops(std::make_unique<cpu::CpuOperatorTable>()) {
  cpu::prepare_thread();
}

SectionContext Bench::context(std::string name, bool trained, DType precision) const {
  SectionContext context;
  context.name = std::move(name);
  context.seed = 42;
  context.precision = precision;
  context.trained = trained;
  context.ops = ops.get();
  return context;
}

MicroBatch::MicroBatch(Bench& bench, Section& section, const Batch& batch, Pass pass, DType precision)
    : section_(&section),
      batch_(&batch),
      tape_(*bench.ops, bench.arena, precision, pass == Pass::train),
      inputs_(pass, batch.samples, batch.layout(), 1.0 / batch.target_tokens(), batch.patches(), batch.visual()) {
  inputs_.set_token_scale(1.0 / static_cast<double>(batch.tokens.size()));
  inputs_.set_layout(Axis::heard, {batch.heard_offsets, batch.heard_positions});
  const auto borrowed = [](const std::vector<std::int32_t>& values) {
    return Tensor(const_cast<std::int32_t*>(values.data()), DType::i32, {static_cast<std::int64_t>(values.size())});
  };
  connect("tokens", borrowed(batch.tokens));
  connect("targets", borrowed(batch.targets));
}

void MicroBatch::connect(const std::string& port, const Tensor& value, bool differentiable) {
  inputs_.set(port, tape_.input(value, differentiable));
}

MicroBatch& MicroBatch::forward() {
  section_->forward(tape_, inputs_, outputs_);
  return *this;
}

double MicroBatch::metric(const std::string& name) const {
  const MetricSum found = metric_sum(name);
  return found.sum / found.weight;
}

MetricSum MicroBatch::metric_sum(const std::string& name) const {
  for (const MetricSum& metric : outputs_.metrics()) {
    if (metric.name == name) return metric;
  }
  throw std::out_of_range("metric " + name);
}

double evaluate(Bench& bench, Section& section, const Batch& batch, const Connect& connect, const std::string& metric) {
  MicroBatch pass(bench, section, batch, Pass::evaluate);
  if (connect) connect(pass);
  return pass.forward().metric(metric);
}

double differentiate(Bench& bench, Section& section, const Batch& batch, const Connect& connect) {
  std::ranges::fill(section.parameters().gradients(), 0.0f);
  MicroBatch pass(bench, section, batch);
  if (connect) connect(pass);
  const double loss = pass.forward().metric("loss");
  pass.backward();
  return loss;
}

namespace {

/// Returns the loss's slope along `direction` (unit length) from one parameter's values, which are restored.
double slope(Bench& bench, Section& section, const Batch& batch, const Connect& connect, Parameter& parameter,
             const std::vector<double>& direction) {
  // Errors: the third derivative times step^2 / 6, up to 2e-3 of the slope through three sections, and the loss's
  // rounding, about 1e-6, divided by twice the step. At 0.01 both are small compared with the tolerance below.
  constexpr double step = 0.01;
  const std::span<float> values = parameter.value().span<float>();
  const std::vector<float> before(values.begin(), values.end());
  const auto loss_at = [&](double distance) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(before[i] + distance * direction[i]);
    }
    section.parameters().values_changed();
    return evaluate(bench, section, batch, connect);
  };
  const double difference = loss_at(step) - loss_at(-step);
  std::ranges::copy(before, values.begin());
  section.parameters().values_changed();
  return difference / (2 * step);
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

std::vector<double> unit(std::vector<double> values) {
  const double norm = norm_of(values);
  for (double& value : values) value /= norm;
  return values;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

void expect_gradients_match_differences(Bench& bench, Section& section, const Batch& batch, const Connect& connect) {
  differentiate(bench, section, batch, connect);
  Random random(3);
  for (Parameter& parameter : section.parameters().all()) {
    const std::span<float> stored = parameter.gradient().span<float>();
    const std::vector<double> gradient(stored.begin(), stored.end());
    const double norm = norm_of(gradient);
    ASSERT_GT(norm, 0) << parameter.name();
    const double tolerance = 5e-3 * norm + 2e-4;
    EXPECT_NEAR(slope(bench, section, batch, connect, parameter, unit(gradient)), norm, tolerance) << parameter.name();
    std::vector<double> direction(gradient.size());
    for (double& value : direction) value = random.normal();
    direction = unit(direction);
    EXPECT_NEAR(slope(bench, section, batch, connect, parameter, direction), dot(gradient, direction), tolerance)
        << parameter.name();
  }
}

void randomise(Section& section, std::uint64_t seed) {
  Random random(seed);
  for (Parameter& parameter : section.parameters().all()) {
    if (parameter.rule().kind == UpdateRule::Kind::loads) continue;  // which stored values lack
    const bool matrix = parameter.shape().rank() == 2;
    for (float& value : parameter.value().span<float>()) {
      value = static_cast<float>((matrix ? 0.0 : value) + 0.15 * random.normal());
    }
  }
  section.parameters().values_changed();
}

Result<OptimizerStep> clipped_step(const AdamWOptimizer& optimizer, Bench& bench, Section& section,
                                   std::int64_t number) {
  const double norm = AdamWOptimizer::gradient_norm(*bench.ops, section.parameters());
  const auto factor = optimizer.clip_factor(norm);
  if (!factor) return factor.error();
  optimizer.step(*bench.ops, section.parameters(), number, *factor);
  return OptimizerStep{optimizer.learning_rate(number), norm};
}

double largest_difference(const ConstTensor& a, const ConstTensor& b) {
  EXPECT_EQ(a.elements(), b.elements());
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double difference = std::abs(double{a.data<float>()[i]} - double{b.data<float>()[i]});
    // NaN must not count as a small difference.
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

std::filesystem::path reference_folder(const std::string& model) {
  return std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/sections/references" / model;
}

std::vector<std::string> recorded_decoders() {
  std::vector<std::string> models{"gpt2_tied", "gpt2_untied", "llama_tied", "llama_untied", "llama_scaled"};
  for (const std::string_view family : decoder_family_names) {
    if (family != "gpt2" && family != "llama") models.emplace_back(family);
  }
  return models;
}

std::vector<std::int32_t> integers(const SafetensorsFile& file, const std::string& name) {
  const ConstTensor tensor = file.tensor(name).value_or_throw();
  const auto values = tensor.span<std::int32_t>();
  return {values.begin(), values.end()};
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "maestro-sections-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a remaining folder must not fail the test
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace maestro::testing
