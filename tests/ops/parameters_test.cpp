// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/parameters.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/ops/dry_space.hpp"
#include "runtime/ops/functions.hpp"
#include "tests/ops/backends.hpp"
#include "tests/ops/owned_tensor.hpp"

namespace maestro {
namespace {

const OperatorTable& host_table() {
  static const std::unique_ptr<OperatorTable> table = testing::backends().front().make();
  return *table;
}

using testing::OwnedTensor;

ParameterSpec constant(std::string name, Shape shape, bool decayed, float value) {
  return {std::move(name), shape, decayed, [value](std::span<float> values) { std::ranges::fill(values, value); }};
}

TEST(Parameters, decayed_ones_lie_before_the_others_whatever_the_order_of_declaration) {  // PA-1
  Parameters parameters;
  parameters.add(constant("bias", {5}, false, 1));
  parameters.add(constant("weight", {5, 3}, true, 2));
  parameters.add(constant("norm", {7}, false, 3));
  parameters.add(constant("head", {4, 4}, true, 4));
  parameters.allocate(true);
  const float* boundary = parameters.values().data() + parameters.decayed_elements();
  for (const char* name : {"weight", "head"}) EXPECT_LT(parameters.find(name)->value().data<float>(), boundary);
  for (const char* name : {"bias", "norm"}) EXPECT_GE(parameters.find(name)->value().data<float>(), boundary);
}

TEST(Parameters, where_no_values_are_held_none_are_made) {
  DrySpace device(false);
  Parameters parameters;
  bool filled = false;
  constexpr std::int64_t rows = std::int64_t{1} << 20;  // 128 GiB, and as much for gradients and each moment
  parameters.add({"weight", {rows, 1 << 15}, true, [&](std::span<float>) { filled = true; }});
  parameters.allocate(true, device);
  parameters.load(parameters.all().front(), [&](std::span<float>, std::int64_t) { filled = true; });
  EXPECT_FALSE(filled);
  EXPECT_EQ(device.held(), std::size_t{4} << 37);
}

TEST(Parameters, every_parameter_starts_on_a_cache_line_and_none_overlap) {
  Parameters parameters;
  for (int i = 0; i < 5; ++i)
    parameters.add(constant(std::to_string(i), {i + 1, 7}, i % 2 == 0, static_cast<float>(i)));
  parameters.allocate(true);
  for (Parameter& parameter : parameters.all()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(parameter.value().raw()) % 64, 0U);
    const float wanted = std::stof(parameter.name());
    for (const float value : parameter.value().span<float>()) EXPECT_EQ(value, wanted);
    EXPECT_TRUE(parameter.trained());
    for (const float value : parameter.gradient().span<float>()) EXPECT_EQ(value, 0);
  }
}

TEST(Parameters, views_of_all_flat_buffers_line_up) {
  Parameters parameters;
  parameters.add(constant("a", {3}, false, 1));
  Parameter& b = parameters.add(constant("b", {2, 2}, true, 2));
  parameters.allocate(true);
  const auto offset = b.value().data<float>() - parameters.values().data();
  EXPECT_EQ(b.gradient().data<float>() - parameters.gradients().data(), offset);
  const Tensor moment = parameters.part(parameters.first_moments(), b);
  EXPECT_EQ(moment.data<float>() - parameters.first_moments().data<float>(), offset);
  EXPECT_EQ(moment.shape(), (Shape{2, 2}));
  EXPECT_EQ(parameters.elements(), parameters.second_moments().elements());
}

/// Returns a parameter with values 0, 1, 2, ... before slicing.
ParameterSpec counted(std::string name, Shape shape, bool decayed, ParameterSlice slice = {}) {
  return {std::move(name), shape, decayed,
          [](std::span<float> values) {
            for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
          },
          std::move(slice)};
}

TEST(Parameters, a_part_begins_with_the_values_it_has_in_the_whole) {  // PA-3
  Parameters parameters;
  const auto values = [](const Parameter& parameter) {
    const std::span<float> span = parameter.value().span<float>();
    return std::vector<float>(span.begin(), span.end());
  };
  Parameter& rows = parameters.add(counted("rows", {6, 3}, true, {{{1, 1}, {4, 2}}, {}}));
  Parameter& columns = parameters.add(counted("columns", {2, 5}, true, {{}, {3, 2}}));
  Parameter& elements = parameters.add(counted("elements", {7}, false, {{{2, 3}}, {}}));
  Parameter& both = parameters.add(counted("both", {3, 4}, true, {{{2, 1}}, {1, 2}}));
  Parameter& kernel = parameters.add(counted("kernel", {3, 1, 2, 2}, true, {{{1, 1}}, {}}));
  parameters.allocate(true);
  EXPECT_EQ(rows.shape(), (Shape{3, 3}));
  EXPECT_EQ(rows.whole_shape(), (Shape{6, 3}));
  EXPECT_EQ(values(rows), (std::vector<float>{3, 4, 5, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(values(columns), (std::vector<float>{3, 4, 8, 9}));
  EXPECT_EQ(values(elements), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(values(both), (std::vector<float>{9, 10}));
  EXPECT_EQ(kernel.shape(), (Shape{1, 1, 2, 2}));
  EXPECT_EQ(values(kernel), (std::vector<float>{4, 5, 6, 7}));
}

TEST(Parameters, sharded_and_replicated_gradients_are_two_spans_each_and_all_together) {  // PA-1
  Parameters parameters;
  parameters.add(counted("norm", {5}, false));
  parameters.add(counted("out", {4, 5}, true, {{}, {0, 2}}));
  parameters.add(counted("positions", {3, 5}, true));
  parameters.add(counted("bias", {6}, false, {{{0, 2}}, {}}));
  parameters.add(counted("in", {6, 5}, true, {{{0, 2}}, {}}));
  parameters.allocate(true);
  for (const auto& [sharded, spans] :
       {std::pair{true, parameters.sharded_gradients()}, std::pair{false, parameters.replicated_gradients()}}) {
    EXPECT_EQ(spans.size(), 2U);
    for (const std::span<float> span : spans) {
      for (float& value : span) value += sharded ? 1 : 2;
    }
  }
  for (const float value : parameters.gradients()) EXPECT_NE(value, 0);
  const float* decayed_end = parameters.gradients().data() + parameters.decayed_elements();
  for (Parameter& parameter : parameters.all()) {
    for (const float value : parameter.gradient().span<float>()) {
      EXPECT_EQ(value, parameter.sharded() ? 1 : 2) << parameter.name();
    }
    EXPECT_EQ(parameter.gradient().data<float>() < decayed_end, parameter.shape().rank() == 2) << parameter.name();
  }
}

TEST(Parameters, rows_of_experts_are_spans_and_groups_of_their_own) {  // PA-1
  Parameters parameters;
  parameters.add(counted("router", {6, 5}, true));
  ParameterSpec experts = counted("experts", {6 * 4, 5}, true, {{{8, 8}}, {}, true});
  experts.groups = 6;
  const Parameter& owned = parameters.add(std::move(experts));
  parameters.add(counted("bias", {6, 4}, false, {{{2, 2}}, {}, true}));
  parameters.add(counted("out", {4, 5}, true, {{}, {0, 2}}));
  parameters.allocate(true);
  EXPECT_EQ(owned.groups(), 2);
  EXPECT_EQ(owned.whole_groups(), 6);
  std::size_t elements = 0;
  for (const auto& [holding, count] : {std::pair{Holding::expert_parts, 2U}, std::pair{Holding::tensor_parts, 1U},
                                       std::pair{Holding::replicated, 1U}}) {
    const auto spans = parameters.gradients_of(holding);
    EXPECT_EQ(spans.size(), count);
    for (const std::span<float> span : spans) {
      elements += span.size();
      for (float& value : span) value = static_cast<float>(holding);
    }
  }
  EXPECT_EQ(elements, parameters.gradients().size());
  for (Parameter& parameter : parameters.all()) {
    for (const float value : parameter.gradient().span<float>()) {
      EXPECT_EQ(value, static_cast<float>(parameter.holding())) << parameter.name();
    }
  }
}

TEST(Parameters, without_slices_everything_is_replicated) {
  Parameters parameters;
  parameters.add(counted("weight", {5, 5}, true));
  EXPECT_TRUE(parameters.replicated_gradients().empty());
  parameters.allocate(true);
  EXPECT_TRUE(parameters.sharded_gradients().empty());
  ASSERT_EQ(parameters.replicated_gradients().size(), 1U);
  EXPECT_EQ(parameters.replicated_gradients()[0].size(), parameters.gradients().size());
}

/// Adds 64 elements: a matrix, its vector and padding; values 0, 1, 2, ...
void add_some(Parameters& parameters, DType moments = DType::f32) {
  parameters.add(counted("weight", {5, 8}, true));
  parameters.add(counted("bias", {9}, false));
  parameters.allocate(true, host_memory(), InitialValues::drawn, moments);
  for (std::size_t at = 0; at < parameters.values().size(); ++at) parameters.values()[at] = static_cast<float>(at);
}

TEST(Parameters, shared_moments_are_kept_for_their_range_alone_and_start_at_zero) {
  Parameters parameters;
  add_some(parameters);
  EXPECT_FALSE(parameters.optimizer_sharded());
  EXPECT_EQ(parameters.kept_moments().count, 64U);
  parameters.shard_optimizer_state({16, 32});
  EXPECT_TRUE(parameters.optimizer_sharded());
  EXPECT_EQ(parameters.kept_moments().first, 16U);
  for (const ParameterBuffer which : {ParameterBuffer::first_moments, ParameterBuffer::second_moments}) {
    EXPECT_EQ(parameters.buffer(which).elements(), 32);
    for (const float moment : parameters.buffer(which).span<float>()) EXPECT_EQ(moment, 0);
  }
  EXPECT_EQ(parameters.values().size(), 64U);
  EXPECT_EQ(parameters.gradients().size(), 64U);
}

TEST(Parameters, a_replica_offers_its_range_and_takes_the_values_of_the_others) {  // PA-4
  Parameters parameters;
  add_some(parameters);
  parameters.shard_optimizer_state({16, 32});
  parameters.stage_shard(host_table(), ParameterBuffer::values);
  for (std::size_t at = 0; at < 64; ++at) {
    const bool own = at >= 16 && at < 48;
    EXPECT_EQ(parameters.gradients()[at], own ? static_cast<float>(at) : 0.0F) << at;
    parameters.gradients()[at] = 100.0F + static_cast<float>(at);  // the others' values; this range is not read
  }
  parameters.load_gathered_values(host_table());
  for (std::size_t at = 0; at < 64; ++at) {
    const bool own = at >= 16 && at < 48;
    EXPECT_EQ(parameters.values()[at], static_cast<float>(at) + (own ? 0.0F : 100.0F)) << at;
    EXPECT_EQ(parameters.gradients()[at], 0) << at;
  }
}

TEST(Parameters, moments_go_out_and_in_by_way_of_the_gradients) {  // PA-4
  Parameters parameters;
  add_some(parameters);
  parameters.shard_optimizer_state({16, 32});
  for (std::size_t at = 0; at < 64; ++at) parameters.gradients()[at] = static_cast<float>(at);
  parameters.load_gathered_moments(ParameterBuffer::second_moments);
  for (const float gradient : parameters.gradients()) EXPECT_EQ(gradient, 0);
  parameters.stage_shard(host_table(), ParameterBuffer::second_moments);
  for (std::size_t at = 0; at < 32; ++at) {
    EXPECT_EQ(parameters.second_moments().data<float>()[at], static_cast<float>(at + 16));
    EXPECT_EQ(parameters.gradients()[at + 16], static_cast<float>(at + 16));
    EXPECT_EQ(parameters.first_moments().data<float>()[at], 0);
  }
  parameters.clear_gradients(host_table());
  for (const float gradient : parameters.gradients()) EXPECT_EQ(gradient, 0);
}

TEST(Parameters, moments_in_bf16_go_out_exactly_and_in_rounded) {  // PA-4
  Parameters parameters;
  add_some(parameters, DType::bf16);
  parameters.shard_optimizer_state({16, 32});
  EXPECT_EQ(parameters.first_moments().bytes(), 64U);
  for (std::size_t at = 0; at < 64; ++at) parameters.gradients()[at] = static_cast<float>(at) + 1 / 256.0F;
  parameters.load_gathered_moments(ParameterBuffer::first_moments);
  parameters.stage_shard(host_table(), ParameterBuffer::first_moments);
  for (std::size_t at = 0; at < 64; ++at) {
    const bool own = at >= 16 && at < 48;
    EXPECT_EQ(parameters.gradients()[at], own ? static_cast<float>(at) : 0.0F) << at;
  }
}

TEST(Parameters, a_replica_may_keep_no_moments_and_a_frozen_one_has_none_to_share) {
  Parameters parameters;
  add_some(parameters);
  parameters.shard_optimizer_state({64, 0});
  EXPECT_TRUE(parameters.optimizer_sharded());
  EXPECT_EQ(parameters.first_moments().elements(), 0);
  parameters.stage_shard(host_table(), ParameterBuffer::first_moments);
  std::ranges::fill(parameters.gradients(), 3.0F);
  parameters.load_gathered_values(host_table());
  for (const float value : parameters.values()) EXPECT_EQ(value, 3);
  Parameters frozen;
  frozen.add(counted("weight", {2, 8}, true));
  frozen.allocate(false);
  frozen.shard_optimizer_state({0, 16});
  EXPECT_FALSE(frozen.optimizer_sharded());
  EXPECT_EQ(frozen.kept_moments().count, 0U);
}

TEST(Parameters, a_frozen_section_has_values_only) {
  Parameters parameters;
  Parameter& weight = parameters.add(constant("weight", {2, 2}, true, 1));
  parameters.allocate(false);
  EXPECT_FALSE(parameters.trained());
  EXPECT_FALSE(weight.trained());
  EXPECT_TRUE(parameters.gradients().empty());
  EXPECT_EQ(parameters.second_moments().elements(), 0);
}

TEST(Parameters, an_unknown_name_is_not_found) {
  Parameters parameters;
  parameters.add(constant("weight", {2, 2}, true, 1));
  EXPECT_NE(parameters.find("weight"), nullptr);
  EXPECT_EQ(parameters.find("wait"), nullptr);
}

/// Returns a product; `precision` applies to the pack and the input.
float product(const OperatorTable& ops, const PackedWeight& packed, DType precision = DType::f32) {
  const OwnedTensor x(precision, {1, 2}, {1.0, 1.0});
  const OwnedTensor y(DType::f32, {1, 3});
  ops.run(Linear{.x = x, .w = &packed, .y = y});
  return y.get(0);
}

TEST(Parameters, a_packed_form_follows_the_values) {  // PA-2
  const cpu::CpuOperatorTable ops;
  Parameters parameters;
  Parameter& weight = parameters.add(constant("weight", {3, 2}, true, 1));
  parameters.allocate(true);
  EXPECT_EQ(product(ops, weight.packed(ops, DType::f32, PackFor::forward)), 2);
  std::ranges::fill(parameters.values(), 5.0F);
  parameters.values_changed();
  EXPECT_EQ(product(ops, weight.packed(ops, DType::f32, PackFor::forward)), 10);
}

TEST(Parameters, an_unchanged_parameter_is_packed_once_for_a_precision_and_each_use_that_needs_it) {  // PA-2
  const cpu::CpuOperatorTable ops;
  Parameters parameters;
  Parameter& weight = parameters.add(constant("weight", {3, 2}, true, 1));
  parameters.allocate(true);
  const PackedWeight* forward = &weight.packed(ops, DType::bf16, PackFor::forward);
  const PackedWeight* backward = &weight.packed(ops, DType::bf16, PackFor::backward_input);
  EXPECT_EQ(forward == backward, ops.packs_once(DType::bf16));
  EXPECT_EQ(&weight.packed(ops, DType::bf16, PackFor::forward), forward);
  std::ranges::fill(weight.value().span<float>(), 9.0F);  // changed without notice: a new pack would show it
  EXPECT_EQ(product(ops, weight.packed(ops, DType::bf16, PackFor::forward), DType::bf16), 2);
  EXPECT_EQ(product(ops, weight.packed(ops, DType::f32, PackFor::forward)), 18);
}

TEST(Parameters, a_frozen_matrix_computes_from_its_packed_form_alone) {
  const cpu::CpuOperatorTable ops;
  Parameters parameters;
  Parameter& weight = parameters.add(constant("weight", {3000, 2}, true, 3));
  Parameter& norm = parameters.add(constant("norm", {8}, false, 1.5F));
  parameters.allocate(false);
  Parameter* const matrices[] = {&weight};
  parameters.freeze_packed(ops, DType::bf16, matrices);
  EXPECT_FALSE(weight.value().defined());
  const OwnedTensor x(DType::bf16, {1, 2}, {1.0, 1.0});
  const OwnedTensor y(DType::f32, {1, 3000});
  ops.run(Linear{.x = x, .w = &weight.packed(ops, DType::bf16, PackFor::forward), .y = y});
  EXPECT_EQ(y.values(), testing::Values(3000, 6.0));
  for (const float value : norm.value().span<float>()) EXPECT_EQ(value, 1.5F) << "other values stay";
}

/// A device's memory that counts the held bytes.
class CountedSpace final : public MemorySpace {
 public:
  [[nodiscard]] bool host() const override { return false; }
  std::byte* allocate(std::size_t bytes) override {
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return host_memory().allocate(bytes);
  }
  void release(std::byte* block, std::size_t bytes) noexcept override {
    held_ -= bytes;
    host_memory().release(block, bytes);
  }
  void read(std::byte* to, const std::byte* from, std::size_t bytes) override { host_memory().read(to, from, bytes); }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override { host_memory().write(to, from, bytes); }
  void zero(std::byte* to, std::size_t bytes) override { host_memory().zero(to, bytes); }
  [[nodiscard]] std::size_t held() const { return held_; }
  [[nodiscard]] std::size_t peak() const { return peak_; }

 private:
  std::size_t held_ = 0;
  std::size_t peak_ = 0;
};

TEST(Parameters, frozen_parameters_take_their_packed_forms_and_the_values_of_a_single_parameter) {  // PA-5
  const cpu::CpuOperatorTable ops;
  constexpr std::size_t matrix_bytes = 48 * 32 * sizeof(float), norm_bytes = 48 * sizeof(float);
  CountedSpace memory;
  Parameters parameters;
  std::vector<Parameter*> matrices;
  for (int i = 0; i < 5; ++i) matrices.push_back(&parameters.add(constant(std::to_string(i), {48, 32}, true, 0.5F)));
  Parameter& norm = parameters.add(constant("norm", {48}, false, 1.5F));
  parameters.allocate(false, memory, InitialValues::later);
  parameters.freeze_packed(ops, DType::bf16, matrices);
  EXPECT_EQ(memory.held(), 0U);
  parameters.initialise();
  EXPECT_EQ(memory.held(), norm_bytes);
  EXPECT_LE(memory.peak(), matrix_bytes + norm_bytes);
  EXPECT_EQ(norm.value().data<float>()[47], 1.5F);
  const OwnedTensor x(DType::bf16, {1, 32}, testing::Values(32, 1.0)), y(DType::f32, {1, 48});
  for (Parameter* matrix : matrices) {
    EXPECT_FALSE(matrix->value().defined());
    const PackedWeight& packed = matrix->packed(ops, DType::bf16, PackFor::forward);
    EXPECT_LE(packed.bytes(), std::size_t{1} << 14);  // 2 bytes per element and padding, not 4
    ops.run(Linear{.x = x, .w = &packed, .y = y});
    EXPECT_EQ(y.values(), testing::Values(48, 16.0));
  }
}

TEST(Parameters, a_frozen_table_keeps_its_values_where_its_packed_form_rounds_them) {  // PA-6
  const cpu::CpuOperatorTable ops;
  const float rounded = 3.005F;  // 3 in bf16
  for (const InitialValues when : {InitialValues::drawn, InitialValues::later}) {
    for (const bool tied : {false, true}) {
      for (const float value : {3.0F, rounded}) {
        Parameters parameters;
        Parameter& weight = parameters.add(constant("weight", {3, 2}, true, 4));
        Parameter& table = parameters.add(constant("table", {3, 2}, true, value));
        parameters.allocate(false, host_memory(), when);
        std::vector<Parameter*> matrices{&weight};
        if (tied) matrices.push_back(&table);
        parameters.freeze_packed(ops, DType::bf16, matrices, true, &table);
        if (when == InitialValues::later) parameters.initialise();
        EXPECT_FALSE(weight.value().defined());
        ASSERT_EQ(table.value().defined(), value == rounded);
        Arena arena;
        Tape tape(ops, arena, DType::bf16, false);
        std::int32_t id = 2;
        const Var row = embedding(tape, table, Tensor(&id, DType::i32, Shape{1}), nullptr, {});
        EXPECT_EQ(row.value().data<float>()[1], value);
        if (!tied) continue;
        if (table.value().defined()) std::ranges::fill(table.value().span<float>(), 9.0F);  // a new pack would show it
        EXPECT_EQ(product(ops, table.packed(ops, DType::bf16, PackFor::forward), DType::bf16), 6);
      }
    }
  }
}

TEST(Parameters, frozen_groups_take_their_packed_forms_and_the_values_of_a_single_group) {  // PA-5
  const cpu::CpuOperatorTable ops;
  constexpr std::int64_t groups = 6, rows = 8, columns = 32;
  constexpr std::size_t group_bytes = rows * columns * sizeof(float);
  CountedSpace memory;
  Parameters parameters;
  Parameter& weight = parameters.add({"experts", {groups * rows, columns}, true, {}, {}, groups});
  Parameter* const matrices[] = {&weight};
  parameters.allocate(false, memory, InitialValues::later);
  parameters.freeze_packed(ops, DType::bf16, matrices, true);
  std::vector<std::int64_t> firsts;
  parameters.load(weight, [&](std::span<float> values, std::int64_t first) {
    EXPECT_EQ(values.size_bytes(), group_bytes);
    std::ranges::fill(values, static_cast<float>(firsts.size() + 1));
    firsts.push_back(first);
  });
  EXPECT_THAT(firsts, ::testing::ElementsAre(0, 8, 16, 24, 32, 40));
  EXPECT_EQ(memory.peak(), group_bytes);
  EXPECT_EQ(memory.held(), 0U);
  const OwnedTensor x(DType::bf16, {groups, columns}, testing::Values(groups * columns, 1.0));
  const OwnedTensor y(DType::bf16, {groups, rows}), dx(DType::bf16, {groups, columns});
  const OwnedTensor offsets(DType::i32, Shape{groups + 1}, {0, 1, 2, 3, 4, 5, 6});
  ops.run(GroupedLinear{.x = x, .w = &weight.packed(ops, DType::bf16, PackFor::forward), .offsets = offsets, .y = y});
  ops.run(GroupedLinearBackwardInput{
      .dy = y, .w = &weight.packed(ops, DType::bf16, PackFor::backward_input), .offsets = offsets, .dx = dx});
  for (std::int64_t group = 0; group < groups; ++group) {
    const auto value = static_cast<float>(group + 1);
    EXPECT_EQ(y.get(group * rows), value * columns);
    EXPECT_EQ(dx.get(group * columns), value * value * rows * columns);
  }
}

TEST(Parameters, values_that_are_loaded_are_never_initialised) {
  for (const bool trained : {false, true}) {
    CountedSpace memory;
    Parameters parameters;
    Parameter& weight = parameters.add({"weight", {3, 2}, true, [](std::span<float>) { FAIL() << "initialised"; }});
    parameters.allocate(trained, memory, InitialValues::later);
    EXPECT_TRUE(parameters.values_later());
    parameters.load(weight, [](std::span<float> values, std::int64_t) { std::ranges::fill(values, 2.5F); });
    EXPECT_EQ(weight.value().data<float>()[5], 2.5F);
    EXPECT_EQ(parameters.values().size(), static_cast<std::size_t>(parameters.elements()));
  }
}

}  // namespace
}  // namespace maestro
