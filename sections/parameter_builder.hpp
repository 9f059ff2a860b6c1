// Registers a section's parameters and, beside each, the Hugging Face names it is stored under.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ops/parameters.hpp"
#include "sections/parameter_init.hpp"
#include "sections/section.hpp"

namespace maestro {

/// A product's or a norm's parameters.
struct Affine {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;  ///< null: none
};

/// Used while a section is built; refers to all three arguments.
class ParameterBuilder {
 public:
  ParameterBuilder(Parameters& parameters, const ParameterInit& init, std::vector<StateEntry>& state)
      : parameters_(parameters), init_(init), state_(state) {}

  /// Normal initial values; weight decay applies.
  Parameter& matrix(const std::string& name, Shape shape, double deviation) {
    return parameters_.add({name, shape, true, init_.normal(name, deviation)});
  }
  /// No weight decay.
  Parameter& vector(const std::string& name, std::int64_t size, float value) {
    return parameters_.add({name, Shape{size}, false, ParameterInit::constant(value)});
  }

  /// Stored whole, under the parameter's own name.
  Parameter& stored(Parameter& parameter, bool transposed = false) {
    state_.push_back({parameter.name(), &parameter, 0, 0, transposed});
    return parameter;
  }
  void stored_rows(const std::string& name, Parameter& parameter, std::int64_t first, std::int64_t rows) {
    state_.push_back({name, &parameter, first, rows, false});
  }

  /// name.weight = 1 and name.bias = 0, stored.
  Affine layer_norm(const std::string& name, std::int64_t size) {
    return {&stored(vector(name + ".weight", size, 1.0f)), &stored(vector(name + ".bias", size, 0.0f))};
  }
  /// name.weight (N, K) and name.bias (N) = 0, stored; `transposed`: as a GPT-2 "Conv1D", (K, N) in the file.
  Affine linear(const std::string& name, Shape shape, double deviation, bool transposed = false) {
    return {&stored(matrix(name + ".weight", shape, deviation), transposed),
            &stored(vector(name + ".bias", shape[0], 0.0f))};
  }

 private:
  Parameters& parameters_;
  const ParameterInit& init_;
  std::vector<StateEntry>& state_;
};

}  // namespace maestro
