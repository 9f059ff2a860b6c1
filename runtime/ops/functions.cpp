// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/functions.hpp"

#include <utility>

#include "runtime/ops/call_checks.hpp"

namespace maestro {

namespace {

const Tensor none;

Tensor gradient_of(Parameter* parameter) {
  return parameter == nullptr ? none : parameter->gradient();
}
Tensor value_of(Parameter* parameter) {
  return parameter == nullptr ? none : parameter->value();
}

/// Returns a weight of any rank as (N, K).
Tensor as_matrix(const Tensor& weight) {
  const std::int64_t rows = weight.shape()[0];
  return weight.shape().rank() == 2 ? weight : weight.reshaped(Shape{rows, weight.elements() / rows});
}

}  // namespace

Var embedding(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table, const SequenceLayout& layout,
              double scale) {
  check_embedding(ids, table, positions_table, layout.positions.size());
  Var y = tape.output({ids.elements(), table.shape().columns()}, DType::f32, table.trained());
  tape.ops().run(Embedding{.table = table.value(),
                           .packed = table.packed_rows(tape.ops(), tape.compute()),
                           .ids = ids,
                           .positions_table = value_of(positions_table),
                           .positions = layout.positions,
                           .y = y.value(),
                           .scale = scale});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, &table, ids, positions_table, positions = layout.positions, y, scale] {
    tape.ops().run(EmbeddingBackward{.dy = y.gradient(),
                                     .ids = ids,
                                     .positions = positions,
                                     .dtable = table.gradient(),
                                     .dpositions = gradient_of(positions_table),
                                     .scale = scale});
  });
  return y;
}

Var linear(Tape& tape, const Var& x, Parameter& weight, Parameter* bias) {
  return linear(tape, x, weight, bias, tape.compute());
}

Var linear(Tape& tape, const Var& x, Parameter& weight, Parameter* bias, DType compute) {
  check_product("linear", compute, x.value(), weight, bias);
  Var y = tape.output({x.value().rows(), weight.shape()[0]}, compute, x.needs_gradient() || weight.trained());
  tape.ops().run(Linear{.x = x.value(),
                        .w = &weight.packed(tape.ops(), compute, PackFor::forward),
                        .bias = value_of(bias),
                        .y = y.value(),
                        .rows_alone = tape.rows_alone()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, bias, compute] {
    const Block dy = tape.gradient_block(y);
    if (weight.trained()) {
      tape.ops().run(LinearBackwardWeight{
          .dy = dy.tensor(), .x = x.value(), .dw = as_matrix(weight.gradient()), .dbias = gradient_of(bias)});
    }
    if (!x.needs_gradient()) return;
    const Tape::Target dx = tape.gradient_target(x);
    tape.ops().run(LinearBackwardInput{.dy = dy.tensor(),
                                       .w = &weight.packed(tape.ops(), compute, PackFor::backward_input),
                                       .dx = dx.tensor,
                                       .accumulate = dx.accumulate});
  });
  return y;
}

namespace {

/// Destination of a norm's backward pass: the gradient of its input, or memory that nothing reads.
struct NormTarget {
  Tape::Target target;
  Block unused;
};
NormTarget norm_target(Tape& tape, const Var& x) {
  if (x.needs_gradient()) return {tape.gradient_target(x), {}};
  Block unused = tape.scratch(x.value().shape(), x.value().dtype());
  return {{unused.tensor(), false}, unused};
}

/// Operands of a sum; undefined: nothing.
struct Addends {
  Var residual;
  Var branch;
};

/// Adds a sum's gradient to its addends' gradients; `rounded`: the same in the branch's dtype, or undefined.
void add_gradients(Tape& tape, const Addends& to, const Block& dy, const Block& rounded) {
  if (to.branch.needs_gradient()) tape.add_gradient(to.branch, rounded.defined() ? rounded : dy);
  if (to.residual.needs_gradient()) tape.add_gradient(to.residual, dy);
}

/// Returns memory for a branch's gradient rounded to y's dtype, if the sum has another dtype; else undefined.
Block rounded_gradient(Tape& tape, const Addends& of, const Var& sum, const Var& y) {
  if (!of.branch.defined() || !of.branch.needs_gradient()) return {};
  const DType dtype = of.branch.value().dtype();
  if (dtype == sum.value().dtype() || dtype != y.value().dtype()) return {};
  return tape.scratch(of.branch.value().shape(), dtype);
}

/// Runs `call`, a norm of x (the sum of `addends`, with call.added), with its parameters and results filled in, and
/// records its backward pass. A null bias: RMS norm.
Var normed(Tape& tape, const Var& x, Parameter& weight, Parameter* bias, Norm call, const Addends& addends = {}) {
  check_norm(bias == nullptr ? "rms_norm" : "layer_norm", tape.compute(), x.value(), weight, bias);
  const std::int64_t rows = x.value().rows();
  Var y = tape.output(x.value().shape(), tape.compute(), x.needs_gradient() || weight.trained());
  const Block mean = bias == nullptr ? Block() : tape.scratch({rows}, DType::f32);
  const Block rstd = tape.scratch({rows}, DType::f32);
  call.weight = weight.value();
  call.bias = value_of(bias);
  call.y = y.value();
  call.mean = mean.tensor();
  call.rstd = rstd.tensor();
  tape.ops().run(call);
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, bias, mean, rstd, offset = call.offset, addends] {
    const NormTarget dx = norm_target(tape, x);
    const Block rounded = rounded_gradient(tape, addends, x, y);
    tape.ops().run(NormBackward{.dy = y.gradient(),
                                .x = x.value(),
                                .weight = weight.value(),
                                .mean = mean.tensor(),
                                .rstd = rstd.tensor(),
                                .dx = dx.target.tensor,
                                .accumulate = dx.target.accumulate,
                                .rounded = rounded.tensor(),
                                .dweight = weight.gradient(),
                                .dbias = gradient_of(bias),
                                .offset = offset});
    // The norm is the last operator that adds to the gradient of the sum.
    if (rounded.defined()) add_gradients(tape, addends, tape.take_gradient(x), rounded);
  });
  return y;
}

Var sum_output(Tape& tape, const Var& residual, const Var& branch) {
  check_sum("add", residual.value(), branch.value());
  return tape.output(residual.value().shape(), DType::f32, residual.needs_gradient() || branch.needs_gradient());
}
void record_add(Tape& tape, const Addends& addends, const Var& y) {
  if (!y.needs_gradient()) return;
  tape.record(y, [&tape, addends, y] { add_gradients(tape, addends, tape.gradient_block(y), {}); });
}

}  // namespace

Var layer_norm(Tape& tape, const Var& x, Parameter& weight, Parameter& bias, double epsilon) {
  return normed(tape, x, weight, &bias, {.x = x.value(), .epsilon = epsilon});
}

Var rms_norm(Tape& tape, const Var& x, Parameter& weight, double epsilon, double offset) {
  return normed(tape, x, weight, nullptr, {.x = x.value(), .epsilon = epsilon, .offset = offset});
}

Var add(Tape& tape, const Var& residual, const Var& branch) {
  Var y = sum_output(tape, residual, branch);
  tape.ops().run(Add{.a = residual.value(), .b = branch.value(), .out = y.value()});
  record_add(tape, {residual, branch}, y);
  return y;
}

namespace {

NormedSum normed_sum(Tape& tape, const Var& residual, const Var& branch, const Affine& affine, Norm call) {
  const Var sum = sum_output(tape, residual, branch);
  record_add(tape, {residual, branch}, sum);
  call.x = residual.value();
  call.added = branch.value();
  call.sum = sum.value();
  return {sum, normed(tape, sum, *affine.weight, affine.bias, call, {residual, branch})};
}

}  // namespace

NormedSum add_layer_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, Parameter& bias,
                         double epsilon) {
  return normed_sum(tape, residual, branch, {&weight, &bias}, {.epsilon = epsilon});
}

NormedSum add_rms_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, double epsilon,
                       double offset) {
  return normed_sum(tape, residual, branch, {&weight}, {.epsilon = epsilon, .offset = offset});
}

Var index_add(Tape& tape, const Var& x, const Var& rows, const Block& index) {
  check_rows("index_add", x.value(), index.tensor(), rows.value());
  Var y = tape.output(x.value().shape(), DType::f32, x.needs_gradient() || rows.needs_gradient());
  tape.ops().run(Cast{.from = x.value(), .to = y.value()});
  tape.ops().run(IndexAdd{.rows = rows.value(), .index = index.tensor().span<std::int32_t>(), .to = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, rows, index, y] {
    if (rows.needs_gradient()) {
      const Block drows = tape.scratch(rows.value().shape(), rows.value().dtype());
      tape.ops().run(
          IndexSelect{.from = y.gradient(), .index = index.tensor().span<std::int32_t>(), .to = drows.tensor()});
      tape.add_gradient(rows, drows);
    }
    if (x.needs_gradient()) tape.add_gradient(x, tape.gradient_block(y));
  });
  return y;
}

Var index_select(Tape& tape, const Var& x, const Block& index) {
  const Tensor& from = x.value();
  check_rows("index_select", from, index.tensor());
  Var y = tape.output({index.tensor().elements(), from.columns()}, from.dtype(), x.needs_gradient());
  tape.ops().run(IndexSelect{.from = from, .index = index.tensor().span<std::int32_t>(), .to = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, index, y] {
    const Tape::Target dx = tape.gradient_target(x);
    if (!dx.accumulate) tape.ops().zero(dx.tensor);
    tape.ops().run(IndexAdd{.rows = y.gradient(), .index = index.tensor().span<std::int32_t>(), .to = dx.tensor});
  });
  return y;
}

Var converted(Tape& tape, const Var& x, DType dtype) {
  if (x.value().dtype() == dtype) return x;
  check_pointwise("converted", x.value());
  Var y = tape.output(x.value().shape(), dtype, x.needs_gradient());
  tape.ops().run(Cast{.from = x.value(), .to = y.value()});
  if (y.needs_gradient()) tape.record(y, [&tape, x, y] { tape.add_gradient(x, tape.gradient_block(y)); });
  return y;
}

void keep(Tape& tape, const Block& memory) {
  tape.record_root([memory] {});  // runs, and releases, after everything recorded from here on
}

void keep(Tape& tape, std::shared_ptr<const void> memory) {
  tape.record_root([memory = std::move(memory)] {});
}

namespace {

struct GeluNetwork {
  Var x, y;
  Affine in, out;
  GeluKind activation;
  Block pre, inner;  // before and after the activation
};

void gelu_network_backward(Tape& tape, const GeluNetwork& network) {
  const auto& [x, y, in, out, activation, pre, inner] = network;
  const OperatorTable& ops = tape.ops();
  const Block dy = tape.gradient_block(y);
  if (out.weight->trained()) {
    ops.run(LinearBackwardWeight{
        .dy = dy.tensor(), .x = inner.tensor(), .dw = out.weight->gradient(), .dbias = gradient_of(out.bias)});
  }
  if (!x.needs_gradient() && !in.weight->trained()) return;
  const Block dpre = tape.scratch(pre.tensor().shape(), pre.tensor().dtype());
  ops.run(LinearBackwardInput{.dy = dy.tensor(),
                              .w = &out.weight->packed(ops, tape.compute(), PackFor::backward_input),
                              .dx = dpre.tensor(),
                              .pre = pre.tensor(),
                              .activation = activation});
  if (in.weight->trained()) {
    ops.run(LinearBackwardWeight{
        .dy = dpre.tensor(), .x = x.value(), .dw = in.weight->gradient(), .dbias = gradient_of(in.bias)});
  }
  if (!x.needs_gradient()) return;
  const Tape::Target dx = tape.gradient_target(x);
  ops.run(LinearBackwardInput{.dy = dpre.tensor(),
                              .w = &in.weight->packed(ops, tape.compute(), PackFor::backward_input),
                              .dx = dx.tensor,
                              .accumulate = dx.accumulate});
}

}  // namespace

Var gelu(Tape& tape, const Var& x, GeluKind kind) {
  check_pointwise("gelu", x.value());
  Var y = tape.output(x.value().shape(), x.value().dtype(), x.needs_gradient());
  tape.ops().run(Gelu{.x = x.value(), .y = y.value(), .kind = kind});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, kind] {
    const Tape::Target dy = tape.gradient_target(y);  // last reader of dy: reuse its memory
    tape.ops().run(GeluBackward{.dy = dy.tensor, .x = x.value(), .dx = dy.tensor, .kind = kind});
    tape.add_gradient(x, tape.gradient_block(y));
  });
  return y;
}

Var gelu_network(Tape& tape, const Var& x, const Affine& in, const Affine& out, GeluKind kind) {
  if (in.adapter != nullptr || out.adapter != nullptr) return linear(tape, gelu(tape, linear(tape, x, in), kind), out);
  const DType compute = tape.compute();
  const OperatorTable& ops = tape.ops();
  check_product("gelu_network", compute, x.value(), *in.weight, in.bias);
  const std::int64_t rows = x.value().rows();
  const bool differentiable = x.needs_gradient() || in.weight->trained() || out.weight->trained();
  Var y = tape.output({rows, out.weight->shape()[0]}, compute, differentiable);
  const Block pre = tape.scratch({rows, in.weight->shape()[0]}, compute);
  const Block inner = tape.scratch(pre.tensor().shape(), compute);
  check_product("gelu_network", compute, inner.tensor(), *out.weight, out.bias);
  ops.run(Linear{.x = x.value(),
                 .w = &in.weight->packed(ops, compute, PackFor::forward),
                 .bias = value_of(in.bias),
                 .y = inner.tensor(),
                 .activation = kind,
                 .pre = pre.tensor(),
                 .rows_alone = tape.rows_alone()});
  ops.run(Linear{.x = inner.tensor(),
                 .w = &out.weight->packed(ops, compute, PackFor::forward),
                 .bias = value_of(out.bias),
                 .y = y.value(),
                 .rows_alone = tape.rows_alone()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, in, out, kind, pre, inner] {
    gelu_network_backward(tape, {x, y, in, out, kind, pre, inner});
  });
  return y;
}

Var glu(Tape& tape, const Var& x, GluGate gate) {
  check_gate(x.value());
  Var y = tape.output({x.value().rows(), x.value().columns() / 2}, x.value().dtype(), x.needs_gradient());
  tape.ops().run(Glu{.x = x.value(), .y = y.value(), .gate = gate});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, gate] {
    Block dx = tape.scratch(x.value().shape(), x.value().dtype());
    tape.ops().run(GluBackward{.dy = y.gradient(), .x = x.value(), .dx = dx.tensor(), .gate = gate});
    tape.add_gradient(x, dx);
  });
  return y;
}

void rotate(Tape& tape, const Tensor& qkv, const AttentionOptions& options, const AttentionShape& shape,
            const SequenceLayout& layout, int direction) {
  if (options.rotary == nullptr) return;
  tape.ops().run(Rotary{.qkv = qkv,
                        .shape = shape,
                        .positions = layout.positions.first(static_cast<std::size_t>(qkv.rows() * layout.axes)),
                        .frequencies = options.rotary.get(),
                        .direction = direction});
}

namespace {

/// Returns (M, H D) as a row for each head, (M H, D).
Tensor by_head(const Tensor& values, const Tensor& lse) {
  return values.reshaped(Shape{lse.elements(), values.elements() / std::max<std::int64_t>(lse.elements(), 1)});
}

}  // namespace

void add_sinks(Tape& tape, const AttentionOptions& options, const SunkAttention& to) {
  if (options.sinks == nullptr || to.lse.elements() == 0) return;
  const Block factors = tape.scratch(to.lse.shape(), DType::f32);
  const Tensor own = options.sinks->value().flat_slice(to.first_head, to.lse.columns());
  tape.ops().run(AttentionSinks{.sinks = own, .lse = to.lse, .factors = factors.tensor()});
  const Tensor heads = by_head(to.out, to.lse);
  tape.ops().run(Multiply{.a = heads, .b = factors.tensor().reshaped(Shape{heads.rows(), 1}), .out = heads});
}

void add_sinks_gradient(Tape& tape, const AttentionOptions& options, const SunkAttention& of, const Tensor& dout) {
  if (options.sinks == nullptr || !options.sinks->trained() || of.lse.elements() == 0) return;
  const Block dots = tape.scratch({of.lse.elements(), 1}, DType::f32);
  tape.ops().run(RowDot{.a = by_head(dout, of.lse), .b = by_head(of.out, of.lse), .y = dots.tensor()});
  const std::int64_t heads = of.lse.columns();
  tape.ops().run(AttentionSinksBackward{.dots = dots.tensor().reshaped(of.lse.shape()),
                                        .sinks = options.sinks->value().flat_slice(of.first_head, heads),
                                        .lse = of.lse,
                                        .dsinks = options.sinks->gradient().flat_slice(of.first_head, heads)});
}

Var attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout) {
  const Tensor& in = qkv.value();
  check_attention("attention", in, options, layout, layout.rows());
  rotate(tape, in, options, options.shape, layout, +1);
  Var y = tape.output({in.rows(), options.shape.out_columns()}, in.dtype(), qkv.needs_gradient());
  Block lse = tape.scratch({in.rows(), options.shape.heads}, DType::f32);
  tape.ops().run(Attention{.qkv = in, .shape = options.shape, .layout = layout, .out = y.value(), .lse = lse.tensor()});
  add_sinks(tape, options, {0, y.value(), lse.tensor()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, qkv, y, lse, options, layout] {
    add_sinks_gradient(tape, options, {0, y.value(), lse.tensor()}, y.gradient());
    Block dqkv = tape.scratch(qkv.value().shape(), qkv.value().dtype());
    tape.ops().run(AttentionBackward{.dout = y.gradient(),
                                     .qkv = qkv.value(),
                                     .out = y.value(),
                                     .lse = lse.tensor(),
                                     .shape = options.shape,
                                     .layout = layout,
                                     .dqkv = dqkv.tensor()});
    rotate(tape, dqkv.tensor(), options, options.shape, layout, -1);
    tape.add_gradient(qkv, dqkv);
  });
  return y;
}

Var cached_attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout,
                     const LayerCache& cache) {
  const Tensor& in = qkv.value();
  if (tape.recording() || (cache.sequences.empty() && layout.sequences() != 1)) {
    throw std::logic_error("cached_attention: takes rows of a sequence, or a row of each, on a tape without a record");
  }
  check_attention("cached_attention", in, options, layout, layout.rows());
  check_cache(in, options, cache);
  rotate(tape, in, options, options.shape, layout, +1);
  Var y = tape.output({in.rows(), options.shape.out_columns()}, in.dtype(), false);
  tape.ops().run(CachedAttention{.qkv = in,
                                 .shape = options.shape,
                                 .keys = cache.keys,
                                 .values = cache.values,
                                 .first = cache.first,
                                 .out = y.value(),
                                 .ends = layout.ends,
                                 .sequences = cache.sequences,
                                 .sinks = options.sinks == nullptr ? Tensor() : options.sinks->value()});
  return y;
}

Var causal_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape,
                const SequenceLayout& layout, const RowsBefore& before) {
  check_convolution("causal_conv", x.value(), *filter.weight, filter.bias, shape);
  if (!before.rows.defined()) check_samples("causal_conv", x.value(), layout);
  Parameter& weight = *filter.weight;
  Var y = tape.output({x.value().rows(), shape.channels(x.value().columns())}, x.value().dtype(),
                      x.needs_gradient() || weight.trained());
  tape.ops().run(CausalConv{.x = x.value(),
                            .weight = weight.value(),
                            .bias = value_of(filter.bias),
                            .shape = shape,
                            .layout = layout,
                            .first = before.first,
                            .before = before.rows.defined() ? before.rows.value() : none,
                            .y = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, bias = filter.bias, shape, layout, before] {
    const auto gradient_like = [&](const Var& of) {
      return of.needs_gradient() ? tape.scratch(of.value().shape(), of.value().dtype()) : Block();
    };
    const Block dx = gradient_like(x), dbefore = gradient_like(before.rows);
    tape.ops().run(CausalConvBackward{.dy = y.gradient(),
                                      .x = x.value(),
                                      .weight = weight.value(),
                                      .bias = value_of(bias),
                                      .shape = shape,
                                      .layout = layout,
                                      .first = before.first,
                                      .before = before.rows.defined() ? before.rows.value() : none,
                                      .dx = dx.tensor(),
                                      .dbefore = dbefore.tensor(),
                                      .dweight = weight.gradient(),
                                      .dbias = gradient_of(bias)});
    if (dx.defined()) tape.add_gradient(x, dx);
    if (dbefore.defined()) tape.add_gradient(before.rows, dbefore);
  });
  return y;
}

Var cached_conv(Tape& tape, const Var& x, const Affine& filter, const ConvolutionShape& shape,
                const LayerCache& cache) {
  if (tape.recording()) throw std::logic_error("cached_conv: takes a tape without a record");
  check_convolution("cached_conv", x.value(), *filter.weight, filter.bias, shape);
  check_tail(x.value(), shape, cache);
  Var y = tape.output({x.value().rows(), shape.channels(x.value().columns())}, x.value().dtype(), false);
  tape.ops().run(CachedConv{.x = x.value(),
                            .weight = filter.weight->value(),
                            .bias = value_of(filter.bias),
                            .shape = shape,
                            .tail = cache.tail,
                            .first = cache.first,
                            .y = y.value(),
                            .sequences = cache.sequences});
  return y;
}

}  // namespace maestro
