// SPDX-License-Identifier: Apache-2.0
// Tensors of a run as arrays in Python, and the reverse, by DLPack and without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <maestro/functions.hpp>
#include <optional>
#include <string>

namespace maestro::python {

/// An array that Python has made, in memory of the CPU or of a device.
using Array = nanobind::ndarray<nanobind::c_contig>;

[[nodiscard]] std::optional<DType> dtype_named(const std::string& name);
[[nodiscard]] std::optional<DType> dtype_of(const Array& array);
/// Returns "fp32 (2, 3)".
[[nodiscard]] std::string text_of(const Array& array);
/// Returns "the CPU" or "cuda:0".
[[nodiscard]] std::string place_of(const Array& array);
/// Returns whether the array is in memory of the device; null: of the CPU.
[[nodiscard]] bool is_on(const DeviceQueue* device, const Array& array);

/// Returns an array over the tensor's memory, which outlives it: of the device, as kDLCUDA with its number, or with
/// null of the CPU. The caller holds the interpreter's lock.
[[nodiscard]] nanobind::object view_of(const Tensor& tensor, const DeviceQueue* device = nullptr);

}  // namespace maestro::python
