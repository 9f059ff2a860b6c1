// SPDX-License-Identifier: Apache-2.0
// The error of a call whose shapes or dtypes do not fit each other. Every build checks: a wrong shape would train on,
// to another result, or end the process far away.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "runtime/core/dtype.hpp"
#include "runtime/core/shape.hpp"

namespace maestro {

/// The message names the call, the shapes and dtypes that it got, and the rule.
class ShapeError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws ShapeError: another shape with another number of elements.
[[noreturn]] void fail_reshaped(const Shape& from, const Shape& to);
/// Throws ShapeError: elements or rows that a tensor of `size` does not have. `call` is row_slice or flat_slice.
[[noreturn]] void fail_slice(const char* call, std::int64_t first, std::int64_t count, std::int64_t size,
                             const Shape& of);
/// Throws ShapeError: elements that are read as another type than theirs.
[[noreturn]] void fail_dtype(DType stored, DType wanted, const Shape& of);

}  // namespace maestro
