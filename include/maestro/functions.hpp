// SPDX-License-Identifier: Apache-2.0
// Differentiable functions that a section's forward pass is written with, on one rank and on several.
#pragma once

#include "runtime/ops/functions.hpp"           // IWYU pragma: export
#include "runtime/ops/parallel_functions.hpp"  // IWYU pragma: export
