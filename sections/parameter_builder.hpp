// SPDX-License-Identifier: Apache-2.0
// Registers a section's parameters together with the Hugging Face names that they are stored under. Shapes are the full
// parameters'; a slice selects this rank's part (TensorCut makes slices).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ops/functions.hpp"
#include "runtime/ops/parameters.hpp"
#include "sections/parameter_init.hpp"
#include "sections/section.hpp"

namespace maestro {

/// Used while a section is built; refers to all three arguments.
class ParameterBuilder {
 public:
  ParameterBuilder(Parameters& parameters, const ParameterInit& init, std::vector<StateEntry>& state)
      : parameters_(parameters), init_(init), state_(state) {}

  /// Adds a matrix with normal initial values and weight decay.
  Parameter& matrix(const std::string& name, Shape shape, double deviation, ParameterSlice slice = {}) {
    return parameters_.add({name, shape, true, init_.normal(name, deviation), std::move(slice)});
  }
  /// Adds a matrix with uniform initial values in [-bound, bound), or 0, and weight decay.
  Parameter& uniform_matrix(const std::string& name, Shape shape, double bound, ParameterSlice slice = {}) {
    auto initial = bound == 0 ? ParameterInit::constant(0) : init_.uniform(name, bound);
    return parameters_.add({name, shape, true, std::move(initial), std::move(slice)});
  }
  /// Adds a matrix as matrix() whose rows are equal groups, each a separate matrix in products.
  Parameter& groups(const std::string& name, Shape shape, double deviation, ParameterSlice slice, std::int64_t count) {
    return parameters_.add({name, shape, true, init_.normal(name, deviation), std::move(slice), count});
  }
  /// Adds a vector without weight decay.
  Parameter& vector(const std::string& name, std::int64_t size, float value, ParameterSlice slice = {}) {
    return parameters_.add({name, Shape{size}, false, ParameterInit::constant(value), std::move(slice)});
  }

  /// Adds a value for each expert of a layer, which steps change by `rule`.
  Parameter& counted(const std::string& name, std::int64_t experts, float value, const UpdateRule& rule) {
    return parameters_.add(
        {.name = name, .shape = Shape{experts}, .initialise = ParameterInit::constant(value), .rule = rule});
  }

  /// Adds a parameter of any shape without weight decay, stored.
  Parameter& undecayed(const std::string& name, Shape shape, ParameterInit::Fill initial, ParameterSlice slice) {
    return stored(parameters_.add({name, shape, false, std::move(initial), std::move(slice)}));
  }

  /// Stores a complete parameter under its name.
  Parameter& stored(Parameter& parameter, bool transposed = false) {
    state_.push_back({parameter.name(), &parameter, 0, 0, transposed});
    return parameter;
  }
  /// Stores a parameter of G groups, each transposed: (G, columns, rows of a group).
  Parameter& stored_transposed_groups(Parameter& parameter) {
    state_.push_back({.name = parameter.name(), .parameter = &parameter, .transposed = true, .grouped = true});
    return parameter;
  }
  /// Adds a convolution's kernel (N, offsets C), stored as (N, C, offsets).
  Parameter& kernel(const std::string& name, Shape shape, double deviation, std::int64_t offsets) {
    Parameter& made = matrix(name, shape, deviation);
    state_.push_back({.name = name, .parameter = &made, .offsets = offsets});
    return made;
  }
  /// Stores some rows under `name`; `first` and `rows` count in the full parameter.
  void stored_rows(const std::string& name, Parameter& parameter, std::int64_t first, std::int64_t rows) {
    state_.push_back({name, &parameter, first, rows, false});
  }

  /// Adds name.weight = 1 and name.bias = 0, stored.
  Affine layer_norm(const std::string& name, std::int64_t size) {
    return {&stored(vector(name + ".weight", size, 1.0f)), &stored(vector(name + ".bias", size, 0.0f))};
  }
  /// Adds name.weight = 1, stored.
  Affine rms_norm(const std::string& name, std::int64_t size, ParameterSlice slice = {}) {
    return {&stored(vector(name + ".weight", size, 1.0f, std::move(slice)))};
  }
  /// Adds rows (n, C) with normal initial values and without weight decay, stored as vectors (C), one a name.
  Parameter& vectors(const std::vector<std::string>& names, std::int64_t columns, double deviation) {
    const auto count = static_cast<std::int64_t>(names.size());
    Parameter& rows =
        parameters_.add({names.front(), Shape{count, columns}, false, init_.normal(names.front(), deviation)});
    for (std::int64_t row = 0; row < count; ++row) {
      state_.push_back({.name = names[static_cast<std::size_t>(row)],
                        .parameter = &rows,
                        .first_row = row,
                        .rows = 1,
                        .vector = true});
    }
    return rows;
  }

  /// Adds name.weight (N, K) and name.bias (N) = 0, stored; `transposed`: as a GPT-2 "Conv1D", (K, N) in the file. Rows
  /// of `slice` cut both, columns only the weight.
  Affine linear(const std::string& name, Shape shape, double deviation, bool transposed = false,
                const ParameterSlice& slice = {}) {
    return {&stored(matrix(name + ".weight", shape, deviation, slice), transposed),
            &stored(vector(name + ".bias", shape[0], 0.0f, {slice.rows, {}}))};
  }
  /// Does the same, but adds the bias only if there is one.
  Affine product(const std::string& name, Shape shape, double deviation, bool bias, const ParameterSlice& slice) {
    if (bias) return linear(name, shape, deviation, false, slice);
    return {&stored(matrix(name + ".weight", shape, deviation, slice))};
  }

 private:
  Parameters& parameters_;
  const ParameterInit& init_;
  std::vector<StateEntry>& state_;
};

}  // namespace maestro
