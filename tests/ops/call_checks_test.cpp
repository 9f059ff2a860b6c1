// SPDX-License-Identifier: Apache-2.0
// Shapes and dtypes that do not fit are refused in every build, before anything is computed.
#include "runtime/ops/call_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <functional>
#include <numeric>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/parallel_functions.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro {
namespace {

using testing::OwnedTensor;

class CallChecks : public ::testing::Test {
 protected:
  CallChecks() {
    parameters_.allocate(true);
    std::iota(positions_.begin(), positions_.end(), 0);
  }
  Parameter& parameter(Shape shape) {
    return parameters_.add({"w", shape, false, [](std::span<float> values) { std::ranges::fill(values, 0.5F); }});
  }
  [[nodiscard]] Var value(Shape shape, DType dtype = DType::f32) {
    return tape_.input(values_.emplace_back(dtype, shape).tensor(), true);
  }
  [[nodiscard]] Block index(std::int64_t count) {
    return tape_.indices(std::vector<std::int32_t>(static_cast<std::size_t>(count), 0));
  }
  /// Returns the message of the ShapeError that the call throws.
  [[nodiscard]] std::string refusal(const std::function<void()>& call) const {
    const std::size_t used = arena_.used_bytes();
    try {
      call();
    } catch (const ShapeError& problem) {
      EXPECT_EQ(arena_.used_bytes(), used) << "nothing is made before the check";
      return problem.what();
    }
    return "accepted";
  }

  cpu::CpuOperatorTable ops_;
  Arena arena_;
  std::deque<OwnedTensor> values_;
  Parameters parameters_;
  Parameter& weight_ = parameter({64, 32});
  Parameter& bias_ = parameter({64});
  Parameter& narrow_ = parameter({32});
  Parameter& table_ = parameter({10, 32});
  Parameter& other_table_ = parameter({10, 16});
  Tape tape_{ops_, arena_, DType::f32, true};
  std::array<std::int32_t, 3> offsets_{0, 3, 8};
  std::array<std::int32_t, 8> positions_{};
  SequenceLayout layout_{offsets_, positions_};
};

TEST_F(CallChecks, a_product_takes_columns_and_dtype_of_its_weight) {
  EXPECT_EQ(refusal([&] {
              linear(tape_, value({8, 256}), weight_, &bias_);
            }),
            "linear: x is fp32 (8, 256), the weight is 'w' (64, 32); x must have as many columns as the weight");
  EXPECT_EQ(
      refusal([&] {
        linear(tape_, value({8, 32}), weight_, &narrow_);
      }),
      "linear: the weight is 'w' (64, 32), the bias is 'w' (32); the bias must have an element for each row of the "
      "weight");
  EXPECT_EQ(refusal([&] {
              linear(tape_, value({8, 32}, DType::bf16), weight_, nullptr);
            }),
            "linear: x is bf16 (8, 32), the weight is 'w' (64, 32); products of this section take fp32");
  EXPECT_EQ(refusal([&] { linear(tape_, value({8, 32}), weight_, &bias_); }), "accepted");
}

TEST_F(CallChecks, a_network_checks_both_of_its_products) {
  const Affine in{&weight_, &bias_};
  EXPECT_THAT(refusal([&] {
                gelu_network(tape_, value({8, 16}), in, in);
              }),
              ::testing::StartsWith("gelu_network: x is"));
  try {
    gelu_network(tape_, value({8, 32}), in, in);
    FAIL() << "64 columns into a weight of 32";
  } catch (const ShapeError& problem) {
    EXPECT_THAT(problem.what(), ::testing::HasSubstr("fp32 (8, 64)"));
  }
}

TEST_F(CallChecks, norms_take_a_weight_for_each_column) {
  const Var x = value({8, 16});
  EXPECT_EQ(
      refusal([&] { rms_norm(tape_, x, narrow_, 1e-5); }),
      "rms_norm: x is fp32 (8, 16), the weight is 'w' (32); weight and bias must have an element for each column of "
      "x");
  EXPECT_THAT(refusal([&] {
                layer_norm(tape_, value({8, 32}), narrow_, bias_, 1e-5);
              }),
              ::testing::HasSubstr("the bias is 'w' (64)"));
  EXPECT_THAT(refusal([&] {
                rms_norm(tape_, value({8, 32}, DType::i32), narrow_, 1e-5);
              }),
              ::testing::HasSubstr("a norm takes fp32"));
}

TEST_F(CallChecks, sums_take_equal_shapes) {
  EXPECT_EQ(refusal([&] {
              add(tape_, value({8, 32}), value({8, 16}));
            }),
            "add: residual is fp32 (8, 32), branch is fp32 (8, 16); both must have the same shape");
  EXPECT_THAT(refusal([&] {
                add(tape_, value({8, 32}), value({16, 16}));
              }),
              ::testing::HasSubstr("the same shape"))
      << "as many elements";
  EXPECT_THAT(refusal([&] {
                add_rms_norm(tape_, value({8, 32}), value({4, 32}), narrow_, 1e-5);
              }),
              ::testing::StartsWith("add: "));
}

TEST_F(CallChecks, rows_are_as_many_as_their_index) {
  const Var x = value({8, 32});
  const Block three = index(3);
  EXPECT_THAT(refusal([&] {
                index_add(tape_, x, value({4, 32}), three);
              }),
              ::testing::HasSubstr("for each of the rows"));
  EXPECT_THAT(refusal([&] { index_add(tape_, x, value({3, 16}), three); }), ::testing::HasSubstr("as many columns"));
}

TEST_F(CallChecks, ids_are_integers_with_a_position_each) {
  EXPECT_THAT(refusal([&] { embedding(tape_, table_, value({8}).value(), nullptr, layout_); }),
              ::testing::HasSubstr("ids are i32"));
  const Tensor ids = value({9}, DType::i32).value();
  EXPECT_THAT(refusal([&] { embedding(tape_, table_, ids, &table_, layout_); }),
              ::testing::HasSubstr("a position for each id"));
  EXPECT_THAT(refusal([&] { embedding(tape_, table_, ids, &other_table_, layout_); }),
              ::testing::HasSubstr("as many columns"));
}

TEST_F(CallChecks, attention_takes_the_layouts_rows_and_the_heads_columns) {
  const AttentionOptions options{.shape = {.heads = 4, .kv_heads = 2, .head_size = 8}, .rotary = nullptr};
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 32}), options, layout_);
              }),
              ::testing::HasSubstr("(heads + 2 kv_heads) head_size columns"));
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({7, 64}), options, layout_);
              }),
              ::testing::HasSubstr("the number of rows is 8"));
  const std::vector<std::int32_t> ends(7, 8);
  SequenceLayout ended = layout_;
  ended.ends = ends;
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 64}), options, ended);
              }),
              ::testing::HasSubstr("the number of ends is 7"));
  AttentionOptions odd = options;
  odd.shape.kv_heads = 3;
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 80}), odd, layout_);
              }),
              ::testing::HasSubstr("kv_heads must divide heads"));
  EXPECT_EQ(refusal([&] { attention(tape_, value({8, 64}), options, layout_); }), "accepted");
  AttentionOptions sunk = options;
  sunk.sinks = &narrow_;
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 64}), sunk, layout_);
              }),
              ::testing::EndsWith("there must be a sink for each head"));
  AttentionOptions turned = options;
  turned.rotary = std::make_shared<const RotaryFrequencies>(RotaryFrequencies{{1, 0.5}, 1, {0, 2}});
  SequenceLayout two_axes = layout_;
  two_axes.axes = 2;
  EXPECT_EQ(refusal([&] { attention(tape_, value({8, 64}), turned, layout_); }), "accepted");
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 64}), turned, two_axes);
              }),
              ::testing::HasSubstr("a position for each row and axis"));
  const std::array<std::int32_t, 16> places{};
  two_axes.positions = places;
  EXPECT_THAT(refusal([&] {
                attention(tape_, value({8, 64}), turned, two_axes);
              }),
              ::testing::HasSubstr("each rotated pair needs an axis in the layout"));
  EXPECT_THAT(refusal([&] {
                head_norm(tape_, value({8, 64}), {&narrow_, &narrow_}, options.shape, nullptr);
              }),
              ::testing::StartsWith("head_norm: "));
}

TEST_F(CallChecks, convolutions_take_the_layouts_rows_and_a_filter_for_each_channel) {
  const auto refused = [&](Shape x, const ConvolutionShape& shape, Parameter* bias = nullptr) {
    return refusal([&, in = value(x)] { (void)causal_conv(tape_, in, {&weight_, bias}, shape, layout_); });
  };
  EXPECT_EQ(refused({8, 64}, {.width = 32}, &bias_), "accepted");
  EXPECT_EQ(refused({8, 192}, {.width = 32, .gated = true}), "accepted");
  EXPECT_EQ(refused({8, 64}, {.width = 32, .gated = true}),
            "causal_conv: x is fp32 (8, 64), the weight is 'w' (64, 32), width is 32, dilation is 1; x must have the "
            "columns of the weight's rows, gated three times, and the weight `width` columns");
  EXPECT_THAT(refused({8, 63}, {.width = 32}), ::testing::HasSubstr("x is fp32 (8, 63)"));
  EXPECT_THAT(refused({8, 64}, {.width = 3}), ::testing::HasSubstr("width is 3"));
  EXPECT_THAT(refused({8, 64}, {.width = 32, .dilation = 0}), ::testing::HasSubstr("dilation is 0"));
  EXPECT_THAT(refused({8, 64}, {.width = 32}, &narrow_),
              ::testing::HasSubstr("the bias must have an element for each row"));
  EXPECT_EQ(refused({7, 64}, {.width = 32}),
            "causal_conv: x is fp32 (7, 64), the number of rows is 8; x must have the layout's rows");
  EXPECT_THROW((void)cached_conv(tape_, value({1, 64}), {&weight_}, {.width = 32}, {}), std::logic_error);
  Tape tape(ops_, arena_, DType::f32, false);
  const auto with = [&](const LayerCache& cache) {
    return refusal([&, x = value({2, 64})] { (void)cached_conv(tape, x, {&weight_}, {.width = 32}, cache); });
  };
  const std::vector<CachedSequence> one(1);
  const OwnedTensor tail(DType::f32, {31, 64}), narrow(DType::f32, {31, 60}), rounded(DType::bf16, {31, 64});
  EXPECT_EQ(with({.tail = tail}), "accepted");
  EXPECT_THAT(with({.tail = narrow}), ::testing::HasSubstr("tail is fp32 (31, 60), reach is 31; the tail must have"));
  EXPECT_THAT(with({.tail = rounded}), ::testing::HasSubstr("tail is bf16"));
  EXPECT_THAT(with({.tail = tail.tensor().row_slice(0, 30)}), ::testing::HasSubstr("tail is fp32 (30, 64)"));
  EXPECT_THAT(with({.sequences = one, .tail = tail}), ::testing::HasSubstr("each new row must have a sequence"));
}

TEST_F(CallChecks, gates_take_an_even_number_of_columns) {
  EXPECT_THAT(refusal([&] { glu(tape_, value({8, 33}), GluGate::silu); }), ::testing::HasSubstr("must be even"));
  EXPECT_THAT(refusal([&] { gelu(tape_, value({8, 32}, DType::i32)); }), ::testing::HasSubstr("fp32 or bf16"));
}

TEST_F(CallChecks, losses_take_a_target_for_each_row) {
  const Tensor targets = value({8}, DType::i32).value();
  EXPECT_THAT(refusal([&] {
                (void)cross_entropy_loss(tape_, value({8, 256}), table_, {&targets, 1});
              }),
              ::testing::StartsWith("cross_entropy_loss: x is fp32 (8, 256)"));
  EXPECT_THAT(refusal([&] {
                (void)cross_entropy_loss(tape_, value({4, 32}), table_, {&targets, 1});
              }),
              ::testing::HasSubstr("a target for each row"));
  const Tensor wrong = value({8}).value();
  EXPECT_THAT(refusal([&] {
                (void)cross_entropy_loss(tape_, value({8, 32}), table_, {&wrong, 1});
              }),
              ::testing::HasSubstr("i32"));
}

TEST_F(CallChecks, the_teacher_has_the_students_rows_and_its_own_vocabulary) {
  const Tensor targets = value({8}, DType::i32).value();
  const Var hidden = value({8, 32});
  const auto loss = [&](const TeacherSignal& teacher, std::int64_t shared) {
    return refusal([&] {
      (void)distillation_loss(tape_, hidden, table_, teacher, {.shared_vocabulary = shared}, {&targets, 1});
    });
  };
  TeacherSignal teacher;
  teacher.boundary = TeacherOutput::logits;
  teacher.logits = value({8, 12}).value();
  teacher.vocabulary = 12;
  EXPECT_EQ(loss(teacher, 10), "accepted");
  EXPECT_THAT(loss(teacher, 11), ::testing::HasSubstr("the student's vocabulary is 10"));
  teacher.vocabulary = 9;
  EXPECT_THAT(loss(teacher, 10), ::testing::HasSubstr("the teacher's vocabulary is 9"));
  teacher.logits = value({4, 9}).value();
  EXPECT_THAT(loss(teacher, 9), ::testing::HasSubstr("as many rows"));
  teacher.boundary = TeacherOutput::top_k;
  teacher.values = value({8, 3}).value();
  teacher.indices = value({8, 3}).value();
  EXPECT_THAT(loss(teacher, 9), ::testing::HasSubstr("its indices i32"));
}

TEST_F(CallChecks, a_policy_gradient_takes_log_probabilities_for_each_row) {
  const Tensor targets = value({8}, DType::i32).value();
  const Var hidden = value({8, 32});
  TeacherSignal teacher;
  teacher.boundary = TeacherOutput::sampled;
  teacher.vocabulary = 10;
  DistillationTerms terms{.divergence = Divergence::policy_gradient, .shared_vocabulary = 10};
  HeadLoss loss{&targets, 1};
  const auto verdict = [&] {
    return refusal([&] { (void)distillation_loss(tape_, hidden, table_, teacher, terms, loss); });
  };
  teacher.sampled = value({4, 1}).value();
  EXPECT_THAT(verdict(), ::testing::HasSubstr("the teacher's sampled must have an element for each row"));
  teacher.sampled = value({8, 1}).value();
  EXPECT_EQ(verdict(), "accepted");
  terms.ratio_cap = 2;
  EXPECT_THAT(verdict(), ::testing::HasSubstr("sampled must have an element for each row if there is a ratio"));
  loss.sampled = value({8, 1}).value();
  EXPECT_EQ(verdict(), "accepted");
}

TEST_F(CallChecks, a_gradient_has_the_shape_of_its_value) {
  const Var x = value({8, 32});
  const Block gradient = tape_.scratch({8, 16}, DType::f32);
  EXPECT_EQ(
      refusal([&] { tape_.add_gradient(x, gradient); }),
      "add_gradient: the value is fp32 (8, 32), the gradient is fp32 (8, 16); a gradient must have the shape of its "
      "value, in fp32 or bf16");
}

TEST_F(CallChecks, views_stay_within_their_tensor) {
  const Tensor x = value({8, 32}).value();
  EXPECT_EQ(refusal([&] {
              (void)x.reshaped({4, 32});
            }),
            "reshaped: a tensor (8, 32) of 256 elements cannot have the shape (4, 32) of 128");
  EXPECT_EQ(refusal([&] { (void)x.row_slice(6, 3); }), "row_slice: [6, 9) is outside of the 8 of a tensor (8, 32)");
  EXPECT_THAT(refusal([&] { (void)x.flat_slice(-1, 3); }), ::testing::StartsWith("flat_slice: [-1, 2)"));
  EXPECT_EQ(refusal([&] { (void)x.data<std::int32_t>(); }), "data: a tensor (8, 32) of fp32 is read as i32");
  EXPECT_EQ(x.reshaped({16, 16}).row_slice(15, 1).columns(), 16);
}

}  // namespace
}  // namespace maestro
