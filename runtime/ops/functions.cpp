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

Var layer_norm(Tape& tape, const Var& x, Parameter& weight, Parameter& bias, double epsilon) {
  Var y = tape.output(x.value().shape(), tape.compute(), x.needs_gradient() || weight.trained());
  Block mean = tape.scratch({x.value().rows()}, DType::f32);
  Block rstd = tape.scratch({x.value().rows()}, DType::f32);
  tape.ops().layer_norm(x.value(), weight.value(), bias.value(), epsilon, y.value(), mean.tensor(), rstd.tensor());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, &bias, mean, rstd] {
    Block unused;
    Tape::Target dx;
    if (x.needs_gradient()) {
      dx = tape.gradient_target(x);
    } else {
      unused = tape.scratch(x.value().shape(), x.value().dtype());
      dx.tensor = unused.tensor();
    }
    tape.ops().layer_norm_backward(y.gradient(), x.value(), weight.value(), mean.tensor(), rstd.tensor(), dx.tensor,
                                   dx.accumulate, weight.gradient(), bias.gradient());
  });
  return y;
}

Var rms_norm(Tape& tape, const Var& x, Parameter& weight, double epsilon) {
  Var y = tape.output(x.value().shape(), tape.compute(), x.needs_gradient() || weight.trained());
  Block rstd = tape.scratch({x.value().rows()}, DType::f32);
  tape.ops().rms_norm(x.value(), weight.value(), epsilon, y.value(), rstd.tensor());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, &weight, rstd] {
    Block unused;
    Tape::Target dx;
    if (x.needs_gradient()) {
      dx = tape.gradient_target(x);
    } else {
      unused = tape.scratch(x.value().shape(), x.value().dtype());
      dx.tensor = unused.tensor();
    }
    tape.ops().rms_norm_backward(y.gradient(), x.value(), weight.value(), rstd.tensor(), dx.tensor, dx.accumulate,
                                 weight.gradient());
  });
  return y;
}

Var add(Tape& tape, const Var& residual, const Var& branch) {
  Var y = tape.output(residual.value().shape(), DType::f32, residual.needs_gradient() || branch.needs_gradient());
  tape.ops().add(residual.value(), branch.value(), y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, residual, branch, y] {
    const Block dy = tape.gradient_block(y);
    if (branch.needs_gradient()) tape.add_gradient(branch, dy);
    if (residual.needs_gradient()) tape.add_gradient(residual, dy);
  });
  return y;
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
