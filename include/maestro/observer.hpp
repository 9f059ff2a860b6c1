// SPDX-License-Identifier: Apache-2.0
// The receivers of a run's reports: the console, the figures that App::run() returns, and observers.
#pragma once

#include "actors/run/record/run_result.hpp"  // IWYU pragma: export
#include "runtime/observe/console.hpp"       // IWYU pragma: export
#include "runtime/observe/run_observer.hpp"  // IWYU pragma: export
