// SPDX-License-Identifier: Apache-2.0
// Pointwise kernels against the CPU's operators: all storage types, sizes that are not multiples, unaligned memory.
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class PointwiseKernels : public KernelTest {};

constexpr std::int64_t counts[] = {0, 1, 7, 8, 64, 1023, 8192, 10001};
constexpr std::int64_t offsets[] = {0, 1};

TEST_F(PointwiseKernels, cast_between_all_storage_types) {
  for (const std::int64_t count : counts) {
    for (const DType from : both_types) {
      for (const DType to : both_types) {
        const OwnedTensor x = random(from, {count});
        const OwnedTensor wanted(to, {count});
        reference_.run(Cast{.from = x, .to = wanted});
        for (const std::int64_t offset : offsets) {
          const Tensor device_x = upload(x, offset);
          const Tensor y = empty(to, {count}, offset);
          run([&] { cast(at_, device_x, y); });
          EXPECT_EQ(download(y), wanted.values()) << count;
        }
      }
    }
  }
}

TEST_F(PointwiseKernels, add_of_any_mix_also_in_place) {
  for (const std::int64_t count : counts) {
    for (const DType left : both_types) {
      for (const DType right : both_types) {
        const OwnedTensor a = random(left, {count});
        const OwnedTensor b = random(right, {count});
        const OwnedTensor wanted(left, {count});
        reference_.run(Add{.a = a, .b = b, .out = wanted});
        const Tensor device_a = upload(a);
        const Tensor device_b = upload(b);
        run([&] { add(at_, device_a, device_b, device_a); });
        EXPECT_EQ(download(device_a), wanted.values()) << count;
      }
    }
  }
}

TEST_F(PointwiseKernels, gelus_and_their_gradients) {
  const auto compare = [&](std::int64_t count, DType act, GeluKind kind) {
    const OwnedTensor x = random(act, {count}, 3);
    const OwnedTensor dy = random(act, {count});
    const OwnedTensor y(act, {count});
    const OwnedTensor dx(act, {count});
    reference_.run(Gelu{.x = x, .y = y, .kind = kind});
    reference_.run(GeluBackward{.dy = dy, .x = x, .dx = dx, .kind = kind});
    const Tensor device_x = upload(x);
    const Tensor device_y = empty(act, {count});
    const Tensor gradient = upload(dy);  // in place
    run([&] {
      gelu(at_, {.x = device_x, .y = device_y, .kind = kind});
      gelu_backward(at_, {.dy = gradient, .x = device_x, .dx = gradient, .kind = kind});
    });
    expect_near(device_y, y.values(), "y");
    expect_near(gradient, dx.values(), "dx");
  };
  for (const std::int64_t count : counts) {
    for (const DType act : both_types) {
      for (const GeluKind kind : {GeluKind::tanh, GeluKind::erf, GeluKind::quick}) compare(count, act, kind);
    }
  }
}

TEST_F(PointwiseKernels, gated_units_and_their_gradients) {
  const auto compare = [&](std::int64_t rows, std::int64_t columns, DType act, GluGate gate) {
    const OwnedTensor x = random(act, {rows, 2 * columns}, 3);
    const OwnedTensor dy = random(act, {rows, columns});
    const OwnedTensor y(act, {rows, columns});
    const OwnedTensor dx(act, {rows, 2 * columns});
    reference_.run(Glu{.x = x, .y = y, .gate = gate});
    reference_.run(GluBackward{.dy = dy, .x = x, .dx = dx, .gate = gate});
    const Glu call{.x = upload(x), .y = empty(act, {rows, columns}), .gate = gate};
    const GluBackward gradient{.dy = upload(dy), .x = call.x, .dx = empty(act, {rows, 2 * columns}), .gate = gate};
    run([&] {
      glu(at_, call);
      glu_backward(at_, gradient);
    });
    expect_near(call.y, y.values(), "y");
    expect_near(gradient.dx, dx.values(), "dx");
  };
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t columns : odd_columns) {
      for (const DType act : both_types) {
        for (const GluGate gate : {GluGate::silu, GluGate::gelu, GluGate::clamped(2, 1.702)}) {
          compare(rows, columns, act, gate);
        }
      }
    }
  }
}

TEST_F(PointwiseKernels, soft_caps_bend_large_values_and_keep_small_ones) {
  for (const std::int64_t count : counts) {
    for (const DType act : both_types) {
      for (const double deviation : {1e-3, 30.0}) {
        const OwnedTensor x = random(act, {count}, deviation);
        const Tensor device_x = upload(x);
        const Values before = x.values();
        reference_.run(Softcap{.x = x, .cap = 20});
        run([&] { softcap(at_, {device_x, 20}); });
        expect_near(device_x, x.values(), "x");
        for (std::size_t i = 0; i < before.size(); ++i) {
          ASSERT_NEAR(x.values()[i], 20 * std::tanh(before[i] / 20), act == DType::f32 ? 1e-5 : 0.1);
        }
      }
    }
  }
}

TEST_F(PointwiseKernels, zero_clears_all_and_nothing_past_it) {
  const Tensor whole = upload(random(DType::bf16, {9}));
  run([&] { zero(at_, whole.row_slice(0, 1).reshaped({9})); });
  EXPECT_EQ(download(whole), Values(9, 0.0));
  const Tensor part = upload(random(DType::f32, {8}));
  const Values before = download(part);
  run([&] { zero(at_, Tensor(part.raw(), DType::f32, {5})); });
  EXPECT_EQ(download(part)[4], 0.0);
  EXPECT_EQ(download(part)[5], before[5]);
}

}  // namespace
}  // namespace maestro::cuda
