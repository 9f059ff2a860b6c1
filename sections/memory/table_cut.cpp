// SPDX-License-Identifier: Apache-2.0
#include "sections/memory/table_cut.hpp"

#include <algorithm>
#include <numeric>

#include "runtime/collective/rank_part.hpp"
#include "runtime/ops/parallel_functions.hpp"

namespace maestro {

namespace {

/// Throws JobError unless `parts` equal parts of `count` exist.
void check_even(std::int64_t count, std::int64_t parts, const std::string& section, const std::string& what) {
  if (count % parts == 0) return;
  std::int64_t nearest = parts;
  while (count % nearest != 0) --nearest;
  throw JobError(section + ".tensor = " + std::to_string(parts) + ": cannot divide the " + std::to_string(count) + " " +
                 what + "; the nearest is " + std::to_string(nearest) + ", and sharding = \"row\" takes any number");
}

}  // namespace

TableCut::TableCut(TableSharding sharding, const NGramIds& ids, const ParallelContext& parallel,
                   const std::string& section)
    : sharding_(sharding),
      group_(parallel.tensor_group),
      hashes_(ids.shape().all_heads()),
      own_hashes_{0, ids.shape().all_heads()} {
  const std::int64_t ranks = parallel.layout.tensor, rank = parallel.tensor(), dim = ids.shape().dim;
  if (parallel.layout.context > 1) {
    throw JobError(section + ".context = " + std::to_string(parallel.layout.context) +
                   ": a table is cut over tensor ranks; leave context at 1, and use tensor or replicas");
  }
  if (ranks == 1) return;
  switch (sharding) {
    case TableSharding::row: {
      const RowRange own = row_part(ids.table_rows(), ranks, rank);
      slice_.rows = {{own.first, own.count}};
      return;
    }
    case TableSharding::table: {
      check_even(hashes_, ranks, section, "hashes");
      own_hashes_ = row_part(hashes_, ranks, rank);
      const auto rows_before = [&](std::int64_t hash) {
        return std::accumulate(ids.primes().begin(), ids.primes().begin() + hash, std::int64_t{0});
      };
      const std::int64_t first = rows_before(own_hashes_.first);
      const std::int64_t end = own_hashes_.end() == hashes_ ? ids.table_rows() : rows_before(own_hashes_.end());
      slice_.rows = {{first, end - first}};
      blocks_ = {{.columns = own_hashes_.count * dim}};
      return;
    }
    case TableSharding::column: {
      check_even(dim, ranks, section, "columns of a row");
      const std::int64_t own = dim / ranks;
      slice_.columns = {rank * own, own};
      for (std::int64_t hash = 0; hash < hashes_; ++hash) {
        blocks_.push_back({.part_column = hash * dim, .own_column = hash * own, .columns = own});
      }
    }
  }
}

std::vector<std::int32_t> TableCut::own_rows(std::span<const std::int32_t> rows) const {
  std::vector<std::int32_t> own;
  own.reserve(rows.size() * static_cast<std::size_t>(own_hashes_.count) / static_cast<std::size_t>(hashes_));
  const ParameterSlice::Range held =
      slice_.rows.empty() ? ParameterSlice::Range{0, std::int64_t{1} << 31} : slice_.rows.front();
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(hashes_)) {
    for (std::int64_t hash = own_hashes_.first; hash < own_hashes_.end(); ++hash) {
      const std::int64_t row = rows[at + static_cast<std::size_t>(hash)] - held.first;
      own.push_back(static_cast<std::int32_t>(row >= 0 && row < held.count ? row : -1));
    }
  }
  return own;
}

Var TableCut::exchanged(Tape& tape, const Var& found) const {
  if (group_ == nullptr) return found;
  if (sharding_ == TableSharding::row) return reduce_scatter_rows(tape, found, group_);
  const std::int64_t rows = found.value().rows();
  const Shape shape{rank_part(rows, *group_).count, found.value().columns() * group_->size()};
  Var own = tape.output(shape, found.value().dtype(), found.needs_gradient());
  HeadExchange(rows, *group_).to_rows(found.value(), own.value(), blocks_);
  if (!own.needs_gradient()) return own;
  tape.record(own, [&tape, found, own, rows, group = group_, blocks = blocks_] {
    const Block back = tape.scratch(found.value().shape(), found.value().dtype());
    HeadExchange(rows, *group).to_heads(own.gradient(), back.tensor(), blocks);
    tape.add_gradient(found, back);
  });
  return own;
}

}  // namespace maestro
