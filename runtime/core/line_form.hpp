// SPDX-License-Identifier: Apache-2.0
// How a process prints its lines.
#pragma once

namespace maestro {

enum class LineForm {
  plain,  ///< text
  timed,  ///< text with the time in front
  json,   ///< a JSON object a line
};

}  // namespace maestro
