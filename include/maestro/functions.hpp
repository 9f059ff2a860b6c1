// SPDX-License-Identifier: Apache-2.0
// Differentiable functions for a section's forward pass, on one rank or several, and a CUDA device's queue for other
// libraries.
#pragma once

#include "runtime/ops/device_queue.hpp"        // IWYU pragma: export
#include "runtime/ops/functions.hpp"           // IWYU pragma: export
#include "runtime/ops/parallel_functions.hpp"  // IWYU pragma: export
