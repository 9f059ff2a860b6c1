// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/tape.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/functions.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro {
namespace {

using testing::OwnedTensor;
using testing::Values;

class TapeTest : public ::testing::Test {
 protected:
  Values of(const Tensor& tensor) const {
    OwnedTensor copy(tensor.dtype(), tensor.shape());
    std::memcpy(copy.tensor().raw(), tensor.raw(), tensor.bytes());
    return copy.values();
  }
  OwnedTensor random(Shape shape, DType dtype = DType::f32) {
    return {dtype, shape, testing::exact_normals(generator_, shape.elements())};
  }
  std::mt19937 generator_{17};
  cpu::CpuOperatorTable ops_;
  Arena arena_;
  const Shape shape_{4, 16};  // 256 bytes of f32: a multiple of a cache line
  const std::size_t bytes_ = 4 * 16 * 4;
};

TEST_F(TapeTest, a_forward_only_value_goes_with_its_last_handle) {  // TP-1
  Tape tape(ops_, arena_, DType::f32, false);
  const OwnedTensor in = random(shape_);
  const Var x = tape.input(in, true);
  Var y = gelu(tape, x);
  Var z = gelu(tape, y);
  EXPECT_EQ(arena_.used_bytes(), 2 * bytes_);
  Var other = y;
  y = Var();
  EXPECT_EQ(arena_.used_bytes(), 2 * bytes_);
  other = Var();
  EXPECT_EQ(arena_.used_bytes(), bytes_);
  z = Var();
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_F(TapeTest, a_forgotten_value_returns_its_memory_and_is_remembered_for_the_backward_pass) {
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_), ones(DType::f32, shape_, Values(64, 1));
  const Var x = tape.input(in, true);
  const Var twice = tape.input(in, true);
  Var middle = gelu(tape, x), wanted_middle = gelu(tape, twice);
  const Var y = gelu(tape, middle), wanted = gelu(tape, wanted_middle);
  const Values kept = of(middle.value());
  const std::size_t before = arena_.used_bytes();
  tape.forget(middle);
  EXPECT_EQ(middle.value().shape(), shape_);
  EXPECT_EQ(arena_.used_bytes(), before - bytes_);
  tape.record(y, [&tape, &kept, middle] {
    const Block again = tape.scratch(middle.value().shape(), DType::f32);
    std::ranges::copy(kept, again.tensor().data<float>());
    tape.remember(middle, again);
  });
  middle = wanted_middle = Var();
  tape.seed(y, ones);
  tape.seed(wanted, ones);
  tape.backward();
  EXPECT_EQ(of(x.gradient()), of(twice.gradient()));
}

TEST_F(TapeTest, values_without_rows_keep_their_shape_and_their_backward_steps_run) {
  Tape tape(ops_, arena_, DType::f32, true);
  const Var x = tape.input(Tensor(nullptr, DType::f32, {0, 16}), true);
  const Var y = gelu(tape, x);
  EXPECT_EQ(y.value().shape(), (Shape{0, 16}));
  bool ran = false;
  const Var z = tape.output({0, 16}, DType::f32, true);
  tape.record(z, [&] {
    ran = true;
    tape.add_gradient(y, tape.gradient_block(z));
  });
  tape.seed(z, Tensor(nullptr, DType::f32, {0, 16}));
  tape.backward();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(x.gradient().defined());
  EXPECT_EQ(x.gradient().shape(), (Shape{0, 16}));
}

TEST_F(TapeTest, a_recorded_value_lives_until_its_closure_has_run) {  // TP-1, TP-3
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  const OwnedTensor seed = random(shape_);
  Var x = tape.input(in, true);
  {
    const Var y = gelu(tape, gelu(tape, x));
    tape.seed(y, seed);
  }
  EXPECT_GE(arena_.used_bytes(), 2 * bytes_);
  tape.backward();
  EXPECT_EQ(arena_.used_bytes(), bytes_) << "only the gradient of x, which is still held";
  x = Var();
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_F(TapeTest, clear_drops_everything_without_running_it) {  // TP-3
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  Var x = tape.input(in, true);
  bool ran = false;
  {
    const Var y = gelu(tape, x);
    tape.record_root([&ran] { ran = true; });
  }
  tape.clear();
  EXPECT_FALSE(ran);
  EXPECT_EQ(arena_.used_bytes(), 0U);
  tape.backward();
  EXPECT_FALSE(ran);
}

TEST_F(TapeTest, a_closure_that_throws_keeps_nothing_alive) {  // TP-3
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  {
    const Var y = gelu(tape, tape.input(in, true));
    tape.record_root([held = y] { throw std::runtime_error("the run has ended"); });
  }
  EXPECT_THROW(tape.backward(), std::runtime_error);
  tape.clear();
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_F(TapeTest, a_tape_that_is_destroyed_returns_its_memory) {  // TP-3
  const OwnedTensor in = random(shape_);
  {
    Tape tape(ops_, arena_, DType::f32, true);
    (void)gelu(tape, tape.input(in, true));
    EXPECT_GT(arena_.used_bytes(), 0U);
  }
  EXPECT_EQ(arena_.used_bytes(), 0U);
}

TEST_F(TapeTest, gradients_of_a_residual_fan_out_add_up_and_the_seed_stays_whole) {  // TP-2
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in_a = random(shape_);
  const OwnedTensor in_b = random(shape_);
  const OwnedTensor seed = random(shape_);
  const Values before = seed.values();
  const Var a = tape.input(in_a, true);
  const Var b = tape.input(in_b, true);
  const Var sum = add(tape, a, b);
  const Var total = add(tape, sum, a);  // total = 2 a + b; sum, b, and at first a share one gradient block
  tape.seed(total, seed);
  tape.backward();
  Values doubled = before;
  for (double& value : doubled) value *= 2;
  EXPECT_EQ(of(a.gradient()), doubled);
  EXPECT_EQ(of(b.gradient()), before);
  EXPECT_EQ(of(sum.gradient()), before);
  EXPECT_EQ(seed.values(), before);
}

TEST_F(TapeTest, an_operator_that_works_in_place_copies_a_shared_gradient_first) {  // TP-2
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  const OwnedTensor seed = random(shape_);
  const Values before = seed.values();
  const Var x = tape.input(in, true);
  const Var branch = gelu(tape, x);  // its backward pass overwrites its incoming gradient
  const Var sum = add(tape, x, branch);
  tape.seed(sum, seed);
  tape.backward();
  const OwnedTensor dbranch(DType::f32, shape_);
  ops_.run(GeluBackward{.dy = seed, .x = in, .dx = dbranch});
  for (std::int64_t i = 0; i < shape_.elements(); ++i) {
    ASSERT_EQ(x.gradient().data<float>()[i], seed.get(i) + dbranch.get(i));
  }
  EXPECT_EQ(seed.values(), before);
  EXPECT_EQ(of(sum.gradient()), before);
}

TEST_F(TapeTest, a_second_pass_of_the_same_shapes_maps_nothing_and_peaks_no_higher) {  // TP-4
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  const OwnedTensor seed = random(shape_);
  std::size_t mapped = 0;
  std::size_t peak = 0;
  for (int pass = 0; pass < 3; ++pass) {
    {
      const Var x = tape.input(in, true);
      const Var y = add(tape, x, gelu(tape, gelu(tape, x)));
      tape.seed(y, seed);
    }
    tape.backward();
    EXPECT_EQ(arena_.used_bytes(), 0U);
    if (pass == 0) {
      mapped = arena_.mapped_bytes();
      peak = arena_.peak_bytes();
    }
    EXPECT_EQ(arena_.mapped_bytes(), mapped);
    EXPECT_EQ(arena_.peak_bytes(), peak);
  }
}

TEST_F(TapeTest, a_branch_that_nothing_flowed_back_into_is_skipped_and_roots_always_run) {
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in = random(shape_);
  const Var x = tape.input(in, true);
  const Var unused = gelu(tape, x);
  int runs = 0;
  tape.record(unused, [&runs] { ++runs; });
  tape.record_root([&runs] { runs += 10; });
  tape.backward();
  EXPECT_EQ(runs, 10);
  EXPECT_FALSE(x.gradient().defined());
}

TEST_F(TapeTest, closures_run_in_reverse_order) {
  Tape tape(ops_, arena_, DType::f32, true);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) tape.record_root([&order, i] { order.push_back(i); });
  tape.backward();
  EXPECT_EQ(order, (std::vector<int>{2, 1, 0}));
}

TEST_F(TapeTest, an_input_without_gradient_gets_none) {
  Tape tape(ops_, arena_, DType::f32, true);
  const OwnedTensor in_a = random(shape_);
  const OwnedTensor in_b = random(shape_);
  const OwnedTensor seed = random(shape_);
  const Var a = tape.input(in_a, true);
  const Var b = tape.input(in_b, false);
  const Var sum = add(tape, a, b);
  tape.seed(sum, seed);
  tape.backward();
  EXPECT_TRUE(a.gradient().defined());
  EXPECT_FALSE(b.gradient().defined());
  EXPECT_FALSE(gelu(tape, b).needs_gradient());
}

TEST_F(TapeTest, a_gradient_takes_the_precision_of_its_value) {
  Tape tape(ops_, arena_, DType::bf16, true);
  const OwnedTensor stream = random(shape_);
  const OwnedTensor narrow = random(shape_, DType::bf16);
  const OwnedTensor seed = random(shape_);  // values that bf16 holds
  const Var residual = tape.input(stream, true);
  const Var branch = tape.input(narrow, true);
  tape.seed(add(tape, residual, branch), seed);
  tape.backward();
  EXPECT_EQ(residual.gradient().dtype(), DType::f32);
  ASSERT_EQ(branch.gradient().dtype(), DType::bf16);
  EXPECT_EQ(of(branch.gradient()), seed.values());
}

TEST_F(TapeTest, the_gradient_of_a_normed_sum_reaches_its_addends_once) {
  Parameters parameters;
  Parameter& weight =
      parameters.add({"weight", {16}, false, [](std::span<float> values) { std::ranges::fill(values, 1.5F); }});
  parameters.allocate(true);
  const OwnedTensor stream = random(shape_), of_sum = random(shape_);
  const OwnedTensor narrow = random(shape_, DType::bf16), of_normed = random(shape_, DType::bf16);
  const auto gradients = [&](bool of_both) {
    Tape tape(ops_, arena_, DType::bf16, true);
    const Var residual = tape.input(stream, true);
    const Var branch = tape.input(narrow, true);
    const NormedSum made = add_rms_norm(tape, residual, branch, weight, 1e-5);
    tape.seed(made.sum, of_sum);
    if (of_both) tape.seed(made.normed, of_normed);
    tape.backward();
    EXPECT_EQ(branch.gradient().dtype(), DType::bf16);
    const OwnedTensor rounded(DType::bf16, shape_);
    ops_.run(Cast{.from = residual.gradient(), .to = rounded});
    EXPECT_EQ(of(branch.gradient()), rounded.values());
    return of(residual.gradient());
  };
  EXPECT_EQ(gradients(false), of_sum.values()) << "the norm is not used";
  EXPECT_NE(gradients(true), of_sum.values());
}

}  // namespace
}  // namespace maestro
