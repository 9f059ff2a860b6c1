// SPDX-License-Identifier: Apache-2.0
// The purpose of a micro-batch's run.
#pragma once

#include <cstdint>

namespace maestro {

enum class Pass : std::uint8_t {
  train,    ///< forward and, in trained sections, backward
  evaluate  ///< forward only, on the validation split; steps no optimizer
};

}  // namespace maestro
