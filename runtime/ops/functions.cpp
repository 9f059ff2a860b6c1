// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/functions.hpp"

#include <utility>

namespace maestro {

namespace {

const Tensor none;

Tensor gradient_of(Parameter* parameter) {
  return parameter == nullptr ? none : parameter->gradient();
}
Tensor value_of(Parameter* parameter) {
  return parameter == nullptr ? none : parameter->value();
}

/// (N, K) of a weight of any rank.
Tensor as_matrix(const Tensor& weight) {
  const std::int64_t rows = weight.shape()[0];
  return weight.shape().rank() == 2 ? weight : weight.reshaped(Shape{rows, weight.elements() / rows});
}

}  // namespace

Var embedding(Tape& tape, Parameter& table, const Tensor& ids, Parameter* positions_table,
              const SequenceLayout& layout) {
  Var y = tape.output({ids.elements(), table.shape().columns()}, DType::f32, table.trained());
  tape.ops().embedding(table.value(), ids, value_of(positions_table), layout.positions, y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, &table, ids, positions_table, positions = layout.positions, y] {
    tape.ops().embedding_backward(y.gradient(), ids, positions, table.gradient(), gradient_of(positions_table));
  });
  return y;
}

Var linear(Tape& tape, const Var& x, Parameter& weight, Parameter* bias) {
  const DType compute = tape.compute();
  Var y = tape.output({x.value().rows(), weight.shape()[0]}, compute, x.needs_gradient() || weight.trained());
  tape.ops().linear(x.value(), weight.packed(tape.ops(), compute, PackFor::forward), value_of(bias), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, bias, compute] {
    const Block dy = tape.gradient_block(y);
    if (weight.trained()) {
      tape.ops().linear_backward_weight(dy.tensor(), x.value(), as_matrix(weight.gradient()), gradient_of(bias));
    }
    if (!x.needs_gradient()) return;
    const Tape::Target dx = tape.gradient_target(x);
    tape.ops().linear_backward_input(dy.tensor(), weight.packed(tape.ops(), compute, PackFor::backward_input),
                                     dx.tensor, dx.accumulate);
  });
  return y;
}

namespace {

/// Where a norm's backward pass writes: the gradient of its input, or memory for nobody.
struct NormTarget {
  Tape::Target target;
  Block unused;
};
NormTarget norm_target(Tape& tape, const Var& x) {
  if (x.needs_gradient()) return {tape.gradient_target(x), {}};
  Block unused = tape.scratch(x.value().shape(), x.value().dtype());
  return {{unused.tensor(), false}, unused};
}

/// A norm's result, and what its backward pass needs.
struct LayerNormed {
  Var y;
  Block mean, rstd;
};
LayerNormed layer_normed(Tape& tape, const Var& x, bool trained) {
  return {tape.output(x.value().shape(), tape.compute(), x.needs_gradient() || trained),
          tape.scratch({x.value().rows()}, DType::f32), tape.scratch({x.value().rows()}, DType::f32)};
}
void record_layer_norm(Tape& tape, const Var& x, const LayerNormed& normed, Parameter& weight, Parameter& bias) {
  if (!normed.y.needs_gradient()) return;
  tape.record(normed.y, [&tape, x, y = normed.y, &weight, &bias, mean = normed.mean, rstd = normed.rstd] {
    const NormTarget dx = norm_target(tape, x);
    tape.ops().layer_norm_backward(y.gradient(), x.value(), weight.value(), mean.tensor(), rstd.tensor(),
                                   dx.target.tensor, dx.target.accumulate, weight.gradient(), bias.gradient());
  });
}

struct RmsNormed {
  Var y;
  Block rstd;
};
RmsNormed rms_normed(Tape& tape, const Var& x, bool trained) {
  return {tape.output(x.value().shape(), tape.compute(), x.needs_gradient() || trained),
          tape.scratch({x.value().rows()}, DType::f32)};
}
void record_rms_norm(Tape& tape, const Var& x, const RmsNormed& normed, Parameter& weight) {
  if (!normed.y.needs_gradient()) return;
  tape.record(normed.y, [&tape, x, y = normed.y, &weight, rstd = normed.rstd] {
    const NormTarget dx = norm_target(tape, x);
    tape.ops().rms_norm_backward(y.gradient(), x.value(), weight.value(), rstd.tensor(), dx.target.tensor,
                                 dx.target.accumulate, weight.gradient());
  });
}

Var sum_output(Tape& tape, const Var& residual, const Var& branch) {
  return tape.output(residual.value().shape(), DType::f32, residual.needs_gradient() || branch.needs_gradient());
}
void record_add(Tape& tape, const Var& residual, const Var& branch, const Var& y) {
  if (!y.needs_gradient()) return;
  tape.record(y, [&tape, residual, branch, y] {
    const Block dy = tape.gradient_block(y);
    if (branch.needs_gradient()) tape.add_gradient(branch, dy);
    if (residual.needs_gradient()) tape.add_gradient(residual, dy);
  });
}

}  // namespace

Var layer_norm(Tape& tape, const Var& x, Parameter& weight, Parameter& bias, double epsilon) {
  const LayerNormed normed = layer_normed(tape, x, weight.trained());
  tape.ops().layer_norm(x.value(), weight.value(), bias.value(), epsilon, normed.y.value(), normed.mean.tensor(),
                        normed.rstd.tensor());
  record_layer_norm(tape, x, normed, weight, bias);
  return normed.y;
}

Var rms_norm(Tape& tape, const Var& x, Parameter& weight, double epsilon) {
  const RmsNormed normed = rms_normed(tape, x, weight.trained());
  tape.ops().rms_norm(x.value(), weight.value(), epsilon, normed.y.value(), normed.rstd.tensor());
  record_rms_norm(tape, x, normed, weight);
  return normed.y;
}

Var add(Tape& tape, const Var& residual, const Var& branch) {
  Var y = sum_output(tape, residual, branch);
  tape.ops().add(residual.value(), branch.value(), y.value());
  record_add(tape, residual, branch, y);
  return y;
}

NormedSum add_layer_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, Parameter& bias,
                         double epsilon) {
  const Var sum = sum_output(tape, residual, branch);
  const LayerNormed normed = layer_normed(tape, sum, weight.trained());
  tape.ops().add_layer_norm(residual.value(), branch.value(), weight.value(), bias.value(), epsilon, sum.value(),
                            normed.y.value(), normed.mean.tensor(), normed.rstd.tensor());
  record_add(tape, residual, branch, sum);
  record_layer_norm(tape, sum, normed, weight, bias);
  return {sum, normed.y};
}

NormedSum add_rms_norm(Tape& tape, const Var& residual, const Var& branch, Parameter& weight, double epsilon) {
  const Var sum = sum_output(tape, residual, branch);
  const RmsNormed normed = rms_normed(tape, sum, weight.trained());
  tape.ops().add_rms_norm(residual.value(), branch.value(), weight.value(), epsilon, sum.value(), normed.y.value(),
                          normed.rstd.tensor());
  record_add(tape, residual, branch, sum);
  record_rms_norm(tape, sum, normed, weight);
  return {sum, normed.y};
}

Var add_rows(Tape& tape, const Var& x, const Var& rows, const Block& index) {
  Var y = tape.output(x.value().shape(), DType::f32, x.needs_gradient() || rows.needs_gradient());
  tape.ops().cast(x.value(), y.value());
  tape.ops().scatter_add_rows(rows.value(), index.tensor().span<std::int32_t>(), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, rows, index, y] {
    if (rows.needs_gradient()) {
      const Block drows = tape.scratch(rows.value().shape(), rows.value().dtype());
      tape.ops().gather_rows(y.gradient(), index.tensor().span<std::int32_t>(), drows.tensor());
      tape.add_gradient(rows, drows);
    }
    if (x.needs_gradient()) tape.add_gradient(x, tape.gradient_block(y));
  });
  return y;
}

Var select_rows(Tape& tape, const Var& x, const Block& index) {
  const Tensor& from = x.value();
  Var y = tape.output({index.tensor().elements(), from.columns()}, from.dtype(), x.needs_gradient());
  tape.ops().gather_rows(from, index.tensor().span<std::int32_t>(), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, index, y] {
    const Tape::Target dx = tape.gradient_target(x);
    if (!dx.accumulate) tape.ops().zero(dx.tensor);
    tape.ops().scatter_add_rows(y.gradient(), index.tensor().span<std::int32_t>(), dx.tensor);
  });
  return y;
}

Var converted(Tape& tape, const Var& x, DType dtype) {
  if (x.value().dtype() == dtype) return x;
  Var y = tape.output(x.value().shape(), dtype, x.needs_gradient());
  tape.ops().cast(x.value(), y.value());
  if (y.needs_gradient()) tape.record(y, [&tape, x, y] { tape.add_gradient(x, tape.gradient_block(y)); });
  return y;
}

void keep(Tape& tape, const Block& memory) {
  tape.record_root([memory] {});  // runs, and lets go, after everything that is recorded from here on
}

void keep(Tape& tape, std::shared_ptr<const void> memory) {
  tape.record_root([memory = std::move(memory)] {});
}

namespace {

struct GeluNetwork {
  Var x, y;
  Affine in, out;
  Block pre, inner;  // before and behind the GELU
};

void gelu_network_backward(Tape& tape, const GeluNetwork& network) {
  const auto& [x, y, in, out, pre, inner] = network;
  const OperatorTable& ops = tape.ops();
  const Block dy = tape.gradient_block(y);
  if (out.weight->trained()) {
    ops.linear_backward_weight(dy.tensor(), inner.tensor(), out.weight->gradient(), gradient_of(out.bias));
  }
  if (!x.needs_gradient() && !in.weight->trained()) return;
  const Block dpre = tape.scratch(pre.tensor().shape(), pre.tensor().dtype());
  ops.linear_backward_input_gelu(dy.tensor(), out.weight->packed(ops, tape.compute(), PackFor::backward_input),
                                 pre.tensor(), dpre.tensor());
  if (in.weight->trained()) {
    ops.linear_backward_weight(dpre.tensor(), x.value(), in.weight->gradient(), gradient_of(in.bias));
  }
  if (!x.needs_gradient()) return;
  const Tape::Target dx = tape.gradient_target(x);
  ops.linear_backward_input(dpre.tensor(), in.weight->packed(ops, tape.compute(), PackFor::backward_input), dx.tensor,
                            dx.accumulate);
}

}  // namespace

Var gelu(Tape& tape, const Var& x) {
  Var y = tape.output(x.value().shape(), x.value().dtype(), x.needs_gradient());
  tape.ops().gelu(x.value(), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y] {
    const Tape::Target dy = tape.gradient_target(y);  // last reader of dy: reuse its memory
    tape.ops().gelu_backward(dy.tensor, x.value(), dy.tensor);
    tape.add_gradient(x, tape.gradient_block(y));
  });
  return y;
}

Var gelu_network(Tape& tape, const Var& x, const Affine& in, const Affine& out) {
  const DType compute = tape.compute();
  const OperatorTable& ops = tape.ops();
  const std::int64_t rows = x.value().rows();
  const bool differentiable = x.needs_gradient() || in.weight->trained() || out.weight->trained();
  Var y = tape.output({rows, out.weight->shape()[0]}, compute, differentiable);
  const Block pre = tape.scratch({rows, in.weight->shape()[0]}, compute);
  const Block inner = tape.scratch(pre.tensor().shape(), compute);
  ops.linear_gelu(x.value(), in.weight->packed(ops, compute, PackFor::forward), value_of(in.bias), pre.tensor(),
                  inner.tensor());
  ops.linear(inner.tensor(), out.weight->packed(ops, compute, PackFor::forward), value_of(out.bias), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, in, out, pre, inner] { gelu_network_backward(tape, {x, y, in, out, pre, inner}); });
  return y;
}

Var swiglu(Tape& tape, const Var& x) {
  Var y = tape.output({x.value().rows(), x.value().columns() / 2}, x.value().dtype(), x.needs_gradient());
  tape.ops().swiglu(x.value(), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y] {
    Block dx = tape.scratch(x.value().shape(), x.value().dtype());
    tape.ops().swiglu_backward(y.gradient(), x.value(), dx.tensor());
    tape.add_gradient(x, dx);
  });
  return y;
}

Var attention(Tape& tape, const Var& qkv, const AttentionOptions& options, const SequenceLayout& layout) {
  const Tensor& in = qkv.value();
  if (options.rotary_theta > 0) {
    tape.ops().rotary(in, options.shape, layout.positions, options.rotary_theta, +1);
  }
  Var y = tape.output({in.rows(), options.shape.out_columns()}, in.dtype(), qkv.needs_gradient());
  Block lse = tape.scratch({in.rows(), options.shape.heads}, DType::f32);
  tape.ops().attention(in, options.shape, layout, y.value(), lse.tensor());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, qkv, y, lse, options, layout] {
    Block dqkv = tape.scratch(qkv.value().shape(), qkv.value().dtype());
    tape.ops().attention_backward(y.gradient(), qkv.value(), y.value(), lse.tensor(), options.shape, layout,
                                  dqkv.tensor());
    if (options.rotary_theta > 0) {
      tape.ops().rotary(dqkv.tensor(), options.shape, layout.positions, options.rotary_theta, -1);
    }
    tape.add_gradient(qkv, dqkv);
  });
  return y;
}

}  // namespace maestro
