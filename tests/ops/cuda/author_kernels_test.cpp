// SPDX-License-Identifier: Apache-2.0
// Kernels of the operators for section authors against the CPU's operators: all storage types, rows that a warp and a
// block share, unaligned memory.
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class AuthorKernels : public KernelTest {
 protected:
  struct Pair {
    OwnedTensor host;
    Tensor device;
  };
  Pair both(DType dtype, Shape shape) {
    OwnedTensor host = random(dtype, shape);
    const Tensor device = upload(host, 1);
    return {std::move(host), device};
  }
  Pair result(DType dtype, Shape shape) { return {OwnedTensor(dtype, shape), empty(dtype, shape)}; }
  void expect_equal(const Pair& pair, const char* what) { expect_near(pair.device, pair.host.values(), what); }

  /// Calls body(rows, columns, a's dtype, b's dtype).
  template <class Body>
  static void for_all(const Body& body) {
    for (const std::int64_t rows : odd_rows) {
      for (const std::int64_t columns : {1, 7, 65, 1500}) {
        for (const DType a : both_types) {
          for (const DType b : both_types) body(rows, columns, a, b);
        }
      }
    }
  }
};

TEST_F(AuthorKernels, scales_and_curves_with_their_gradients) {
  for_all([&](std::int64_t rows, std::int64_t columns, DType from, DType to) {
    const Pair x = both(from, {rows, columns});
    const Pair dy = both(to, {rows, columns});
    const Pair scaled = result(to, {rows, columns});
    reference_.run(Scale{.x = x.host, .y = scaled.host, .factor = -2.5});
    run([&] { scale(at_, {.x = x.device, .y = scaled.device, .factor = -2.5}); });
    expect_equal(scaled, "scaled");
    for (const Curve curve : {Curve::sigmoid, Curve::tanh}) {
      const Pair y = result(to, {rows, columns});
      const Pair dx = result(from, {rows, columns});
      reference_.run(Curved{.x = x.host, .y = y.host, .curve = curve});
      reference_.run(CurvedBackward{.dy = dy.host, .y = y.host, .dx = dx.host, .curve = curve});
      const Tensor known = upload(y.host);
      run([&] {
        curved(at_, {.x = x.device, .y = y.device, .curve = curve});
        curved_backward(at_, {.dy = dy.device, .y = known, .dx = dx.device, .curve = curve});
      });
      expect_equal(y, "y");
      expect_equal(dx, "dx");
    }
  });
}

TEST_F(AuthorKernels, gates_of_memories_with_their_gradients) {
  for_all([&](std::int64_t rows, std::int64_t, DType, DType) {
    const Pair scores = both(DType::f32, {rows, 1});
    const Pair dgate = both(DType::f32, {rows, 1});
    const Pair gate = result(DType::f32, {rows, 1});
    const Pair dscores = result(DType::f32, {rows, 1});
    reference_.run(MemoryGate{.scores = scores.host, .gate = gate.host, .factor = 0.5});
    reference_.run(
        MemoryGateBackward{.dgate = dgate.host, .scores = scores.host, .dscores = dscores.host, .factor = 0.5});
    run([&] {
      memory_gate(at_, {.scores = scores.device, .gate = gate.device, .factor = 0.5});
      memory_gate_backward(at_,
                           {.dgate = dgate.device, .scores = scores.device, .dscores = dscores.device, .factor = 0.5});
    });
    expect_equal(gate, "gate");
    expect_equal(dscores, "dscores");
  });
}

TEST_F(AuthorKernels, products_by_element_by_row_and_by_column) {
  for_all([&](std::int64_t rows, std::int64_t columns, DType left, DType right) {
    const Pair a = both(left, {rows, columns});
    for (const Shape& shape : {Shape{rows, columns}, Shape{rows, 1}, Shape{1, columns}}) {
      const Pair b = both(right, shape);
      const Pair out = result(left, {rows, columns});
      reference_.run(Multiply{.a = a.host, .b = b.host, .out = out.host});
      run([&] { multiply(at_, {.a = a.device, .b = b.device, .out = out.device}); });
      expect_equal(out, "out");
    }
  });
}

TEST_F(AuthorKernels, softmaxes_and_their_gradients) {
  for_all([&](std::int64_t rows, std::int64_t columns, DType from, DType to) {
    for (const bool log : {false, true}) {
      const Pair x = both(from, {rows, columns});
      const Pair dy = both(DType::f32, {rows, columns});
      const Pair y = result(DType::f32, {rows, columns});
      const Pair dx = result(to, {rows, columns});
      reference_.run(Softmax{.x = x.host, .y = y.host, .log = log});
      reference_.run(SoftmaxBackward{.dy = dy.host, .y = y.host, .dx = dx.host, .log = log});
      const Tensor known = upload(y.host);
      run([&] {
        softmax(at_, {.x = x.device, .y = y.device, .log = log});
        softmax_backward(at_, {.dy = dy.device, .y = known, .dx = dx.device, .log = log});
      });
      expect_equal(y, "y");
      expect_near(dx.device, dx.host.values(), "dx", 1e-4);
    }
  });
}

TEST_F(AuthorKernels, dots_and_cosines_of_rows) {
  for_all([&](std::int64_t rows, std::int64_t columns, DType left, DType right) {
    const Pair a = both(left, {rows, columns});
    const Pair b = both(right, {rows, columns});
    const Pair dots = result(DType::f32, {rows, 1});
    const Pair y = result(DType::f32, {rows, 1});
    const Pair lengths = result(DType::f32, {rows, 2});
    reference_.run(RowDot{.a = a.host, .b = b.host, .y = dots.host});
    reference_.run(Cosine{.a = a.host, .b = b.host, .y = y.host, .lengths = lengths.host});
    run([&] {
      row_dot(at_, {.a = a.device, .b = b.device, .y = dots.device});
      cosine(at_, {.a = a.device, .b = b.device, .y = y.device, .lengths = lengths.device});
    });
    expect_equal(dots, "dots");
    expect_equal(y, "cosines");
    expect_equal(lengths, "lengths");
    const Pair dy = both(DType::f32, {rows, 1});
    const Pair da = result(left, {rows, columns});
    const Pair db = result(right, {rows, columns});
    reference_.run(CosineBackward{
        .dy = dy.host, .a = a.host, .b = b.host, .y = y.host, .lengths = lengths.host, .da = da.host, .db = db.host});
    const Tensor known = upload(y.host);
    const Tensor known_lengths = upload(lengths.host);
    run([&] {
      cosine_backward(at_, {.dy = dy.device,
                            .a = a.device,
                            .b = b.device,
                            .y = known,
                            .lengths = known_lengths,
                            .da = da.device,
                            .db = db.device});
    });
    expect_near(da.device, da.host.values(), "da", 1e-4);
    expect_near(db.device, db.host.values(), "db", 1e-4);
  });
}

TEST_F(AuthorKernels, copies_of_columns_leave_the_others_alone) {
  for_all([&](std::int64_t rows, std::int64_t columns, DType source, DType target) {
    for (const bool accumulate : {false, true}) {
      const Pair from = both(source, {rows, columns + 2});
      const Pair to = both(target, {rows, columns + 5});
      CopyColumns call{.from_column = 1, .to_column = 3, .columns = columns, .accumulate = accumulate};
      call.from = from.host;
      call.to = to.host;
      reference_.run(call);
      call.from = from.device;
      call.to = to.device;
      run([&] { copy_columns(at_, call); });
      expect_equal(to, "to");
    }
  });
}

TEST_F(AuthorKernels, a_sum_of_losses_counts_all_rows) {
  for (const std::int64_t rows : {0, 1, 700}) {
    const Pair values = both(DType::f32, {rows, 1});
    const LossSums wanted = reference_.run(SumLoss{.values = values.host});
    const Tensor sums = empty(DType::u8, {sizeof(LossSums)});
    run([&] {
      sum_rows(at_, {}, {.ce = values.device, .kl = {}, .teacher_ce = {}}, {}, reinterpret_cast<LossSums*>(sums.raw()),
               false);
    });
    LossSums got;
    check(cudaMemcpyAsync(&got, sums.raw(), sizeof got, cudaMemcpyDeviceToHost, stream_), "download");
    check(cudaStreamSynchronize(stream_), "download");
    EXPECT_NEAR(got.total, wanted.total, 1e-6);
    EXPECT_EQ(got.tokens, rows);
  }
}

}  // namespace
}  // namespace maestro::cuda
