// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters on a frozen weight against the formula in double precision.
#include "runtime/ops/low_rank.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t rows = 7, width = 32, rank = 3;
constexpr double scale = 2.5;

struct Matrix {
  std::int64_t height = 0, width = 0;
  Values values = Values(static_cast<std::size_t>(height * width));
  double& at(std::int64_t row, std::int64_t column) { return values[static_cast<std::size_t>(row * width + column)]; }
  [[nodiscard]] double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * width + column)];
  }
};

class LowRankProduct : public ::testing::TestWithParam<std::tuple<Backend, DType>> {
 protected:
  Parameter& add(Parameters& parameters, const char* name, const Matrix& matrix) {
    return parameters.add({name, Shape{matrix.height, matrix.width}, true, [matrix](std::span<float> values) {
                             std::ranges::transform(matrix.values, values.begin(),
                                                    [](double value) { return static_cast<float>(value); });
                           }});
  }
  Matrix drawn(std::int64_t height, std::int64_t columns) {
    return {height, columns, exact_normals(generator_, height * columns, 0.5)};
  }
  /// Returns the equivalent single weight: w + scale B A, module by module.
  [[nodiscard]] Matrix merged(const std::vector<std::int64_t>& modules) const {
    Matrix whole = w_;
    std::int64_t row = 0;
    for (std::size_t module = 0; module < modules.size(); ++module) {
      for (const std::int64_t end = row + modules[module]; row < end; ++row) {
        for (std::int64_t column = 0; column < width; ++column) {
          for (std::int64_t k = 0; k < rank; ++k) {
            whole.at(row, column) +=
                scale * b_.at(row, k) * a_.at(static_cast<std::int64_t>(module) * rank + k, column);
          }
        }
      }
    }
    return whole;
  }
  /// Compares the gradients of a and b with gradients computed from the merged weight's.
  void expect_gradients(const std::vector<std::int64_t>& modules, const Matrix& dw, double tolerance) {
    Matrix da{a_.height, width}, db{b_.height, rank};
    std::int64_t row = 0;
    for (std::size_t module = 0; module < modules.size(); ++module) {
      for (const std::int64_t end = row + modules[module]; row < end; ++row) {
        for (std::int64_t column = 0; column < width; ++column) {
          for (std::int64_t k = 0; k < rank; ++k) {
            const std::int64_t at = static_cast<std::int64_t>(module) * rank + k;
            da.at(at, column) += scale * b_.at(row, k) * dw.at(row, column);
            db.at(row, k) += scale * a_.at(at, column) * dw.at(row, column);
          }
        }
      }
    }
    EXPECT_LT(worst_error(read(adapter_a_->gradient()), da.values), tolerance);
    EXPECT_LT(worst_error(read(adapter_b_->gradient()), db.values), tolerance);
  }
  [[nodiscard]] Values read(const Tensor& tensor) const {
    OwnedTensor copy(tensor.dtype(), tensor.shape());
    ops_->memory().read(copy.tensor().raw(), tensor.raw(), tensor.bytes());
    return copy.values();
  }

  std::mt19937 generator_{41};
  std::unique_ptr<OperatorTable> ops_ = std::get<0>(GetParam()).make();
  Matrix w_, a_, b_;
  Parameter* adapter_a_ = nullptr;
  Parameter* adapter_b_ = nullptr;
};

Matrix product(const Matrix& left, const Matrix& right, bool left_transposed, bool right_transposed) {
  const auto value = [](const Matrix& of, bool transposed, std::int64_t row, std::int64_t column) {
    return transposed ? of.at(column, row) : of.at(row, column);
  };
  Matrix made{left_transposed ? left.width : left.height, right_transposed ? right.height : right.width};
  const std::int64_t inner = left_transposed ? left.height : left.width;
  for (std::int64_t row = 0; row < made.height; ++row) {
    for (std::int64_t column = 0; column < made.width; ++column) {
      for (std::int64_t k = 0; k < inner; ++k) {
        made.at(row, column) += value(left, left_transposed, row, k) * value(right, right_transposed, k, column);
      }
    }
  }
  return made;
}

TEST_P(LowRankProduct, and_its_gradients_are_those_of_the_merged_weight) {  // LO-1
  const DType act = std::get<1>(GetParam());
  // bf16: a product is rounded to eight bits, twice; x and dy are exact.
  const double tolerance = act == DType::f32 ? 1e-5 : 2e-2;
  for (const std::vector<std::int64_t>& modules :
       {std::vector<std::int64_t>{24, 8, 8}, std::vector<std::int64_t>{40}}) {
    const auto count = static_cast<std::int64_t>(modules.size());
    w_ = drawn(40, width), a_ = drawn(count * rank, width), b_ = drawn(40, rank);
    const Matrix x = drawn(rows, width), dy = drawn(rows, 40);
    Parameters weights, adapters;
    Parameter& weight = add(weights, "w", w_);
    adapter_a_ = &add(adapters, "a", a_), adapter_b_ = &add(adapters, "b", b_);
    weights.allocate(false, ops_->memory());
    Parameter* const matrices[] = {&weight};
    weights.freeze_packed(*ops_, act, matrices, true);
    adapters.allocate(true, ops_->memory());
    LowRank adapter({adapter_a_, adapter_b_, modules, scale});
    Arena arena(std::size_t{1} << 20, ops_->memory());
    for (int pass = 0; pass < 2; ++pass) {  // the second pass uses packed forms from the first
      adapters.clear_gradients(*ops_);
      Tape tape(*ops_, arena, act, true);
      const Var in = tape.output({rows, width}, act, true);
      ops_->upload(OwnedTensor(act, {rows, width}, x.values), in.value());
      const Var y = linear(tape, in, Affine{&weight, nullptr, &adapter});
      EXPECT_LT(worst_error(read(y.value()), product(x, merged(modules), false, true).values), tolerance);
      const Block seed = tape.scratch({rows, 40}, act);
      ops_->upload(OwnedTensor(act, {rows, 40}, dy.values), seed.tensor());
      tape.add_gradient(y, seed);
      tape.backward();
      EXPECT_LT(worst_error(read(in.gradient()), product(dy, merged(modules), false, false).values), tolerance);
      expect_gradients(modules, product(dy, x, true, false), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, LowRankProduct,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::string(name_of(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace maestro::testing
