// SPDX-License-Identifier: Apache-2.0
// How far the times of passes may be off before a plan would be another.
#pragma once

#include <string>

namespace maestro {

/// How far the passes of a section may be off before another of the best layouts is faster by over a hundredth.
struct Certainty {
  std::string section;
  double least = 1;  ///< smallest ratio to the priced time; at least 0.7
  double most = 1;   ///< largest ratio; at most 1.4
};

}  // namespace maestro
