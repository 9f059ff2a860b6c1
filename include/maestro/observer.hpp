// SPDX-License-Identifier: Apache-2.0
// Where a run reports to: the console, and the figures that App::run() returns.
#pragma once

#include "actors/run/run_result.hpp"    // IWYU pragma: export
#include "runtime/observe/console.hpp"  // IWYU pragma: export
