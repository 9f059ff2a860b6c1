// SPDX-License-Identifier: Apache-2.0
// Compares a section's gradients with finite differences, for tests of a section type.
#pragma once

#include "sections/section_check.hpp"  // IWYU pragma: export
