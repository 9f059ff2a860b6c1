// SPDX-License-Identifier: Apache-2.0
// The columns of latent attention's heads, for every backend; formulas: LatentHeads.
#pragma once

#include "runtime/ops/element_math.hpp"
#include "runtime/ops/latent_operators.hpp"

namespace maestro::element {

struct LatentColumns {
  int heads = 1;
  int size = 1;
  int rope = 0;
  int value = 1;
  bool interleaved = false;

  static LatentColumns of(const LatentShape& shape) {
    return {static_cast<int>(shape.heads), static_cast<int>(shape.head_size), static_cast<int>(shape.rope_size),
            static_cast<int>(shape.value_size), shape.interleaved};
  }
  [[nodiscard]] MAESTRO_HD int nope() const { return size - rope; }
  /// Returns the columns of a head's [nope | value].
  [[nodiscard]] MAESTRO_HD int key() const { return nope() + value; }
  [[nodiscard]] MAESTRO_HD int all() const { return heads * size; }
  /// Returns where column `at` of rope comes to lie in a head.
  [[nodiscard]] MAESTRO_HD int turned(int at) const {
    if (!interleaved) return at;
    return at % 2 == 0 ? at / 2 : rope / 2 + at / 2;
  }
  /// Returns the column of rope that comes to lie at `at`.
  [[nodiscard]] MAESTRO_HD int unturned(int at) const {
    if (!interleaved) return at;
    return at < rope / 2 ? 2 * at : 2 * (at - rope / 2) + 1;
  }
};

}  // namespace maestro::element
