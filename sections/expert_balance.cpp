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

std::shared_ptr<ExpertBalance> ExpertBalance::of(Tape& tape, const Inputs& inputs, const ExpertConfig& experts,
                                                 const ParallelContext& parallel) {
  const bool own_rows = parallel.layout.expert > 1;
  if (!experts.judged() || inputs.pass() != Pass::train || (parallel.tensor() > 0 && !own_rows)) return nullptr;
  auto balance = std::make_shared<ExpertBalance>();
  balance->experts_ = experts;
  balance->token_scale_ = inputs.token_scale();
  const SequenceLayout& layout = inputs.layout();
  const RowRange own = routed_rows(parallel, layout);
  const auto row_of = [&](std::int32_t offset) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(offset - own.first, 0, own.count));
  };
  std::vector<std::int32_t> starts, samples;
  std::vector<float> per_route;
  for (std::int32_t sample = 0; sample < layout.sequences(); ++sample) {
    const std::int32_t begin = layout.offsets[sample], end = layout.offsets[sample + 1];
    starts.push_back(row_of(begin));
    samples.resize(static_cast<std::size_t>(row_of(end)), sample);
    const double routes = static_cast<double>(experts.per_token * std::max(end - begin, 1));
    per_route.push_back(static_cast<float>(static_cast<double>(experts.count) / routes));
  }
  starts.push_back(static_cast<std::int32_t>(own.count));
  const std::int32_t all[] = {0, static_cast<std::int32_t>(own.count)};
  balance->all_rows_ = tape.indices(all);
  balance->zeros_ = tape.indices(std::vector<std::int32_t>(static_cast<std::size_t>(own.count)));
  balance->samples_ = {tape.indices(starts),
                       tape.indices(samples),
                       column_of(tape, per_route),
                       {own_rows ? parallel.tensor_group : nullptr, parallel.context_group}};
  return balance;
}

namespace {

/// Returns the row (1, E) for each of the tokens `zeros` (M): (M, E) f32, without a gradient.
Var for_each_token(Tape& tape, const Tensor& row, const Block& zeros) {
  Var rows = tape.output({zeros.tensor().elements(), row.elements()}, DType::f32, false);
  tape.ops().run(IndexSelect{
      .from = row.reshaped({1, row.elements()}), .index = zeros.tensor().span<std::int32_t>(), .to = rows.value()});
  return rows;
}

}  // namespace

void ExpertBalance::count(Tape& tape, const Routes& routes, const Counted& counted) const {
  if (counted.loads == nullptr || !tape.recording()) return;
  std::vector<Parameter*> parameters{counted.loads};
  if (experts_.balance == LoadBalance::bias) parameters.push_back(counted.bias);
  tape.record_root([&tape, chosen = routes.experts, rows = all_rows_, parameters, experts = experts_.count] {
    const Block counts = tape.scratch({1, experts}, DType::f32);
    const OperatorTable& ops = tape.ops();
    ops.run(CountRoutes{.experts = chosen.tensor(), .starts = rows.tensor(), .counts = counts.tensor()});
    for (const Parameter* each : parameters) {
      const Tensor sums = each->gradient().reshaped({1, experts});
      ops.run(Add{.a = sums, .b = counts.tensor(), .out = sums});  // unlike AddInto part of a recorded pass (OC-2)
    }
  });
}

void ExpertBalance::add(Tape& tape, const Var& scores, const Routes& routes, const Counted& counted) {
  if (const double weight = experts_.balance_weight.value_or(0); weight > 0) {
    const bool sigmoids = experts_.router.kind == RouterKind::sigmoid;
    const Var shares = softmax(tape, sigmoids ? log_sigmoid(tape, scores) : scores);
    const bool before = experts_.balance == LoadBalance::batch;
    const Var loads =
        before ? for_each_token(tape, counted.loads->value(), zeros_) : sample_loads(tape, routes, samples_);
    balance_.push_back(sum_loss(tape, dot(tape, shares, loads), weight * token_scale_));
  }
  count(tape, routes, counted);
  if (experts_.z_weight > 0) {
    const Var sums = log_sums(tape, scores);
    z_.push_back(sum_loss(tape, mul(tape, sums, sums), experts_.z_weight * token_scale_));
  }
}

void ExpertBalance::report(Outputs& outputs) const {
  report_mean(outputs, "balance", balance_);
  report_mean(outputs, "router_z", z_);
}

PassMetrics load_figures(const OperatorTable& ops, Parameters& parameters) {
  PassMetrics figures;
  auto layers = std::make_shared<std::vector<std::vector<float>>>();
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.rule().kind != UpdateRule::Kind::loads) continue;
    layers->emplace_back(static_cast<std::size_t>(parameter.shape().elements()));
    ops.download(parameter.value(), Tensor(layers->back().data(), DType::f32, parameter.shape()));
  }
  if (layers->empty()) return figures;
  const auto mean = [&](const char* name, double (*of)(const std::vector<float>& loads)) {
    figures.add([name, layers, of] {
      MetricSum sum{name};
      for (const std::vector<float>& loads : *layers) sum.sum += of(loads);
      sum.weight = static_cast<double>(layers->size());
      return sum;
    });
  };
  mean("load_max", [](const std::vector<float>& loads) { return static_cast<double>(std::ranges::max(loads)); });
  mean("load_idle", [](const std::vector<float>& loads) {
    return static_cast<double>(std::ranges::count(loads, 0.0F)) / static_cast<double>(loads.size());
  });
  return figures;
}

}  // namespace maestro
