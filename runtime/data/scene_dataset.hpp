// SPDX-License-Identifier: Apache-2.0
// A data set of scenes on disk, in the format that LlavaCorpus reads.
//
// SD-1: `scenes.json`, which says what the folder holds, is written last and removed first: where it is, the rest is
//       whole. A folder without it, or with another one, is written anew.
#pragma once

#include <filesystem>

#include "runtime/data/scene_generator.hpp"

namespace maestro {

struct SceneDatasetOptions {
  SceneOptions scenes;
  std::uint64_t train_samples = 20000;
  std::uint64_t validation_samples = 500;
};

struct SceneDataset {
  std::filesystem::path train;       ///< data.path
  std::filesystem::path validation;  ///< data.validation_path
  bool written = false;              ///< false: the folder held just this already
};

/// Makes `folder` hold train.json, validation.json, images/*.png and scenes.json. Equal options give equal files.
/// Throws JobError that names what cannot be written.
SceneDataset write_scene_dataset(const std::filesystem::path& folder, const SceneDatasetOptions& options);

}  // namespace maestro
