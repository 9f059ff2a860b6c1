// SPDX-License-Identifier: Apache-2.0
// Tokens in as few bytes as the vocabulary allows.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

namespace maestro {

/// Stores 1, 2 or 4 bytes per token. Reading is thread-safe while no thread appends.
class TokenStore {
 public:
  explicit TokenStore(std::int64_t vocabulary) {
    if (vocabulary > 65536) {
      tokens_.emplace<std::vector<std::int32_t>>();
    } else if (vocabulary > 256) {
      tokens_.emplace<std::vector<std::uint16_t>>();
    }
  }
  /// Appends tokens in [0, vocabulary).
  void append(std::span<const std::int32_t> tokens) {
    std::visit(
        [&](auto& stored) {
          using Stored = typename std::remove_reference_t<decltype(stored)>::value_type;
          for (const std::int32_t token : tokens) stored.push_back(static_cast<Stored>(token));
        },
        tokens_);
  }
  [[nodiscard]] std::size_t size() const {
    return std::visit([](const auto& stored) { return stored.size(); }, tokens_);
  }
  /// Copies tokens [begin, begin + out.size()).
  void read(std::size_t begin, std::span<std::int32_t> out) const {
    assert(begin + out.size() <= size());
    std::visit(
        [&](const auto& stored) {
          for (std::size_t at = 0; at < out.size(); ++at) out[at] = stored[begin + at];
        },
        tokens_);
  }
  /// Returns the tokens as they are stored.
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::visit([](const auto& stored) { return std::as_bytes(std::span(stored)); }, tokens_);
  }
  void shrink() {
    std::visit([](auto& stored) { stored.shrink_to_fit(); }, tokens_);
  }

 private:
  std::variant<std::vector<std::uint8_t>, std::vector<std::uint16_t>, std::vector<std::int32_t>> tokens_;
};

}  // namespace maestro
