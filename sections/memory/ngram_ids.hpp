// SPDX-License-Identifier: Apache-2.0
// Row numbers of hashed n-grams, as Qwen4ExpTextNGramEmbedding of transformers 5.24 computes them (after Engram, arXiv
// 2601.07372). Pure.
//
// HY-1 (same ids): row numbers equal transformers' for all tokens, lengths and borders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace maestro {

/// Sizes of an n-gram table.
struct NGramShape {
  std::int64_t orders = 3;        ///< N: n-grams of 2 to N tokens
  std::int64_t heads = 2;         ///< hashes of each order
  std::int64_t rows = 40000;      ///< a head's rows are a prime, at least this
  std::int64_t dim = 32;          ///< columns of a row
  std::int64_t vocabulary = 256;  ///< V, which the multipliers depend on
  std::int32_t end_of_text = 0;
  std::int64_t seed = 1234;
  std::int64_t divisor = 128;  ///< the table's rows are padded to a multiple
  [[nodiscard]] std::int64_t all_heads() const { return (orders - 1) * heads; }
  /// Returns the columns of all heads of a token side by side.
  [[nodiscard]] std::int64_t columns() const { return all_heads() * dim; }
  bool operator==(const NGramShape&) const = default;
};

/// Thread-safe.
class NGramIds {
 public:
  explicit NGramIds(const NGramShape& shape);
  [[nodiscard]] const NGramShape& shape() const { return shape_; }
  /// Returns the rows of the table, heads one after another, padded.
  [[nodiscard]] std::int64_t table_rows() const { return table_rows_; }
  [[nodiscard]] const std::vector<std::int64_t>& primes() const { return primes_; }
  [[nodiscard]] const std::vector<std::int64_t>& multipliers() const { return multipliers_; }
  /// Writes a row number for each token and head, (T, heads), order by order. With s_d(t) = token t - d of the text, or
  /// end_of_text before its first token, an n-gram's word is x = s_0 m_0 xor ... xor s_{n-1} m_{n-1} in 64 bits, and
  /// the number in head j is offset_j + x mod p_j, not negative. A text ends with each end_of_text token. `before` are
  /// the tokens before the first, at least orders - 1 or all; they get no numbers.
  void rows_of(std::span<const std::int32_t> before, std::span<const std::int32_t> tokens,
               std::span<std::int32_t> to) const;

 private:
  NGramShape shape_;
  std::vector<std::int64_t> multipliers_;  // m_i, odd
  std::vector<std::int64_t> primes_;       // p_j
  std::vector<std::int64_t> offsets_;
  std::int64_t table_rows_ = 0;
};

}  // namespace maestro
