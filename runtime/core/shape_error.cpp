// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/shape_error.hpp"

#include <string>

namespace maestro {

void fail_reshaped(const Shape& from, const Shape& to) {
  throw ShapeError("reshaped: a tensor " + from.to_string() + " of " + std::to_string(from.elements()) +
                   " elements cannot have the shape " + to.to_string() + " of " + std::to_string(to.elements()));
}

void fail_slice(const char* call, std::int64_t first, std::int64_t count, std::int64_t size, const Shape& of) {
  throw ShapeError(std::string(call) + ": [" + std::to_string(first) + ", " + std::to_string(first + count) +
                   ") is outside of the " + std::to_string(size) + " of a tensor " + of.to_string());
}

void fail_dtype(DType stored, DType wanted, const Shape& of) {
  throw ShapeError("data: a tensor " + of.to_string() + " of " + std::string(name_of(stored)) + " is read as " +
                   std::string(name_of(wanted)));
}

}  // namespace maestro
