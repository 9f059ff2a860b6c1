// SPDX-License-Identifier: Apache-2.0
// Messages between a test and its second process over pipes, and the data that each expects from the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <istream>
#include <ostream>
#include <span>
#include <string>

#include "transport/region.hpp"

namespace maestro::testing {

struct WireTarget {
  std::string address;  ///< address of an endpoint
  RemoteRegion region;
};

inline std::string to_hex(const std::string& bytes) {
  std::string text;
  for (unsigned char byte : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof pair, "%02x", byte);
    text += pair;
  }
  return text;
}

inline std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

inline std::ostream& operator<<(std::ostream& out, const WireTarget& target) {
  return out << to_hex(target.address) << ' ' << target.region.key << ' ' << target.region.base << ' '
             << target.region.bytes;
}

inline std::istream& operator>>(std::istream& in, WireTarget& target) {
  std::string address;
  in >> address >> target.region.key >> target.region.base >> target.region.bytes;
  target.address = from_hex(address);
  return in;
}

/// Fills `bytes` with a pattern that differs for every seed; no two of its chunks are equal.
inline void fill_pattern(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (auto& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
}

inline std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (auto byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  return hash;
}

}  // namespace maestro::testing
