// SPDX-License-Identifier: Apache-2.0
// Description of an operator for tests: its operands, its result in double precision, and the backend calls for the
// forward and the backward pass. A new operator is a struct in operator_cases.cpp and a line in its list; every test in
// operators_test.cpp then runs on it, for every backend, precision and size.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/ops/operator_table.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {

struct Size {
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

/// Storage of an operand: the tested precision, or always f32.
enum class Storage { act, f32 };

struct Operand {
  std::string name;
  Shape shape;
  Storage storage = Storage::f32;
  bool parameter = false;  ///< whether its gradient always accumulates
};

/// Operands, result and gradients of a call. `saved` holds tensors that the forward pass keeps for the backward pass.
struct Call {
  const OperatorTable& ops;
  Size size;
  DType act;
  std::vector<OwnedTensor> operands;
  std::vector<OwnedTensor> gradients;  ///< gradients by operand, with its dtype
  OwnedTensor result;
  OwnedTensor dresult;
  std::vector<OwnedTensor> saved;
  bool accumulate = false;  ///< whether gradients of non-parameters are added to
};

class OperatorCase {
 public:
  virtual ~OperatorCase() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<Operand> operands(Size size) const = 0;
  [[nodiscard]] virtual Operand result(Size size) const = 0;
  /// Returns the result in f64, computed from the operands' values.
  [[nodiscard]] virtual Values reference(Size size, const std::vector<Values>& operands) const = 0;
  virtual void forward(Call& call) const = 0;
  virtual void backward(Call& call) const = 0;
  /// Returns the largest term in the differences that form the gradients, after both passes: rounding is relative to
  /// it.
  [[nodiscard]] virtual double largest_term(const Call&) const { return 0; }
  /// Returns whether the backward pass can add to gradients of non-parameters.
  [[nodiscard]] virtual bool accumulates() const { return false; }
};

inline std::size_t count(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

/// Return norms, experts' operators, latent attention's, and section authors'; operator_cases() includes them.
std::vector<std::shared_ptr<const OperatorCase>> norm_cases();
std::vector<std::shared_ptr<const OperatorCase>> expert_cases();
std::vector<std::shared_ptr<const OperatorCase>> latent_cases();
std::vector<std::shared_ptr<const OperatorCase>> author_cases();
std::vector<std::shared_ptr<const OperatorCase>> operator_cases();

}  // namespace maestro::testing
