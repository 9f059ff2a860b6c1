// SPDX-License-Identifier: Apache-2.0
// Checks of single collectives: each is called on every rank of a group and compares the result with a computation in a
// single thread from all ranks' arguments.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/collective/communicator.hpp"
#include "runtime/collective/reduction_round.hpp"

namespace maestro {

/// Returns magnitudes from 2^-12 to 2^12 with both signs, so that sums depend on their order.
inline float value_of(std::uint32_t seed, std::size_t rank, std::size_t index) {
  std::minstd_rand random(static_cast<std::uint32_t>(seed * 7919u + rank * 104729u + index * 31u + 1u));
  random.discard(3);
  const auto exponent = static_cast<int>(random() % 25) - 12;
  const float mantissa = 1.0f + static_cast<float>(random() % 4096) / 4096.0f;
  return std::ldexp(random() % 2 == 0 ? mantissa : -mantissa, exponent);
}

template <class T>
std::vector<T> values_of(std::uint32_t seed, std::size_t rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(value_of(seed, rank, i));
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Tensor tensor_of(std::vector<T>& values, std::int64_t rows, std::int64_t columns) {
  return {values.data(), dtype_of<T>, Shape{rows, columns}};
}

/// Returns a range of rows; a tensor without columns cannot be sliced.
inline Tensor rows_of(const Tensor& whole, std::int64_t first, std::int64_t count) {
  return whole.columns() == 0 ? Tensor(whole.raw(), whole.dtype(), Shape{count, 0}) : whole.row_slice(first, count);
}

/// Returns the number of rows by rank: `total` divided as in a layout, or all on the last rank.
inline std::vector<std::int64_t> parts_of(std::int64_t total, std::int64_t ranks, bool uneven) {
  std::vector<std::int64_t> parts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::int64_t even = total * (rank + 1) / ranks - total * rank / ranks;
    parts.push_back(!uneven ? even : rank + 1 == ranks ? total : 0);
  }
  return parts;
}

/// Returns 0 + 1 + 2 + ... in f32, rounded to T once.
template <class T>
std::vector<T> sum_of(std::uint32_t seed, std::size_t ranks, std::size_t count) {
  std::vector<T> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = static_cast<float>(static_cast<T>(value_of(seed, 0, i)));
    for (std::size_t rank = 1; rank < ranks; ++rank) sum += static_cast<float>(static_cast<T>(value_of(seed, rank, i)));
    sums[i] = static_cast<T>(sum);
  }
  return sums;
}

inline void check_sum(Communicator& group, std::uint32_t seed, std::size_t count) {
  std::vector<float> values = values_of<float>(seed, static_cast<std::size_t>(group.rank()), count);
  group.all_reduce_sum(values);
  EXPECT_TRUE(same_bits(values, sum_of<float>(seed, static_cast<std::size_t>(group.size()), count)))
      << count << " values on rank " << group.rank() << " of " << group.size();
}

inline void check_max(Communicator& group, std::uint32_t seed, std::size_t count) {
  std::vector<float> values = values_of<float>(seed, static_cast<std::size_t>(group.rank()), count);
  group.all_reduce_max(values);
  for (std::size_t i = 0; i < count; ++i) {
    float highest = value_of(seed, 0, i);
    for (std::int64_t rank = 1; rank < group.size(); ++rank) {
      highest = std::max(highest, value_of(seed, static_cast<std::size_t>(rank), i));
    }
    ASSERT_EQ(values[i], highest) << "value " << i << " of " << count << " on rank " << group.rank();
  }
}

inline void check_shards(Communicator& group, std::uint32_t seed, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(group.size()), own = static_cast<std::size_t>(group.rank());
  std::vector<float> values = values_of<float>(seed, own, count);
  group.reduce_to_shards(values);
  const std::vector<float> sums = sum_of<float>(seed, ranks, count);
  const auto shard_in = [&](const std::vector<float>& all) {
    const ShardRange shard = shard_range(count, ranks, own);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(shard.first);
    return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(shard.count));
  };
  EXPECT_TRUE(same_bits(shard_in(values), shard_in(sums))) << count << " values on rank " << own << " of " << ranks;
  group.gather_shards(values);
  EXPECT_TRUE(same_bits(values, sums)) << count << " values on rank " << own << " of " << ranks;
}

struct RowCase {
  std::uint32_t seed = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool uneven = false;
  bool in_place = false;  ///< used by all_gather_rows only
};

template <class T>
void check_gather(Communicator& group, const RowCase& at) {
  const std::vector<std::int64_t> parts = parts_of(at.rows, group.size(), at.uneven);
  std::vector<T> expected;
  std::int64_t first = 0;
  for (std::int64_t rank = 0; rank < group.size(); ++rank) {
    const std::int64_t rows = parts[static_cast<std::size_t>(rank)];
    const auto part =
        values_of<T>(at.seed, static_cast<std::size_t>(rank), static_cast<std::size_t>(rows * at.columns));
    expected.insert(expected.end(), part.begin(), part.end());
    if (rank < group.rank()) first += rows;
  }
  const std::int64_t rows = parts[static_cast<std::size_t>(group.rank())];
  auto own = values_of<T>(at.seed, static_cast<std::size_t>(group.rank()), static_cast<std::size_t>(rows * at.columns));
  std::vector<T> gathered(expected.size());
  const Tensor whole = tensor_of(gathered, at.rows, at.columns);
  Tensor part = tensor_of(own, rows, at.columns);
  if (at.in_place) {
    part = rows_of(whole, first, rows);
    std::copy(own.begin(), own.end(), part.data<T>());
  }
  group.all_gather_rows(part, whole);
  EXPECT_TRUE(same_bits(gathered, expected)) << at.rows << " x " << at.columns << " on rank " << group.rank();
}

template <class T>
void check_reduce_scatter(Communicator& group, const RowCase& at) {
  const std::vector<std::int64_t> parts = parts_of(at.rows, group.size(), at.uneven);
  const auto elements = static_cast<std::size_t>(at.rows * at.columns);
  std::int64_t first = 0;
  for (std::int64_t rank = 0; rank < group.rank(); ++rank) first += parts[static_cast<std::size_t>(rank)];
  const std::int64_t rows = parts[static_cast<std::size_t>(group.rank())];

  auto own = values_of<T>(at.seed, static_cast<std::size_t>(group.rank()), elements);
  const auto kept = own;
  std::vector<T> part(static_cast<std::size_t>(rows * at.columns));
  group.reduce_scatter_rows(tensor_of(own, at.rows, at.columns), tensor_of(part, rows, at.columns));

  const auto sums = sum_of<T>(at.seed, static_cast<std::size_t>(group.size()), elements);
  const auto begin = sums.begin() + first * at.columns;
  EXPECT_TRUE(same_bits(part, std::vector<T>(begin, begin + rows * at.columns)))
      << at.rows << " x " << at.columns << " on rank " << group.rank();
  EXPECT_TRUE(same_bits(own, kept)) << "the whole is only read";
}

/// Checks an exchange as in context parallelism: a rank has its rows of all columns, receives its columns of all rows.
template <class T>
void check_exchange(Communicator& group, const RowCase& at) {
  const std::vector<std::int64_t> rows = parts_of(at.rows, group.size(), at.uneven);
  const std::vector<std::int64_t> columns = parts_of(at.columns, group.size(), false);
  const auto own_rank = static_cast<std::size_t>(group.rank());
  auto all = values_of<T>(at.seed, 0, static_cast<std::size_t>(at.rows * at.columns));
  std::vector<BlockTransfer> sends, receives;
  std::int64_t row = 0, column = 0, own_row = 0, own_column = 0;
  for (std::int64_t peer = 0; peer < group.size(); ++peer) {
    const auto of_peer = static_cast<std::size_t>(peer);
    if (peer == group.rank()) own_row = row, own_column = column;
    sends.push_back({peer, {0, rows[own_rank], column, columns[of_peer]}});
    receives.push_back({peer, {row, rows[of_peer], 0, columns[own_rank]}});
    row += rows[of_peer];
    column += columns[of_peer];
  }
  std::vector<T> received(static_cast<std::size_t>(at.rows * columns[own_rank]));
  const Tensor from = rows_of(tensor_of(all, at.rows, at.columns), own_row, rows[own_rank]);
  group.exchange(from, sends, tensor_of(received, at.rows, columns[own_rank]), receives);
  std::vector<T> expected;
  for (std::int64_t at_row = 0; at_row < at.rows; ++at_row) {
    const auto begin = all.begin() + at_row * at.columns + own_column;
    expected.insert(expected.end(), begin, begin + columns[own_rank]);
  }
  EXPECT_TRUE(same_bits(received, expected)) << at.rows << " x " << at.columns << " on rank " << group.rank();
}

}  // namespace maestro
