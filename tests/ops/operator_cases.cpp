// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/ops/operator_case.hpp"

namespace maestro::testing {

namespace {

constexpr double epsilon = 1e-5;

/// Norms: dx is a difference of terms of the size of dy weight rstd; with a single column almost nothing of it remains.
double largest_norm_term(const Call& c, const OwnedTensor& rstd) {
  const auto columns = c.size.columns;
  double largest = 0;
  for (std::int64_t i = 0; i < c.size.rows * columns; ++i) {
    largest =
        std::max<double>(largest, std::abs(c.dresult.get(i) * c.operands[1].get(i % columns) * rstd.get(i / columns)));
  }
  return largest;
}

std::size_t count(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

struct LinearCase final : OperatorCase {
  static std::int64_t outputs(Size size) { return 2 * size.columns + 1; }
  std::string name() const override { return "linear"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, Storage::act},
            {"weight", {outputs(size), size.columns}, Storage::f32, true},
            {"bias", {outputs(size)}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, outputs(size)}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto k = count(1, size.columns);
    const auto n = count(1, outputs(size));
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      for (std::size_t j = 0; j < n; ++j) {
        y.push_back(std::inner_product(&in[0][row * k], &in[0][row * k] + k, &in[1][j * k], in[2][j]));
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    const auto packed = c.ops.pack(c.operands[1], c.act, PackFor::forward, nullptr);
    c.ops.run(Linear{.x = c.operands[0], .w = packed.get(), .bias = c.operands[2], .y = c.result});
  }
  void backward(Call& c) const override {
    const auto packed = c.ops.pack(c.operands[1], c.act, PackFor::backward_input, nullptr);
    c.ops.run(LinearBackwardWeight{.dy = c.dresult, .x = c.operands[0], .dw = c.gradients[1], .dbias = c.gradients[2]});
    c.ops.run(
        LinearBackwardInput{.dy = c.dresult, .w = packed.get(), .dx = c.gradients[0], .accumulate = c.accumulate});
  }
  bool accumulates() const override { return true; }
};

/// x is f32 in both precisions for a variant (the residual stream), of the precision under test in the other.
struct LayerNorm : OperatorCase {
  explicit LayerNorm(Storage x_storage) : x(x_storage) {}
  Storage x;
  std::string name() const override { return x == Storage::act ? "layer_norm" : "layer_norm_of_residual"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, x},
            {"weight", {size.columns}, Storage::f32, true},
            {"bias", {size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double* from = &in[0][row * columns];
      const double mean = std::accumulate(from, from + columns, 0.0) / static_cast<double>(columns);
      double variance = 0;
      for (std::size_t i = 0; i < columns; ++i) variance += (from[i] - mean) * (from[i] - mean);
      const double root = std::sqrt(variance / static_cast<double>(columns) + epsilon);
      for (std::size_t i = 0; i < columns; ++i) y.push_back((from[i] - mean) / root * in[1][i] + in[2][i]);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    for (int i = 0; i < 2; ++i) c.saved.emplace_back(DType::f32, Shape{c.size.rows});
    c.ops.run(Norm{.x = c.operands[0],
                   .weight = c.operands[1],
                   .bias = c.operands[2],
                   .epsilon = epsilon,
                   .y = c.result,
                   .mean = c.saved[0],
                   .rstd = c.saved[1]});
  }
  void backward(Call& c) const override {
    c.ops.run(NormBackward{.dy = c.dresult,
                           .x = c.operands[0],
                           .weight = c.operands[1],
                           .mean = c.saved[0],
                           .rstd = c.saved[1],
                           .dx = c.gradients[0],
                           .accumulate = c.accumulate,
                           .dweight = c.gradients[1],
                           .dbias = c.gradients[2]});
  }
  double largest_term(const Call& c) const override { return largest_norm_term(c, c.saved[1]); }
  bool accumulates() const override { return true; }
};

struct RmsNorm : OperatorCase {
  explicit RmsNorm(Storage x_storage) : x(x_storage) {}
  Storage x;
  std::string name() const override { return x == Storage::act ? "rms_norm" : "rms_norm_of_residual"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, x}, {"weight", {size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double* from = &in[0][row * columns];
      const double squares = std::inner_product(from, from + columns, from, 0.0);
      const double root = std::sqrt(squares / static_cast<double>(columns) + epsilon);
      for (std::size_t i = 0; i < columns; ++i) y.push_back(from[i] / root * in[1][i]);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.saved.clear();
    c.saved.emplace_back(DType::f32, Shape{c.size.rows});
    c.ops.run(Norm{.x = c.operands[0], .weight = c.operands[1], .epsilon = epsilon, .y = c.result, .rstd = c.saved[0]});
  }
  void backward(Call& c) const override {
    c.ops.run(NormBackward{.dy = c.dresult,
                           .x = c.operands[0],
                           .weight = c.operands[1],
                           .rstd = c.saved[0],
                           .dx = c.gradients[0],
                           .accumulate = c.accumulate,
                           .dweight = c.gradients[1]});
  }
  double largest_term(const Call& c) const override { return largest_norm_term(c, c.saved[0]); }
  bool accumulates() const override { return true; }
};

struct GeluCase final : OperatorCase {
  std::string name() const override { return "gelu"; }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::act}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y;
    for (const double x : in[0]) {
      y.push_back(0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x))));
    }
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Gelu{.x = c.operands[0], .y = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(GeluBackward{.dy = c.dresult, .x = c.operands[0], .dx = c.gradients[0]});
  }
};

struct SwiGluCase final : OperatorCase {
  std::string name() const override { return "swiglu"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, 2 * size.columns}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double* gate = &in[0][row * 2 * columns];
      for (std::size_t i = 0; i < columns; ++i) y.push_back(gate[i] / (1 + std::exp(-gate[i])) * gate[columns + i]);
    }
    return y;
  }
  void forward(Call& c) const override { c.ops.run(SwiGlu{.x = c.operands[0], .y = c.result}); }
  void backward(Call& c) const override {
    c.ops.run(SwiGluBackward{.dy = c.dresult, .x = c.operands[0], .dx = c.gradients[0]});
  }
};

/// The residual sum: an f32 stream and a branch of the precision under test.
struct AddCase final : OperatorCase {
  std::string name() const override { return "add"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"a", {size.rows, size.columns}, Storage::f32}, {"b", {size.rows, size.columns}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::f32}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y;
    for (std::size_t i = 0; i < in[0].size(); ++i) y.push_back(in[0][i] + in[1][i]);
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Add{.a = c.operands[0], .b = c.operands[1], .out = c.result}); }
  void backward(Call& c) const override {
    for (const OwnedTensor& gradient : c.gradients) c.ops.run(Cast{.from = c.dresult, .to = gradient});
  }
};

struct EmbeddingCase : OperatorCase {
  static std::vector<std::int32_t> cycle(Size size, std::int32_t step, std::int32_t length) {
    std::vector<std::int32_t> numbers;
    for (std::int32_t row = 0; row < size.rows; ++row) numbers.push_back(row * step % length);
    return numbers;
  }
  virtual std::vector<std::int32_t> ids(Size size) const { return cycle(size, 3, 5); }
  static std::vector<std::int32_t> positions(Size size) { return cycle(size, 1, 4); }
  std::string name() const override { return "embedding"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"table", {5, size.columns}, Storage::f32, true},
            {"positions_table", {4, size.columns}, Storage::f32, true}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::f32}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const std::int64_t token = ids(size)[count(row, 1)];
      const std::int64_t place = positions(size)[count(row, 1)];
      for (std::int64_t i = 0; i < size.columns; ++i) {
        const double word = token < 0 ? 0 : in[0][count(token, size.columns) + count(1, i)];
        y.push_back(word + in[1][count(place, size.columns) + count(1, i)]);
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    std::vector<std::int32_t> token = ids(c.size);
    c.ops.run(Embedding{.table = c.operands[0],
                        .ids = Tensor(token.data(), DType::i32, {c.size.rows}),
                        .positions_table = c.operands[1],
                        .positions = positions(c.size),
                        .y = c.result});
  }
  void backward(Call& c) const override {
    std::vector<std::int32_t> token = ids(c.size);
    c.ops.run(EmbeddingBackward{.dy = c.dresult,
                                .ids = Tensor(token.data(), DType::i32, {c.size.rows}),
                                .positions = positions(c.size),
                                .dtable = c.gradients[0],
                                .dpositions = c.gradients[1]});
  }
};

/// Ids of -1 take no row of the table.
struct EmbeddingWithGaps final : EmbeddingCase {
  std::string name() const override { return "embedding_with_gaps"; }
  std::vector<std::int32_t> ids(Size size) const override {
    std::vector<std::int32_t> numbers = cycle(size, 3, 6);
    for (std::int32_t& number : numbers) --number;
    return numbers;
  }
};

/// Some rows twice, some not at all.
std::vector<std::int32_t> two_thirds(Size size) {
  std::vector<std::int32_t> index;
  for (std::int32_t row = 0; row < size.rows; ++row) index.push_back(row * 2 / 3);
  return index;
}

struct SelectRows final : OperatorCase {
  std::string name() const override { return "select_rows"; }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::act}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    for (const std::int32_t row : two_thirds(size)) {
      for (std::int64_t i = 0; i < size.columns; ++i) y.push_back(in[0][count(row, size.columns) + count(1, i)]);
    }
    return y;
  }
  void forward(Call& c) const override {
    c.ops.run(IndexSelect{.from = c.operands[0], .index = two_thirds(c.size), .to = c.result});
  }
  void backward(Call& c) const override {
    if (!c.accumulate) c.gradients[0].fill(0.0);
    c.ops.run(IndexAdd{.rows = c.dresult, .index = two_thirds(c.size), .to = c.gradients[0]});
  }
  bool accumulates() const override { return true; }
};

/// Rows of the precision under test on an f32 stream.
struct AddRows final : OperatorCase {
  std::string name() const override { return "add_rows"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, size.columns}, Storage::f32}, {"rows", {size.rows, size.columns}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::f32}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    std::size_t from = 0;
    for (const std::int32_t row : two_thirds(size)) {
      for (std::int64_t i = 0; i < size.columns; ++i) y[count(row, size.columns) + count(1, i)] += in[1][from++];
    }
    return y;
  }
  void forward(Call& c) const override {
    c.ops.run(Cast{.from = c.operands[0], .to = c.result});
    c.ops.run(IndexAdd{.rows = c.operands[1], .index = two_thirds(c.size), .to = c.result});
  }
  void backward(Call& c) const override {
    c.ops.run(Cast{.from = c.dresult, .to = c.gradients[0]});
    c.ops.run(IndexSelect{.from = c.dresult, .index = two_thirds(c.size), .to = c.gradients[1]});
  }
};

/// Two query heads, a key and a value head; the value head must stay as it is.
struct RotaryCase final : OperatorCase {
  static std::int64_t head_size(Size size) { return size.columns + size.columns % 2; }
  static AttentionShape heads(Size size) { return {.heads = 2, .kv_heads = 1, .head_size = head_size(size)}; }
  static std::vector<std::int32_t> positions(Size size) { return EmbeddingCase::cycle(size, 7, 300); }
  std::string name() const override { return "rotary"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"qkv", {size.rows, 4 * head_size(size)}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, 4 * head_size(size)}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    const auto head = count(1, head_size(size));
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t i = 0; i < head / 2; ++i) {
          const double angle =
              positions(size)[row] * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head));
          const std::size_t at = (row * 4 + h) * head + i;
          y[at] = in[0][at] * std::cos(angle) - in[0][at + head / 2] * std::sin(angle);
          y[at + head / 2] = in[0][at + head / 2] * std::cos(angle) + in[0][at] * std::sin(angle);
        }
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    c.ops.run(Cast{.from = c.operands[0], .to = c.result});
    c.ops.run(Rotary{
        .qkv = c.result, .shape = heads(c.size), .positions = positions(c.size), .theta = 10000.0, .direction = +1});
  }
  void backward(Call& c) const override {
    c.ops.run(Cast{.from = c.dresult, .to = c.gradients[0]});
    c.ops.run(Rotary{.qkv = c.gradients[0],
                     .shape = heads(c.size),
                     .positions = positions(c.size),
                     .theta = 10000.0,
                     .direction = -1});
  }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> operator_cases() {
  return {std::make_shared<LinearCase>(),
          std::make_shared<LayerNorm>(Storage::act),
          std::make_shared<LayerNorm>(Storage::f32),
          std::make_shared<RmsNorm>(Storage::act),
          std::make_shared<RmsNorm>(Storage::f32),
          std::make_shared<GeluCase>(),
          std::make_shared<SwiGluCase>(),
          std::make_shared<AddCase>(),
          std::make_shared<EmbeddingCase>(),
          std::make_shared<EmbeddingWithGaps>(),
          std::make_shared<SelectRows>(),
          std::make_shared<AddRows>(),
          std::make_shared<RotaryCase>()};
}

}  // namespace maestro::testing
