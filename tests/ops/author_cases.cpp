// SPDX-License-Identifier: Apache-2.0
// The operators for section authors (author_operators.hpp).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/ops/operator_case.hpp"

namespace maestro::testing {

namespace {

/// Two operands of the tested precision and of as many columns, at least 4: with one column a cosine has no gradient.
std::vector<Operand> pair(Size size) {
  return {{"a", {size.rows, size.columns + 3}, Storage::act}, {"b", {size.rows, size.columns + 3}, Storage::act}};
}

double dot(const Values& a, const Values& b, Size size, std::size_t row) {
  const auto columns = count(1, size.columns + 3);
  return std::inner_product(&a[row * columns], &a[row * columns] + columns, &b[row * columns], 0.0);
}

double largest(const OwnedTensor& tensor) {
  double found = 0;
  for (const double value : tensor.values()) found = std::max(found, std::abs(value));
  return found;
}

struct ScaleCase final : OperatorCase {
  std::string name() const override { return "scale"; }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::act}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y = in[0];
    for (double& value : y) value *= -0.75;
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Scale{.x = c.operands[0], .y = c.result, .factor = -0.75}); }
  void backward(Call& c) const override { c.ops.run(Scale{.x = c.dresult, .y = c.gradients[0], .factor = -0.75}); }
};

struct MultiplyCase final : OperatorCase {
  std::string name() const override { return "multiply"; }
  std::vector<Operand> operands(Size size) const override { return pair(size); }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns + 3}, Storage::act}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= in[1][i];
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Multiply{.a = c.operands[0], .b = c.operands[1], .out = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(Multiply{.a = c.dresult, .b = c.operands[1], .out = c.gradients[0]});
    c.ops.run(Multiply{.a = c.dresult, .b = c.operands[0], .out = c.gradients[1]});
  }
};

/// A factor for each row, f32 like the probabilities of a router.
struct MultiplyRowsCase final : OperatorCase {
  std::string name() const override { return "multiply_rows"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"a", {size.rows, size.columns}, Storage::act}, {"b", {size.rows, 1}, Storage::f32}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= in[1][i / count(1, size.columns)];
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Multiply{.a = c.operands[0], .b = c.operands[1], .out = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(Multiply{.a = c.dresult, .b = c.operands[1], .out = c.gradients[0]});
    c.ops.run(RowDot{.a = c.dresult, .b = c.operands[0], .y = c.gradients[1]});
  }
};

/// A factor for each column, an f32 parameter such as a layer's scale.
struct MultiplyColumnsCase final : OperatorCase {
  std::string name() const override { return "multiply_columns"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"a", {size.rows, size.columns}, Storage::act}, {"b", {1, size.columns}, Storage::f32}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= in[1][i % count(1, size.columns)];
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Multiply{.a = c.operands[0], .b = c.operands[1], .out = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(Multiply{.a = c.dresult, .b = c.operands[1], .out = c.gradients[0]});
    OwnedTensor products(DType::f32, {c.size.rows, c.size.columns});
    c.ops.run(Multiply{.a = c.dresult, .b = c.operands[0], .out = products});
    const std::vector<std::int32_t> first(count(c.size.rows, 1), 0);
    c.ops.zero(c.gradients[1]);
    c.ops.run(IndexAdd{.rows = products, .index = first, .to = c.gradients[1]});
  }
};

struct CurveCase final : OperatorCase {
  explicit CurveCase(Curve of) : curve(of) {}
  Curve curve;
  std::string name() const override { return curve == Curve::sigmoid ? "sigmoid" : "tanh"; }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::f32}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::f32}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y = in[0];
    for (double& value : y) value = curve == Curve::sigmoid ? 1 / (1 + std::exp(-value)) : std::tanh(value);
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Curved{.x = c.operands[0], .y = c.result, .curve = curve}); }
  void backward(Call& c) const override {
    c.ops.run(CurvedBackward{.dy = c.dresult, .y = c.result, .dx = c.gradients[0], .curve = curve});
  }
};

struct SoftmaxCase final : OperatorCase {
  explicit SoftmaxCase(bool logarithm) : log(logarithm) {}
  bool log;
  std::string name() const override { return log ? "log_softmax" : "softmax"; }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::act}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::f32}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    const auto columns = count(1, size.columns);
    for (std::size_t first = 0; first < y.size(); first += columns) {
      const double most = *std::max_element(&y[first], &y[first] + columns);
      double sum = 0;
      for (std::size_t i = 0; i < columns; ++i) sum += std::exp(y[first + i] - most);
      for (std::size_t i = 0; i < columns; ++i) {
        y[first + i] = log ? y[first + i] - most - std::log(sum) : std::exp(y[first + i] - most) / sum;
      }
    }
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Softmax{.x = c.operands[0], .y = c.result, .log = log}); }
  void backward(Call& c) const override {
    c.ops.run(SoftmaxBackward{.dy = c.dresult, .y = c.result, .dx = c.gradients[0], .log = log});
  }
  double largest_term(const Call& c) const override { return largest(c.dresult); }
};

struct RowDotCase final : OperatorCase {
  std::string name() const override { return "row_dot"; }
  std::vector<Operand> operands(Size size) const override { return pair(size); }
  Operand result(Size size) const override { return {"y", {size.rows, 1}, Storage::f32}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) y.push_back(dot(in[0], in[1], size, row));
    return y;
  }
  void forward(Call& c) const override { c.ops.run(RowDot{.a = c.operands[0], .b = c.operands[1], .y = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(Multiply{.a = c.operands[1], .b = c.dresult, .out = c.gradients[0]});
    c.ops.run(Multiply{.a = c.operands[0], .b = c.dresult, .out = c.gradients[1]});
  }
};

struct CosineCase final : OperatorCase {
  std::string name() const override { return "cosine"; }
  std::vector<Operand> operands(Size size) const override { return pair(size); }
  Operand result(Size size) const override { return {"y", {size.rows, 1}, Storage::f32}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double lengths = std::sqrt(dot(in[0], in[0], size, row) * dot(in[1], in[1], size, row));
      y.push_back(dot(in[0], in[1], size, row) / lengths);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    c.saved.emplace_back(DType::f32, Shape{c.size.rows, 2});
    c.ops.run(Cosine{.a = c.operands[0], .b = c.operands[1], .y = c.result, .lengths = c.saved[0]});
  }
  void backward(Call& c) const override {
    c.ops.run(CosineBackward{.dy = c.dresult,
                             .a = c.operands[0],
                             .b = c.operands[1],
                             .y = c.result,
                             .lengths = c.saved[0],
                             .da = c.gradients[0],
                             .db = c.gradients[1]});
  }
  double largest_term(const Call& c) const override { return largest(c.dresult); }
};

/// Two tensors side by side, one column of the second left out.
struct ColumnsCase final : OperatorCase {
  std::string name() const override { return "columns"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"a", {size.rows, size.columns}, Storage::act}, {"b", {size.rows, size.columns + 2}, Storage::f32}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, 2 * size.columns + 1}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      y.insert(y.end(), &in[0][row * columns], &in[0][row * columns] + columns);
      const double* rest = &in[1][row * (columns + 2) + 1];
      y.insert(y.end(), rest, rest + columns + 1);
    }
    return y;
  }
  void forward(Call& c) const override {
    const std::int64_t columns = c.size.columns;
    c.ops.run(CopyColumns{.from = c.operands[0], .to = c.result, .columns = columns});
    c.ops.run(CopyColumns{
        .from = c.operands[1], .to = c.result, .from_column = 1, .to_column = columns, .columns = columns + 1});
  }
  void backward(Call& c) const override {
    const std::int64_t columns = c.size.columns;
    if (!c.accumulate) c.ops.zero(c.gradients[1]);
    c.ops.run(CopyColumns{.from = c.dresult, .to = c.gradients[0], .columns = columns, .accumulate = c.accumulate});
    c.ops.run(CopyColumns{.from = c.dresult,
                          .to = c.gradients[1],
                          .from_column = columns,
                          .to_column = 1,
                          .columns = columns + 1,
                          .accumulate = true});
  }
  bool accumulates() const override { return true; }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> author_cases() {
  return {std::make_shared<ScaleCase>(),
          std::make_shared<MultiplyCase>(),
          std::make_shared<MultiplyRowsCase>(),
          std::make_shared<MultiplyColumnsCase>(),
          std::make_shared<CurveCase>(Curve::sigmoid),
          std::make_shared<CurveCase>(Curve::tanh),
          std::make_shared<SoftmaxCase>(false),
          std::make_shared<SoftmaxCase>(true),
          std::make_shared<RowDotCase>(),
          std::make_shared<CosineCase>(),
          std::make_shared<ColumnsCase>()};
}

}  // namespace maestro::testing
