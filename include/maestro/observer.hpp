// SPDX-License-Identifier: Apache-2.0
// Where a run reports to: the console, the figures that App::run() returns, and observers.
#pragma once

#include "actors/run/record/run_result.hpp"  // IWYU pragma: export
#include "runtime/observe/console.hpp"       // IWYU pragma: export
#include "runtime/observe/run_observer.hpp"  // IWYU pragma: export
