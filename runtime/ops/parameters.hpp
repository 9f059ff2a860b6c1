// The parameters of one section replica: flat f32 buffers for values, gradients and optimizer state, so that reduction,
// clipping, the optimizer and checkpoints are single passes; and the packed forms that matrix products use.
//
// PA-1: decayed parameters lie before the others, so AdamW is two calls on contiguous ranges.
// PA-2: a packed form is never older than the values it came from.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/core/tensor.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

/// One named tensor of a section; lives as long as its Parameters.
class Parameter {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Tensor& value() const { return value_; }        ///< f32; undefined before allocate()
  [[nodiscard]] const Tensor& gradient() const { return gradient_; }  ///< f32; undefined when frozen
  [[nodiscard]] bool trained() const { return gradient_.defined(); }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  /// The packed form for products in `compute`, packed now if the values changed since. Device thread only. Of more
  /// than two dimensions, all but the first are folded into columns.
  const PackedWeight& packed(const OperatorTable& ops, DType compute, PackFor use);

 private:
  friend class Parameters;
  struct Pack {
    std::unique_ptr<PackedWeight> weight;
    std::uint64_t version = 0;
    DType compute = DType::f32;
  };
  std::string name_;
  Shape shape_;
  bool decayed_ = false;
  std::function<void(std::span<float>)> initialise_;
  std::size_t offset_ = 0;  // elements into the flat buffers
  Tensor value_;
  Tensor gradient_;
  std::uint64_t version_ = 1;
  Pack packs_[2];
};

struct ParameterSpec {
  std::string name;
  Shape shape;
  bool decayed = false;                              ///< weight decay applies (matrices)
  std::function<void(std::span<float>)> initialise;  ///< fills the values of a fresh model
};

/// Not thread-safe: used on the section's device thread, or by the owner while no work is queued.
class Parameters {
 public:
  Parameters() = default;
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Registers a parameter; references stay valid. Only before allocate().
  Parameter& add(ParameterSpec spec);
  /// Lays out and initialises the buffers. Frozen sections get values only.
  void allocate(bool trained);
  /// To be called after values were written from outside (loading, optimizer): packed forms are out of date.
  void values_changed();
  /// Frozen sections: packs `matrices` for `compute` once and gives the f32 pages of those values back to the system.
  /// With `passes_gradient` their forms for backward_input are packed too.
  void freeze_packed(const OperatorTable& ops, DType compute, std::span<Parameter* const> matrices,
                     bool passes_gradient = false);

  [[nodiscard]] std::deque<Parameter>& all() { return parameters_; }
  [[nodiscard]] Parameter* find(std::string_view name);
  [[nodiscard]] std::int64_t elements() const { return static_cast<std::int64_t>(elements_); }
  [[nodiscard]] std::size_t decayed_elements() const { return decayed_elements_; }
  [[nodiscard]] bool trained() const { return gradients_.size() != 0; }
  [[nodiscard]] std::span<float> values() const { return flat(values_); }
  [[nodiscard]] std::span<float> gradients() const { return flat(gradients_); }
  [[nodiscard]] std::span<float> first_moments() const { return flat(first_moments_); }
  [[nodiscard]] std::span<float> second_moments() const { return flat(second_moments_); }
  /// Optimizer steps so far, for AdamW's bias corrections: steps in which the section had no work do not count.
  [[nodiscard]] std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// View of `parameter`'s part of one of the flat buffers above.
  [[nodiscard]] Tensor part(std::span<float> flat_buffer, const Parameter& parameter) const;

 private:
  [[nodiscard]] std::span<float> flat(const AlignedMemory& memory) const;

  std::deque<Parameter> parameters_;  // stable addresses
  std::size_t elements_ = 0;
  std::size_t decayed_elements_ = 0;
  std::int64_t updates_ = 0;
  AlignedMemory values_;
  AlignedMemory gradients_;
  AlignedMemory first_moments_;
  AlignedMemory second_moments_;
};

}  // namespace maestro
