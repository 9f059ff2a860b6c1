// SPDX-License-Identifier: Apache-2.0
// Section types by name, so that a job file can choose them by `type`.
#pragma once

#include "sections/registry.hpp"  // IWYU pragma: export
