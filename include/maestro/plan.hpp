// SPDX-License-Identifier: Apache-2.0
// Layouts for an app on this machine.
#pragma once

#include "apps/plan/app_plan.hpp"  // IWYU pragma: export
