// SPDX-License-Identifier: Apache-2.0
// Gradients through frozen parameters: every function passes the same gradient to its input as with trained parameters,
// and writes no parameter gradient.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/ops/expert_functions.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"
#include "tests/ops/rotary_frequencies.hpp"

namespace maestro::testing {
namespace {

constexpr std::int64_t net_rows = 9, net_width = 32, vocabulary = 19;

enum class Weights { trained, frozen, frozen_packed };

/// A network between an input and a loss that uses every function with parameters.
class FrozenNetwork {
 public:
  FrozenNetwork(const OperatorTable& ops, DType act, Weights weights) : ops_(ops), act_(act) {
    const auto add = [this](const char* name, Shape shape, std::int64_t groups = 1) {
      return &parameters_.add({name,
                               shape,
                               shape.rank() > 1,
                               [this](std::span<float> values) {
                                 const Values normals =
                                     exact_normals(generator_, static_cast<std::int64_t>(values.size()), 0.2);
                                 std::ranges::copy(normals, values.begin());
                               },
                               {},
                               groups});
    };
    norm_weight_ = add("norm.weight", {net_width});
    norm_bias_ = add("norm.bias", {net_width});
    root_weight_ = add("rms.weight", {net_width});
    qkv_ = add("qkv", {2 * net_width, net_width});
    qkv_bias_ = add("qkv.bias", {2 * net_width});
    gates_ = add("gates", {2 * net_width, 2, net_width / 2});  // a kernel: counts as (2 width, width)
    router_ = add("router", {3, net_width});
    experts_in_ = add("experts.in", {3 * 2 * net_width, net_width}, 3);
    experts_out_ = add("experts.out", {3 * net_width, net_width}, 3);
    head_ = add("head", {vocabulary, net_width});
    parameters_.allocate(weights == Weights::trained);
    if (weights != Weights::frozen_packed) return;
    Parameter* const matrices[] = {qkv_, gates_, experts_in_, experts_out_, head_};
    parameters_.freeze_packed(ops, act, matrices, true);
  }

  /// Returns the gradient of x (rows, width) f32 after both passes.
  Values gradient(const Tensor& x_value, bool distilled) {
    std::iota(positions_.begin(), positions_.end(), 0);
    const SequenceLayout layout{offsets_, positions_};
    Tape tape(ops_, arena_, act_, true);
    const Var x = tape.input(x_value, true);
    Var h = layer_norm(tape, x, *norm_weight_, *norm_bias_, 1e-5);
    h = linear(tape, h, *qkv_, qkv_bias_);
    h = attention(tape, h, {{2, 1, net_width / 2, false}, testing::shared_frequencies(10000, net_width / 2)}, layout);
    h = add(tape, x, gelu(tape, h));
    h = glu(tape, linear(tape, rms_norm(tape, h, *root_weight_, 1e-5), *gates_, nullptr), GluGate::silu);
    const Var scores = linear(tape, converted(tape, h, DType::f32), *router_, nullptr, DType::f32);
    h = expert_networks(tape, h, route(tape, scores, 2, {}), {experts_in_, experts_out_, GluGate::silu});
    const HeadLoss loss{&targets_.tensor(), 0.5};
    if (distilled) {
      TeacherSignal teacher{TeacherOutput::logits, Var(), nullptr, teacher_logits_, {}, {}, vocabulary, 0, {}};
      DistillationTerms terms;
      terms.shared_vocabulary = vocabulary;
      (void)distillation_loss(tape, h, *head_, teacher, terms, loss);
    } else {
      (void)cross_entropy_loss(tape, h, *head_, loss);
    }
    h = Var();
    tape.backward();
    OwnedTensor copy(DType::f32, {net_rows, net_width});
    std::memcpy(copy.tensor().raw(), x.gradient().raw(), copy.tensor().bytes());
    return copy.values();
  }
  [[nodiscard]] const Parameters& parameters() const { return parameters_; }

 private:
  const OperatorTable& ops_;
  DType act_;
  std::mt19937 generator_{31};
  Parameters parameters_;
  Parameter *norm_weight_, *norm_bias_, *root_weight_, *qkv_, *qkv_bias_, *gates_, *router_, *experts_in_,
      *experts_out_, *head_;
  Arena arena_;
  std::vector<std::int32_t> offsets_{0, 5, net_rows}, positions_ = std::vector<std::int32_t>(net_rows);
  OwnedTensor targets_{DType::i32, {net_rows}, {3, -1, 7, 0, 18, 5, 5, -1, 2}};
  OwnedTensor teacher_logits_{DType::f32, {net_rows, vocabulary}, exact_normals(generator_, net_rows* vocabulary)};
};

class FrozenWeights : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

TEST_P(FrozenWeights, hand_back_the_gradient_that_trained_ones_do) {
  const auto& [backend, act] = GetParam();
  const auto ops = backend.make();
  std::mt19937 generator(32);
  const OwnedTensor x(DType::f32, {net_rows, net_width}, exact_normals(generator, net_rows * net_width));
  for (const bool distilled : {false, true}) {
    FrozenNetwork trained(*ops, act, Weights::trained);
    const Values wanted = trained.gradient(x, distilled);
    EXPECT_GT(*std::ranges::max_element(wanted), 1e-4);
    for (const Weights weights : {Weights::frozen, Weights::frozen_packed}) {
      FrozenNetwork frozen(*ops, act, weights);
      EXPECT_EQ(frozen.gradient(x, distilled), wanted) << "distilled " << distilled;
      EXPECT_FALSE(frozen.parameters().trained());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(all, FrozenWeights,
                         ::testing::Combine(::testing::ValuesIn(backends()),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::string(name_of(std::get<1>(test.param)));
                         });

class RowFunctions : public ::testing::TestWithParam<Backend> {
 protected:
  Values of(const Tensor& tensor) const {
    OwnedTensor copy(tensor.dtype(), tensor.shape());
    std::memcpy(copy.tensor().raw(), tensor.raw(), tensor.bytes());
    return copy.values();
  }
  static Block index_of(Tape& tape, std::vector<std::int32_t> rows_wanted) {
    Block block = tape.scratch({static_cast<std::int64_t>(rows_wanted.size())}, DType::i32);
    std::ranges::copy(rows_wanted, block.tensor().data<std::int32_t>());
    return block;
  }
  std::unique_ptr<OperatorTable> ops_ = GetParam().make();
  Arena arena_;
};

TEST_P(RowFunctions, added_rows_arrive_at_their_places_and_so_does_their_gradient) {
  const OwnedTensor x(DType::f32, {3, 2}, {1, 2, 3, 4, 5, 6}), more(DType::bf16, {2, 2}, {10, 20, 30, 40});
  const OwnedTensor seed(DType::f32, {3, 2}, {.5, 1, 2, 4, 8, 16});
  Tape tape(*ops_, arena_, DType::bf16, true);
  {
    const Var stream = tape.input(x, true), rows_in = tape.input(more, true);
    const Var y = index_add(tape, stream, rows_in, index_of(tape, {2, 0}));
    EXPECT_EQ(of(y.value()), (Values{31, 42, 3, 4, 15, 26}));
    EXPECT_EQ(x.values(), (Values{1, 2, 3, 4, 5, 6})) << "x stays";
    tape.seed(y, seed);
    tape.backward();
    EXPECT_EQ(of(stream.gradient()), seed.values());
    EXPECT_EQ(rows_in.gradient().dtype(), DType::bf16);
    EXPECT_EQ(of(rows_in.gradient()), (Values{8, 16, .5, 1}));
  }
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_P(RowFunctions, rows_reach_a_stream_that_needs_no_gradient) {
  const OwnedTensor x(DType::f32, {2, 1}, {1, 2}), more(DType::f32, {1, 1}, {5}), seed(DType::f32, {2, 1}, {3, 4});
  Tape tape(*ops_, arena_, DType::f32, true);
  const Var stream = tape.input(x, false), rows_in = tape.input(more, true);
  const Var y = index_add(tape, stream, rows_in, index_of(tape, {1}));
  tape.seed(y, seed);
  tape.backward();
  EXPECT_FALSE(stream.gradient().defined());
  EXPECT_EQ(of(rows_in.gradient()), (Values{4}));
}

TEST_P(RowFunctions, selected_rows_give_their_gradient_back_to_a_value_with_other_uses) {
  const OwnedTensor x(DType::f32, {3, 1}, {1, 2, 3});
  const OwnedTensor seed(DType::f32, {2, 1}, {10, 20}), other(DType::f32, {3, 1}, {.5, .5, .5});
  for (const bool used_elsewhere : {false, true}) {
    Tape tape(*ops_, arena_, DType::f32, true);
    const Var stream = tape.input(x, true);
    const Var part = index_select(tape, stream, index_of(tape, {2, 1}));
    EXPECT_EQ(of(part.value()), (Values{3, 2}));
    tape.seed(part, seed);
    if (used_elsewhere) tape.seed(stream, other);
    tape.backward();
    EXPECT_EQ(of(stream.gradient()), used_elsewhere ? (Values{.5, 20.5, 10.5}) : (Values{0, 20, 10}));
    EXPECT_EQ(other.values(), (Values{.5, .5, .5})) << "a borrowed gradient is not written";
  }
}

TEST_P(RowFunctions, a_conversion_rounds_values_and_passes_gradients_in_the_precision_of_its_input) {
  const OwnedTensor x(DType::f32, {1, 2}, {1.0, 1.001}), seed(DType::bf16, {1, 2}, {3, 4});
  Tape tape(*ops_, arena_, DType::bf16, true);
  const Var in = tape.input(x, true);
  const Var y = converted(tape, in, DType::bf16);
  EXPECT_EQ(of(y.value()), (Values{1, 1}));
  tape.seed(y, seed);
  tape.backward();
  EXPECT_EQ(in.gradient().dtype(), DType::f32);
  EXPECT_EQ(of(in.gradient()), (Values{3, 4}));
}

TEST_P(RowFunctions, kept_memory_stays_until_the_backward_pass_is_through) {
  Tape tape(*ops_, arena_, DType::f32, true);
  bool held = false;
  keep(tape, tape.scratch({16}, DType::f32));
  tape.record_root([&] { held = arena_.used_bytes() >= 64; });
  tape.backward();
  EXPECT_TRUE(held);
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(all, RowFunctions, ::testing::ValuesIn(backends()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace maestro::testing
