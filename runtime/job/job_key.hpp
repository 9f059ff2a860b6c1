// SPDX-License-Identifier: Apache-2.0
// A key of a job file as its reader declares it: the material of the job-file reference.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Allowed numbers; an open end is itself refused. Infinities and NaN always are.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};

/// The meaning of a key, given by the reader together with default and range.
struct KeyHelp {
  std::string_view text;       ///< one line
  std::string_view unit = {};  ///< "steps", "ms"; empty: none
};

/// JK-1 (one declaration): a key's entry in the reference is the call that reads the key; no second list exists.
struct JobKey {
  std::string table = {};  ///< full name; empty: top level
  std::string name = {};
  std::string type = {};      ///< "integer", "number", "true or false", "text", "choice", "list of texts", ...
  std::string fallback = {};  ///< the default as TOML
  std::string allowed = {};   ///< range or choices; empty: any value of the type
  NumberRange range = {};     ///< of a number, or of each number of a list
  std::vector<std::string> choices = {};
  std::string unit = {};
  std::string help = {};
};

}  // namespace maestro
