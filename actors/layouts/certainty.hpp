// SPDX-License-Identifier: Apache-2.0
// How far the times of passes may be off before a plan would be another.
#pragma once

#include <string>

namespace maestro {

/// How far the passes of a section may be off before another of the best layouts is faster by over a hundredth.
struct Certainty {
  std::string section;
  double least = 1;  ///< times as long as priced; 0.7 at least
  double most = 1;   ///< 1.4 at most
};

}  // namespace maestro
