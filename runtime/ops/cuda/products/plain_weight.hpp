// SPDX-License-Identifier: Apache-2.0
// A weight in the form that products on a device take.
#pragma once

#include "runtime/ops/operator_table.hpp"

namespace maestro::cuda {

/// A view: (N, K) in the dtype of the products, in its parameters' memory.
class PlainWeight final : public PackedWeight {
 public:
  explicit PlainWeight(const Tensor& weight) : weight_(weight) {}
  [[nodiscard]] std::size_t bytes() const override { return 0; }  // in addition to the parameters' memory
  [[nodiscard]] bool rows_readable() const override { return true; }
  [[nodiscard]] const Tensor& tensor() const { return weight_; }

 private:
  Tensor weight_;
};

/// `packed` was made by pack() of a table of this kind.
[[nodiscard]] inline const Tensor& plain(const PackedWeight& packed) {
  return static_cast<const PlainWeight&>(packed).tensor();
}

}  // namespace maestro::cuda
