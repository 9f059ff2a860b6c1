// SPDX-License-Identifier: Apache-2.0
// The base class of a section type, its ports, inputs, outputs and parameters.
#pragma once

#include "runtime/core/tensor_text.hpp"  // IWYU pragma: export
#include "sections/parameter_init.hpp"   // IWYU pragma: export
#include "sections/section.hpp"          // IWYU pragma: export
