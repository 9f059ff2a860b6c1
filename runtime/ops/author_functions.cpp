// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/author_functions.hpp"

#include <utility>

#include "runtime/ops/call_checks.hpp"
#include "runtime/ops/functions.hpp"

namespace maestro {

namespace {

/// Adds the gradient that `backward` writes to its argument, a tensor like x's value; does nothing if x needs none.
template <class Backward>
void add_gradient_of(Tape& tape, const Var& x, const Backward& backward) {
  if (!x.needs_gradient()) return;
  const Block dx = tape.scratch(x.value().shape(), x.value().dtype());
  backward(dx.tensor());
  tape.add_gradient(x, dx);
}

Var curved(Tape& tape, const char* op, const Var& x, Curve curve) {
  check_values(op, x.value());
  Var y = tape.output(x.value().shape(), x.value().dtype(), x.needs_gradient());
  tape.ops().run(Curved{.x = x.value(), .y = y.value(), .curve = curve});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, curve] {
    add_gradient_of(tape, x, [&](const Tensor& dx) {
      tape.ops().run(CurvedBackward{.dy = y.gradient(), .y = y.value(), .dx = dx, .curve = curve});
    });
  });
  return y;
}

Var row_softmax(Tape& tape, const char* op, const Var& x, bool log) {
  check_values(op, x.value());
  Var y = tape.output(x.value().shape(), DType::f32, x.needs_gradient());
  tape.ops().run(Softmax{.x = x.value(), .y = y.value(), .log = log});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, log] {
    add_gradient_of(tape, x, [&](const Tensor& dx) {
      tape.ops().run(SoftmaxBackward{.dy = y.gradient(), .y = y.value(), .dx = dx, .log = log});
    });
  });
  return y;
}

/// Returns the sample of each row.
Block samples_of_rows(Tape& tape, const SequenceLayout& layout) {
  std::vector<std::int32_t> samples;
  samples.reserve(static_cast<std::size_t>(layout.rows()));
  for (std::size_t sample = 0; sample + 1 < layout.offsets.size(); ++sample) {
    samples.resize(static_cast<std::size_t>(layout.offsets[sample + 1]), static_cast<std::int32_t>(sample));
  }
  return tape.indices(samples);
}

/// Computes to (1, C) += the dot products of equal columns, a (M, C) with b (M, C).
void add_column_dots(Tape& tape, const Tensor& a, const Tensor& b, const Tensor& to) {
  const Block products = tape.scratch(a.shape(), DType::f32);
  tape.ops().run(Multiply{.a = a, .b = b, .out = products.tensor()});
  const Block first = tape.indices(std::vector<std::int32_t>(static_cast<std::size_t>(a.rows()), 0));
  tape.ops().run(IndexAdd{.rows = products.tensor(), .index = first.tensor().span<std::int32_t>(), .to = to});
}

/// Returns host values as (M, 1) f32 in memory of the table.
Block column(Tape& tape, const std::vector<float>& values) {
  Block block = tape.scratch({static_cast<std::int64_t>(values.size()), 1}, DType::f32);
  tape.ops().put(std::as_bytes(std::span(values)), block.tensor());
  return block;
}

}  // namespace

Var mul(Tape& tape, const Var& x, Parameter& factors) {
  const Tensor row = factors.value().reshaped({1, factors.value().elements()});
  check_factors(x.value(), row);
  Var y = tape.output(x.value().shape(), x.value().dtype(), x.needs_gradient() || factors.trained());
  tape.ops().run(Multiply{.a = x.value(), .b = row, .out = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, row, &factors] {
    if (factors.trained()) add_column_dots(tape, y.gradient(), x.value(), factors.gradient().reshaped(row.shape()));
    add_gradient_of(tape, x,
                    [&](const Tensor& dx) { tape.ops().run(Multiply{.a = y.gradient(), .b = row, .out = dx}); });
  });
  return y;
}

Var mul(Tape& tape, const Var& a, const Var& b) {
  check_factors(a.value(), b.value());
  Var y = tape.output(a.value().shape(), a.value().dtype(), a.needs_gradient() || b.needs_gradient());
  tape.ops().run(Multiply{.a = a.value(), .b = b.value(), .out = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, a, b, y] {
    add_gradient_of(tape, a,
                    [&](const Tensor& da) { tape.ops().run(Multiply{.a = y.gradient(), .b = b.value(), .out = da}); });
    if (b.value().elements() == a.value().elements()) {
      return add_gradient_of(
          tape, b, [&](const Tensor& db) { tape.ops().run(Multiply{.a = y.gradient(), .b = a.value(), .out = db}); });
    }
    if (!b.needs_gradient()) return;
    const Block db = tape.scratch(b.value().shape(), DType::f32);
    if (b.value().columns() == 1) {
      tape.ops().run(RowDot{.a = y.gradient(), .b = a.value(), .y = db.tensor()});
    } else {
      tape.ops().zero(db.tensor());
      add_column_dots(tape, y.gradient(), a.value(), db.tensor());
    }
    tape.add_gradient(b, db);
  });
  return y;
}

Var scale(Tape& tape, const Var& x, double factor) {
  check_values("scale", x.value());
  Var y = tape.output(x.value().shape(), x.value().dtype(), x.needs_gradient());
  tape.ops().run(Scale{.x = x.value(), .y = y.value(), .factor = factor});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, factor] {
    add_gradient_of(tape, x,
                    [&](const Tensor& dx) { tape.ops().run(Scale{.x = y.gradient(), .y = dx, .factor = factor}); });
  });
  return y;
}

Var subtract(Tape& tape, const Var& a, const Var& b) {
  check_pair("subtract", a.value(), b.value());
  return add(tape, a, scale(tape, b, -1));
}

Var sigmoid(Tape& tape, const Var& x) {
  return curved(tape, "sigmoid", x, Curve::sigmoid);
}

Var tanh(Tape& tape, const Var& x) {
  return curved(tape, "tanh", x, Curve::tanh);
}

Var softmax(Tape& tape, const Var& x) {
  return row_softmax(tape, "softmax", x, false);
}

Var log_softmax(Tape& tape, const Var& x) {
  return row_softmax(tape, "log_softmax", x, true);
}

Var dot(Tape& tape, const Var& a, const Var& b) {
  check_pair("dot", a.value(), b.value());
  Var y = tape.output({a.value().rows(), 1}, DType::f32, a.needs_gradient() || b.needs_gradient());
  tape.ops().run(RowDot{.a = a.value(), .b = b.value(), .y = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, a, b, y] {
    for (const auto& [of, other] : {std::pair(a, b), std::pair(b, a)}) {
      add_gradient_of(tape, of, [&](const Tensor& gradient) {
        tape.ops().run(Multiply{.a = other.value(), .b = y.gradient(), .out = gradient});
      });
    }
  });
  return y;
}

Var memory_gate(Tape& tape, const Var& scores, double factor) {
  check_values("memory_gate", scores.value());
  Var gate = tape.output(scores.value().shape(), DType::f32, scores.needs_gradient());
  tape.ops().run(MemoryGate{.scores = scores.value(), .gate = gate.value(), .factor = factor});
  if (!gate.needs_gradient()) return gate;
  tape.record(gate, [&tape, scores, gate, factor] {
    add_gradient_of(tape, scores, [&](const Tensor& dscores) {
      tape.ops().run(
          MemoryGateBackward{.dgate = gate.gradient(), .scores = scores.value(), .dscores = dscores, .factor = factor});
    });
  });
  return gate;
}

Var cosine(Tape& tape, const Var& a, const Var& b, double epsilon) {
  check_pair("cosine", a.value(), b.value());
  const std::int64_t rows = a.value().rows();
  Var y = tape.output({rows, 1}, DType::f32, a.needs_gradient() || b.needs_gradient());
  const Block lengths = tape.scratch({rows, 2}, DType::f32);
  tape.ops().run(
      Cosine{.a = a.value(), .b = b.value(), .y = y.value(), .lengths = lengths.tensor(), .epsilon = epsilon});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, a, b, y, lengths, epsilon] {
    const auto gradient = [&](const Tensor& da, const Tensor& db) {
      tape.ops().run(CosineBackward{.dy = y.gradient(),
                                    .a = a.value(),
                                    .b = b.value(),
                                    .y = y.value(),
                                    .lengths = lengths.tensor(),
                                    .da = da,
                                    .db = db,
                                    .epsilon = epsilon});
    };
    add_gradient_of(tape, a, [&](const Tensor& da) { gradient(da, {}); });
    add_gradient_of(tape, b, [&](const Tensor& db) { gradient({}, db); });
  });
  return y;
}

Var mse(Tape& tape, const Var& a, const Var& b) {
  check_pair("mse", a.value(), b.value());
  const Var difference = subtract(tape, a, b);
  return scale(tape, dot(tape, difference, difference), 1.0 / static_cast<double>(a.value().columns()));
}

Var sum_by_sample(Tape& tape, const Var& x, const SequenceLayout& layout) {
  check_samples("sum_by_sample", x.value(), layout);
  const Block samples = samples_of_rows(tape, layout);
  Var y = tape.output({layout.sequences(), x.value().columns()}, DType::f32, x.needs_gradient());
  tape.ops().zero(y.value());
  tape.ops().run(IndexAdd{.rows = x.value(), .index = samples.tensor().span<std::int32_t>(), .to = y.value()});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, samples] {
    add_gradient_of(tape, x, [&](const Tensor& dx) {
      tape.ops().run(IndexSelect{.from = y.gradient(), .index = samples.tensor().span<std::int32_t>(), .to = dx});
    });
  });
  return y;
}

Var mean_by_sample(Tape& tape, const Var& x, const SequenceLayout& layout) {
  check_samples("mean_by_sample", x.value(), layout);
  std::vector<float> factors;
  for (std::size_t sample = 0; sample + 1 < layout.offsets.size(); ++sample) {
    const std::int32_t rows = layout.offsets[sample + 1] - layout.offsets[sample];
    factors.push_back(rows == 0 ? 0.0F : 1.0F / static_cast<float>(rows));
  }
  const Block factor = column(tape, factors);
  keep(tape, factor);
  return mul(tape, sum_by_sample(tape, x, layout), tape.input(factor.tensor()));
}

Var concat(Tape& tape, const std::vector<Var>& parts) {
  std::vector<Tensor> values;
  bool differentiable = false;
  std::int64_t columns = 0;
  for (const Var& part : parts) {
    values.push_back(part.value());
    differentiable = differentiable || part.needs_gradient();
    columns += part.value().columns();
  }
  check_concat(values);
  Var y = tape.output({values.front().rows(), columns}, values.front().dtype(), differentiable);
  std::int64_t first = 0;
  for (const Tensor& from : values) {
    tape.ops().run(CopyColumns{.from = from, .to = y.value(), .to_column = first, .columns = from.columns()});
    first += from.columns();
  }
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, parts, y] {
    std::int64_t at = 0;
    for (const Var& part : parts) {
      const std::int64_t wide = part.value().columns();
      add_gradient_of(tape, part, [&](const Tensor& gradient) {
        tape.ops().run(CopyColumns{.from = y.gradient(), .to = gradient, .from_column = at, .columns = wide});
      });
      at += wide;
    }
  });
  return y;
}

Var slice(Tape& tape, const Var& x, std::int64_t first, std::int64_t count) {
  check_columns(x.value(), first, count);
  Var y = tape.output({x.value().rows(), count}, x.value().dtype(), x.needs_gradient());
  tape.ops().run(CopyColumns{.from = x.value(), .to = y.value(), .from_column = first, .columns = count});
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y, first, count] {
    const Tape::Target dx = tape.gradient_target(x);
    if (!dx.accumulate) tape.ops().zero(dx.tensor);
    tape.ops().run(
        CopyColumns{.from = y.gradient(), .to = dx.tensor, .to_column = first, .columns = count, .accumulate = true});
  });
  return y;
}

Var reshaped(Tape& tape, const Var& x, Shape shape) {
  const Tensor from = x.value().reshaped(shape);
  Var y = tape.output(shape, x.value().dtype(), x.needs_gradient());
  tape.ops().copy(from, y.value());
  if (!y.needs_gradient()) return y;
  tape.record(y, [&tape, x, y] {
    add_gradient_of(tape, x, [&](const Tensor& dx) { tape.ops().copy(y.gradient().reshaped(dx.shape()), dx); });
  });
  return y;
}

Pending<LossSums> sum_loss(Tape& tape, const Var& values, double scale) {
  check_sum_loss(values.value());
  Pending<LossSums> sums = tape.ops().run(SumLoss{.values = values.value()});
  if (!tape.recording() || !values.needs_gradient()) return sums;
  tape.record_root([&tape, values, scale] {
    const auto rows = static_cast<std::size_t>(values.value().rows());
    const Block gradient = column(tape, std::vector<float>(rows, static_cast<float>(scale)));
    tape.add_gradient(values, gradient);
  });
  return sums;
}

}  // namespace maestro
