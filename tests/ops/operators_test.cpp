// SPDX-License-Identifier: Apache-2.0
// Every operator of operator_cases.cpp on every backend: against recorded PyTorch results, against a double-precision
// reference at odd sizes, and gradients against central differences of that reference.
//
// Tolerances are relative to the largest reference value. f32: sums of up to 400 terms in f32 lose a few units in the
// last place of the largest partial sum, 384 * 2^-24 = 2e-5 at the very worst. bf16: inputs are exact, arithmetic is
// f32, and the result is rounded once to 8 significant bits: 2^-9 of its size; adding to a rounded gradient rounds once
// more.
#include <gtest/gtest.h>

#include <random>

#include "tests/ops/backends.hpp"
#include "tests/ops/operator_case.hpp"
#include "tests/ops/recorded_cases.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t odd_rows[] = {1, 3, 17};
constexpr std::int64_t odd_columns[] = {1, 7, 48, 63, 64, 65, 384};

double tolerance(const Tensor& tensor) {
  return tensor.dtype() == DType::bf16 ? 1.0 / 256 : 2e-5;
}

struct Setting {
  Backend backend;
  std::shared_ptr<const OperatorCase> subject;
  DType act;
};

std::string name_of(const Setting& setting) {
  return setting.backend.name + "_" + setting.subject->name() + "_" + std::string(maestro::name_of(setting.act));
}
void PrintTo(const Setting& setting, std::ostream* out) {
  *out << name_of(setting);
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Backend& backend : backends()) {
    for (const auto& subject : operator_cases()) {
      for (const DType act : {DType::f32, DType::bf16}) all.push_back({backend, subject, act});
    }
  }
  return all;
}

class Operator : public ::testing::TestWithParam<Setting> {
 protected:
  const OperatorCase& subject() const { return *GetParam().subject; }
  OwnedTensor owned(const Operand& operand) const {
    return {operand.storage == Storage::act ? GetParam().act : DType::f32, operand.shape};
  }
  Call call(Size size) const {
    Call fresh{*ops_, size, GetParam().act, {}, {}, owned(subject().result(size)), owned(subject().result(size)),
               {},    false};
    for (const Operand& operand : subject().operands(size)) {
      fresh.operands.push_back(owned(operand));
      fresh.gradients.push_back(owned(operand));
    }
    return fresh;
  }
  Call random_call(Size size, unsigned seed) const {
    std::mt19937 generator(seed);
    Call c = call(size);
    for (const OwnedTensor& operand : c.operands) {
      operand.fill(exact_normals(generator, operand.tensor().elements()));
    }
    c.dresult.fill(exact_normals(generator, c.dresult.tensor().elements()));
    return c;
  }
  static std::vector<Values> values_of(const Call& c) {
    std::vector<Values> values;
    for (const OwnedTensor& operand : c.operands) values.push_back(operand.values());
    return values;
  }
  std::unique_ptr<OperatorTable> ops_ = GetParam().backend.make();
};

TEST_P(Operator, agrees_with_pytorch_in_value_and_gradients) {
  const Recorded recorded = read_recorded("operators.safetensors");
  const std::string name = subject().name().substr(0, subject().name().find("_of_residual"));
  int found = 0;
  for (const auto& entry : recorded.cases) {
    if (entry["operator"] != name) continue;
    ++found;
    const std::string key = entry["case"].get<std::string>() + ".";
    SCOPED_TRACE(key);
    const Size size{entry["rows"], entry["columns"]};
    Call c = call(size);
    const std::vector<Operand> operands = subject().operands(size);
    for (std::size_t i = 0; i < operands.size(); ++i) c.operands[i].fill(recorded.at(key + operands[i].name));
    c.dresult.fill(recorded.at(key + "dresult"));
    subject().forward(c);
    EXPECT_LT(worst_error(c.result.values(), recorded.at(key + "result")), tolerance(c.result));
    subject().backward(c);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      EXPECT_LT(worst_error(c.gradients[i].values(), recorded.at(key + "d" + operands[i].name),
                            std::max(1e-3, subject().largest_term(c))),
                tolerance(c.gradients[i]))
          << operands[i].name;
    }
  }
  EXPECT_EQ(found, 3);
}

TEST_P(Operator, agrees_with_double_precision_at_odd_sizes) {
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t columns : odd_columns) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(columns) + " columns");
      Call c = random_call({rows, columns}, 1);
      const Values wanted = subject().reference(c.size, values_of(c));
      subject().forward(c);
      EXPECT_LT(worst_error(c.result.values(), wanted), tolerance(c.result));
    }
  }
}

/// Returns d(sum of dresult * result) / d(operand[i]) along `direction`, by central differences in f64: the error is
/// h^2 times a third derivative of order 1, about 1e-8, plus rounding 1e-16 / h.
double slope(const OperatorCase& subject, const Call& c, std::vector<Values> at, std::size_t i,
             const Values& direction) {
  constexpr double h = 1e-4;
  const Values weights = c.dresult.values();
  double difference = 0;
  for (const double sign : {+1.0, -1.0}) {
    for (std::size_t j = 0; j < direction.size(); ++j) at[i][j] += (sign > 0 ? h : -2 * h) * direction[j];
    const Values result = subject.reference(c.size, at);
    for (std::size_t j = 0; j < result.size(); ++j) difference += sign * weights[j] * result[j];
  }
  return difference / (2 * h);
}

TEST_P(Operator, gradients_agree_with_finite_differences) {
  std::mt19937 generator(5);
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t columns : odd_columns) {
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(columns) + " columns");
      Call c = random_call({rows, columns}, 2);
      subject().forward(c);
      subject().backward(c);
      const std::vector<Values> at = values_of(c);
      for (std::size_t i = 0; i < at.size(); ++i) {
        const Values gradient = c.gradients[i].values();
        double largest = std::max(1e-2, subject().largest_term(c));
        for (const double g : gradient) largest = std::max(largest, std::abs(g));
        // The first, the last and a few elements between; recorded gradients check all elements of other sizes.
        for (const std::size_t element : {std::size_t{0}, gradient.size() / 2, gradient.size() - 1}) {
          Values direction(gradient.size(), 0.0);
          direction[element] = 1;
          EXPECT_NEAR(gradient[element], slope(subject(), c, at, i, direction), tolerance(c.gradients[i]) * largest)
              << subject().operands(c.size)[i].name << " element " << element;
        }
      }
    }
  }
}

TEST_P(Operator, gradients_add_to_what_is_there_when_asked) {
  const Size size{3, 65};
  Call once = random_call(size, 3);
  subject().forward(once);
  subject().backward(once);
  Call twice = random_call(size, 3);
  subject().forward(twice);
  subject().backward(twice);
  twice.accumulate = subject().accumulates();
  subject().backward(twice);
  const std::vector<Operand> operands = subject().operands(size);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    Values wanted = once.gradients[i].values();
    const bool adds = operands[i].parameter || subject().accumulates();
    for (double& value : wanted) value *= adds ? 2 : 1;
    EXPECT_LT(worst_error(twice.gradients[i].values(), wanted), 2 * tolerance(twice.gradients[i])) << operands[i].name;
  }
}

TEST_P(Operator, results_are_the_same_bit_for_bit_in_a_second_run) {
  Call first = random_call({17, 65}, 4);
  Call second = random_call({17, 65}, 4);
  for (Call* c : {&first, &second}) {
    subject().forward(*c);
    subject().backward(*c);
  }
  EXPECT_EQ(first.result.values(), second.result.values());
  for (std::size_t i = 0; i < first.gradients.size(); ++i) {
    EXPECT_EQ(first.gradients[i].values(), second.gradients[i].values());
  }
}

INSTANTIATE_TEST_SUITE_P(all, Operator, ::testing::ValuesIn(settings()),
                         [](const auto& setting) { return name_of(setting.param); });

}  // namespace
}  // namespace maestro::testing
