// SPDX-License-Identifier: Apache-2.0
// Reads the output of record_loss_references.py: a safetensors file whose metadata lists the cases as JSON.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

struct Recorded {
  nlohmann::json cases;
  std::map<std::string, Values> tensors;

  [[nodiscard]] const Values& at(const std::string& name) const { return tensors.at(name); }
};

inline Recorded read_recorded(const std::string& file) {
  const std::string path = std::string(MAESTRO_SOURCE_DIR) + "/tests/ops/references/" + file;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + " is missing; run tests/ops/record_loss_references.py");
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  Recorded recorded;
  recorded.cases = nlohmann::json::parse(header["__metadata__"]["cases"].get<std::string>());
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::size_t first = 8 + header_bytes + entry["data_offsets"][0].get<std::size_t>();
    Values values((entry["data_offsets"][1].get<std::size_t>() - entry["data_offsets"][0].get<std::size_t>()) / 4);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float number = 0;
      std::int32_t integer = 0;
      std::memcpy(&number, bytes.data() + first + 4 * i, 4);
      std::memcpy(&integer, bytes.data() + first + 4 * i, 4);
      values[i] = entry["dtype"] == "I32" ? integer : double{number};
    }
    recorded.tensors[name] = std::move(values);
  }
  return recorded;
}

}  // namespace maestro::testing
