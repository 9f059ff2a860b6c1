// SPDX-License-Identifier: Apache-2.0
// The functions for section authors on a tape: values against their formulas, gradients against central differences,
// and what they refuse. operators_test.cpp checks the operators themselves.
#include "runtime/ops/author_functions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "runtime/core/result.hpp"
#include "runtime/core/shape_error.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/functions.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro {
namespace {

using ::testing::HasSubstr;
using testing::OwnedTensor;
using testing::Values;

class AuthorFunctions : public ::testing::Test {
 protected:
  using Make = std::function<Var(Tape&, const Var& a, const Var& b)>;

  OwnedTensor random(Shape shape, DType dtype = DType::f32) {
    return {dtype, shape, testing::exact_normals(generator_, shape.elements())};
  }
  static Values read(const Tensor& tensor) {
    Values values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(tensor.dtype() == DType::bf16 ? static_cast<float>(tensor.data<bfloat16>()[i])
                                                     : tensor.data<float>()[i]);
    }
    return values;
  }
  Values value(const Make& make, const OwnedTensor& a, const OwnedTensor& b) {
    Tape tape(ops_, arena_, DType::f32, false);
    return read(make(tape, tape.input(a), tape.input(b)).value());
  }
  /// Checks the gradients of sum(weights make(a, b)) in both arguments.
  void check_gradients(const Make& make, const OwnedTensor& a, const OwnedTensor& b, double tolerance = 2e-3) {
    Tape tape(ops_, arena_, DType::f32, true);
    const Var first = tape.input(a, true);
    const Var second = tape.input(b, true);
    const Var y = make(tape, first, second);
    const OwnedTensor weights(y.value().dtype(), y.value().shape(),
                              testing::exact_normals(generator_, y.value().elements()));
    tape.seed(y, weights);
    tape.backward();
    for (const auto& [of, tensor] : {std::pair(first, &a), std::pair(second, &b)}) {
      if (!of.gradient().defined()) continue;
      const Values gradient = read(of.gradient());
      for (std::int64_t i = 0; i < tensor->tensor().elements(); ++i) {
        const double at = tensor->get(i);
        double difference = 0;
        for (const double sign : {1.0, -1.0}) {
          tensor->set(i, at + sign / 64);
          const Values moved = value(make, a, b);
          for (std::size_t j = 0; j < moved.size(); ++j) {
            difference += sign * weights.get(static_cast<std::int64_t>(j)) * moved[j];
          }
        }
        tensor->set(i, at);
        EXPECT_NEAR(gradient[static_cast<std::size_t>(i)], difference * 32, tolerance) << i;
      }
    }
  }
  template <class Call>
  static std::string refusal(const Call& call) {
    try {
      call();
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "nothing";
  }

  std::mt19937 generator_{23};
  cpu::CpuOperatorTable ops_;
  Arena arena_;
};

TEST_F(AuthorFunctions, products_take_equal_shapes_or_a_factor_for_each_row_or_column) {
  const Make product = [](Tape& tape, const Var& a, const Var& b) { return mul(tape, a, b); };
  check_gradients(product, random({3, 5}), random({3, 5}));
  check_gradients(product, random({3, 5}), random({3, 1}));
  check_gradients(product, random({3, 5}), random({1, 5}));
  check_gradients([](Tape& tape, const Var& a, const Var&) { return mul(tape, a, a); }, random({3, 5}), random({1, 1}));
}

TEST_F(AuthorFunctions, differences_and_their_mean_squares) {
  const OwnedTensor a = random({2, 3});
  const OwnedTensor b = random({2, 3});
  const Make squares = [](Tape& tape, const Var& x, const Var& y) { return mse(tape, x, y); };
  double wanted = 0;
  for (std::int64_t i = 3; i < 6; ++i) wanted += std::pow(a.get(i) - b.get(i), 2) / 3;
  EXPECT_NEAR(value(squares, a, b)[1], wanted, 1e-5);
  check_gradients(squares, a, b);
}

TEST_F(AuthorFunctions, dots_and_cosines_of_rows) {
  check_gradients([](Tape& tape, const Var& a, const Var& b) { return dot(tape, a, b); }, random({3, 5}),
                  random({3, 5}));
  check_gradients([](Tape& tape, const Var& a, const Var& b) { return cosine(tape, a, b); }, random({3, 5}),
                  random({3, 5}), 1e-2);
}

TEST_F(AuthorFunctions, the_cosine_with_a_row_of_zeros_is_zero_and_finite) {
  const OwnedTensor zeros(DType::f32, {1, 4}, Values(4, 0.0));
  const OwnedTensor b = random({1, 4});
  Tape tape(ops_, arena_, DType::f32, true);
  const Var a = tape.input(zeros, true);
  const Var y = cosine(tape, a, tape.input(b));
  EXPECT_EQ(read(y.value()), Values{0.0});
  (void)sum_loss(tape, y, 1);
  tape.backward();
  for (const double each : read(a.gradient())) EXPECT_TRUE(std::isfinite(each));
}

TEST_F(AuthorFunctions, sums_and_means_by_sample_have_zeros_for_a_sample_without_rows) {
  const std::vector<std::int32_t> offsets{0, 2, 2, 5};
  const SequenceLayout layout{.offsets = offsets};
  const OwnedTensor x = random({5, 3});
  const Make sums = [&](Tape& tape, const Var& a, const Var&) { return sum_by_sample(tape, a, layout); };
  const Make means = [&](Tape& tape, const Var& a, const Var&) { return mean_by_sample(tape, a, layout); };
  const Values sum = value(sums, x, x);
  const Values mean = value(means, x, x);
  EXPECT_FLOAT_EQ(sum[0], x.get(0) + x.get(3));
  EXPECT_EQ(sum[3], 0);
  EXPECT_EQ(mean[3], 0);
  EXPECT_FLOAT_EQ(mean[8], (x.get(8) + x.get(11) + x.get(14)) / 3);
  check_gradients(sums, x, random({1, 1}));
  check_gradients(means, x, random({1, 1}));
}

TEST_F(AuthorFunctions, columns_are_joined_cut_and_reshaped) {
  const Make turned = [](Tape& tape, const Var& a, const Var& b) {
    const Var both = concat(tape, {a, b, a});  // (3, 5)
    return reshaped(tape, add(tape, slice(tape, both, 1, 2), slice(tape, both, 3, 2)), {2, 3});
  };
  const OwnedTensor a = random({3, 2});
  const OwnedTensor b = random({3, 1});
  const Values y = value(turned, a, b);
  EXPECT_FLOAT_EQ(y[0], a.get(1) + a.get(0));
  EXPECT_FLOAT_EQ(y[5], b.get(2) + a.get(5));
  check_gradients(turned, a, b);
}

TEST_F(AuthorFunctions, curves_and_softmaxes) {
  const OwnedTensor x = random({3, 5});
  for (const auto& function : {sigmoid, tanh, softmax, log_softmax}) {
    check_gradients([&](Tape& tape, const Var& a, const Var&) { return function(tape, a); }, x, random({1, 1}));
  }
}

TEST_F(AuthorFunctions, a_softmax_holds_very_negative_and_very_large_rows) {
  const OwnedTensor x(DType::f32, {2, 3}, {-1e4, -1e4, -1e4, 1e4, 0, -1e4});
  const Make probabilities = [](Tape& tape, const Var& a, const Var&) { return softmax(tape, a); };
  const Make logarithms = [](Tape& tape, const Var& a, const Var&) { return log_softmax(tape, a); };
  EXPECT_NEAR(value(probabilities, x, x)[0], 1.0 / 3, 1e-6);
  EXPECT_EQ(value(probabilities, x, x)[3], 1);
  EXPECT_NEAR(value(logarithms, x, x)[0], -std::log(3.0), 1e-3);
  EXPECT_EQ(value(logarithms, x, x)[4], -1e4);
}

TEST_F(AuthorFunctions, a_loss_reports_its_sum_and_seeds_its_gradient) {
  const OwnedTensor x = random({4, 1});
  Tape tape(ops_, arena_, DType::f32, true);
  const Var a = tape.input(x, true);
  const LossSums sums = sum_loss(tape, scale(tape, a, 3), 0.25);
  tape.backward();
  double total = 0;
  for (const double each : x.values()) total += 3 * each;
  EXPECT_FLOAT_EQ(static_cast<float>(sums.total), static_cast<float>(total));
  EXPECT_EQ(sums.tokens, 4);
  EXPECT_EQ(read(a.gradient()), Values(4, 0.75));
}

TEST_F(AuthorFunctions, low_precision_keeps_its_dtype_and_sums_in_f32) {
  Tape tape(ops_, arena_, DType::bf16, true);
  const OwnedTensor x = random({3, 4}, DType::bf16);
  const Var a = tape.input(x, true);
  EXPECT_EQ(mul(tape, a, a).value().dtype(), DType::bf16);
  EXPECT_EQ(softmax(tape, a).value().dtype(), DType::f32);
  (void)sum_loss(tape, dot(tape, tanh(tape, a), a), 1);
  tape.backward();
  EXPECT_EQ(a.gradient().dtype(), DType::bf16);
}

TEST_F(AuthorFunctions, shapes_that_do_not_fit_are_refused_with_both_shapes) {
  Tape tape(ops_, arena_, DType::f32, true);
  const Var wide = tape.input(random({3, 5}));
  const Var narrow = tape.input(random({3, 4}));
  const Var ids = tape.input(OwnedTensor(DType::i32, {3, 5}));
  const std::vector<std::int32_t> offsets{0, 2};
  EXPECT_THAT(refusal([&] { mul(tape, wide, narrow); }), HasSubstr("mul: a is fp32 (3, 5), b is fp32 (3, 4)"));
  EXPECT_THAT(refusal([&] { subtract(tape, wide, narrow); }), HasSubstr("subtract: "));
  EXPECT_THAT(refusal([&] { dot(tape, wide, narrow); }), HasSubstr("dot: "));
  EXPECT_THAT(refusal([&] { cosine(tape, wide, narrow); }), HasSubstr("cosine: "));
  EXPECT_THAT(refusal([&] { mse(tape, wide, narrow); }), HasSubstr("mse: "));
  EXPECT_THAT(refusal([&] { sigmoid(tape, ids); }), HasSubstr("sigmoid: x is i32 (3, 5)"));
  EXPECT_THAT(refusal([&] { concat(tape, {}); }), HasSubstr("there must be a part"));
  EXPECT_THAT(refusal([&] { concat(tape, {wide, tape.input(random({2, 1}))}); }), HasSubstr("as many rows"));
  EXPECT_THAT(refusal([&] { slice(tape, wide, 3, 3); }), HasSubstr("first is 3, count is 3"));
  EXPECT_THAT(refusal([&] { reshaped(tape, wide, {4, 4}); }), HasSubstr("(3, 5)"));
  EXPECT_THAT(refusal([&] { mean_by_sample(tape, wide, {.offsets = offsets}); }), HasSubstr("the number of rows is 2"));
  EXPECT_THAT(refusal([&] { sum_loss(tape, wide, 1); }), HasSubstr("sum_loss: values is fp32 (3, 5)"));
}

/// Squares its first tensor into the second.
void square(const Custom& call) {
  for (std::int64_t i = 0; i < call.tensors[0].elements(); ++i) {
    call.tensors[1].data<float>()[i] =
        static_cast<float>(call.numbers[0]) * std::pow(call.tensors[0].data<float>()[i], 2.0F);
  }
}

TEST_F(AuthorFunctions, a_plug_ins_operator_runs_or_is_refused_by_name) {
  static const CustomOperator known{.name = "square", .cpu = square};
  static const CustomOperator elsewhere{.name = "only_there"};
  const OwnedTensor x = random({2, 2});
  const OwnedTensor y(DType::f32, {2, 2});
  ops_.run(Custom{.op = &known, .tensors = {x, y}, .numbers = {3}});
  EXPECT_FLOAT_EQ(y.get(3), 3 * x.get(3) * x.get(3));
  try {
    ops_.run(Custom{.op = &elsewhere, .tensors = {x, y}});
    FAIL() << "accepted";
  } catch (const JobError& error) {
    EXPECT_STREQ(error.what(), "operator 'only_there' has no function for CPUs");
  }
}

}  // namespace
}  // namespace maestro
