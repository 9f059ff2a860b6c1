// SPDX-License-Identifier: Apache-2.0
// The JSON schema (draft 7) of job files, made of the keys that their readers declare. Pure.
//
// JX-1 (as the readers): a job that has the plug-ins of the reference and that the schema refuses is refused by the
//       readers, and a key is in the schema exactly where a reader reads it. What depends on several keys, on files or
//       on this machine is left to `maestro check`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "apps/maestro/help/job_reference.hpp"

namespace maestro {

[[nodiscard]] nlohmann::ordered_json job_schema(const JobReference& reference);

}  // namespace maestro
