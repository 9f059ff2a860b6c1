// SPDX-License-Identifier: Apache-2.0
// Routers and grouped products against the CPU's.
#include "runtime/ops/cuda/products/plain_weight.hpp"
#include "runtime/ops/element_math.hpp"
#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class ExpertKernels : public KernelTest {
 protected:
  /// Returns increasing offsets of random groups.
  OwnedTensor offsets_of(std::int64_t groups, std::int64_t rows) {
    OwnedTensor cuts = random_ids(groups + 1, 0, rows);
    Values sorted = cuts.values();
    sorted.front() = 0;
    sorted.back() = static_cast<double>(rows);
    std::ranges::sort(sorted);
    cuts.fill(sorted);
    return cuts;
  }
};

TEST_F(ExpertKernels, routers_choose_and_weigh_as_the_cpu) {
  const RouteOptions kinds[] = {{.kind = RouterKind::softmax, .scale = 1.5},
                                {.kind = RouterKind::chosen},
                                {.kind = RouterKind::sigmoid, .divided = true, .groups = 4, .top_groups = 2}};
  for (const RouteOptions& options : kinds) {
    for (const std::int64_t rows : odd_rows) {
      constexpr std::int64_t experts = 16, chosen = 3;
      const OwnedTensor logits = random(DType::f32, {rows, experts});
      const OwnedTensor bias = random(DType::f32, Shape{experts}, 0.1);
      const OwnedTensor best(DType::i32, {rows, chosen}), weights(DType::f32, {rows, chosen});
      const bool sigmoid = options.kind == RouterKind::sigmoid;
      reference_.run(Route{.logits = logits,
                           .bias = sigmoid ? bias.tensor() : Tensor(),
                           .options = options,
                           .experts = best,
                           .weights = weights});
      const OwnedTensor dweights = random(DType::f32, {rows, chosen});
      const OwnedTensor dlogits(DType::f32, {rows, experts});
      reference_.run(RouteBackward{.dweights = dweights,
                                   .logits = logits,
                                   .experts = best,
                                   .weights = weights,
                                   .options = options,
                                   .dlogits = dlogits});
      const Tensor device_logits = upload(logits), device_bias = sigmoid ? upload(bias) : Tensor();
      const Tensor device_best = empty(DType::i32, {rows, chosen}), device_weights = empty(DType::f32, {rows, chosen});
      const Tensor device_dweights = upload(dweights), device_dlogits = empty(DType::f32, {rows, experts});
      run([&] {
        route(at_, {.logits = device_logits,
                    .bias = device_bias,
                    .options = options,
                    .experts = device_best,
                    .weights = device_weights});
        route_backward(at_, {.dweights = device_dweights,
                             .logits = device_logits,
                             .experts = device_best,
                             .weights = device_weights,
                             .options = options,
                             .dlogits = device_dlogits});
      });
      EXPECT_EQ(download(device_best), best.values());
      EXPECT_LT(testing::worst_error(download(device_weights), weights.values()), 1e-5);
      EXPECT_LT(testing::worst_error(download(device_dlogits), dlogits.values()), 1e-5);
    }
  }
}

TEST_F(ExpertKernels, routes_are_sorted_as_on_the_cpu) {
  for (const std::int64_t rows : odd_rows) {
    constexpr std::int64_t chosen = 3, experts = 7;
    const OwnedTensor flat = random_ids(rows * chosen, 0, experts - 1);
    const OwnedTensor best(DType::i32, {rows, chosen}, flat.values());
    const OwnedTensor offsets(DType::i32, Shape{experts + 1});
    const OwnedTensor tokens(DType::i32, Shape{rows * chosen}), routes(DType::i32, Shape{rows * chosen});
    const OwnedTensor places(DType::i32, {rows, chosen});
    reference_.run(
        SortRoutes{.experts = best, .offsets = offsets, .tokens = tokens, .routes = routes, .places = places});
    const SortRoutes op{.experts = upload(best),
                        .offsets = empty(DType::i32, Shape{experts + 1}),
                        .tokens = empty(DType::i32, Shape{rows * chosen}),
                        .routes = empty(DType::i32, Shape{rows * chosen}),
                        .places = empty(DType::i32, {rows, chosen})};
    run([&] { sort_routes(at_, op); });
    EXPECT_EQ(download(op.offsets), offsets.values());
    EXPECT_EQ(download(op.tokens), tokens.values());
    EXPECT_EQ(download(op.routes), routes.values());
    EXPECT_EQ(download(op.places), places.values());
  }
}

TEST_F(ExpertKernels, routes_of_samples_are_counted_as_on_the_cpu) {
  for (const std::int64_t rows : odd_rows) {
    constexpr std::int64_t chosen = 3, experts = 7, samples = 4;
    const OwnedTensor best(DType::i32, {rows, chosen}, random_ids(rows * chosen, 0, experts - 1).values());
    const OwnedTensor starts = offsets_of(samples, rows);
    const OwnedTensor counts(DType::f32, {samples, experts});
    reference_.run(CountRoutes{.experts = best, .starts = starts, .counts = counts});
    const CountRoutes op{
        .experts = upload(best), .starts = upload(starts), .counts = empty(DType::f32, {samples, experts})};
    run([&] { count_routes(at_, op); });
    EXPECT_EQ(download(op.counts), counts.values());
  }
}

TEST_F(ExpertKernels, counts_step_values_as_on_the_cpu) {
  for (const double rate : {0.0, 0.125}) {
    constexpr std::int64_t experts = 37;
    const OwnedTensor counts(DType::f32, Shape{experts}, random_ids(experts, 0, 9).values());
    const OwnedTensor values = random(DType::f32, Shape{experts});
    const Tensor device_values = upload(values), device_counts = upload(counts);
    const auto step = [&](const Tensor& value, const Tensor& count) {
      return StepCounts{value.span<float>(), count.span<float>(), 4, rate};
    };
    reference_.run(step(values, counts));
    run([&] { step_counts(at_, step(device_values, device_counts)); });
    EXPECT_EQ(download(device_values), values.values());
    EXPECT_EQ(download(device_counts), counts.values());
    EXPECT_EQ(counts.values(), Values(experts));
  }
}

TEST_F(ExpertKernels, products_by_groups) {
  for (const DType dtype : both_types) {
    const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-2;
    for (const std::int64_t rows : {0, 1, 33, 100}) {
      for (const std::int64_t k : {1, 40}) {
        constexpr std::int64_t groups = 5, n = 37;
        const OwnedTensor offsets = offsets_of(groups, rows);
        const OwnedTensor x = random(dtype, {rows, k}), dy = random(dtype, {rows, n});
        const OwnedTensor w = random(DType::f32, {groups * n, k});
        const OwnedTensor y(dtype, {rows, n}), dx(dtype, {rows, k}), dw = random(DType::f32, {groups * n, k});
        const auto packed = [&](PackFor use) {
          std::unique_ptr<PackedWeight> pack;
          for (std::int64_t group = 0; group < groups; ++group) {
            pack = reference_.pack(w.tensor().row_slice(group * n, n), dtype, use, std::move(pack), {group, groups});
          }
          return pack;
        };
        const PlainWeight weight(upload(OwnedTensor(dtype, {groups * n, k}, w.values())));
        const Tensor device_offsets = upload(offsets), device_x = upload(x), device_dy = upload(dy);
        const Tensor device_y = empty(dtype, {rows, n}), device_dx = empty(dtype, {rows, k}), device_dw = upload(dw);
        reference_.run(GroupedLinear{.x = x, .w = packed(PackFor::forward).get(), .offsets = offsets, .y = y});
        reference_.run(GroupedLinearBackwardInput{
            .dy = dy, .w = packed(PackFor::backward_input).get(), .offsets = offsets, .dx = dx});
        const OwnedTensor sum(DType::f32, {groups * n, k}, dw.values());
        reference_.run(GroupedLinearBackwardWeight{.dy = dy, .x = x, .offsets = offsets, .dw = sum});
        run([&] {
          grouped_linear(at_, {.x = device_x, .w = &weight, .offsets = device_offsets, .y = device_y});
          grouped_linear_backward_input(at_,
                                        {.dy = device_dy, .w = &weight, .offsets = device_offsets, .dx = device_dx});
        });
        grouped_linear_backward_weight(at_,
                                       {.dy = device_dy, .x = device_x, .offsets = device_offsets, .dw = device_dw});
        check(cudaStreamSynchronize(stream_), "kernels");
        EXPECT_LT(testing::worst_error(download(device_y), y.values()), tolerance);
        EXPECT_LT(testing::worst_error(download(device_dx), dx.values()), tolerance);
        EXPECT_LT(testing::worst_error(download(device_dw), sum.values()), tolerance);
      }
    }
  }
}

TEST_F(ExpertKernels, sums_of_a_tokens_rows) {
  for (const DType dtype : both_types) {
    for (const std::int64_t tokens : odd_rows) {
      constexpr std::int64_t slots = 3, columns = 65;
      const OwnedTensor rows = random(dtype, {tokens * slots, columns});
      OwnedTensor places(DType::i32, {tokens, slots});
      for (std::int64_t i = 0; i < tokens * slots; ++i) places.set(i, static_cast<double>(tokens * slots - 1 - i));
      const OwnedTensor y(dtype, {tokens, columns});
      reference_.run(CombineRows{.rows = rows, .places = places, .y = y});
      const CombineRows op{.rows = upload(rows), .places = upload(places), .y = empty(dtype, {tokens, columns})};
      run([&] { combine_rows(at_, op); });
      EXPECT_EQ(download(op.y), y.values());
    }
  }
}

TEST_F(ExpertKernels, products_with_blocks) {
  for (const DType dtype : both_types) {
    const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-2;
    for (const std::int64_t rows : {1, 33, 100}) {
      constexpr std::int64_t groups = 3, n = 37, k = 64, row_blocks = k / mxfp4_block;
      const OwnedTensor offsets = offsets_of(groups, rows);
      const OwnedTensor x = random(dtype, {rows, k}), dy = random(dtype, {rows, n});
      const OwnedTensor y(dtype, {rows, n}), dx(dtype, {rows, k});
      std::vector<std::uint8_t> blocks, scales;
      const Values bytes = random_ids(groups * n * row_blocks * mxfp4_bytes, 0, 255).values();
      for (const double byte : bytes) blocks.push_back(static_cast<std::uint8_t>(byte));
      for (const double scale : random_ids(groups * n * row_blocks, 120, 128).values()) {
        scales.push_back(static_cast<std::uint8_t>(scale));
      }
      const Mxfp4Rows all{blocks.data(), scales.data(), groups * n, k};
      std::unique_ptr<PackedWeight> packed;
      for (std::int64_t group = 0; group < groups; ++group) {
        packed = reference_.pack_blocks(all.row_slice(group * n, n), std::move(packed), {group, groups});
      }
      const auto on_device = [&](std::vector<std::uint8_t>& host, Shape shape) {
        const Tensor to = empty(DType::u8, shape);
        check(cudaMemcpy(to.raw(), host.data(), host.size(), cudaMemcpyDefault), "cudaMemcpy");
        return to;
      };
      const PlainWeight weight(on_device(blocks, {groups * n, row_blocks, mxfp4_bytes}),
                               on_device(scales, {groups * n, row_blocks}));
      const Tensor device_offsets = upload(offsets), device_x = upload(x), device_dy = upload(dy);
      const Tensor device_y = empty(dtype, {rows, n}), device_dx = empty(dtype, {rows, k});
      reference_.run(GroupedLinear{.x = x, .w = packed.get(), .offsets = offsets, .y = y});
      reference_.run(GroupedLinearBackwardInput{.dy = dy, .w = packed.get(), .offsets = offsets, .dx = dx});
      run([&] {
        grouped_linear(at_, {.x = device_x, .w = &weight, .offsets = device_offsets, .y = device_y});
        grouped_linear_backward_input(at_, {.dy = device_dy, .w = &weight, .offsets = device_offsets, .dx = device_dx});
      });
      EXPECT_LT(testing::worst_error(download(device_y), y.values()), tolerance);
      EXPECT_LT(testing::worst_error(download(device_dx), dx.values()), tolerance);
    }
  }
}

TEST_F(ExpertKernels, biases_of_groups_and_their_gradients) {
  for (const DType dtype : both_types) {
    for (const std::int64_t rows : {0, 1, 33, 100}) {
      for (const bool weighted : {false, true}) {
        constexpr std::int64_t groups = 5, columns = 37;
        const OwnedTensor offsets = offsets_of(groups, rows), bias = random(DType::f32, {groups, columns});
        const OwnedTensor weights = random(DType::f32, {rows, 1}), dy = random(dtype, {rows, columns});
        const OwnedTensor y = random(dtype, {rows, columns});
        const OwnedTensor dbias = random(DType::f32, {groups, columns}), dweights = random(DType::f32, {rows, 1});
        const Tensor none, device_bias = upload(bias), device_offsets = upload(offsets);
        const Tensor device_weights = weighted ? upload(weights) : none;
        const GroupedBias op{.bias = device_bias, .offsets = device_offsets, .weights = device_weights, .y = upload(y)};
        const GroupedBiasBackward gradient{.dy = upload(dy),
                                           .bias = device_bias,
                                           .offsets = device_offsets,
                                           .weights = device_weights,
                                           .dbias = upload(dbias),
                                           .dweights = weighted ? upload(dweights) : none};
        const Tensor own = weighted ? weights.tensor() : none;
        reference_.run(GroupedBias{.bias = bias, .offsets = offsets, .weights = own, .y = y});
        reference_.run(GroupedBiasBackward{.dy = dy,
                                           .bias = bias,
                                           .offsets = offsets,
                                           .weights = own,
                                           .dbias = dbias,
                                           .dweights = weighted ? dweights.tensor() : none});
        // Gradients add: each runs once.
        grouped_bias(at_, op);
        grouped_bias_backward(at_, gradient);
        check(cudaStreamSynchronize(stream_), "kernels");
        const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-2;
        EXPECT_LT(testing::worst_error(download(op.y), y.values()), tolerance);
        EXPECT_LT(testing::worst_error(download(gradient.dbias), dbias.values()), 1e-5);
        if (!weighted) continue;
        EXPECT_LT(testing::worst_error(download(gradient.dweights), dweights.values()), 1e-5);
      }
    }
  }
}

TEST_F(ExpertKernels, attention_sinks_and_their_gradients) {
  for (const std::int64_t rows : odd_rows) {
    for (const std::int64_t heads : {1, 6, 64}) {
      const OwnedTensor sinks = random(DType::f32, Shape{heads}, 3), lse = random(DType::f32, {rows, heads}, 3);
      const OwnedTensor factors(DType::f32, {rows, heads}), dots = random(DType::f32, {rows, heads});
      const OwnedTensor dsinks = random(DType::f32, Shape{heads});
      const AttentionSinks op{.sinks = upload(sinks), .lse = upload(lse), .factors = empty(DType::f32, {rows, heads})};
      const AttentionSinksBackward gradient{
          .dots = upload(dots), .sinks = op.sinks, .lse = op.lse, .dsinks = upload(dsinks)};
      reference_.run(AttentionSinks{.sinks = sinks, .lse = lse, .factors = factors});
      reference_.run(AttentionSinksBackward{.dots = dots, .sinks = sinks, .lse = lse, .dsinks = dsinks});
      attention_sinks(at_, op);
      attention_sinks_backward(at_, gradient);
      check(cudaStreamSynchronize(stream_), "kernels");
      EXPECT_LT(testing::worst_error(download(op.lse), lse.values()), 1e-6);
      EXPECT_LT(testing::worst_error(download(op.factors), factors.values()), 1e-6);
      EXPECT_LT(testing::worst_error(download(gradient.dsinks), dsinks.values()), 1e-5);
    }
  }
}

}  // namespace
}  // namespace maestro::cuda
