// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of files: finds damage by disks and truncated copies; no protection against intent.
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

/// Checksum of bytes that come in pieces. Not thread-safe.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  /// Of everything added so far: 32 lower-case hexadecimal digits, as `xxhsum -H2` prints.
  [[nodiscard]] std::string text() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

[[nodiscard]] std::string checksum_of(std::string_view text);
/// Reads the whole file.
[[nodiscard]] Result<std::string> checksum_of_file(const std::filesystem::path& path);

}  // namespace maestro
