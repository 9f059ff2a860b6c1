// SPDX-License-Identifier: Apache-2.0
// Gradients of a section against finite differences: for tests of a section type.
#pragma once

#include "sections/section_check.hpp"  // IWYU pragma: export
