// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/low_rank.hpp"

#include <utility>

#include "runtime/core/shape_error.hpp"

namespace maestro {

LowRank::LowRank(Parts parts) : parts_(std::move(parts)) {
  const std::size_t modules = parts_.rows.size();
  std::int32_t row = 0;
  for (std::size_t module = 0; module < modules; ++module) {
    for (std::int64_t i = 0; i < parts_.rows[module]; ++i) {
      for (std::size_t other = 0; other < modules; ++other) places_.push_back(other == module ? row : -1);
      ++row;
    }
  }
  if (row == parts_.b->shape()[0]) return;
  throw ShapeError("LowRank: '" + parts_.b->name() + "' has " + std::to_string(parts_.b->shape()[0]) +
                   " rows, its modules " + std::to_string(row));
}

LowRank::Wide LowRank::wide(Tape& tape, const Block& places, PackFor use) {
  const OperatorTable& ops = tape.ops();
  const std::int64_t rows = parts_.b->shape()[0];
  const auto pieces = static_cast<std::int64_t>(places_.size());
  Wide made{tape.scratch({pieces, parts_.b->shape().columns()}, DType::f32)};
  ops.run(
      Embedding{.table = parts_.b->value(), .ids = places.tensor(), .y = made.memory.tensor(), .scale = parts_.scale});
  if (ops.takes_plain_weights() && tape.compute() != DType::f32) {
    const Block rounded = tape.scratch(made.memory.tensor().shape(), tape.compute());
    ops.run(Cast{.from = made.memory.tensor(), .to = rounded.tensor()});
    made.memory = rounded;
  }
  const Tensor matrix = made.memory.tensor().reshaped(Shape{rows, made.memory.tensor().elements() / rows});
  std::unique_ptr<PackedWeight>& pack = packs_[use == PackFor::forward ? 0 : 1];
  pack = ops.pack(matrix, tape.compute(), use, std::move(pack));
  made.packed = pack.get();
  return made;
}

Var LowRank::added(Tape& tape, const Var& y, const Var& x) {
  const Var u = linear(tape, x, *parts_.a, nullptr);
  const Block product = tape.scratch(y.value().shape(), y.value().dtype());
  const Block places = tape.indices(places_);
  const Wide b = wide(tape, places, PackFor::forward);
  tape.ops().run(Linear{.x = u.value(), .w = b.packed, .y = product.tensor(), .rows_alone = tape.rows_alone()});
  tape.ops().run(Add{.a = y.value(), .b = product.tensor(), .out = y.value()});
  if (!u.needs_gradient()) return y;
  Var sum = tape.alias(y);
  tape.record(sum, [this, &tape, y, u, sum] {
    const Block dy = tape.gradient_block(sum);
    if (y.needs_gradient()) tape.add_gradient(y, dy);
    backward(tape, u, dy);
  });
  return sum;
}

void LowRank::backward(Tape& tape, const Var& u, const Block& dy) {
  const OperatorTable& ops = tape.ops();
  const Block places = tape.indices(places_);
  if (parts_.b->trained()) {
    const Block gradient = tape.scratch({dy.tensor().columns(), u.value().columns()}, DType::f32);
    const Shape pieces{static_cast<std::int64_t>(places_.size()), parts_.b->shape().columns()};
    ops.zero(gradient.tensor());
    ops.run(LinearBackwardWeight{.dy = dy.tensor(), .x = u.value(), .dw = gradient.tensor()});
    ops.run(EmbeddingBackward{.dy = gradient.tensor().reshaped(pieces),
                              .ids = places.tensor(),
                              .dtable = parts_.b->gradient(),
                              .scale = parts_.scale});
  }
  const Wide b = wide(tape, places, PackFor::backward_input);
  const Tape::Target du = tape.gradient_target(u);
  ops.run(LinearBackwardInput{.dy = dy.tensor(), .w = b.packed, .dx = du.tensor, .accumulate = du.accumulate});
}

Var linear(Tape& tape, const Var& x, const Affine& affine) {
  const Var y = linear(tape, x, *affine.weight, affine.bias);
  return affine.adapter == nullptr ? y : affine.adapter->added(tape, y, x);
}

}  // namespace maestro
