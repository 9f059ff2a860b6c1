// SPDX-License-Identifier: Apache-2.0
// Dense row-major views of typed memory. A view never owns: arenas, parameter stores and buffers do.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "runtime/core/dtype.hpp"
#include "runtime/core/shape.hpp"
#include "runtime/core/shape_error.hpp"

namespace maestro {

/// `Byte`: std::byte, or const std::byte for memory that is only read.
template <class Byte>
class TensorView {
 public:
  using Void = std::conditional_t<std::is_const_v<Byte>, const void, void>;
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;

  TensorView() = default;
  TensorView(Void* data, DType dtype, Shape shape) : data_(data), shape_(shape), dtype_(dtype) {}
  /// A view of mutable memory is one of constant memory, too.
  template <class Other>
  requires(std::is_const_v<Byte>&& std::is_same_v<Other, std::remove_const_t<Byte>>)
      TensorView(const TensorView<Other>& other)
      : TensorView(other.raw(), other.dtype(), other.shape()) {}

  [[nodiscard]] bool defined() const { return data_ != nullptr; }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] std::int64_t elements() const { return shape_.elements(); }
  [[nodiscard]] std::int64_t rows() const { return shape_.rows(); }
  [[nodiscard]] std::int64_t columns() const { return shape_.columns(); }
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype_); }
  [[nodiscard]] Byte* raw() const { return static_cast<Byte*>(data_); }

  /// Returns a typed pointer; null if the tensor is undefined. Throws ShapeError if the dtype is not that of T.
  template <class T>
  [[nodiscard]] Element<T>* data() const {
    if (dtype_of<T> != dtype_ && defined()) [[unlikely]]
      fail_dtype(dtype_, dtype_of<T>, shape_);
    return static_cast<Element<T>*>(data_);
  }
  template <class T>
  [[nodiscard]] std::span<Element<T>> span() const {
    return {data<T>(), static_cast<std::size_t>(elements())};
  }
  /// Returns the same memory with another shape of as many elements. Throws ShapeError.
  [[nodiscard]] TensorView reshaped(Shape shape) const {
    if (shape.elements() != elements()) [[unlikely]]
      fail_reshaped(shape_, shape);
    return {data_, dtype_, shape};
  }
  /// Returns rows [first, first + count) of the tensor folded to (rows, columns). Throws ShapeError.
  [[nodiscard]] TensorView row_slice(std::int64_t first, std::int64_t count) const {
    if (!within(first, count, rows())) [[unlikely]]
      fail_slice("row_slice", first, count, rows(), shape_);
    const auto skip = static_cast<std::size_t>(first * columns()) * size_of(dtype_);
    return {raw() + skip, dtype_, Shape{count, columns()}};
  }
  /// Returns elements [first, first + count) as a vector. Throws ShapeError.
  [[nodiscard]] TensorView flat_slice(std::int64_t first, std::int64_t count) const {
    if (!within(first, count, elements())) [[unlikely]]
      fail_slice("flat_slice", first, count, elements(), shape_);
    return {raw() + static_cast<std::size_t>(first) * size_of(dtype_), dtype_, Shape{count}};
  }

 private:
  static bool within(std::int64_t first, std::int64_t count, std::int64_t size) {
    return first >= 0 && count >= 0 && first <= size - count;
  }

  Void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::f32;
};

using Tensor = TensorView<std::byte>;
using ConstTensor = TensorView<const std::byte>;  ///< memory of a file, or a buffer that others write

}  // namespace maestro
