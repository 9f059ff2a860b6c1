// SPDX-License-Identifier: Apache-2.0
// Prepared data of a job, kept between its runs.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "runtime/dataset/prepare.hpp"

namespace maestro {

/// Returns the prepared data of `options` in `folder`: those that are there, where the options and the files (path,
/// size, time of the last change) are the same as when they were made; else new data in their place. Several processes
/// may call it at once: one prepares, the others wait. `note` receives lines about a preparation. Throws as
/// prepare_data().
[[nodiscard]] std::filesystem::path prepare_once(const PrepareOptions& options, const std::filesystem::path& folder,
                                                 const std::function<void(const std::string&)>& note);

}  // namespace maestro
