// SPDX-License-Identifier: Apache-2.0
// Sparse training of a table: gradients exist for the rows that a step has read, and only those rows change.
//
// TB-1 (untouched rows): a row changes only in steps that have its id.
// TB-2 (gradients in order): the update of a row depends on the ordered list of its gradients, not on how micro-batches
//       divide them: they are summed one by one, in the order of micro-batch and row.
// TB-3 (cost of a step): neither a pass nor a step touches memory in proportion to the rows of the table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/core/tensor.hpp"

namespace maestro {

/// Gradients of a table's rows in a step. Host memory. Not thread-safe.
class RowGradients {
 public:
  /// Starts the gradients of a micro-batch, or of a replica when replicas' sums are merged; they may come in any order.
  void begin(std::uint32_t micro_batch) { micro_batch_ = micro_batch; }
  /// Adds a gradient for each of `ids`: `rows` (N, D) f32 or bf16. An id may repeat; a negative id is passed over.
  void add(std::span<const std::int32_t> ids, const ConstTensor& rows);

  /// Makes step_rows() average the updates that `copies` copies would take, until clear(). Each number given to begin()
  /// is a copy, whose gradients have been divided by `copies` and have an id at most once.
  void average_over(std::size_t copies) { copies_ = copies; }
  [[nodiscard]] std::size_t copies() const { return copies_; }

  /// The sums of a step, row by row.
  struct Merged {
    std::vector<std::int32_t> ids;  ///< ascending, without repetition
    std::vector<float> sums;        ///< (ids, D)
    // If copies() > 1:
    std::vector<float> apart;       ///< gradients before they are added up, in the same order
    std::vector<std::size_t> ends;  ///< end of each id's gradients among them
  };
  /// Returns the sums since clear(). Sorts the gradients once; add() invalidates the result.
  [[nodiscard]] const Merged& merged() const;
  /// Returns the sum of squares of merged().sums, in f64, row by row.
  [[nodiscard]] double sum_of_squares() const;
  /// Forgets the step's gradients; the memory stays for the next step.
  void clear();

 private:
  struct Entry {
    std::int32_t id = 0;
    std::uint32_t micro_batch = 0;
    std::size_t row = 0;  // of values_
  };
  std::uint32_t micro_batch_ = 0;
  std::size_t copies_ = 1;
  std::vector<Entry> entries_;
  std::vector<float> values_;  // (entries, D)
  mutable Merged merged_;      // of all entries, unless it is empty
};

/// Settings of a row-wise AdaGrad step.
struct RowAdaGrad {
  double lr = 0;
  double epsilon = 1e-8;
  double moment_scale = 1;   ///< c
  double clip_factor = 1;    ///< factor of every gradient
  std::int64_t columns = 0;  ///< D, also where a rank holds a part of them
};
/// Returns the squares of each gradient that step_rows() takes, after clipping, added up: by merged row, or by row and
/// copy.
[[nodiscard]] std::vector<float> row_squares(const RowGradients& gradients, double clip_factor);
/// Steps the rows of a table `values` (R, D or a part) f32 whose sums of squares are `sums` (R) f32. `squares` are
/// row_squares() of whole rows. With one copy, as FBGEMM's EXACT_ROWWISE_ADAGRAD with c = 1:
///   sums_r += c mean_d g_rd^2, values_r -= lr g_r / (sqrt(sums_r) + epsilon)
/// With M copies, whose gradients g_m are M times those added, the mean over m of the same with g_m in place of g.
void step_rows(const RowGradients& gradients, const RowAdaGrad& settings, std::span<const float> squares,
               const Tensor& values, const Tensor& sums);

}  // namespace maestro
