// SPDX-License-Identifier: Apache-2.0
// What a micro-batch is run for.
#pragma once

#include <cstdint>

namespace maestro {

enum class Pass : std::uint8_t {
  train,    ///< forward and, in trained sections, backward
  evaluate  ///< forward only, on the validation split; steps no optimizer
};

}  // namespace maestro
