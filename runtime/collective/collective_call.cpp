// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/collective_call.hpp"

#include <sstream>

namespace maestro {
namespace {

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

std::string text_of(const TensorBlock& block) {
  return joined(block.rows, " x ", block.columns, " at (", block.row, ", ", block.column, ")");
}

bool is_empty(const TensorBlock& block) {
  return block.rows == 0 || block.columns == 0;
}

bool lies_within(const TensorBlock& block, const Tensor& tensor) {
  if (block.row < 0 || block.rows < 0 || block.column < 0 || block.columns < 0) return false;
  if (is_empty(block)) return true;
  return block.row + block.rows <= tensor.rows() && block.column + block.columns <= tensor.columns();
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (a.elements() == 0 || b.elements() == 0) return false;
  const auto first_of = [](const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.raw()); };
  return first_of(a) < first_of(b) + b.bytes() && first_of(b) < first_of(a) + a.bytes();
}

/// `prefix()` is "operation: rank r"; built only for an error.
template <class Prefix>
std::string blocks_violation(const Prefix& prefix, std::string_view does, const Tensor& tensor,
                             std::span<const BlockTransfer> transfers, std::int64_t size) {
  for (const auto& [peer, block] : transfers) {
    if (peer < 0 || peer >= size) return joined(prefix(), does, " rank ", peer, ", the group has ", size, " ranks");
    if (!lies_within(block, tensor)) {
      return joined(prefix(), does, " rank ", peer, " a block ", text_of(block), ", its tensor is ",
                    tensor.shape().to_string());
    }
    if (!is_empty(block) && !tensor.defined()) {
      return joined(prefix(), does, " rank ", peer, " a block ", text_of(block), " of a tensor without memory");
    }
  }
  return {};
}

template <class Prefix>
std::string dtypes_violation(const CollectiveCall& call, const Prefix& prefix) {
  return joined(prefix(), " goes from ", name_of(call.from.dtype()), " to ", name_of(call.to.dtype()));
}

template <class Prefix>
std::string tensors_violation(const CollectiveCall& call, const Prefix& prefix) {
  const Tensor &from = call.from, &to = call.to;
  for (const Tensor* tensor : {&from, &to}) {
    if (tensor->elements() == 0 || tensor->defined()) continue;
    return joined(prefix(), " lacks memory for its tensor ", tensor->shape().to_string());
  }
  if (from.dtype() != to.dtype()) return dtypes_violation(call, prefix);
  if (from.columns() != to.columns()) {
    return joined(prefix(), " goes from ", from.columns(), " columns to ", to.columns());
  }
  if (call.kind != CollectiveKind::reduce_scatter_rows) return {};
  if (from.dtype() != DType::f32 && from.dtype() != DType::bf16) {
    return joined(prefix(), " has ", name_of(from.dtype()), "; only fp32 and bf16 can be added");
  }
  if (overlap(from, to)) return joined(prefix(), " has its part inside its full tensor");
  return {};
}

/// Compares with rank 0 the values that must be equal on all ranks.
std::string pair_violation(const CollectiveCall& call, std::int64_t rank, const CollectiveCall& first) {
  const std::string_view operation = name_of(call.kind);
  if (call.kind != first.kind) {
    return joined(operation, ": rank ", rank, " calls it while rank 0 calls ", name_of(first.kind));
  }
  const auto differ = [&](std::string_view what, const auto& here, const auto& there) {
    return joined(operation, ": rank ", rank, " has ", here, what, ", rank 0 has ", there);
  };
  if (call.values.size() != first.values.size()) return differ(" values", call.values.size(), first.values.size());
  if (call.from.dtype() != first.from.dtype()) {
    return differ(" elements", name_of(call.from.dtype()), name_of(first.from.dtype()));
  }
  if (call.kind == CollectiveKind::exchange) return {};
  if (call.from.columns() != first.from.columns()) return differ(" columns", call.from.columns(), first.from.columns());
  const bool gathers = call.kind == CollectiveKind::all_gather_rows;
  const std::int64_t rows = gathers ? call.to.rows() : call.from.rows();
  const std::int64_t first_rows = gathers ? first.to.rows() : first.from.rows();
  if (rows != first_rows) return differ(" rows in its full tensor", rows, first_rows);
  return {};
}

const Tensor& part_of(const CollectiveCall& call) {
  return call.kind == CollectiveKind::all_gather_rows ? call.from : call.to;
}

const Tensor& whole_of(const CollectiveCall& call) {
  return call.kind == CollectiveKind::all_gather_rows ? call.to : call.from;
}

std::string rows_violation(std::span<const CollectiveCall> calls) {
  const std::string_view operation = name_of(calls[0].kind);
  const auto size = static_cast<std::int64_t>(calls.size());
  const std::int64_t sum = first_row(calls, size);
  if (sum != whole_of(calls[0]).rows()) {
    return joined(operation, ": the parts of all ranks have ", sum, " rows, but the full tensor of rank 0 has ",
                  whole_of(calls[0]).rows());
  }
  if (calls[0].kind != CollectiveKind::all_gather_rows) return {};
  std::int64_t row = 0;
  for (std::int64_t rank = 0; rank < size; ++rank) {
    const Tensor& part = calls[static_cast<std::size_t>(rank)].from;
    const Tensor& whole = calls[static_cast<std::size_t>(rank)].to;
    if (overlap(part, whole) && part.raw() != whole.row_slice(row, part.rows()).raw()) {
      return joined(operation, ": rank ", rank, " has its part inside its full tensor, but not at its row ", row);
    }
    row += part.rows();
  }
  return {};
}

std::string matches_violation(std::span<const CollectiveCall> calls, std::int64_t rank) {
  const CollectiveCall& own = calls[static_cast<std::size_t>(rank)];
  for (std::size_t peer = 0; peer < calls.size(); ++peer) {
    std::string wrong;
    std::int64_t sends = 0, receives = 0;
    const auto compare = [&](const TensorBlock* sent, const TensorBlock* received) {
      if (sent != nullptr) ++sends;
      if (received != nullptr) ++receives;
      if (sent == nullptr || received == nullptr || !wrong.empty() || (is_empty(*sent) && is_empty(*received))) return;
      if (sent->rows == received->rows && sent->columns == received->columns) return;
      wrong = joined("exchange: block ", sends - 1, " from rank ", peer, " to rank ", rank, " is ", text_of(*sent),
                     " at the sender and ", text_of(*received), " at the receiver");
    };
    for_each_match(calls[peer].sends, rank, own.receives, static_cast<std::int64_t>(peer), compare);
    if (sends != receives) {
      return joined("exchange: rank ", peer, " sends ", sends, " blocks to rank ", rank, ", which receives ", receives);
    }
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce_sum:
      return "all_reduce_sum";
    case CollectiveKind::all_reduce_max:
      return "all_reduce_max";
    case CollectiveKind::all_gather_rows:
      return "all_gather_rows";
    case CollectiveKind::reduce_scatter_rows:
      return "reduce_scatter_rows";
    case CollectiveKind::reduce_to_shards:
      return "reduce_to_shards";
    case CollectiveKind::gather_shards:
      return "gather_shards";
    case CollectiveKind::exchange:
      return "exchange";
  }
  return "?";
}

bool is_of_values(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce_sum:
    case CollectiveKind::all_reduce_max:
    case CollectiveKind::reduce_to_shards:
    case CollectiveKind::gather_shards:
      return true;
    default:
      return false;
  }
}

std::string side_violation(const CollectiveCall& call, std::int64_t rank, std::int64_t size) {
  if (is_of_values(call.kind)) return {};
  const auto prefix = [&] { return joined(name_of(call.kind), ": rank ", rank); };
  if (call.kind != CollectiveKind::exchange) return tensors_violation(call, prefix);
  if (call.from.dtype() != call.to.dtype()) return dtypes_violation(call, prefix);
  std::string wrong = blocks_violation(prefix, " sends to", call.from, call.sends, size);
  return wrong.empty() ? blocks_violation(prefix, " receives from", call.to, call.receives, size) : wrong;
}

std::string call_violation(std::span<const CollectiveCall> calls, std::int64_t rank) {
  const auto size = static_cast<std::int64_t>(calls.size());
  for (std::int64_t other = 0; other < size; ++other) {
    const CollectiveCall& call = calls[static_cast<std::size_t>(other)];
    std::string wrong = side_violation(call, other, size);
    if (wrong.empty()) wrong = pair_violation(call, other, calls[0]);
    if (!wrong.empty()) return wrong;
  }
  switch (calls[0].kind) {
    case CollectiveKind::all_gather_rows:
    case CollectiveKind::reduce_scatter_rows:
      return rows_violation(calls);
    case CollectiveKind::exchange:
      return matches_violation(calls, rank);
    default:
      return {};
  }
}

std::int64_t first_row(std::span<const CollectiveCall> calls, std::int64_t rank) {
  std::int64_t row = 0;
  for (const CollectiveCall& call : calls.first(static_cast<std::size_t>(rank))) row += part_of(call).rows();
  return row;
}

}  // namespace maestro
