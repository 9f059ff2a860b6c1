// SPDX-License-Identifier: Apache-2.0
// How much longer or shorter passes may take before another plan is better.
#pragma once

#include <string>

namespace maestro {

/// Range of a section's pass times within which none of the other best layouts is over a hundredth faster.
struct Certainty {
  std::string section;
  double least = 1;  ///< smallest ratio to the priced time; at least 0.7
  double most = 1;   ///< largest ratio; at most 1.4
};

}  // namespace maestro
