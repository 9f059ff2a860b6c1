// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/process/app.hpp"

namespace maestro {

/// Returns an app with these settings after its own, and with these options and this console (App::with).
using ComposeApp = std::function<App(const std::vector<std::string>& settings, RunOptions options, Console& console)>;

}  // namespace maestro
