// SPDX-License-Identifier: Apache-2.0
// The parameters of one section replica: flat f32 buffers for values, gradients and optimizer state, so that reduction,
// clipping, the optimizer and checkpoints are single passes; and the packed forms that matrix products use.
//
// PA-1: decayed parameters lie before the others, so AdamW is two calls on contiguous ranges. In each range sharded
//       ones lie before replicated ones, so that either kind is two spans at most.
// PA-2: a packed form is never older than the values it came from.
// PA-3: a sharded parameter begins with exactly the values that its part of the whole one would have: neither initial
//       values nor what is stored depend on the number of ranks.
// PA-4: between steps gradients() is zero; meanwhile replicas that share their moments pass on values and moments
//       there, each in the range whose moments it keeps.
//
// A section that is cut over a tensor group holds some parameters in parts ("sharded": every element is on one rank,
// its gradient whole there) and the rest on every rank ("replicated": a rank's gradient is its share of a sum over the
// group). Which is which, ParameterSpec::slice tells.
//
// Replicas that share their moments (Rajbhandari et al. 2020, ZeRO stage 1) keep those of a range of elements each. A
// replica steps its range alone, offers the new values to the others and takes theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/memory_space.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

/// What a rank holds of a parameter: some of the whole one's rows (first dimension), or some of a matrix' columns.
struct ParameterSlice {
  struct Range {
    std::int64_t first = 0;
    std::int64_t count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> rows;  ///< held one after another in this order, without overlap; empty: all
  Range columns;            ///< count 0: all
  [[nodiscard]] bool cut() const { return !rows.empty() || columns.count > 0; }
};

/// The flat buffers of Parameters.
enum class ParameterBuffer : std::uint8_t { values, gradients, first_moments, second_moments };

class Parameters;

/// One named tensor of a section, or this rank's part of it; lives as long as its Parameters.
class Parameter {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Tensor& value() const { return value_; }        ///< f32; undefined before allocate()
  [[nodiscard]] const Tensor& gradient() const { return gradient_; }  ///< f32; undefined when frozen
  [[nodiscard]] bool trained() const { return gradient_.defined(); }
  [[nodiscard]] const Shape& shape() const { return shape_; }  ///< of what is held here
  /// Shape of the whole parameter: shape() unless it is sharded.
  [[nodiscard]] const Shape& whole_shape() const { return whole_shape_; }
  /// Held in parts by the ranks of a tensor group.
  [[nodiscard]] bool sharded() const { return slice_.cut(); }
  /// Consecutive rows: `row` here is `whole_row` of the whole parameter.
  struct Run {
    std::int64_t row = 0;
    std::int64_t whole_row = 0;
    std::int64_t rows = 0;
  };
  /// The rows held, in the order in which they are held.
  [[nodiscard]] std::vector<Run> runs() const;
  /// The columns held (elements of a row, dimensions behind the first folded), of the whole parameter's.
  [[nodiscard]] ParameterSlice::Range columns() const;
  /// The packed form for products in `compute`, packed now if the values changed since. Device thread only. Of more
  /// than two dimensions, all but the first are folded into columns.
  const PackedWeight& packed(const OperatorTable& ops, DType compute, PackFor use);

 private:
  friend class Parameters;
  /// Fills the values of a fresh model: PA-3.
  void initialise();
  void initialise_held(std::span<float> held_values);
  struct Pack {
    std::unique_ptr<PackedWeight> weight;
    std::uint64_t version = 0;
    DType compute = DType::f32;
  };
  std::string name_;
  Shape shape_;
  Shape whole_shape_;
  ParameterSlice slice_;
  bool decayed_ = false;
  std::function<void(std::span<float>)> initialise_;
  std::size_t offset_ = 0;  // elements into the flat buffers
  Tensor value_;
  Tensor gradient_;
  Parameters* owner_ = nullptr;
  std::uint64_t version_ = 1;
  Pack packs_[2];
};

struct ParameterSpec {
  std::string name;
  Shape shape;                                       ///< of the whole parameter
  bool decayed = false;                              ///< weight decay applies (matrices)
  std::function<void(std::span<float>)> initialise;  ///< fills the whole parameter's values in a fresh model
  ParameterSlice slice = {};                         ///< of a sharded parameter: what this rank holds
};

/// Not thread-safe: used on the section's device thread, or by the owner while no work is queued.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Registers a parameter; references stay valid. Only before allocate().
  Parameter& add(ParameterSpec spec);
  /// Lays out and initialises the buffers, in the memory of the table that is to work on them. Frozen sections get
  /// values only.
  void allocate(bool trained, MemorySpace& memory = host_memory());
  [[nodiscard]] MemorySpace& memory() const { return *memory_; }
  /// Moments of `range` alone are kept here, zeros to begin with; other replicas keep the rest. Once, behind allocate()
  /// and before anything is in them; memory that was not touched costs nothing. A frozen section has none to share.
  void shard_optimizer_state(ShardRange range);
  /// To be called after values were written from outside (loading, optimizer): packed forms are out of date.
  void values_changed();
  /// Frozen sections: packs `matrices` for `compute` once and gives the f32 memory of those values back to the system.
  /// With `passes_gradient` their forms for backward_input are packed too.
  void freeze_packed(const OperatorTable& ops, DType compute, std::span<Parameter* const> matrices,
                     bool passes_gradient = false);

  [[nodiscard]] std::deque<Parameter>& all() { return parameters_; }
  [[nodiscard]] Parameter* find(std::string_view name);
  [[nodiscard]] std::int64_t elements() const { return static_cast<std::int64_t>(elements_); }
  [[nodiscard]] std::size_t decayed_elements() const { return decayed_elements_; }
  [[nodiscard]] bool trained() const { return gradients_.size() != 0; }
  /// This and the other flat buffers lie in memory(). Empty once a frozen section has dropped them.
  [[nodiscard]] std::span<float> values() const { return flat(values_); }
  /// Where the bf16 copies of values() are that products take, if there are any: whoever writes values [first, first +
  /// count) writes them along and says rounded_along() when all are there.
  [[nodiscard]] std::span<bfloat16> rounded_values() const;
  void rounded_along() {
    if (rounded_.size() > 0) rounded_version_ = version_;
  }
  [[nodiscard]] std::span<float> gradients() const { return flat(gradients_); }
  /// Of the elements kept_moments().
  [[nodiscard]] std::span<float> first_moments() const { return kept(first_moments_); }
  [[nodiscard]] std::span<float> second_moments() const { return kept(second_moments_); }
  /// The elements whose moments are here: all, unless replicas share them.
  [[nodiscard]] ShardRange kept_moments() const;
  [[nodiscard]] bool optimizer_sharded() const { return shares_moments_; }
  /// Of replicas that share their moments: writes what is here of `which`, values or moments of the kept range, to its
  /// place in gradients(), from where the others get it.
  void stage_shard(const OperatorTable& ops, ParameterBuffer which);
  /// Takes the values of all other ranges out of gradients(), which are zero afterwards; packed forms are out of date.
  void load_gathered_values(const OperatorTable& ops);
  /// Takes the kept range of `which`, moments, out of gradients(), which are zero afterwards. For setting up: done when
  /// it returns (MS-2).
  void load_gathered_moments(ParameterBuffer which);
  void clear_gradients(const OperatorTable& ops);
  /// One of the four by name. Empty when it is not there.
  [[nodiscard]] std::span<float> buffer(ParameterBuffer which) const;
  /// The parts of gradients() that belong to sharded and to replicated parameters, at most two spans each, none empty;
  /// together they are all of it, zeros of alignment included. At the end of a step replicated ones are summed over the
  /// tensor group and everything over the context group; then the sum of squares of a model cut over a tensor group is
  /// that of the sharded spans of every tensor rank and of the replicated spans of one.
  [[nodiscard]] std::vector<std::span<float>> sharded_gradients() const;
  [[nodiscard]] std::vector<std::span<float>> replicated_gradients() const;
  /// Optimizer steps so far, for AdamW's bias corrections: steps in which the section had no work do not count.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// View of `parameter`'s part of one of the flat buffers above.
  [[nodiscard]] Tensor part(std::span<float> flat_buffer, const Parameter& parameter) const;

 private:
  friend class Parameter;
  [[nodiscard]] std::span<float> flat(const SpaceMemory& memory) const;
  [[nodiscard]] std::span<float> kept(const SpaceMemory& memory) const;
  [[nodiscard]] Tensor rounded(const OperatorTable& ops, const Parameter& parameter);
  /// Ways to be rid of the f32 values of packed matrices: on a CPU and on other devices.
  static void drop_pages(std::span<Parameter* const> matrices);
  void keep_all_but(std::span<Parameter* const> matrices);
  void lay_out();

  std::deque<Parameter> parameters_;  // stable addresses
  std::size_t elements_ = 0;
  std::size_t decayed_elements_ = 0;
  std::size_t decayed_sharded_end_ = 0;  // PA-1: decayed sharded, decayed replicated, other sharded, other replicated
  std::size_t other_sharded_end_ = 0;
  std::int64_t updates_ = 0;
  ShardRange kept_;  // of moments, when they are shared
  bool shares_moments_ = false;
  MemorySpace* memory_ = &host_memory();
  SpaceMemory values_;
  SpaceMemory gradients_;
  SpaceMemory first_moments_;
  SpaceMemory second_moments_;
  SpaceMemory rounded_;  // all values in bf16, for tables that take plain weights; made when first asked for
  std::uint64_t version_ = 1;
  std::uint64_t rounded_version_ = 0;
  SpaceMemory left_;  // values of a frozen section that are not in packed form alone, on devices
};

}  // namespace maestro
