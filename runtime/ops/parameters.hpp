// SPDX-License-Identifier: Apache-2.0
// Parameters of a section replica: flat buffers for values and gradients (f32) and optimizer state (f32 or bf16), so
// that reduction, clipping, the optimizer and checkpoints are single passes; and packed forms for matrix products.
//
// A table that is stepped by rows is in none of the buffers: only its touched rows have gradients (row_table.hpp).
//
// PA-1 (order in the buffers): decayed parameters lie before the others, so AdamW is two calls on contiguous ranges. In
//       each range the parameters of a Holding follow one another, so that each holding is two spans at most.
//       Parameters that are stepped by counts are replicated and lie at the end.
// PA-2 (fresh packs): a packed form is never older than the values it came from.
// PA-3 (values independent of ranks): a sharded parameter begins with exactly the values that its part of the whole
//       parameter would have: neither initial nor stored values depend on the number of ranks.
// PA-4 (gradient buffer reuse): gradients() is zero between steps, except while replicas with sharded optimizer state
//       exchange values and moments through it, each in the range whose moments it keeps.
// PA-5 (frozen parameter by parameter): frozen parameters with values after freeze_packed() take the memory of
//       their packed forms, of the values that stay, and of a single parameter's values, or a single group's if the
//       packed form does not refer to values.
// PA-6 (rows of a packed table): a frozen table keeps its f32 values only if its packed form rounds one of them.
//
// A section that is cut over ranks holds some parameters in parts ("sharded": every element and its full gradient are
// on a single rank of a group) and the rest on every rank ("replicated": a rank's gradient is its share of a sum over
// the group). ParameterSpec::slice distinguishes them; a section lists the groups (sections/parameter_holders.hpp).
//
// Each replica with sharded optimizer state (Rajbhandari et al. 2020, ZeRO stage 1) keeps the moments of a range of
// elements. A replica steps only its range, sends the new values to the others and receives theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/collective/reduction_round.hpp"
#include "runtime/core/memory_space.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/operator_table.hpp"
#include "runtime/ops/row_table.hpp"

namespace maestro {

/// The ranks of a replica that hold a parameter.
enum class Holding : std::uint8_t {
  tensor_parts,  ///< a part on each rank of a tensor group
  replicated,    ///< all of it on each rank
  expert_parts   ///< some experts' rows on each rank of an expert group
};

/// The part of a parameter that a rank holds: some rows (first dimension), or some columns of a matrix.
struct ParameterSlice {
  struct Range {
    std::int64_t first = 0;
    std::int64_t count = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };
  std::vector<Range> rows;  ///< held consecutively in this order, without overlap; empty: all
  Range columns;            ///< count 0: all
  bool experts = false;     ///< the rows of an expert rank, not of a tensor rank
  [[nodiscard]] bool cut() const { return !rows.empty() || columns.count > 0; }
  friend bool operator==(const ParameterSlice&, const ParameterSlice&) = default;
};

/// The flat buffers of Parameters.
enum class ParameterBuffer : std::uint8_t { values, gradients, first_moments, second_moments };

/// When fresh parameters' values are written: by allocate(), or later by initialise() or load(), once each.
enum class InitialValues : std::uint8_t { drawn, later };

/// How a step changes a parameter. A parameter that counts() has a value for each of a layer's experts. Its gradient
/// counts the routes to each: integers, which add up over micro-batches, ranks and replicas as gradients do, without
/// rounding up to `most_counted`. They are not a part of the gradient's norm. A parameter that is stepped by_rows() is
/// a table outside the flat buffers, whose gradients are Parameter::row_gradients().
struct UpdateRule {
  enum class Kind : std::uint8_t {
    adamw,
    loads,       ///< value = an expert's routes in the step / the mean of all experts
    bias,        ///< value moves by `rate` towards equal loads (StepCounts)
    row_adagrad  ///< RowAdaGrad, `rate` being its moment_scale
  };
  static constexpr std::int64_t most_counted = std::int64_t{1} << 24;  // f32 holds all integers up to it
  Kind kind = Kind::adamw;
  std::int64_t per_token = 1;  ///< a token's routes, or the table rows that it reads
  double rate = 0;
  bool average = false;  ///< replicas' updates of a table are averaged; else their gradients are added up
  [[nodiscard]] bool counts() const { return kind == Kind::loads || kind == Kind::bias; }
  [[nodiscard]] bool by_rows() const { return kind == Kind::row_adagrad; }
};

class Parameters;

/// A named tensor of a section, or this rank's part of it; lives as long as its Parameters.
class Parameter {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Tensor& value() const { return value_; }        ///< f32; undefined before allocate()
  [[nodiscard]] const Tensor& gradient() const { return gradient_; }  ///< f32; undefined when frozen
  [[nodiscard]] bool trained() const { return gradient_.defined() || row_gradients_ != nullptr; }
  [[nodiscard]] const Shape& shape() const { return shape_; }  ///< shape of the part held here
  /// Returns the shape of the unsharded parameter: shape() unless it is sharded.
  [[nodiscard]] const Shape& whole_shape() const { return whole_shape_; }
  /// Returns true when the ranks of a group hold parts of the parameter.
  [[nodiscard]] bool sharded() const { return slice_.cut(); }
  [[nodiscard]] Holding holding() const {
    return !sharded() ? Holding::replicated : slice_.experts ? Holding::expert_parts : Holding::tensor_parts;
  }
  /// Returns whether another rank's parameter is the same part of it.
  [[nodiscard]] bool same_part(const Parameter& other) const { return slice_ == other.slice_; }
  /// Consecutive rows: `row` here is `whole_row` of the unsharded parameter.
  struct Run {
    std::int64_t row = 0;
    std::int64_t whole_row = 0;
    std::int64_t rows = 0;
  };
  /// Returns the rows held, in their order in memory.
  [[nodiscard]] std::vector<Run> runs() const;
  /// Returns the held columns of the unsharded parameter (elements of a row, dimensions after the first folded).
  [[nodiscard]] ParameterSlice::Range columns() const;
  /// Return the number of groups of rows: in the part held here, and in the unsharded parameter. Products take each
  /// group as a separate matrix.
  [[nodiscard]] std::int64_t groups() const { return groups_; }
  [[nodiscard]] std::int64_t whole_groups() const { return whole_groups_; }
  [[nodiscard]] const UpdateRule& rule() const { return rule_; }
  /// Returns the step's gradients of a table that is trained by rows; null for every other parameter.
  [[nodiscard]] RowGradients* row_gradients() const { return row_gradients_.get(); }
  /// Returns the sums of squares of RowAdaGrad, (rows) f32; undefined without row_gradients().
  [[nodiscard]] const Tensor& row_sums() const { return row_sums_; }
  /// Returns whether the packed form has the values in MXFP4 (Parameters::load_blocks).
  [[nodiscard]] bool in_blocks() const { return in_blocks_; }
  /// Returns the packed form for products in `compute`; packs again if the values have changed since. Device thread
  /// only. All dimensions but the first are folded into columns.
  const PackedWeight& packed(const OperatorTable& ops, DType compute, PackFor use);
  /// Returns the packed form that holds the rows of a frozen table; null for a table that keeps its values (PA-6), and
  /// for a part without rows.
  const PackedWeight* packed_rows(const OperatorTable& ops, DType compute) {
    const bool kept = value_.defined() || packs_[0].weight == nullptr;
    return kept ? nullptr : &packed(ops, compute, PackFor::forward);
  }

 private:
  friend class Parameters;
  /// Packs a group of a frozen parameter in bf16; value_ has its values.
  void pack_group(const OperatorTable& ops, std::int64_t group, PackFor use);
  [[nodiscard]] int pack_of(const OperatorTable& ops, DType compute, PackFor use) const {
    return use == PackFor::forward || in_blocks_ || ops.packs_once(compute) ? 0 : 1;
  }
  /// Fills the values of a fresh model (PA-3, values independent of ranks). By rows it has memory for one row only.
  void initialise_held(std::span<float> held_values) const;
  struct Pack {
    std::unique_ptr<PackedWeight> weight;
    std::uint64_t version = 0;
    DType compute = DType::f32;
  };
  std::string name_;
  Shape shape_;
  Shape whole_shape_;
  ParameterSlice slice_;
  std::int64_t groups_ = 1;
  std::int64_t whole_groups_ = 1;
  bool decayed_ = false;
  UpdateRule rule_;
  std::function<void(std::span<float>)> initialise_;
  std::function<void(std::span<float>, std::int64_t)> initialise_row_;
  std::size_t offset_ = 0;  // elements into the flat buffers
  Tensor value_;
  Tensor gradient_;
  SpaceMemory own_;  // values of a frozen parameter or a table, outside the flat buffer
  SpaceMemory own_sums_;
  Tensor row_sums_;
  std::unique_ptr<RowGradients> row_gradients_;
  SpaceMemory rounded_;  // the same in bf16, for tables that take plain weights
  Parameters* owner_ = nullptr;
  std::uint64_t version_ = 1;
  Pack packs_[2];
  bool in_blocks_ = false;  // then packs_[0] is for every use
};

/// Memory for the blocks of a group's rows.
struct Mxfp4Room {
  std::vector<std::uint8_t> blocks;
  std::vector<std::uint8_t> scales;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  [[nodiscard]] Mxfp4Rows view() const { return {blocks.data(), scales.data(), rows, columns}; }
};

struct ParameterSpec {
  std::string name;
  Shape shape;                                       ///< shape of the unsharded parameter
  bool decayed = false;                              ///< weight decay applies (matrices)
  std::function<void(std::span<float>)> initialise;  ///< fills all values of the unsharded parameter in a fresh model
  ParameterSlice slice = {};                         ///< slice of a sharded parameter: the part that this rank holds
  std::int64_t groups = 1;  ///< equal groups of rows in the unsharded parameter (Parameter::whole_groups)
  UpdateRule rule = {};
  std::function<void(std::span<float>, std::int64_t)> initialise_row = {};  ///< in place of `initialise`: fills a row
};

/// Not thread-safe: used on the section's device thread, or by the owner while no work is queued.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Registers a parameter; references stay valid. Only before allocate().
  Parameter& add(ParameterSpec spec);
  /// Lays out the buffers in the memory of the table that will work on them, and initialises the values unless they
  /// come later. Frozen sections get values only. `moments`: dtype of the optimizer state, f32 or bf16.
  void allocate(bool trained, MemorySpace& memory = host_memory(), InitialValues values = InitialValues::drawn,
                DType moments = DType::f32);
  /// Returns whether allocate() left the values to initialise() or load().
  [[nodiscard]] bool values_later() const { return values_later_; }
  /// Writes the initial values: all parameters', or only one's.
  void initialise();
  void initialise(Parameter& parameter);
  /// Writes the elements of consecutive rows to host memory; `first` is the first row, among the rows held here.
  using FillRows = std::function<void(std::span<float> values, std::int64_t first)>;
  /// Writes a parameter's values: `fill` writes all elements held here, in one call or in a call for each group; it is
  /// not called if memory() holds no values. The packed form of a frozen parameter is made at once (PA-5, frozen
  /// parameter by parameter).
  void load(Parameter& parameter, const FillRows& fill);
  /// Returns whether load_blocks() takes the parameter's values: a frozen matrix of several groups, whose rows here are
  /// complete blocks, on a table that takes blocks.
  [[nodiscard]] bool takes_blocks(const Parameter& parameter) const;
  /// Writes the blocks of consecutive rows; `first` is the first row, among the rows held here.
  using FillBlocks = std::function<void(Mxfp4Room& room, std::int64_t first)>;
  /// Does the same as load() for values in MXFP4, which stay in it: 4.25 bits a value. `fill` is called for each group.
  void load_blocks(Parameter& parameter, const FillBlocks& fill);
  [[nodiscard]] MemorySpace& memory() const { return *memory_; }
  /// Keeps the optimizer state for `range` only, initially zero; other replicas keep the rest. Called once, after
  /// allocate() and before any moment is written; untouched memory costs nothing. A frozen section does not have state
  /// to shard.
  void shard_optimizer_state(ShardRange range);
  /// Marks packed forms as out of date; called after values were written from outside (loading, optimizer).
  void values_changed();
  /// Packs `matrices` of a frozen section for `compute` once and frees the f32 memory of their values, unless the
  /// packed form refers to it; later values are packed on arrival. `table`, if any, is an embedding's table, tied if it
  /// is also a matrix; its values stay if its packed form rounds them (PA-6, rows of a packed table). With
  /// `passes_gradient` the matrices' forms for backward_input are packed too.
  void freeze_packed(const OperatorTable& ops, DType compute, std::span<Parameter* const> matrices,
                     bool passes_gradient = false, Parameter* table = nullptr);

  [[nodiscard]] std::deque<Parameter>& all() { return parameters_; }
  [[nodiscard]] Parameter* find(std::string_view name);
  [[nodiscard]] std::int64_t elements() const { return static_cast<std::int64_t>(elements_); }
  /// Returns the elements of all added parameters, allocated or not, without alignment.
  [[nodiscard]] std::int64_t added_elements() const;
  [[nodiscard]] std::size_t decayed_elements() const { return decayed_elements_; }
  /// Returns the number of elements before all parameters that are stepped by counts.
  [[nodiscard]] std::size_t learned_elements() const { return learned_elements_; }
  [[nodiscard]] bool trained() const { return trained_; }
  /// Returns the tables that are trained by rows.
  [[nodiscard]] std::vector<Parameter*> row_tables();
  /// Starts the backward pass of a micro-batch, whose number in the step orders gradients of rows (TB-2).
  void begin_backward(std::uint32_t micro_batch);
  /// Returns the values; like the other flat buffers, they are in memory(). Empty once a frozen section has dropped
  /// them.
  [[nodiscard]] std::span<float> values() const { return flat(values_); }
  /// Returns the bf16 copies of values() that products read; empty if there are none. A writer of values [first, first
  /// + count) also writes their copies, and calls rounded_along() after the last copy.
  [[nodiscard]] std::span<bfloat16> rounded_values() const;
  void rounded_along() {
    if (rounded_.size() > 0) rounded_version_ = version_;
  }
  [[nodiscard]] std::span<float> gradients() const { return flat(gradients_); }
  /// Returns the dtype of the moments.
  [[nodiscard]] DType moments_dtype() const { return moments_dtype_; }
  /// Returns the moments of the elements kept_moments(), a vector; undefined without optimizer state.
  [[nodiscard]] Tensor first_moments() const { return kept(first_moments_); }
  [[nodiscard]] Tensor second_moments() const { return kept(second_moments_); }
  /// Returns the elements whose moments are kept here: all, unless the optimizer state is sharded.
  [[nodiscard]] ShardRange kept_moments() const;
  [[nodiscard]] bool optimizer_sharded() const { return shares_moments_; }
  /// Writes the kept range of `which`, values or moments, to its place in gradients(), in f32; the other replicas
  /// receive it from there. With sharded optimizer state only.
  void stage_shard(const OperatorTable& ops, ParameterBuffer which);
  /// Moves the other ranges' values out of gradients(), which is zero afterwards; packed forms become out of date.
  void load_gathered_values(const OperatorTable& ops);
  /// Moves the kept range of `which`, moments, out of gradients(), which is zero afterwards; values that bf16 moments
  /// cannot hold are rounded to the nearest. For set-up: the copy is complete on return (MS-2).
  void load_gathered_moments(ParameterBuffer which);
  void clear_gradients(const OperatorTable& ops);
  /// Returns the named flat buffer, a vector; undefined if it is not allocated.
  [[nodiscard]] Tensor buffer(ParameterBuffer which) const;
  /// Returns the parts of gradients() with this holding, at most two spans, none empty; together the holdings' spans
  /// cover gradients(), including alignment zeros.
  [[nodiscard]] std::vector<std::span<float>> gradients_of(Holding holding) const;
  /// Return gradients_of() tensor parts, and of replicated parameters.
  [[nodiscard]] std::vector<std::span<float>> sharded_gradients() const { return gradients_of(Holding::tensor_parts); }
  [[nodiscard]] std::vector<std::span<float>> replicated_gradients() const { return gradients_of(Holding::replicated); }
  /// Returns the optimizer steps so far, for AdamW's bias corrections; steps without work for the section do not count.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// Returns the elements of the flat buffers that `parameter` has; not for a table that is stepped by rows.
  [[nodiscard]] ShardRange range_of(const Parameter& parameter) const {
    return {parameter.offset_, static_cast<std::size_t>(parameter.shape_.elements())};
  }
  /// Returns a view of `parameter`'s part in `flat_buffer`, one of the flat buffers above.
  [[nodiscard]] Tensor part(const Tensor& flat_buffer, const Parameter& parameter) const;

 private:
  friend class Parameter;
  [[nodiscard]] std::span<float> flat(const SpaceMemory& memory) const;
  [[nodiscard]] Tensor kept(const SpaceMemory& memory) const;
  [[nodiscard]] Tensor rounded(const OperatorTable& ops, Parameter& parameter);
  /// Rounds a frozen parameter's values, or a group's, which are its value_, to memory of its own.
  [[nodiscard]] Tensor rounded_frozen(const OperatorTable& ops, Parameter& parameter, std::int64_t group = 0);
  /// Products of a frozen section.
  struct Frozen {
    const OperatorTable* ops = nullptr;
    DType compute = DType::f32;
    std::vector<Parameter*> matrices;  // sorted
    Parameter* table = nullptr;
    bool passes_gradient = false;
  };
  void allocate_values();
  void write_values(const Parameter& parameter, const FillRows& fill, std::int64_t first = 0);
  /// Returns whether the packed form of a frozen parameter is made of one group after the other.
  [[nodiscard]] bool packs_by_group(const Parameter& parameter) const;
  void load_groups(Parameter& parameter, const FillRows& fill);
  /// Packs a frozen parameter's values; returns whether products no longer need the values.
  bool pack_frozen(Parameter& parameter);
  /// Returns whether the frozen table's values equal the bf16 values of its packed form.
  [[nodiscard]] bool exact_in_bf16(const Parameter& table) const;
  void keep_apart(Parameter& parameter);
  void lay_out();

  std::deque<Parameter> parameters_;  // stable addresses
  std::size_t elements_ = 0;
  std::size_t decayed_elements_ = 0;
  std::size_t learned_elements_ = 0;
  struct HeldRange {
    Holding holding;
    bool decayed;
    ShardRange elements;
  };
  std::vector<HeldRange> held_;  // PA-1: decayed, then others; without gaps
  std::int64_t updates_ = 0;
  ShardRange kept_;  // range of kept moments, if the optimizer state is sharded
  bool shares_moments_ = false;
  MemorySpace* memory_ = &host_memory();
  SpaceMemory values_;
  SpaceMemory gradients_;
  DType moments_dtype_ = DType::f32;
  SpaceMemory first_moments_;
  SpaceMemory second_moments_;
  SpaceMemory rounded_;  // all values in bf16, for tables that take plain weights; created on first use
  std::uint64_t version_ = 1;
  std::uint64_t rounded_version_ = 0;
  std::optional<Frozen> frozen_;
  bool values_later_ = false;
  bool trained_ = false;
};

}  // namespace maestro
