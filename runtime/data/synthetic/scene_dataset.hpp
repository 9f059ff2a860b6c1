// SPDX-License-Identifier: Apache-2.0
// A data set of scenes on disk, as a list in the format of LLaVA.
//
// SD-1 (complete or rewritten): `scenes.json`, which describes the folder's content, is written last and removed first:
//       if it exists, the rest is complete. A folder without it, or with different options in it, is written anew.
#pragma once

#include <filesystem>

#include "runtime/data/synthetic/scene_generator.hpp"

namespace maestro {

struct SceneDatasetOptions {
  SceneOptions scenes;
  std::uint64_t train_samples = 20000;
  std::uint64_t validation_samples = 500;
};

struct SceneDataset {
  std::filesystem::path train;       ///< data.path
  std::filesystem::path validation;  ///< data.validation_path
  bool written = false;              ///< false: the folder held this data set already
};

/// Writes train.json, validation.json, images/*.png and scenes.json to `folder`, unless it already has this data set.
/// Equal options result in equal files. Throws JobError that names a file that cannot be written.
SceneDataset write_scene_dataset(const std::filesystem::path& folder, const SceneDatasetOptions& options);

}  // namespace maestro
