// SPDX-License-Identifier: Apache-2.0
// Runs a section on plain tensors, without actors, for tests of a section type.
#pragma once

#include "sections/section_runner.hpp"  // IWYU pragma: export
