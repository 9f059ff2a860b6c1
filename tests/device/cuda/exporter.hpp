// What tests see of a process that shows a block of its device memory.
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

/// A process (memory_exporter.cpp) that shows a block of `bytes` bytes of `value`.
struct Exporter : testing::ChildProcess {
  Exporter(std::size_t bytes, int value)
      : ChildProcess({MEMORY_EXPORTER, std::to_string(bytes), std::to_string(value)}), introduction(read_line()) {}
  [[nodiscard]] bool shares() const { return introduction.find(' ') == std::string::npos && !introduction.empty(); }
  [[nodiscard]] std::vector<std::byte> exported() const {
    const Bytes bytes = of_hex(introduction);
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return {first, first + bytes.size()};
  }
  /// The block, as its owner sees it.
  [[nodiscard]] Bytes bytes() {
    send("bytes");
    return of_hex(read_line());
  }
  std::string introduction;
};

}  // namespace maestro::cuda
