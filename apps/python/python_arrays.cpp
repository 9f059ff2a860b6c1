// SPDX-License-Identifier: Apache-2.0
#include "apps/python/python_arrays.hpp"

#include <vector>

namespace maestro::python {

namespace nb = nanobind;

namespace {

nb::dlpack::dtype dlpack_of(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
    case DType::i32:
      return nb::dtype<std::int32_t>();
    default:
      return nb::dtype<float>();
  }
}

}  // namespace

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    if (name == name_of(dtype)) return dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(const Array& array) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i32}) {
    if (array.dtype() == dlpack_of(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string text_of(const Array& array) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    text += (axis > 0 ? ", " : "") + std::to_string(array.shape(axis));
  }
  const auto dtype = dtype_of(array);
  return std::string(dtype ? name_of(*dtype) : "another dtype") + " " + text + ")";
}

std::string place_of(const Array& array) {
  if (array.device_type() == nb::device::cpu::value) return "the CPU";
  if (array.device_type() == nb::device::cuda::value) return "cuda:" + std::to_string(array.device_id());
  return "another kind of device";
}

bool is_on(const DeviceQueue* device, const Array& array) {
  if (device == nullptr) return array.device_type() == nb::device::cpu::value;
  return array.device_type() == nb::device::cuda::value && array.device_id() == device->device();
}

nb::object view_of(const Tensor& tensor, const DeviceQueue* device) {
  std::vector<std::size_t> shape;
  for (int axis = 0; axis < tensor.shape().rank(); ++axis)
    shape.push_back(static_cast<std::size_t>(tensor.shape()[axis]));
  static std::byte nothing{};  // a tensor without rows may be without memory
  void* const data = tensor.defined() ? tensor.raw() : &nothing;
  const nb::capsule owner(data, [](void*) noexcept {});
  return nb::cast(nb::ndarray<nb::array_api>(
      data, shape.size(), shape.data(), owner, nullptr, dlpack_of(tensor.dtype()),
      device == nullptr ? nb::device::cpu::value : nb::device::cuda::value, device == nullptr ? 0 : device->device()));
}

}  // namespace maestro::python
