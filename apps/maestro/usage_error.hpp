// SPDX-License-Identifier: Apache-2.0
// One line for a command line that cannot be understood, with the nearest thing that can.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace maestro {

[[nodiscard]] std::string usage_error(const CLI::App& app, const CLI::ParseError& problem,
                                      const std::vector<std::string>& arguments);

}  // namespace maestro
