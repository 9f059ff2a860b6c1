// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "tests/ops/operator_case.hpp"
#include "tests/ops/rotary_frequencies.hpp"

namespace maestro::testing {

namespace {

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

double gelu(double x, GeluKind kind = GeluKind::tanh) {
  if (kind == GeluKind::quick) return x / (1 + std::exp(-1.702 * x));
  if (kind == GeluKind::erf) return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

struct GeluCase final : OperatorCase {
  explicit GeluCase(GeluKind form) : kind(form) {}
  GeluKind kind;
  std::string name() const override {
    return kind == GeluKind::tanh ? "gelu" : kind == GeluKind::erf ? "erf_gelu" : "quick_gelu";
  }
  std::vector<Operand> operands(Size size) const override { return {{"x", {size.rows, size.columns}, Storage::act}}; }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size, const std::vector<Values>& in) const override {
    Values y;
    for (const double x : in[0]) y.push_back(gelu(x, kind));
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Gelu{.x = c.operands[0], .y = c.result, .kind = kind}); }
  void backward(Call& c) const override {
    c.ops.run(GeluBackward{.dy = c.dresult, .x = c.operands[0], .dx = c.gradients[0], .kind = kind});
  }
};

struct GluCase final : OperatorCase {
  explicit GluCase(GluGate activation) : gate(activation) {}
  GluGate gate;
  std::string name() const override {
    if (gate.kind == GluGate::Kind::clamped) return "clamped_glu";
    return gate == GluGate::silu ? "swiglu" : "geglu";
  }
  std::vector<Operand> operands(Size size) const override {
    return {{"x", {size.rows, 2 * size.columns}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    const auto columns = count(1, size.columns);
    Values y;
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      const double* x = &in[0][row * 2 * columns];
      for (std::size_t i = 0; i < columns; ++i) {
        if (gate.kind == GluGate::Kind::clamped) {
          const double g = std::min(x[2 * i], gate.limit), up = std::clamp(x[2 * i + 1], -gate.limit, gate.limit);
          y.push_back((up + 1) * g / (1 + std::exp(-gate.alpha * g)));
        } else {
          y.push_back((gate == GluGate::silu ? x[i] / (1 + std::exp(-x[i])) : gelu(x[i])) * x[columns + i]);
        }
      }
    }
    return y;
  }
  void forward(Call& c) const override { c.ops.run(Glu{.x = c.operands[0], .y = c.result, .gate = gate}); }
  void backward(Call& c) const override {
    c.ops.run(GluBackward{.dy = c.dresult, .x = c.operands[0], .dx = c.gradients[0], .gate = gate});
  }
};

/// The residual sum: an f32 stream and a branch with the tested precision.
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
  explicit EmbeddingCase(double token_scale = 1) : scale(token_scale) {}
  double scale;
  static std::vector<std::int32_t> cycle(Size size, std::int32_t step, std::int32_t length) {
    std::vector<std::int32_t> numbers;
    for (std::int32_t row = 0; row < size.rows; ++row) numbers.push_back(row * step % length);
    return numbers;
  }
  virtual std::vector<std::int32_t> ids(Size size) const { return cycle(size, 3, 5); }
  static std::vector<std::int32_t> positions(Size size) { return cycle(size, 1, 4); }
  std::string name() const override { return scale == 1 ? "embedding" : "scaled_embedding"; }
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
        y.push_back(scale * word + in[1][count(place, size.columns) + count(1, i)]);
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
                        .y = c.result,
                        .scale = scale});
  }
  void backward(Call& c) const override {
    std::vector<std::int32_t> token = ids(c.size);
    c.ops.run(EmbeddingBackward{.dy = c.dresult,
                                .ids = Tensor(token.data(), DType::i32, {c.size.rows}),
                                .positions = positions(c.size),
                                .dtable = c.gradients[0],
                                .dpositions = c.gradients[1],
                                .scale = scale});
  }
};

/// Uses ids of -1, which select no row of the table.
struct EmbeddingWithGaps final : EmbeddingCase {
  std::string name() const override { return "embedding_with_gaps"; }
  std::vector<std::int32_t> ids(Size size) const override {
    std::vector<std::int32_t> numbers = cycle(size, 3, 6);
    for (std::int32_t& number : numbers) --number;
    return numbers;
  }
};

/// Returns an index with some rows twice, some not at all.
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

/// Adds rows with the tested precision to an f32 stream.
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

/// Two query heads, a key and a value head; the value head and the last columns of each head must not change.
struct RotaryCase final : OperatorCase {
  explicit RotaryCase(std::int64_t unrotated = 0, double scale = 1, std::int64_t of_row = 1)
      : rest(unrotated), magnitude(scale), axes(of_row) {}
  std::int64_t rest;
  double magnitude;
  std::int64_t axes;  // pairs take them in turns
  static std::int64_t rotated(Size size) { return size.columns + size.columns % 2; }
  std::int64_t head_size(Size size) const { return rotated(size) + rest; }
  std::vector<std::int32_t> positions(Size size) const {
    return EmbeddingCase::cycle({size.rows * axes, size.columns}, 7, 300);
  }
  std::string name() const override { return axes > 1 ? "axial_rotary" : rest == 0 ? "rotary" : "partial_rotary"; }
  std::vector<Operand> operands(Size size) const override {
    return {{"qkv", {size.rows, 4 * head_size(size)}, Storage::act}};
  }
  Operand result(Size size) const override { return {"y", {size.rows, 4 * head_size(size)}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y = in[0];
    const auto head = count(1, head_size(size));
    const auto half = count(1, rotated(size) / 2);
    const std::vector<std::int32_t> places = positions(size);
    for (std::size_t row = 0; row < count(size.rows, 1); ++row) {
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t i = 0; i < half; ++i) {
          const std::size_t place = row * count(axes, 1) + i % count(axes, 1);
          const double angle = places[place] * std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(half));
          const std::size_t at = (row * 4 + h) * head + i;
          y[at] = magnitude * (in[0][at] * std::cos(angle) - in[0][at + half] * std::sin(angle));
          y[at + half] = magnitude * (in[0][at + half] * std::cos(angle) + in[0][at] * std::sin(angle));
        }
      }
    }
    return y;
  }
  void rotate(const Call& c, const Tensor& from, const Tensor& to, int direction) const {
    RotaryFrequencies angles = frequencies(10000, rotated(c.size), magnitude);
    for (std::size_t pair = 0; axes > 1 && pair < angles.inverse.size(); ++pair) {
      angles.axis.push_back(static_cast<std::uint8_t>(pair % count(axes, 1)));
    }
    c.ops.run(Cast{.from = from, .to = to});
    c.ops.run(Rotary{.qkv = to,
                     .shape = {.heads = 2, .kv_heads = 1, .head_size = head_size(c.size)},
                     .positions = positions(c.size),
                     .frequencies = &angles,
                     .direction = direction});
  }
  void forward(Call& c) const override { rotate(c, c.operands[0], c.result, +1); }
  void backward(Call& c) const override { rotate(c, c.dresult, c.gradients[0], -1); }
};

/// Two samples, the first empty if there are fewer than three rows.
struct ConvCase final : OperatorCase {
  explicit ConvCase(ConvolutionShape of) : shape(of) {}
  ConvolutionShape shape;
  static std::vector<std::int32_t> offsets(Size size) {
    const auto rows = static_cast<std::int32_t>(size.rows);
    return {0, rows / 3, rows};
  }
  std::string name() const override { return shape.gated ? "gated_conv" : "causal_conv"; }
  std::vector<Operand> operands(Size size) const override {
    std::vector<Operand> all{{"x", {size.rows, (shape.gated ? 3 : 1) * size.columns}, Storage::act},
                             {"weight", {size.columns, shape.width}, Storage::f32, true}};
    if (!shape.gated) all.push_back({"bias", {size.columns}, Storage::f32, true});
    return all;
  }
  Operand result(Size size) const override { return {"y", {size.rows, size.columns}, Storage::act}; }
  Values reference(Size size, const std::vector<Values>& in) const override {
    Values y;
    const std::int64_t n = size.columns, stride = shape.gated ? 3 * n : n;
    for (std::int64_t row = 0; row < size.rows; ++row) {
      const std::int64_t sample = row < size.rows / 3 ? 0 : size.rows / 3;
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = shape.gated ? 0 : in[2][count(1, i)];
        for (std::int64_t j = 0; j < shape.width; ++j) {
          const std::int64_t from = row - (shape.width - 1 - j) * shape.dilation;
          if (from < sample) continue;
          const double* x = &in[0][count(from, stride)];
          sum += in[1][count(i, shape.width) + count(1, j)] * (shape.gated ? x[i] * x[2 * n + i] : x[i]);
        }
        if (shape.silu) sum /= 1 + std::exp(-sum);
        y.push_back(shape.gated ? sum * in[0][count(row, stride) + count(1, n + i)] : sum);
      }
    }
    return y;
  }
  void forward(Call& c) const override {
    const std::vector<std::int32_t> samples = offsets(c.size);
    c.ops.run(CausalConv{.x = c.operands[0],
                         .weight = c.operands[1],
                         .bias = shape.gated ? Tensor() : c.operands[2].tensor(),
                         .shape = shape,
                         .layout = {.offsets = samples},
                         .y = c.result});
  }
  void backward(Call& c) const override {
    const std::vector<std::int32_t> samples = offsets(c.size);
    c.ops.run(CausalConvBackward{.dy = c.dresult,
                                 .x = c.operands[0],
                                 .weight = c.operands[1],
                                 .bias = shape.gated ? Tensor() : c.operands[2].tensor(),
                                 .shape = shape,
                                 .layout = {.offsets = samples},
                                 .dx = c.gradients[0],
                                 .dweight = c.gradients[1],
                                 .dbias = shape.gated ? Tensor() : c.gradients[2].tensor()});
  }
};

}  // namespace

std::vector<std::shared_ptr<const OperatorCase>> operator_cases() {
  std::vector<std::shared_ptr<const OperatorCase>> cases = norm_cases();
  std::ranges::move(author_cases(), std::back_inserter(cases));
  std::ranges::move(expert_cases(), std::back_inserter(cases));
  std::ranges::move(latent_cases(), std::back_inserter(cases));
  cases.insert(cases.end(), {std::make_shared<LinearCase>(), std::make_shared<GeluCase>(GeluKind::tanh),
                             std::make_shared<GeluCase>(GeluKind::erf), std::make_shared<GeluCase>(GeluKind::quick),
                             std::make_shared<GluCase>(GluGate::silu), std::make_shared<GluCase>(GluGate::gelu),
                             std::make_shared<GluCase>(GluGate::clamped(0.7, 1.702)), std::make_shared<AddCase>(),
                             std::make_shared<EmbeddingCase>(), std::make_shared<EmbeddingCase>(2.5),
                             std::make_shared<EmbeddingWithGaps>(), std::make_shared<SelectRows>(),
                             std::make_shared<AddRows>(), std::make_shared<RotaryCase>(),
                             std::make_shared<RotaryCase>(5, 0.75), std::make_shared<RotaryCase>(3, 1.25, 3),
                             std::make_shared<ConvCase>(ConvolutionShape{.width = 4, .dilation = 2, .silu = true}),
                             std::make_shared<ConvCase>(ConvolutionShape{.width = 3, .gated = true})});
  return cases;
}

}  // namespace maestro::testing
