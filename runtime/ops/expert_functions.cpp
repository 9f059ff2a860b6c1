// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/expert_functions.hpp"

#include <cmath>

#include "runtime/ops/call_checks.hpp"
#include "runtime/ops/expert_rows.hpp"

namespace maestro {

namespace {

std::span<const std::int32_t> ids_of(const Block& block) {
  return block.tensor().span<std::int32_t>();
}

/// Returns the routes to the experts `best` (M, k) of E, without their weights.
Routes sorted_routes(Tape& tape, const Block& best, std::int64_t experts) {
  const Shape shape = best.tensor().shape();
  Routes routes{.tokens = shape.rows(),
                .experts = best,
                .offsets = tape.scratch({experts + 1}, DType::i32),
                .row_tokens = tape.scratch({shape.elements()}, DType::i32),
                .row_routes = tape.scratch({shape.elements()}, DType::i32),
                .places = tape.scratch(shape, DType::i32),
                .weights = {}};
  tape.ops().run(SortRoutes{.experts = best.tensor(),
                            .offsets = routes.offsets.tensor(),
                            .tokens = routes.row_tokens.tensor(),
                            .routes = routes.row_routes.tensor(),
                            .places = routes.places.tensor()});
  return routes;
}

}  // namespace

Routes route(Tape& tape, const Var& logits, std::int64_t chosen, const RouteOptions& options, const Tensor& bias) {
  const Tensor& z = logits.value();
  check_route(z, chosen, options, bias);
  const std::int64_t rows = z.rows(), experts = z.columns(), count = rows * chosen;
  const OperatorTable& ops = tape.ops();
  const Block best = tape.scratch({rows, chosen}, DType::i32);
  const Block weights = tape.scratch({rows, chosen}, DType::f32);
  ops.run(Route{.logits = z, .bias = bias, .options = options, .experts = best.tensor(), .weights = weights.tensor()});
  Routes routes = sorted_routes(tape, best, experts);
  routes.weights = tape.output({count, 1}, DType::f32, logits.needs_gradient());
  const Var& by_row = routes.weights;
  ops.run(IndexSelect{
      .from = weights.tensor().reshaped({count, 1}), .index = ids_of(routes.row_routes), .to = by_row.value()});
  if (!by_row.needs_gradient()) return routes;
  tape.record(by_row, [&tape, logits, best, weights, by_row, options, count, places = routes.places] {
    const Block dweights = tape.scratch({count, 1}, DType::f32);
    tape.ops().run(IndexSelect{.from = by_row.gradient(), .index = ids_of(places), .to = dweights.tensor()});
    const Block dlogits = tape.scratch(logits.value().shape(), DType::f32);
    tape.ops().run(RouteBackward{.dweights = dweights.tensor().reshaped(weights.tensor().shape()),
                                 .logits = logits.value(),
                                 .experts = best.tensor(),
                                 .weights = weights.tensor(),
                                 .options = options,
                                 .dlogits = dlogits.tensor()});
    tape.add_gradient(logits, dlogits);
  });
  return routes;
}

Var log_sigmoid(Tape& tape, const Var& x) {
  const Shape shape = x.value().shape();
  const Var flat = reshaped(tape, x, Shape{shape.elements(), 1});
  const Var zeros = tape.output(flat.value().shape(), DType::f32, false);
  tape.ops().zero(zeros.value());
  // The first value in the log-softmax of x and 0.
  return reshaped(tape, slice(tape, log_softmax(tape, concat(tape, {flat, zeros})), 0, 1), shape);
}

namespace {

/// Returns (M, 1) f32 with one value, without a gradient.
Var column_with(Tape& tape, std::int64_t rows, float value) {
  Var column = tape.output({rows, 1}, DType::f32, false);
  const std::vector<float> values(static_cast<std::size_t>(rows), value);
  tape.ops().put(std::as_bytes(std::span(values)), column.value());
  return column;
}

/// Returns the weights without their scale, (M, k) f32, of the experts at the places `flat` (M k) of logits (M, E).
Var weights_at(Tape& tape, const Var& logits, const Block& flat, const Shape& shape, const RouteOptions& options) {
  const Var from = options.kind == RouterKind::softmax ? softmax(tape, logits) : logits;
  const Var elements = reshaped(tape, from, Shape{from.value().elements(), 1});
  const Var own = reshaped(tape, index_select(tape, elements, flat), shape);
  if (options.kind == RouterKind::softmax) return own;
  if (options.kind == RouterKind::chosen) return softmax(tape, own);
  if (!options.divided) return sigmoid(tape, own);
  // exp(log s) / (sum exp(log s) + exp(log a)): a softmax with a further term.
  const Var addend = column_with(tape, shape.rows(), static_cast<float>(std::log(options.divisor_addend)));
  return slice(tape, softmax(tape, concat(tape, {log_sigmoid(tape, own), addend})), 0, shape.columns());
}

}  // namespace

Routes route_to(Tape& tape, const Var& logits, std::int64_t chosen, const RouteOptions& options,
                std::span<const std::int32_t> experts) {
  check_route_to(logits.value(), chosen, experts);
  const std::int64_t rows = logits.value().rows(), count = logits.value().columns();
  std::vector<std::int32_t> flat(experts.begin(), experts.end());
  for (std::size_t at = 0; at < flat.size(); ++at) {
    flat[at] += static_cast<std::int32_t>(at) / static_cast<std::int32_t>(chosen) * static_cast<std::int32_t>(count);
  }
  const Block best = tape.scratch({rows, chosen}, DType::i32);
  tape.ops().put(std::as_bytes(experts), best.tensor());
  Routes routes = sorted_routes(tape, best, count);
  const Var weights = weights_at(tape, logits, tape.indices(flat), Shape{rows, chosen}, options);
  const Var scaled = options.scale == 1 ? weights : scale(tape, weights, options.scale);
  routes.weights = index_select(tape, reshaped(tape, scaled, Shape{rows * chosen, 1}), routes.row_routes);
  return routes;
}

Var sample_loads(Tape& tape, const Routes& routes, const TokenSamples& samples) {
  const std::int64_t experts = routes.offsets.tensor().elements() - 1;
  const Block loads = tape.scratch({samples.per_route.tensor().rows(), experts}, DType::f32);
  const Tensor& sums = loads.tensor();
  const OperatorTable& ops = tape.ops();
  ops.run(CountRoutes{.experts = routes.experts.tensor(), .starts = samples.starts.tensor(), .counts = sums});
  for (Communicator* const group : samples.groups) {
    if (group != nullptr) group->all_reduce_sum(sums.span<float>());
  }
  ops.run(Multiply{.a = sums, .b = samples.per_route.tensor(), .out = sums});
  Var by_token = tape.output({routes.tokens, experts}, DType::f32, false);
  ops.run(IndexSelect{.from = sums, .index = ids_of(samples.of_token), .to = by_token.value()});
  return by_token;
}

namespace {

/// The experts of a micro-batch's routes, with the operators that both passes use.
class RoutedExperts {
 public:
  RoutedExperts(Tape& tape, const Var& x, const Routes& routes, const ExpertMatrices& experts, Communicator* group)
      : tape_(&tape), x_(x), weights_(routes.weights), rows_(tape, routes, group), experts_(experts) {}

  /// Returns the first products' results, (R, 2F) act.
  [[nodiscard]] Block parts() const {
    Block made = product(rows_.rows_of(x_.value()), *experts_.in);
    add_bias(experts_.in_bias, {}, made);
    return made;
  }
  /// Returns the networks' results by row, (R, C) act, from their values times the rows' weights.
  [[nodiscard]] Block results(const Block& weighted) const {
    Block made = product(weighted, *experts_.out);
    add_bias(experts_.out_bias, rows_.weights(), made);
    return made;
  }
  [[nodiscard]] std::int64_t ffn() const { return experts_.out->shape().columns(); }
  /// Returns the networks' values (R, F) act from the first products' results.
  [[nodiscard]] Block values(const Block& parts) const {
    Block h = scratch(ffn());
    ops().run(Glu{.x = parts.tensor(), .y = h.tensor(), .gate = experts_.gate});
    return h;
  }
  /// Multiplies rows (R, F) by their routes' weights, in place.
  void weigh(const Block& rows) const {
    ops().run(Multiply{.a = rows.tensor(), .b = rows_.weights(), .out = rows.tensor()});
  }
  void combine(const Block& rows, const Tensor& to) const { rows_.combine(rows, to); }

  /// Adds the gradients of x, weights, matrices and biases, from dy (M, C) act.
  void backward(const Tensor& dy, const Block& parts) const {
    const Block dparts = scratch(2 * ffn());
    backward_out(rows_.rows_of(dy), parts, dparts);
    backward_in(dparts);
  }

 private:
  [[nodiscard]] const OperatorTable& ops() const { return tape_->ops(); }
  [[nodiscard]] Block scratch(std::int64_t columns) const {
    return tape_->scratch({rows_.count(), columns}, tape_->compute());
  }
  /// Returns the rows' products with their experts' matrices, (R, N) act.
  [[nodiscard]] Block product(const Block& rows, Parameter& weight) const {
    Block y = scratch(weight.shape()[0] / weight.groups());
    ops().run(GroupedLinear{.x = rows.tensor(),
                            .w = &weight.packed(ops(), tape_->compute(), PackFor::forward),
                            .offsets = rows_.offsets(),
                            .y = y.tensor(),
                            .rows_alone = tape_->rows_alone()});
    return y;
  }
  void add_bias(const Parameter* bias, const Tensor& weights, const Block& to) const {
    if (bias == nullptr) return;
    ops().run(GroupedBias{.bias = bias->value(), .offsets = rows_.offsets(), .weights = weights, .y = to.tensor()});
  }
  /// Adds the gradients of a bias and, if defined, of the rows' weights.
  void add_bias_gradient(const Block& dy, const Parameter* bias, const Tensor& weights, const Tensor& dweights) const {
    if (bias == nullptr || (!bias->trained() && !dweights.defined())) return;
    ops().run(GroupedBiasBackward{.dy = dy.tensor(),
                                  .bias = bias->value(),
                                  .offsets = rows_.offsets(),
                                  .weights = weights,
                                  .dbias = bias->gradient(),
                                  .dweights = dweights});
  }
  void add_weight_gradient(const Block& dy, const Block& x, Parameter& weight) const {
    if (!weight.trained()) return;
    ops().run(GroupedLinearBackwardWeight{
        .dy = dy.tensor(), .x = x.tensor(), .offsets = rows_.offsets(), .dw = weight.gradient()});
  }
  [[nodiscard]] Block input_gradient(const Block& dy, Parameter& weight) const {
    Block dx = scratch(weight.shape().columns());
    ops().run(GroupedLinearBackwardInput{.dy = dy.tensor(),
                                         .w = &weight.packed(ops(), tape_->compute(), PackFor::backward_input),
                                         .offsets = rows_.offsets(),
                                         .dx = dx.tensor()});
    return dx;
  }
  void backward_out(const Block& drows, const Block& parts, const Block& dparts) const {
    const Block h = values(parts);
    const Block dweighted = input_gradient(drows, *experts_.out);
    Block dweights;
    if (weights_.needs_gradient()) {
      dweights = tape_->scratch({rows_.count(), 1}, DType::f32);
      ops().run(RowDot{.a = dweighted.tensor(), .b = h.tensor(), .y = dweights.tensor()});
    }
    add_bias_gradient(drows, experts_.out_bias, rows_.weights(), dweights.tensor());
    if (dweights.defined()) rows_.add_weight_gradient(dweights);
    weigh(h);
    add_weight_gradient(drows, h, *experts_.out);
    weigh(dweighted);
    ops().run(GluBackward{.dy = dweighted.tensor(), .x = parts.tensor(), .dx = dparts.tensor(), .gate = experts_.gate});
  }
  void backward_in(const Block& dparts) const {
    add_bias_gradient(dparts, experts_.in_bias, {}, {});
    if (experts_.in->trained()) add_weight_gradient(dparts, rows_.rows_of(x_.value()), *experts_.in);
    if (!x_.needs_gradient()) return;
    const Block dx = tape_->scratch(x_.value().shape(), tape_->compute());
    combine(input_gradient(dparts, *experts_.in), dx.tensor());
    tape_->add_gradient(x_, dx);
  }

  Tape* tape_;
  Var x_;
  Var weights_;
  ExpertRows rows_;
  ExpertMatrices experts_;
};

}  // namespace

Var expert_networks(Tape& tape, const Var& x, const Routes& routes, const ExpertMatrices& experts,
                    Communicator* group) {
  check_experts(tape.compute(), x.value(), routes, experts, group == nullptr ? 1 : group->size());
  const bool needs_gradient = x.needs_gradient() || routes.weights.needs_gradient() || experts.in->trained();
  Var y = tape.output(x.value().shape(), tape.compute(), needs_gradient);
  const RoutedExperts work(tape, x, routes, experts, group);
  const Block parts = work.parts();
  const Block weighted = work.values(parts);
  work.weigh(weighted);
  work.combine(work.results(weighted), y.value());
  if (y.needs_gradient()) tape.record(y, [work, y, parts] { work.backward(y.gradient(), parts); });
  return y;
}

}  // namespace maestro
