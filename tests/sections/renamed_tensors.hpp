// SPDX-License-Identifier: Apache-2.0
// Copies of safetensors files under other names of tensors.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/files/atomic_file.hpp"
#include "runtime/files/posix_file.hpp"

namespace maestro::testing {

/// Copies a file; a tensor in `names`, an object of new names by old name, gets its new name.
inline void write_renamed(const std::filesystem::path& from, const nlohmann::json& names,
                          const std::filesystem::path& to) {
  const std::string file = read_text(from).value_or_throw();
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, file.data(), sizeof bytes);
  nlohmann::json header = nlohmann::json::object();
  const nlohmann::json stored = nlohmann::json::parse(file.substr(8, bytes));
  for (const auto& [name, entry] : stored.items()) header[names.value(name, name)] = entry;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::string changed(8, ' ');
  std::memcpy(changed.data(), &length, sizeof length);
  (void)write_file(to, changed + text + file.substr(8 + bytes)).value_or_throw();
}

}  // namespace maestro::testing
