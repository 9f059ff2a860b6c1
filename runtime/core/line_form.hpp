// SPDX-License-Identifier: Apache-2.0
// The form of a process's printed lines.
#pragma once

namespace maestro {

enum class LineForm {
  plain,  ///< text
  timed,  ///< text after the time
  json,   ///< a JSON object a line
};

}  // namespace maestro
