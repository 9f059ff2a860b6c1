// SPDX-License-Identifier: Apache-2.0
// A key of a job file as its reader declares it: the source of the job-file reference.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Allowed numbers; the value of an open end is refused. Infinities and NaN are always refused.
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};

/// The meaning of a key, which the reader passes together with default and range.
struct KeyHelp {
  std::string_view text;       ///< one line
  std::string_view unit = {};  ///< "steps", "ms"; empty: none
};

/// JK-1 (one declaration): the call that reads a key also makes its entry in the reference; no second list exists.
struct JobKey {
  std::string table = {};  ///< full name; empty: top level
  std::string name = {};
  std::string type = {};      ///< "integer", "number", "true or false", "text", "choice", "list of texts", ...
  std::string fallback = {};  ///< the default as TOML
  std::string allowed = {};   ///< range or choices; empty: any value
  NumberRange range = {};     ///< range of a number, or of each number in a list
  std::vector<std::string> choices = {};
  std::string unit = {};
  std::string help = {};
};

}  // namespace maestro
