// SPDX-License-Identifier: Apache-2.0
#include "sections/expert_balance.hpp"

#include <algorithm>
#include <cstring>

#include "sections/section_ranks.hpp"

namespace maestro {

namespace {

/// Copies `values` to a block (S, 1) f32.
Block column_of(Tape& tape, std::span<const float> values) {
  Block block = tape.scratch({std::ssize(values), 1}, DType::f32);
  tape.ops().put(std::as_bytes(values), block.tensor());
  return block;
}

/// Returns the log of the sum of each row's exponentials, (M, 1) f32.
Var log_sums(Tape& tape, const Var& scores) {
  return subtract(tape, slice(tape, scores, 0, 1), slice(tape, log_softmax(tape, scores), 0, 1));
}

void report_mean(Outputs& outputs, const char* name, const std::vector<Pending<LossSums>>& layers) {
  if (layers.empty()) return;
  outputs.metric([name, layers] {
    MetricSum sum{name};
    for (const Pending<LossSums>& layer : layers) {
      const LossSums known = layer.get();
      sum.sum += known.total;
      sum.weight += static_cast<double>(known.tokens);
    }
    return sum;
  });
}

}  // namespace

std::shared_ptr<ExpertBalance> ExpertBalance::of(Tape& tape, const Inputs& inputs, const Settings& settings,
                                                 const ParallelContext& parallel) {
  const bool wanted = settings.balance_weight > 0 || settings.z_weight > 0;
  if (!wanted || inputs.pass() != Pass::train || parallel.tensor() > 0) return nullptr;
  auto balance = std::make_shared<ExpertBalance>();
  balance->settings_ = settings;
  balance->token_scale_ = inputs.token_scale();
  const SequenceLayout& layout = inputs.layout();
  const RowRange own = context_rows(parallel, layout);
  const auto row_of = [&](std::int32_t offset) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(offset - own.first, 0, own.count));
  };
  std::vector<std::int32_t> starts, samples;
  std::vector<float> per_route;
  for (std::int32_t sample = 0; sample < layout.sequences(); ++sample) {
    const std::int32_t begin = layout.offsets[sample], end = layout.offsets[sample + 1];
    starts.push_back(row_of(begin));
    samples.resize(static_cast<std::size_t>(row_of(end)), sample);
    const double routes = static_cast<double>(settings.per_token * std::max(end - begin, 1));
    per_route.push_back(static_cast<float>(static_cast<double>(settings.experts) / routes));
  }
  starts.push_back(static_cast<std::int32_t>(own.count));
  balance->samples_ = {tape.indices(starts), tape.indices(samples), column_of(tape, per_route), parallel.context_group};
  return balance;
}

void ExpertBalance::add(Tape& tape, const Var& scores, const Routes& routes) {
  if (settings_.balance_weight > 0) {
    const Var products = dot(tape, softmax(tape, scores), sample_loads(tape, routes, samples_));
    balance_.push_back(sum_loss(tape, products, settings_.balance_weight * token_scale_));
  }
  if (settings_.z_weight > 0) {
    const Var sums = log_sums(tape, scores);
    z_.push_back(sum_loss(tape, mul(tape, sums, sums), settings_.z_weight * token_scale_));
  }
}

void ExpertBalance::report(Outputs& outputs) const {
  report_mean(outputs, "balance", balance_);
  report_mean(outputs, "router_z", z_);
}

}  // namespace maestro
