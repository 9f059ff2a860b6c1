// SPDX-License-Identifier: Apache-2.0
// Dtypes of served.thrift. For sources of this room: generated headers are no public headers.
#pragma once

#include <optional>

#include "actors/served/served_types.h"
#include "runtime/core/dtype.hpp"

namespace maestro {

/// Returns nothing for a value that the protocol lacks.
[[nodiscard]] inline std::optional<DType> dtype_of_wire(served::DataType::type sent) {
  switch (sent) {
    case served::DataType::FP32:
      return DType::f32;
    case served::DataType::BF16:
      return DType::bf16;
    case served::DataType::I32:
      return DType::i32;
  }
  return std::nullopt;
}

/// `dtype` is one of a checked port.
[[nodiscard]] inline served::DataType::type wire_of(DType dtype) {
  if (dtype == DType::f32) return served::DataType::FP32;
  return dtype == DType::bf16 ? served::DataType::BF16 : served::DataType::I32;
}

}  // namespace maestro
