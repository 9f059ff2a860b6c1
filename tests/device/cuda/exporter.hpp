// SPDX-License-Identifier: Apache-2.0
// Starts and queries a process that exports blocks of its device memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/child_process.hpp"

namespace maestro::cuda {

using Bytes = std::vector<unsigned char>;

inline Bytes of_hex(const std::string& digits) {
  Bytes bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoi(digits.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

/// A process (memory_exporter.cpp) that exports two blocks of `bytes` bytes, filled with `value` and `value` + 1.
struct Exporter : testing::ChildProcess {
  Exporter(std::size_t bytes, int value)
      : ChildProcess({MEMORY_EXPORTER, std::to_string(bytes), std::to_string(value)}),
        introduction(read_line()),
        second_introduction(shares() ? read_line() : std::string()) {}
  [[nodiscard]] bool shares() const { return introduction.find(' ') == std::string::npos && !introduction.empty(); }
  [[nodiscard]] std::vector<std::byte> exported() const { return exported_by(introduction); }
  [[nodiscard]] std::vector<std::byte> exported_second() const { return exported_by(second_introduction); }
  /// Returns the first block's bytes as its owner sees them.
  [[nodiscard]] Bytes bytes() {
    send("bytes");
    return of_hex(read_line());
  }
  std::string introduction;
  std::string second_introduction;

 private:
  [[nodiscard]] static std::vector<std::byte> exported_by(const std::string& digits) {
    const Bytes bytes = of_hex(digits);
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return {first, first + bytes.size()};
  }
};

}  // namespace maestro::cuda
