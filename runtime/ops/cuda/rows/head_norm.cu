// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/head_norm_rows.cuh"

#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/rows/launch_column_sums.cuh"

namespace maestro::cuda {

namespace {

/// Makes the arguments of a call or its gradient, whose arguments have the same names.
template <class Op>
HeadGroups groups_of(const Op& op) {
  const AttentionShape& shape = op.shape;
  const auto of = [&](std::int64_t heads, std::int64_t first, const Tensor& weight) {
    const std::int64_t columns = (op.whole ? heads : 1) * shape.head_size;
    assert(weight.elements() == columns);
    return HeadGroup{static_cast<int>(first), static_cast<int>(columns),
                     static_cast<float>(1.0 / static_cast<double>(columns * (op.whole ? op.ranks : 1))),
                     weight.data<float>()};
  };
  HeadGroups groups{};
  groups.of_query = op.whole ? 1 : static_cast<int>(shape.heads);
  groups.count = op.whole ? 2 : static_cast<int>(shape.heads + shape.kv_heads);
  groups.query = of(shape.heads, 0, op.query_weight);
  groups.key = of(shape.kv_heads, shape.out_columns(), op.key_weight);
  groups.values = {static_cast<int>((shape.heads + shape.kv_heads) * shape.head_size),
                   static_cast<int>(shape.kv_heads * shape.head_size), 0, nullptr};
  groups.stride = static_cast<int>(shape.qkv_columns());
  groups.epsilon = static_cast<float>(op.epsilon);
  groups.offset = static_cast<float>(op.offset);
  assert(op.x.columns() == groups.stride && op.sums.columns() == groups.count);
  return groups;
}

template <bool Backward, class T, class Op>
void launch_head_norm(const Launch& at, const Op& op, const Tensor& dy, const Tensor& to, const Tensor& dots) {
  if (op.x.rows() == 0) return;
  HeadNormCall<T> call{};
  call.groups = groups_of(op);
  call.phase = op.phase;
  call.rows = op.x.rows();
  call.dy = data_of<T>(dy);
  call.x = op.x.template data<T>();
  call.to = data_of<T>(to);
  call.sums = op.sums.template data<float>();
  call.dots = data_of<float>(dots);
  call.writes = op.phase != HeadNormPhase::sums;
  call.groups_at_once = call.groups.count + (call.writes ? 1 : 0);
  const auto fits = [&](const Tensor& tensor) {
    return !tensor.defined() || packs_fit(tensor, op.shape.head_size, flat_width);
  };
  const auto blocks =
      static_cast<unsigned>(ceil_divide(call.rows * call.groups_at_once, head_norm_threads / warp_size));
  with_flag(fits(op.x) && fits(dy) && fits(to) && fits(op.query_weight) && fits(op.key_weight), [&](auto packed) {
    constexpr int V = decltype(packed)::value ? flat_width : 1;
    launch({Backward ? "head_norm_backward" : "head_norm", blocks, head_norm_threads, 0, at.stream},
           head_norm_kernel<Backward, V, T>, call);
  });
}

/// Computes dweight += dy x r over the rows and the groups that share the weight.
template <class T>
void add_weight_gradient(const Launch& at, const HeadNormBackward& op, bool query, const Tensor& dweight) {
  if (!dweight.defined()) return;
  const HeadGroups all = groups_of(op);
  const HeadGroup& first = query ? all.query : all.key;
  const int groups = query ? all.of_query : all.count - all.of_query;
  const HeadNormProducts<T> products{op.dy.data<T>(), op.x.data<T>(), op.sums.data<float>(),   all,
                                     first,           groups,         query ? 0 : all.of_query};
  const bool packed =
      packs_fit(op.dy, op.shape.head_size, column_width) && packs_fit(op.x, op.shape.head_size, column_width);
  add_columns_of(at, products, Shape{op.x.rows() * groups, first.columns}, packed, dweight.data<float>());
}

}  // namespace

void head_norm(const Launch& at, const HeadNorm& op) {
  with_type(op.x.dtype(),
            [&](auto type) { launch_head_norm<false, typename decltype(type)::type>(at, op, {}, op.y, {}); });
}

void head_norm_backward(const Launch& at, const HeadNormBackward& op) {
  with_type(op.x.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    if (op.phase != HeadNormPhase::sums) {  // first: dx may be dy's memory
      add_weight_gradient<T>(at, op, true, op.dquery_weight);
      add_weight_gradient<T>(at, op, false, op.dkey_weight);
    }
    launch_head_norm<true, T>(at, op, op.dy, op.dx, op.dots);
  });
}

}  // namespace maestro::cuda
