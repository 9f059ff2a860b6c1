// SPDX-License-Identifier: Apache-2.0
// RMS norms of query and key columns against the CPU's, per head and over all columns, and in phases.
#include <deque>
#include <utility>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

constexpr double head_epsilon = 1e-6;

struct Case {
  AttentionShape shape;
  std::int64_t rows;
  DType act;
  bool whole;
  double offset;
};

/// A norm with its gradient, on the host and on the device.
struct Calls {
  HeadNorm norm;
  HeadNormBackward gradient;
};

class HeadNormKernels : public KernelTest {
 protected:
  template <class Body>
  void for_cases(Body body) {
    const AttentionShape shapes[] = {{3, 1, 6}, {4, 2, 16}, {2, 2, 40}, {1, 1, 256}};
    for (const AttentionShape& shape : shapes) {
      for (const std::int64_t rows : odd_rows) {
        for (const DType act : both_types) {
          for (const bool whole : {false, true}) {
            SCOPED_TRACE(std::to_string(rows) + " rows, D " + std::to_string(shape.head_size) +
                         (whole ? " whole" : ""));
            body(Case{shape, rows, act, whole, whole ? 0.0 : 1.0});
          }
        }
      }
    }
  }
  /// Makes the calls on the host; their tensors live as long as the fixture.
  Calls on_host(const Case& c) {
    const Shape qkv{c.rows, c.shape.qkv_columns()};
    const Shape groups{c.rows, c.whole ? 2 : c.shape.heads + c.shape.kv_heads};
    const Shape query{(c.whole ? c.shape.heads : 1) * c.shape.head_size};
    const Shape key{(c.whole ? c.shape.kv_heads : 1) * c.shape.head_size};
    Calls calls;
    calls.norm = {.x = keep(random(c.act, qkv)),
                  .shape = c.shape,
                  .query_weight = keep(random(DType::f32, query)),
                  .key_weight = keep(random(DType::f32, key)),
                  .epsilon = head_epsilon,
                  .offset = c.offset,
                  .whole = c.whole,
                  .sums = keep(OwnedTensor(DType::f32, groups)),
                  .y = keep(OwnedTensor(c.act, qkv))};
    calls.gradient = {.dy = keep(random(c.act, qkv)),
                      .x = calls.norm.x,
                      .shape = c.shape,
                      .query_weight = calls.norm.query_weight,
                      .key_weight = calls.norm.key_weight,
                      .epsilon = head_epsilon,
                      .offset = c.offset,
                      .whole = c.whole,
                      .sums = calls.norm.sums,
                      .dots = keep(OwnedTensor(DType::f32, groups)),
                      .dx = keep(OwnedTensor(c.act, qkv)),
                      .dquery_weight = keep(random(DType::f32, query)),
                      .dkey_weight = keep(random(DType::f32, key))};
    return calls;
  }
  Calls on_device(Calls calls) {
    HeadNorm& norm = calls.norm;
    HeadNormBackward& gradient = calls.gradient;
    for (Tensor* tensor : {&norm.x, &norm.query_weight, &norm.key_weight, &norm.sums, &norm.y})
      *tensor = upload(*tensor);
    for (Tensor* tensor :
         {&gradient.dy, &gradient.dots, &gradient.dx, &gradient.dquery_weight, &gradient.dkey_weight}) {
      *tensor = upload(*tensor);
    }
    gradient.x = norm.x;
    gradient.query_weight = norm.query_weight;
    gradient.key_weight = norm.key_weight;
    gradient.sums = norm.sums;
    return calls;
  }
  void expect_equal_results(const Calls& device, const Calls& host) {
    expect_near(device.norm.sums, values_of(host.norm.sums), "sums");
    expect_near(device.norm.y, values_of(host.norm.y), "y");
    expect_near(device.gradient.dots, values_of(host.gradient.dots), "dots");
    expect_near(device.gradient.dx, values_of(host.gradient.dx), "dx", 2e-5);
    expect_near(device.gradient.dquery_weight, values_of(host.gradient.dquery_weight), "dquery_weight");
    expect_near(device.gradient.dkey_weight, values_of(host.gradient.dkey_weight), "dkey_weight");
  }
  Tensor keep(OwnedTensor tensor) { return kept_.emplace_back(std::move(tensor)); }
  [[nodiscard]] static Values values_of(const Tensor& tensor) {
    Values values;
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      values.push_back(tensor.dtype() == DType::f32 ? tensor.data<float>()[i]
                                                    : static_cast<float>(tensor.data<bfloat16>()[i]));
    }
    return values;
  }

 private:
  std::deque<OwnedTensor> kept_;
};

TEST_F(HeadNormKernels, values_and_gradients_over_heads_and_over_all_columns) {
  for_cases([&](const Case& c) {
    const Calls host = on_host(c);
    const Calls device = on_device(host);
    reference_.run(host.norm);
    reference_.run(host.gradient);
    run([&] {
      head_norm(at_, device.norm);
      head_norm_backward(at_, device.gradient);
    });
    expect_equal_results(device, host);
  });
}

TEST_F(HeadNormKernels, phases_divide_by_the_columns_of_all_ranks) {
  for_cases([&](const Case& c) {
    if (!c.whole) return;
    Calls host = on_host(c);
    Calls device = on_device(host);
    for (Calls* calls : {&host, &device}) calls->norm.ranks = calls->gradient.ranks = 2;
    const auto phases = [](const Calls& calls, const auto& norm, const auto& gradient) {
      for (const HeadNormPhase phase : {HeadNormPhase::sums, HeadNormPhase::values}) {
        HeadNorm call = calls.norm;
        call.phase = phase;
        if (phase == HeadNormPhase::sums) call.y = {};
        norm(call);
      }
      for (const HeadNormPhase phase : {HeadNormPhase::sums, HeadNormPhase::values}) {
        HeadNormBackward call = calls.gradient;
        call.phase = phase;
        if (phase == HeadNormPhase::sums) call.dx = {};
        gradient(call);
      }
    };
    phases(
        host, [&](const HeadNorm& call) { reference_.run(call); },
        [&](const HeadNormBackward& call) { reference_.run(call); });
    run([&] {
      phases(
          device, [&](const HeadNorm& call) { head_norm(at_, call); },
          [&](const HeadNormBackward& call) { head_norm_backward(at_, call); });
    });
    expect_equal_results(device, host);
  });
}

TEST_F(HeadNormKernels, the_gradient_may_lie_in_the_memory_of_dy_and_weights_may_be_frozen) {
  const Calls host = on_host({{4, 2, 16}, 33, DType::bf16, false, 0});
  Calls device = on_device(host);
  reference_.run(host.norm);
  reference_.run(host.gradient);
  device.gradient.dx = device.gradient.dy;
  device.gradient.dkey_weight = {};
  run([&] {
    head_norm(at_, device.norm);
    head_norm_backward(at_, device.gradient);
  });
  expect_near(device.gradient.dx, values_of(host.gradient.dx), "dx", 2e-5);
  expect_near(device.gradient.dquery_weight, values_of(host.gradient.dquery_weight), "dquery_weight");
}

}  // namespace
}  // namespace maestro::cuda
