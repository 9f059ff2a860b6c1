// SPDX-License-Identifier: Apache-2.0
// A table of the job file: typed keys with defaults and ranges. Errors name file, line and key.
#pragma once

#include "runtime/job/job_document.hpp"  // IWYU pragma: export
#include "runtime/job/job_table.hpp"     // IWYU pragma: export
