// SPDX-License-Identifier: Apache-2.0
// XXH3-128 checksums: detect damage by disks and truncated copies, but do not protect against intent.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

struct XXH3_state_s;

namespace maestro {

/// The checksum of bytes that arrive in pieces. Not thread-safe.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  /// Returns the checksum of all bytes so far: 32 lower-case hexadecimal digits, as printed by `xxhsum -H2`.
  [[nodiscard]] std::string text() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

[[nodiscard]] std::string checksum_of(std::string_view text);
/// Returns the checksum of a file, which is read completely.
[[nodiscard]] Result<std::string> checksum_of_file(const std::filesystem::path& path);

}  // namespace maestro
