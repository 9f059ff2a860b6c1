// SPDX-License-Identifier: Apache-2.0
// A key of a job file as its reader declares it: the material of the job-file reference.
#pragma once

#include <string>
#include <string_view>

namespace maestro {

/// The meaning of a key, given by the reader together with default and range.
struct KeyHelp {
  std::string_view text;       ///< one line
  std::string_view unit = {};  ///< "steps", "ms"; empty: none
};

/// JK-1 (one declaration): a key's entry in the reference is the call that reads the key; no second list exists.
struct JobKey {
  std::string table = {};  ///< full name; empty: top level
  std::string name = {};
  std::string type = {};      ///< "integer", "number", "true or false", "text", "choice", "list of texts" or "table"
  std::string fallback = {};  ///< the default as TOML
  std::string allowed = {};   ///< range or choices; empty: any value of the type
  std::string unit = {};
  std::string help = {};
};

}  // namespace maestro
