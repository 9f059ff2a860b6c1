// SPDX-License-Identifier: Apache-2.0
// The JSON schema (draft 7) of job files, made of the keys that their readers declare. Pure.
//
// JX-1 (as the readers): if the schema refuses a job with the reference's plug-ins, the readers refuse it too, and a
//       table's schema has exactly the keys that a reader reads there. Checks that depend on several keys, on files or
//       on this machine are left to `maestro check`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/maestro/help/job_reference.hpp"

namespace maestro {

[[nodiscard]] nlohmann::ordered_json job_schema(const JobReference& reference);

}  // namespace maestro
