// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/author_rows.cuh"

#include <algorithm>

#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

constexpr std::int64_t most_warp_columns = 1024;  // a block shares wider rows
constexpr std::int64_t most_blocks = 65535;

/// Calls body.run<Team>(row) on all rows.
template <class Body>
void launch_teams(const Launch& at, const char* name, std::int64_t rows, std::int64_t columns, const Body& body) {
  if (rows == 0 || columns == 0) return;
  const bool by_warp = columns <= most_warp_columns;
  const std::int64_t blocks = by_warp ? ceil_divide(rows, flat_threads / warp_size) : rows;
  const LaunchShape shape{name, static_cast<unsigned>(std::min(blocks, most_blocks)), flat_threads, 0, at.stream};
  if (by_warp) {
    launch(shape, team_rows_kernel<NormKind::warp, Body>, body, rows);
  } else {
    launch(shape, team_rows_kernel<NormKind::block, Body>, body, rows);
  }
}

/// Calls body(Type<A>(), Type<B>()) with the element types of two tensors.
template <class Body>
void with_types(const Tensor& a, const Tensor& b, Body body) {
  with_type(a.dtype(), [&](auto left) { with_type(b.dtype(), [&](auto right) { body(left, right); }); });
}

/// Computes the gradient of `own`; side: its index in lengths.
void cosine_side(const Launch& at, const CosineBackward& op, const Tensor& own, const Tensor& other, const Tensor& to) {
  if (!to.defined()) return;
  const int side = to.raw() == op.da.raw() ? 0 : 1;
  with_types(own, other, [&](auto of, auto along) {
    with_type(to.dtype(), [&](auto target) {
      using Own = typename decltype(of)::type;
      using Other = typename decltype(along)::type;
      using To = typename decltype(target)::type;
      launch_rows(at, "cosine_backward", own.rows(), own.columns(),
                  CosineGradientRows<Own, Other, To>{op.dy.data<float>(), own.data<Own>(), other.data<Other>(),
                                                     op.y.data<float>(), op.lengths.data<float>(), to.data<To>(),
                                                     own.columns(), side, static_cast<float>(op.epsilon)});
    });
  });
}

}  // namespace

void scale(const Launch& at, const Scale& op) {
  map_one(at, "scale", op.x, op.y, ScaleOp{static_cast<float>(op.factor)});
}

void multiply(const Launch& at, const Multiply& op) {
  if (op.a.elements() == op.b.elements()) return map_two<MultiplyOp>(at, "multiply", op.a, op.b, op.out);
  const bool of_columns = op.b.rows() == 1 && op.b.columns() == op.a.columns();
  assert(of_columns || (op.b.columns() == 1 && op.a.rows() == op.b.rows()));
  with_types(op.a, op.b, [&](auto left, auto right) {
    with_type(op.out.dtype(), [&](auto to) {
      using A = typename decltype(left)::type;
      using B = typename decltype(right)::type;
      using Out = typename decltype(to)::type;
      launch_rows(
          at, "multiply_rows", op.a.rows(), op.a.columns(),
          MultipliedRows<A, B, Out>{op.a.data<A>(), op.b.data<B>(), op.out.data<Out>(), op.a.columns(), of_columns});
    });
  });
}

void curved(const Launch& at, const Curved& op) {
  if (op.curve == Curve::sigmoid) return map_one<SigmoidOp>(at, "sigmoid", op.x, op.y);
  map_one<TanhOp>(at, "tanh", op.x, op.y);
}

void curved_backward(const Launch& at, const CurvedBackward& op) {
  if (op.curve == Curve::sigmoid) return map_two<SigmoidBackwardOp>(at, "sigmoid_backward", op.dy, op.y, op.dx);
  map_two<TanhBackwardOp>(at, "tanh_backward", op.dy, op.y, op.dx);
}

void memory_gate(const Launch& at, const MemoryGate& op) {
  map_one(at, "memory_gate", op.scores, op.gate, MemoryGateOp{static_cast<float>(op.factor)});
}

void memory_gate_backward(const Launch& at, const MemoryGateBackward& op) {
  map_two(at, "memory_gate_backward", op.dgate, op.scores, op.dscores,
          MemoryGateBackwardOp{static_cast<float>(op.factor)});
}

void softmax(const Launch& at, const Softmax& op) {
  assert(op.x.elements() == op.y.elements());
  with_type(op.x.dtype(), [&](auto from) {
    using X = typename decltype(from)::type;
    launch_teams(at, "softmax", op.x.rows(), op.x.columns(),
                 SoftmaxRows<X>{op.x.data<X>(), op.y.data<float>(), static_cast<int>(op.x.columns()), op.log});
  });
}

void softmax_backward(const Launch& at, const SoftmaxBackward& op) {
  assert(op.dy.elements() == op.y.elements() && op.dx.elements() == op.y.elements());
  with_type(op.dx.dtype(), [&](auto to) {
    using D = typename decltype(to)::type;
    launch_teams(at, "softmax_backward", op.y.rows(), op.y.columns(),
                 SoftmaxBackwardRows<D>{op.dy.data<float>(), op.y.data<float>(), op.dx.data<D>(),
                                        static_cast<int>(op.y.columns()), op.log});
  });
}

void row_dot(const Launch& at, const RowDot& op) {
  assert(op.a.elements() == op.b.elements() && op.y.elements() == op.a.rows());
  with_types(op.a, op.b, [&](auto left, auto right) {
    using A = typename decltype(left)::type;
    using B = typename decltype(right)::type;
    launch_teams(at, "row_dot", op.a.rows(), op.a.columns(),
                 RowDots<A, B>{op.a.data<A>(), op.b.data<B>(), op.y.data<float>(), static_cast<int>(op.a.columns())});
  });
}

void cosine(const Launch& at, const Cosine& op) {
  assert(op.a.elements() == op.b.elements() && op.lengths.elements() == 2 * op.a.rows());
  with_types(op.a, op.b, [&](auto left, auto right) {
    using A = typename decltype(left)::type;
    using B = typename decltype(right)::type;
    launch_teams(at, "cosine", op.a.rows(), op.a.columns(),
                 CosineRows<A, B>{op.a.data<A>(), op.b.data<B>(), op.y.data<float>(), op.lengths.data<float>(),
                                  static_cast<int>(op.a.columns()), static_cast<float>(op.epsilon)});
  });
}

void cosine_backward(const Launch& at, const CosineBackward& op) {
  cosine_side(at, op, op.a, op.b, op.da);
  cosine_side(at, op, op.b, op.a, op.db);
}

void copy_columns(const Launch& at, const CopyColumns& op) {
  assert(op.from.rows() == op.to.rows() && op.from_column + op.columns <= op.from.columns());
  assert(op.to_column + op.columns <= op.to.columns());
  with_types(op.from, op.to, [&](auto source, auto target) {
    using From = typename decltype(source)::type;
    using To = typename decltype(target)::type;
    launch_rows(at, "copy_columns", op.from.rows(), op.columns,
                CopiedColumns<From, To>{op.from.data<From>() + op.from_column, op.to.data<To>() + op.to_column,
                                        op.from.columns(), op.to.columns(), op.accumulate});
  });
}

}  // namespace maestro::cuda
