// SPDX-License-Identifier: Apache-2.0
// The fused output layer and its losses: hidden states times head, softmax cross-entropy and distillation divergences,
// and their gradients, in blocks of rows and panels of the vocabulary. Values and formulas: distillation_options.hpp
// and, per row, distillation_row.hpp.
//
// Working memory is O(block rows x (panel width + C)) if logits exceed LossLimits, else at most twice
// LossLimits::logits_bytes more; it never grows with M x V.
//
// DL-2 (ignored rows): rows whose target is negative cost no product, add nothing to any sum, and get a zero dhidden.
// DL-3 (rest outside the divergence): columns at or above shared_vocabulary are in the softmax of the cross-entropy,
//       and in no divergence.
// DL-4 (bitwise repeatable): results are bitwise equal from run to run. Keeping or recomputing logits changes only the
//       grouping of products and f32 partial sums.
// DL-5 (same sums on all ranks): all ranks of a group that a head is cut over cut the same blocks and compute the same
//       bits of every sum. Every rank walks only its tokens; ranks exchange a few numbers per row of a block
//       (joined_rows.hpp).
//
// Cost in matrix products: logits kept: student 3, teacher 1. Computed again: student 4, teacher 2; with js 5 and 3.
#pragma once

#include "runtime/ops/cpu/isa.hpp"
#include "runtime/ops/cpu/products/matmul.hpp"
#include "runtime/ops/cpu/scratch.hpp"
#include "runtime/ops/distillation_options.hpp"
#include "runtime/ops/vocabulary_part.hpp"

namespace maestro::cpu {

struct LossLimits {
  /// f32 logits of a block that may be kept, per model. Where fewer rows fit, logits are computed twice, which is a
  /// fourth product next to the three that are needed.
  std::int64_t logits_bytes = std::int64_t{192} << 20;
  std::int64_t cached_bytes = std::int64_t{8} << 20;  ///< kept logits that stay in the caches
  std::int64_t kept_rows = 256;                       ///< rows of a block whose kept logits exceed cached_bytes
  std::int64_t rows = 512;                            ///< rows of a block
};

/// Thread-safe. `products` and `scratch` must outlive this. Contracts on top of the option structs:
/// hidden, dhidden and the student's packs share an act dtype, as do teacher_hidden and teacher_head. Logits are f32;
/// their gradient is rounded to act for the products. targets < shared_vocabulary. top_k: teacher_indices of a row are
/// distinct; those outside [0, shared_vocabulary) are left out of p, and a row without any other makes kl and the
/// gradients NaN; with top_k_rest it makes them 0. The caller checks settings once at start with validate() of
/// distillation_settings.hpp.
class OutputLoss {
 public:
  OutputLoss(Isa isa, const MatrixProducts& products, ScratchPool& scratch, const LossLimits& limits = {});
  /// `part`: see OperatorTable.
  [[nodiscard]] LossSums cross_entropy(const CrossEntropyHead& head, const VocabularyPart& part = {}) const;
  [[nodiscard]] LossSums distillation(const DistillationHead& head, const VocabularyPart& part = {}) const;

 private:
  [[nodiscard]] LossSums run(const DistillationHead& head, const VocabularyPart& part, bool teacher) const;

  Isa isa_;
  const MatrixProducts* products_;
  ScratchPool* scratch_;
  LossLimits limits_;
};

}  // namespace maestro::cpu
