// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace maestro {

/// Heads of a gated delta rule (Yang et al. 2024, "Gated Delta Networks"). Value head h has the queries and keys of key
/// head h / (value_heads / key_heads).
struct DeltaShape {
  std::int64_t key_heads = 0;    ///< heads of queries and of keys
  std::int64_t value_heads = 0;  ///< a multiple of key_heads
  std::int64_t key_size = 0;     ///< columns of a query or key
  std::int64_t value_size = 0;   ///< columns of a value
  [[nodiscard]] std::int64_t key_columns() const { return key_heads * key_size; }
  [[nodiscard]] std::int64_t value_columns() const { return value_heads * value_size; }
  [[nodiscard]] std::int64_t qkv_columns() const { return 2 * key_columns() + value_columns(); }
  bool operator==(const DeltaShape&) const = default;
};

}  // namespace maestro
