// SPDX-License-Identifier: Apache-2.0
// Models from references/ in a test's temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/files/safetensors.hpp"
#include "runtime/model/hf_config.hpp"
#include "tests/sections/section_bench.hpp"

namespace maestro::testing {

/// A model from references/, and changes to its stored form.
struct StoredModel {
  explicit StoredModel(const std::string& model)
      : folder(reference_folder(model)),
        config(read_hf_config(folder).value_or_throw()),
        file(SafetensorsFile::open(folder / "model.safetensors").value_or_throw()),
        tensors(file.tensors().value_or_throw()) {}

  NamedTensor& find(const std::string& name) {
    return *std::ranges::find(tensors, name, [](const NamedTensor& tensor) { return tensor.name; });
  }
  /// Writes the current tensors into a folder with the model's config.json.
  [[nodiscard]] std::filesystem::path write(const TemporaryFolder& out) const {
    EXPECT_TRUE(write_safetensors(out.path() / "model.safetensors", tensors).ok());
    std::filesystem::copy_file(folder / "config.json", out.path() / "config.json");
    return out.path();
  }

  std::filesystem::path folder;
  DecoderConfig config;
  SafetensorsFile file;
  std::vector<NamedTensor> tensors;
};

inline std::vector<float> values_of(Section& section) {
  const auto values = section.parameters().values();
  return {values.begin(), values.end()};
}

}  // namespace maestro::testing
