// SPDX-License-Identifier: Apache-2.0
// The functions of functions.hpp together, through the tape: a small network against recorded PyTorch results,
// attention against finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "runtime/ops/functions.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/recorded_cases.hpp"
#include "tests/ops/rotary_frequencies.hpp"

namespace maestro::testing {
namespace {

constexpr double norm_epsilon = 1e-5;

class Network {
 public:
  explicit Network(const Recorded& recorded) : recorded_(recorded) {
    for (const auto& [name, values] : recorded.tensors) {
      if (!recorded.tensors.contains("d." + name)) continue;
      const bool matrix = name.ends_with(".weight") && !name.starts_with("norm");
      const auto count = static_cast<std::int64_t>(values.size());
      const std::int64_t columns = matrix ? columns_of(name) : width_;
      const Shape shape =
          matrix || name == "tokens" || name == "positions" ? Shape{count / columns, columns} : Shape{count};
      parameters_.add(
          {name, shape, matrix, [from = &values](std::span<float> to) { std::ranges::copy(*from, to.begin()); }});
    }
    parameters_.allocate(true);
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  LossSums loss(Tape& tape) {
    const SequenceLayout layout{offsets_, positions_};
    Var x = embedding(tape, at("tokens"), ids_, &at("positions"), layout);
    Var h = layer_norm(tape, x, at("norm1.weight"), at("norm1.bias"), norm_epsilon);
    h = gelu(tape, linear(tape, h, at("up.weight"), &at("up.bias")));
    x = add(tape, x, linear(tape, h, at("down.weight"), &at("down.bias")));
    h = rms_norm(tape, x, at("norm2.weight"), norm_epsilon);
    h = glu(tape, linear(tape, h, at("gates.weight"), nullptr), GluGate::silu);
    x = add(tape, x, linear(tape, h, at("out.weight"), nullptr));
    h = layer_norm(tape, x, at("norm3.weight"), at("norm3.bias"), norm_epsilon);
    const HeadLoss head{&targets_.tensor(), 1.0 / 12};
    return cross_entropy_loss(tape, h, at("head.weight"), head);
  }
  Parameters& parameters() { return parameters_; }
  Parameter& at(const std::string& name) { return *parameters_.find(name); }

 private:
  std::int64_t columns_of(const std::string& name) const {
    return name == "down.weight" || name == "out.weight" ? inner_ : width_;
  }

  const Recorded& recorded_;
  std::int64_t rows_ = recorded_.cases["rows"];
  std::int64_t width_ = recorded_.cases["width"];
  std::int64_t inner_ = recorded_.cases["inner"];
  OwnedTensor ids_{DType::i32, {rows_}, recorded_.at("ids")};
  OwnedTensor targets_{DType::i32, {rows_}, recorded_.at("targets")};
  std::vector<std::int32_t> offsets_{0, static_cast<std::int32_t>(rows_)};
  std::vector<std::int32_t> positions_ = std::vector<std::int32_t>(static_cast<std::size_t>(rows_));
  Parameters parameters_;
};

class ThroughTheTape : public ::testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<OperatorTable> ops_ = GetParam().make();
  Arena arena_;
};

/// Returns the tolerance. f32: a dozen operators each lose a few units in the last place. bf16: activations are rounded
/// to 2^-9 about ten times on the way to a gradient; errors with random signs add up to about 2^-9 sqrt(10) of a value,
/// twice that for the worst element.
double tolerance(DType act) {
  return act == DType::bf16 ? 0.04 : 2e-5;
}

TEST_P(ThroughTheTape, a_network_agrees_with_pytorch_in_loss_and_every_gradient) {
  const Recorded recorded = read_recorded("network.safetensors");
  for (const DType act : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(std::string(name_of(act)));
    Network network(recorded);
    Tape tape(*ops_, arena_, act, true);
    const LossSums sums = network.loss(tape);
    tape.backward();
    EXPECT_EQ(sums.tokens, 12);
    EXPECT_NEAR(sums.ce, recorded.at("loss")[0], tolerance(act) * recorded.at("loss")[0]);
    for (Parameter& parameter : network.parameters().all()) {
      Values gradient;
      for (const float value : parameter.gradient().span<float>()) gradient.push_back(value);
      EXPECT_LT(worst_error(gradient, recorded.at("d." + parameter.name())), tolerance(act)) << parameter.name();
    }
    EXPECT_EQ(arena_.used_bytes(), 0U);  // TP-3
  }
}

TEST_P(ThroughTheTape, a_forward_only_pass_gives_the_same_loss_and_touches_no_gradient) {
  const Recorded recorded = read_recorded("network.safetensors");
  Network network(recorded);
  Tape recording(*ops_, arena_, DType::f32, true);
  const double with_gradients = network.loss(recording).ce;
  recording.clear();
  std::ranges::fill(network.parameters().gradients(), 0.0F);
  Tape forward(*ops_, arena_, DType::f32, false);
  EXPECT_EQ(network.loss(forward).ce, with_gradients);
  EXPECT_EQ(arena_.used_bytes(), 0U);  // TP-1
  EXPECT_EQ(ops_->run(SumOfSquares{.values = network.parameters().gradients()}), 0.0);
}

TEST_P(ThroughTheTape, later_micro_batches_map_nothing_and_gradients_accumulate) {  // TP-4
  const Recorded recorded = read_recorded("network.safetensors");
  Network network(recorded);
  Tape tape(*ops_, arena_, DType::f32, true);
  std::size_t mapped = 0;
  for (int pass = 1; pass <= 3; ++pass) {
    (void)network.loss(tape);
    tape.backward();
    if (pass == 1) mapped = arena_.mapped_bytes();
    EXPECT_EQ(arena_.mapped_bytes(), mapped);
    Values wanted = recorded.at("d.up.weight");
    for (double& value : wanted) value *= pass;
    Values gradient;
    for (const float value : network.at("up.weight").gradient().span<float>()) gradient.push_back(value);
    EXPECT_LT(worst_error(gradient, wanted), tolerance(DType::f32));
  }
}

TEST_P(ThroughTheTape, the_gradient_of_rotary_attention_agrees_with_finite_differences) {
  const std::vector<std::int32_t> offsets{0, 3, 8};
  const std::vector<std::int32_t> positions{0, 1, 2, 0, 1, 2, 3, 4};
  const SequenceLayout layout{offsets, positions};
  const AttentionOptions options{{.heads = 2, .kv_heads = 1, .head_size = 6}, testing::shared_frequencies(10000, 6)};
  const Shape shape{8, options.shape.qkv_columns()};
  std::mt19937 generator(23);
  const Values values = exact_normals(generator, shape.elements());
  const OwnedTensor seed(DType::f32, {8, 12}, exact_normals(generator, 96));
  const auto objective = [&](const Values& at) {
    const OwnedTensor in(DType::f32, shape, at);
    Tape tape(*ops_, arena_, DType::f32, false);
    const Var y = attention(tape, tape.input(in), options, layout);
    double sum = 0;
    for (std::int64_t i = 0; i < 96; ++i) sum += double{seed.get(i)} * y.value().data<float>()[i];
    return sum;
  };
  const OwnedTensor in(DType::f32, shape, values);
  Tape tape(*ops_, arena_, DType::f32, true);
  const Var x = tape.input(in, true);
  tape.seed(attention(tape, x, options, layout), seed);
  tape.backward();
  // h^2 times a third derivative of order 1 is 1e-4; f32 rounding of the objective divided by 2 h is also 1e-4.
  constexpr double h = 1e-2;
  for (std::size_t i = 0; i < values.size(); i += 7) {
    Values moved = values;
    moved[i] += h;
    const double above = objective(moved);
    moved[i] -= 2 * h;
    EXPECT_NEAR(x.gradient().data<float>()[i], (above - objective(moved)) / (2 * h), 1e-3) << "element " << i;
  }
}

TEST_P(ThroughTheTape, a_gelu_network_adds_to_the_gradient_of_an_input_with_another_use) {
  std::mt19937 generator(29);
  Parameters parameters;
  const auto weight = [&](const char* name, Shape shape) {
    return &parameters.add({name, shape, true, [&generator](std::span<float> to) {
                              std::ranges::copy(exact_normals(generator, static_cast<std::int64_t>(to.size())),
                                                to.begin());
                            }});
  };
  const Affine in{weight("in", {5, 4})}, out{weight("out", {4, 5})};
  parameters.allocate(true);
  const OwnedTensor value(DType::f32, {3, 4}, exact_normals(generator, 12));
  const OwnedTensor seed(DType::f32, {3, 4}, exact_normals(generator, 12));
  const OwnedTensor other(DType::f32, {3, 4}, exact_normals(generator, 12));
  const auto gradient = [&](bool used_elsewhere) {
    Tape tape(*ops_, arena_, DType::f32, true);
    const Var x = tape.input(value, true);
    tape.seed(gelu_network(tape, x, in, out), seed);
    if (used_elsewhere) tape.seed(x, other);
    tape.backward();
    const std::span<const float> found = x.gradient().span<float>();
    return Values(found.begin(), found.end());
  };
  Values wanted = gradient(false);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += other.get(static_cast<std::int64_t>(i));
  EXPECT_LT(worst_error(gradient(true), wanted), tolerance(DType::f32));
}

TEST_P(ThroughTheTape, a_gelu_network_computes_its_parts_for_every_kind) {
  std::mt19937 generator(31);
  Parameters parameters;
  const auto weight = [&](const char* name, Shape shape) {
    return &parameters.add({name, shape, true, [&generator](std::span<float> to) {
                              std::ranges::copy(exact_normals(generator, static_cast<std::int64_t>(to.size())),
                                                to.begin());
                            }});
  };
  const Affine in{weight("in", {8, 4}), weight("bias", {8})}, out{weight("out", {4, 8})};
  parameters.allocate(true);
  const OwnedTensor value(DType::f32, {5, 4}, exact_normals(generator, 20));
  const OwnedTensor seed(DType::f32, {5, 4}, exact_normals(generator, 20));
  const auto results = [&](bool fused, GeluKind kind) {
    parameters.clear_gradients(*ops_);
    Tape tape(*ops_, arena_, DType::f32, true);
    const Var x = tape.input(value, true);
    const Var y =
        fused ? gelu_network(tape, x, in, out, kind) : linear(tape, gelu(tape, linear(tape, x, in), kind), out);
    Values found(y.value().span<float>().begin(), y.value().span<float>().end());
    tape.seed(y, seed);
    tape.backward();
    const auto add = [&](std::span<const float> values) { found.insert(found.end(), values.begin(), values.end()); };
    add(x.gradient().span<float>());
    for (const Parameter* each : {in.weight, in.bias, out.weight}) add(each->gradient().span<float>());
    return found;
  };
  std::vector<Values> by_kind;
  for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf, GeluKind::quick}) {
    by_kind.push_back(results(true, kind));
    EXPECT_LT(worst_error(by_kind.back(), results(false, kind)), tolerance(DType::f32)) << static_cast<int>(kind);
  }
  EXPECT_GT(worst_error(by_kind[0], by_kind[1]), 1e-5);
  EXPECT_GT(worst_error(by_kind[0], by_kind[2]), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(all, ThroughTheTape, ::testing::ValuesIn(backends()),
                         [](const auto& backend) { return backend.param.name; });

}  // namespace
}  // namespace maestro::testing
