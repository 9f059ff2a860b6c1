// SPDX-License-Identifier: Apache-2.0
// Prepares a job's data once and keeps them between its runs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "runtime/dataset/prepare.hpp"

namespace maestro {

/// Returns the folder of data that `options` describe, below `folder`. Existing data are used if the options and the
/// files (path, size, time of the last change) are unchanged since their preparation; otherwise new data replace them.
/// Several processes may call it at once: one prepares, the others wait. `note` receives lines about a preparation.
/// Throws as prepare_data().
[[nodiscard]] std::filesystem::path prepare_once(const PrepareOptions& options, const std::filesystem::path& folder,
                                                 const std::function<void(const std::string&)>& note);

}  // namespace maestro
