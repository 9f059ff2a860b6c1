// SPDX-License-Identifier: Apache-2.0
// The gated delta rule against the CPU's: samples, gradients, states.
#include <algorithm>

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class DeltaKernels : public KernelTest {
 protected:
  /// Inputs of a call on the host and on the device.
  struct Both {
    OwnedTensor host;
    Tensor device;
  };
  Both both(DType dtype, Shape shape) {
    OwnedTensor host = random(dtype, shape);
    const Tensor device = upload(host);
    return {std::move(host), device};
  }
  template <class Body>
  void for_cases(Body body) {
    for (const DeltaShape& shape : {DeltaShape{2, 4, 8, 6}, DeltaShape{1, 1, 5, 20}}) {
      for (const DType act : both_types) {
        SCOPED_TRACE(std::to_string(shape.value_heads) + " heads, " + std::string(name_of(act)));
        body(shape, act);
      }
    }
  }
};

TEST_F(DeltaKernels, values_and_gradients_of_packed_samples) {
  for_cases([&](const DeltaShape& shape, DType act) {
    for (const std::vector<std::int32_t>& offsets :
         {std::vector<std::int32_t>{0}, {0, 1}, {0, 1, 1, 64, 129}, {0, 70}}) {
      SCOPED_TRACE(std::to_string(offsets.back()) + " rows");
      const std::int64_t rows = offsets.back(), samples = std::ssize(offsets) - 1, heads = shape.value_heads;
      const Both qkv = both(act, {rows, shape.qkv_columns()}), gates = both(act, {rows, 2 * heads});
      const Both a_log = both(DType::f32, {heads}), dt_bias = both(DType::f32, {heads});
      const Both dout = both(act, {rows, shape.value_columns()});
      const Both da_log = both(DType::f32, {heads}), ddt_bias = both(DType::f32, {heads});
      const OwnedTensor out(act, {rows, shape.value_columns()}), dqkv(act, {rows, shape.qkv_columns()});
      const OwnedTensor dgates(act, {rows, 2 * heads});
      const Shape kept{delta_state_place(rows, samples), heads * shape.key_size * shape.value_size};
      const OwnedTensor states(DType::f32, kept);
      const Tensor places =
          upload(OwnedTensor(DType::i32, {std::ssize(offsets)}, Values(offsets.begin(), offsets.end())));
      const DeltaRule host{.qkv = qkv.host,
                           .gates = gates.host,
                           .a_log = a_log.host,
                           .dt_bias = dt_bias.host,
                           .shape = shape,
                           .layout = {.offsets = offsets},
                           .out = out,
                           .states = states};
      const DeltaRuleBackward host_gradient{.dout = dout.host,
                                            .qkv = host.qkv,
                                            .gates = host.gates,
                                            .a_log = host.a_log,
                                            .dt_bias = host.dt_bias,
                                            .states = states,
                                            .shape = shape,
                                            .layout = host.layout,
                                            .dqkv = dqkv,
                                            .dgates = dgates,
                                            .da_log = da_log.host,
                                            .ddt_bias = ddt_bias.host};
      const DeltaRule device{.qkv = qkv.device,
                             .gates = gates.device,
                             .a_log = a_log.device,
                             .dt_bias = dt_bias.device,
                             .shape = shape,
                             .layout = {.offsets = span_of(places)},
                             .out = empty(act, out.tensor().shape()),
                             .states = empty(DType::f32, kept)};
      const DeltaRuleBackward gradient{.dout = dout.device,
                                       .qkv = device.qkv,
                                       .gates = device.gates,
                                       .a_log = device.a_log,
                                       .dt_bias = device.dt_bias,
                                       .states = device.states,
                                       .shape = shape,
                                       .layout = device.layout,
                                       .dqkv = empty(act, dqkv.tensor().shape()),
                                       .dgates = empty(act, dgates.tensor().shape()),
                                       .da_log = da_log.device,
                                       .ddt_bias = ddt_bias.device};
      run([&] {
        delta_rule(at_, device);
        delta_rule_backward(at_, gradient);
      });
      reference_.run(host);
      reference_.run(host_gradient);
      expect_near(device.out, out.values(), "out", 2e-5);
      expect_near(gradient.dqkv, dqkv.values(), "dqkv", 5e-5);
      expect_near(gradient.dgates, dgates.values(), "dgates", 5e-5);
      // Sums over all rows, whose terms cancel.
      expect_near(gradient.da_log, da_log.host.values(), "da_log", 1e-3);
      expect_near(gradient.ddt_bias, ddt_bias.host.values(), "ddt_bias", 1e-3);
    }
  });
}

TEST_F(DeltaKernels, a_sequence_in_pieces_continues_the_whole) {
  const Tensor places = upload(OwnedTensor(DType::i32, {2}, {0, 70}));
  for_cases([&](const DeltaShape& shape, DType act) {
    const std::int64_t heads = shape.value_heads;
    const Tensor qkv = upload(random(act, {70, shape.qkv_columns()})), gates = upload(random(act, {70, 2 * heads}));
    const Tensor a_log = upload(random(DType::f32, {heads})), dt_bias = upload(random(DType::f32, {heads}));
    const Tensor whole = empty(act, {70, shape.value_columns()}), parts = empty(act, {70, shape.value_columns()});
    const Tensor state = empty(DType::f32, {1, heads * shape.key_size * shape.value_size});
    run([&] {
      delta_rule(at_, {.qkv = qkv,
                       .gates = gates,
                       .a_log = a_log,
                       .dt_bias = dt_bias,
                       .shape = shape,
                       .layout = {.offsets = span_of(places)},
                       .out = whole});
      std::int64_t first = 0;
      for (const std::int64_t count : {1, 66, 1, 2}) {
        cached_delta(at_, {.qkv = qkv.row_slice(first, count),
                           .gates = gates.row_slice(first, count),
                           .a_log = a_log,
                           .dt_bias = dt_bias,
                           .shape = shape,
                           .state = state,
                           .first = first,
                           .out = parts.row_slice(first, count)});
        first += count;
      }
    });
    expect_near(parts, download(whole), "parts", 2e-5);
  });
}

TEST_F(DeltaKernels, a_row_of_each_sequence) {
  for_cases([&](const DeltaShape& shape, DType act) {
    const std::int64_t heads = shape.value_heads;
    const std::vector<CachedSequence> sequences{{2, 0}, {0, 50}, {1, 2}};
    Values numbers;
    for (const CachedSequence& each : sequences) numbers.insert(numbers.end(), {1.0 * each.begin, 1.0 * each.rows});
    const Both qkv = both(act, {3, shape.qkv_columns()}), gates = both(act, {3, 2 * heads});
    const Both a_log = both(DType::f32, {heads}), dt_bias = both(DType::f32, {heads});
    const Both states = both(DType::f32, {3, heads * shape.key_size * shape.value_size});
    const OwnedTensor out(act, {3, shape.value_columns()});
    const Tensor table = upload(OwnedTensor(DType::i32, Shape{6}, numbers));
    CachedDelta call{.qkv = qkv.device,
                     .gates = gates.device,
                     .a_log = a_log.device,
                     .dt_bias = dt_bias.device,
                     .shape = shape,
                     .state = states.device,
                     .out = empty(act, {3, shape.value_columns()})};
    call.sequences = {reinterpret_cast<const CachedSequence*>(table.raw()), sequences.size()};
    run([&] { cached_delta(at_, call); });
    reference_.run(CachedDelta{.qkv = qkv.host,
                               .gates = gates.host,
                               .a_log = a_log.host,
                               .dt_bias = dt_bias.host,
                               .shape = shape,
                               .state = states.host,
                               .out = out,
                               .sequences = sequences});
    expect_near(call.out, out.values(), "out", 2e-5);
    expect_near(call.state, states.host.values(), "states", 2e-5);
  });
}

}  // namespace
}  // namespace maestro::cuda
