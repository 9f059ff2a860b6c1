// SPDX-License-Identifier: Apache-2.0
// Models by their names on the Hugging Face hub ("Qwen/Qwen3-0.6B"), found in the hub's cache on this machine. Nothing
// is downloaded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

/// The variables that place the hub's cache, by the names of huggingface_hub; empty: not set.
struct HubEnvironment {
  std::string hub_cache;   ///< HF_HUB_CACHE
  std::string hf_home;     ///< HF_HOME
  std::string cache_home;  ///< XDG_CACHE_HOME
  std::string home;        ///< HOME
  /// Returns the variables of this process.
  [[nodiscard]] static HubEnvironment of_process();
};

/// Returns the folders of the cache in search order, for the variables that are set: $HF_HUB_CACHE, $HF_HOME/hub,
/// $XDG_CACHE_HOME/huggingface/hub, $HOME/.cache/huggingface/hub.
[[nodiscard]] std::vector<std::filesystem::path> hub_caches(const HubEnvironment& environment);

/// Returns whether a text has the form OWNER/MODEL: two words of letters, digits, '-', '_' and '.', each beginning with
/// a letter or digit.
[[nodiscard]] bool is_hub_name(std::string_view text);

/// Refuses (invalid_argument) a symbolic link in a model's folder to a file outside the folder's tree, unless the file
/// is a blob of a hub cache: of the cache whose snapshot the folder is, or of hub_caches(). Such a folder may come from
/// others, and the linked files would be read and copied as parts of it.
[[nodiscard]] Status check_model_links(const std::filesystem::path& folder,
                                       const HubEnvironment& environment = HubEnvironment::of_process());

/// Returns the file or folder that a text names. For a name on the hub: the snapshot in the cache, from refs/main or
/// else the only one; any other text, and an existing path, is returned unchanged. Errors (not_found): the cache lacks
/// the model, with the searched folders and the command that downloads it; a model without a complete or unique
/// snapshot. Also errors of check_model_links for the folder, or for the file's folder.
[[nodiscard]] Result<std::string> find_model(const std::string& text,
                                             const HubEnvironment& environment = HubEnvironment::of_process());

}  // namespace maestro
