// SPDX-License-Identifier: Apache-2.0
// A line about an invalid command line, with the nearest valid command or option.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace maestro {

[[nodiscard]] std::string usage_error(const CLI::App& app, const CLI::ParseError& problem,
                                      const std::vector<std::string>& arguments);

}  // namespace maestro
