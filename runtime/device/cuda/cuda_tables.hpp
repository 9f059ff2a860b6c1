// SPDX-License-Identifier: Apache-2.0
// The operator table of the backend's devices.
#pragma once

#include "runtime/device/cuda/cuda_device.hpp"

namespace maestro::cuda {

/// Makes a CudaOperatorTable at a device's site.
[[nodiscard]] TableMaker cuda_tables();

}  // namespace maestro::cuda
