// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/rows/rows.cuh"

#include <algorithm>
#include <vector>

#include "runtime/ops/cuda/launch_rows.cuh"
#include "runtime/ops/cuda/products/plain_weight.hpp"
#include "runtime/ops/cuda/rows/rows_by_key.hpp"

namespace maestro::cuda {

namespace {

constexpr int float_width = 4;

}  // namespace

void embedding(const Launch& at, const Embedding& op) {
  const Tensor& table = op.packed != nullptr ? plain(*op.packed) : op.table;
  const std::int64_t columns = table.columns();
  assert(op.y.columns() == columns && op.y.rows() == op.ids.elements());
  const bool packed = packs_fit(table, columns, float_width) && packs_fit(op.y, columns, float_width) &&
                      packs_fit(op.positions_table, columns, float_width);
  with_type(table.dtype(), [&](auto stored) {
    with_flag(packed, [&](auto flag) {
      using T = typename decltype(stored)::type;
      constexpr int V = decltype(flag)::value ? float_width : 1;
      launch_rows(at, "embedding", op.ids.elements(), columns / V,
                  EmbeddingRows<T, V>{table.data<T>(), op.ids.data<std::int32_t>(), data_of<float>(op.positions_table),
                                      op.positions.data(), op.y.data<float>(), static_cast<int>(columns),
                                      static_cast<float>(op.scale)});
    });
  });
}

void embedding_backward(const Launch& at, const EmbeddingBackward& op) {
  if (op.dtable.defined())
    add_rows_by_key(at, op.dy, op.ids.data<std::int32_t>(), op.dtable, static_cast<float>(op.scale));
  if (op.dpositions.defined()) add_rows_by_key(at, op.dy, op.positions.data(), op.dpositions);
}

void shift_ids(const Launch& at, const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) {
  assert(ids.elements() == out.elements());
  launch_rows(at, "shift_ids", ids.elements(), 1,
              ShiftedIds{ids.data<std::int32_t>(), out.data<std::int32_t>(), by, limit});
}

void pick_columns(const Launch& at, const Tensor& from, const Tensor& columns, const Tensor& to) {
  assert(from.rows() == columns.rows() && columns.elements() == to.elements());
  launch_rows(at, "pick_columns", columns.rows(), columns.columns(),
              PickedColumns{from.data<std::int32_t>(), columns.data<std::int32_t>(), to.data<std::int32_t>(),
                            from.columns(), columns.columns()});
}

void index_select(const Launch& at, const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) {
  const std::int64_t columns = from.columns();
  assert(to.columns() == columns && to.rows() == static_cast<std::int64_t>(index.size()));
  const bool packed = packs_fit(from, columns, flat_width) && packs_fit(to, columns, flat_width);
  with_type(from.dtype(), [&](auto source) {
    with_type(to.dtype(), [&](auto target) {
      with_flag(packed, [&](auto flag) {
        using From = typename decltype(source)::type;
        using To = typename decltype(target)::type;
        constexpr int V = decltype(flag)::value ? flat_width : 1;
        launch_rows(
            at, "index_select", to.rows(), columns / V,
            GatheredRows<V, From, To>{from.data<From>(), index.data(), to.data<To>(), static_cast<int>(columns)});
      });
    });
  });
}

void index_add(const Launch& at, const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to) {
  assert(rows.columns() == to.columns() && rows.rows() == static_cast<std::int64_t>(index.size()));
  add_rows_by_key(at, rows, index.data(), to);
}

void rotary(const Launch& at, const Rotary& op) {
  const Tensor& qkv = op.qkv;
  const AttentionShape& shape = op.shape;
  const std::vector<double>& inverse = op.frequencies->inverse;
  const auto pairs = static_cast<std::int64_t>(inverse.size());
  assert(2 * pairs <= shape.head_size && pairs <= most_rotary_pairs && qkv.columns() == shape.qkv_columns());
  assert(op.direction == 1 || op.direction == -1);
  const std::int64_t rows = qkv.rows();
  if (rows == 0 || pairs == 0) return;
  const Workspace::Scope scope(*at.workspace);
  auto* cosines = at.workspace->take_array<float>(static_cast<std::size_t>(rows * pairs));
  auto* sines = at.workspace->take_array<float>(static_cast<std::size_t>(rows * pairs));
  const auto positions = static_cast<std::int64_t>(op.positions.size());
  assert(positions >= rows && positions % rows == 0);
  RotaryAngleRows angles{op.positions.data(),
                         static_cast<int>(positions / rows),
                         cosines,
                         sines,
                         op.frequencies->magnitude,
                         static_cast<double>(op.direction),
                         static_cast<int>(pairs),
                         {}};
  std::ranges::copy(inverse, angles.angles.inverse);
  if (positions > rows) std::ranges::copy(op.frequencies->axis, angles.angles.axis);
  launch_rows(at, "rotary_angles", rows, pairs, angles);
  const bool packed = pairs % flat_width == 0 && packs_fit(qkv, shape.head_size, flat_width);
  with_type(qkv.dtype(), [&](auto type) {
    with_flag(packed, [&](auto flag) {
      using T = typename decltype(type)::type;
      constexpr int V = decltype(flag)::value ? flat_width : 1;
      launch_rows(at, "rotary", rows, (shape.heads + shape.kv_heads) * pairs / V,
                  RotatedRows<V, T>{qkv.data<T>(), cosines, sines, qkv.columns(), static_cast<int>(shape.head_size),
                                    static_cast<int>(pairs)});
    });
  });
}

}  // namespace maestro::cuda
