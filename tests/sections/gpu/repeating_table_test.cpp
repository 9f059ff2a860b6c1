// SPDX-License-Identifier: Apache-2.0
// The operator table that replays passes, call by call, with the fake runtime.
#include "runtime/device/cuda/repeating_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/device/cuda/cuda_device.hpp"
#include "runtime/device/cuda/cuda_tables.hpp"
#include "runtime/ops/device_queue.hpp"
#include "tests/support/fake_cuda/host_cuda.hpp"

namespace maestro::cuda {
namespace {

constexpr std::int64_t rows = 4;
constexpr std::int64_t width = 8;
constexpr std::int64_t vocabulary = 16;
constexpr std::uint64_t place = 1;

class RepeatingTableTest : public ::testing::Test {
 protected:
  RepeatingTableTest() {
    DeviceOptions options;
    options.name = "cuda:0";
    options.graphs = GraphUse::always;
    options.log = [this](const std::string& line) { lines_.push_back(line); };
    device_ = std::make_unique<CudaDevice>(options, poller_, parts_, cuda_tables());
    memory_ = SpaceMemory(device_->memory(), std::size_t{4096} * 8);
  }
  ~RepeatingTableTest() override { memory_.reset(); }
  [[nodiscard]] const OperatorTable& ops() const { return device_->ops(); }
  [[nodiscard]] std::size_t graphs() { return device_->graphs().graphs(); }
  /// Returns the device tensor number `at`.
  [[nodiscard]] Tensor tensor(std::size_t at, Shape shape, DType dtype = DType::f32) const {
    return {memory_.data() + 4096 * at, dtype, shape};
  }
  void write(const Tensor& to, const std::vector<float>& values) {
    device_->memory().write(to.raw(), reinterpret_cast<const std::byte*>(values.data()), to.bytes());
  }
  template <class T = float>
  [[nodiscard]] std::vector<T> values_of(const Tensor& tensor) {
    EXPECT_EQ(cudaStreamSynchronize(device_->stream()), cudaSuccess);
    std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
    device_->memory().read(reinterpret_cast<std::byte*>(values.data()), tensor.raw(), tensor.bytes());
    return values;
  }
  [[nodiscard]] std::size_t queued_by(const std::function<void()>& calls) {
    const std::size_t before = fake_cuda::queued();
    ops().repeat(place, calls);
    return fake_cuda::queued() - before;
  }

  Poller poller_;
  DeviceParts parts_{0, GreenContextCalls{}};
  std::vector<std::string> lines_;
  std::unique_ptr<CudaDevice> device_;
  SpaceMemory memory_;
};

TEST_F(RepeatingTableTest, does_in_the_order_of_the_calls_what_they_do_and_queues_a_graph_once) {  // RT-1, RT-3
  const Tensor a = tensor(0, {rows, width}), b = tensor(1, {rows, width});
  const auto calls = [&] {
    ops().run(Add{.a = a, .b = b, .out = b});
    ops().run(Add{.a = b, .b = a, .out = a});
    ops().run(Cast{.from = a, .to = b});
  };
  write(a, std::vector<float>(rows * width, 1.0F));
  write(b, std::vector<float>(rows * width, 2.0F));
  float in_a = 1, in_b = 2;
  for (int run = 1; run <= 5; ++run) {
    EXPECT_EQ(queued_by(calls), run == 1 ? 3u : 1u) << run;
    in_a += in_b + in_a;
    in_b = in_a;
    EXPECT_EQ(values_of(a), std::vector<float>(rows * width, in_a)) << run;
    EXPECT_EQ(values_of(b), std::vector<float>(rows * width, in_b)) << run;
  }
  EXPECT_EQ(graphs(), 1u);
}

TEST_F(RepeatingTableTest, calls_with_another_operator_tensor_shape_or_scalar_are_other_work) {  // OC-1
  const Tensor a = tensor(0, {rows, width}), b = tensor(1, {rows, width});
  const AttentionShape shape{1, 1, width, true};
  const Tensor qkv = tensor(2, {rows, 3 * width});
  const std::int32_t* positions = tensor(3, {rows}, DType::i32).data<std::int32_t>();
  const std::span<const std::int32_t> at(positions, rows);
  const RotaryFrequencies frequencies{{1, 0.5}, 1, {}};
  device_->memory().zero(memory_.data(), memory_.size());
  const std::vector<std::function<void()>> works = {
      [&] { ops().run(Gelu{.x = a, .y = b}); },
      [&] { ops().run(Cast{.from = a, .to = b}); },
      [&] { ops().run(Gelu{.x = b, .y = a}); },
      [&] { ops().run(Gelu{.x = a.row_slice(0, 2), .y = b.row_slice(0, 2)}); },
      [&] {
        ops().run(Rotary{qkv, shape, at, &frequencies, 1});
      },
      [&] {
        ops().run(Rotary{qkv, shape, at, &frequencies, -1});
      },
      [&] { ops().run(HeadNorm{.x = qkv, .shape = shape, .query_weight = b, .key_weight = b, .sums = a, .y = qkv}); },
  };
  for (int run = 1; run <= 3; ++run) {
    for (const auto& work : works) ops().repeat(place, work);
  }
  EXPECT_EQ(graphs(), works.size());
}

/// Copies the first tensor to the second.
void copy_on(const Custom& call, void* stream) {
  EXPECT_EQ(cudaMemcpyAsync(call.tensors[1].raw(), call.tensors[0].raw(), call.tensors[0].bytes(),
                            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
            cudaSuccess);
}

TEST_F(RepeatingTableTest, a_plug_ins_operator_repeats_with_equal_tensors_and_numbers) {  // OC-1
  static const CustomOperator copy{.name = "copy", .cuda = copy_on};
  static const CustomOperator nowhere{.name = "nowhere"};
  const Tensor a = tensor(0, {rows, width}), b = tensor(1, {rows, width}), c = tensor(2, {rows, width});
  write(a, std::vector<float>(rows * width, 3.0F));
  for (const auto& [to, number] : {std::pair(b, 1.0), std::pair(b, 2.0), std::pair(c, 1.0)}) {
    for (int run = 1; run <= 3; ++run) {
      ops().repeat(place, [&] { ops().run(Custom{.op = &copy, .tensors = {a, to}, .numbers = {number}}); });
    }
    EXPECT_EQ(values_of(to), std::vector<float>(rows * width, 3.0F));
  }
  EXPECT_EQ(graphs(), 3u);
  EXPECT_THROW(ops().run(Custom{.op = &nowhere, .tensors = {a, b}}), JobError);
}

TEST_F(RepeatingTableTest, frequencies_of_a_rotation_count_by_value_and_may_change_at_once) {  // OC-1, OC-2
  const Tensor qkv = tensor(0, {1, 3 * width});
  const Tensor positions = tensor(1, {1}, DType::i32);
  const std::int32_t position = 3;
  device_->memory().write(positions.raw(), reinterpret_cast<const std::byte*>(&position), sizeof position);
  for (int run = 1; run <= 3; ++run) {
    for (const double angle : {0.25, 0.5}) {
      write(qkv, std::vector<float>(3 * width, 1.0F));
      RotaryFrequencies frequencies{{angle}, 1, {}};
      ops().repeat(place, [&] {
        ops().run(Rotary{qkv, {1, 1, width, true}, positions.span<std::int32_t>(), &frequencies, 1});
        frequencies.inverse.clear();
      });
      EXPECT_NEAR(values_of(qkv)[0], std::cos(3 * angle) - std::sin(3 * angle), 1e-6) << run;
    }
  }
  EXPECT_EQ(graphs(), 2u);
}

TEST_F(RepeatingTableTest, lists_of_the_host_are_part_of_what_repeats_and_may_change_at_once) {  // OC-1, OC-2
  const Tensor to = tensor(0, {4}, DType::i32);
  for (int run = 1; run <= 4; ++run) {
    for (const std::int32_t first : {1, 5}) {
      ops().repeat(place, [&] {
        std::vector<std::int32_t> list = {first, 2, 3, 4};
        ops().put(std::as_bytes(std::span(list)), to);
        list.assign(4, -1);
      });
      EXPECT_EQ(values_of<std::int32_t>(to), (std::vector<std::int32_t>{first, 2, 3, 4})) << run;
    }
  }
  EXPECT_EQ(graphs(), 2u);
}

TEST_F(RepeatingTableTest, figures_of_replays_keep_their_values_when_others_follow) {  // OC-3, PS-1
  const Tensor hidden = tensor(0, {rows, width}), weight = tensor(1, {vocabulary, width});
  const Tensor targets = tensor(2, {rows}, DType::i32);
  const std::vector<std::int32_t> wanted = {1, 2, 3, -1};
  device_->memory().write(targets.raw(), reinterpret_cast<const std::byte*>(wanted.data()), targets.bytes());
  std::vector<float> values(vocabulary * width);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = std::sin(static_cast<float>(at));
  write(weight, values);
  CrossEntropyHead head;
  head.hidden = hidden;
  head.vocabulary = vocabulary;
  head.targets = targets;
  head.scale = 1;
  const auto loss_of = [&] {
    const auto packed = ops().pack(weight, DType::f32, PackFor::forward, nullptr);  // gone before the call is issued
    CrossEntropyHead given = head;
    given.head = packed.get();
    return ops().run(CrossEntropyLoss{.head = given});
  };
  std::vector<Pending<LossSums>> repeated, issued;
  for (int run = 1; run <= 6; ++run) {
    write(hidden, std::vector<float>(rows * width, 0.1F * static_cast<float>(run)));
    ops().repeat(place, [&] { repeated.push_back(loss_of()); });
    issued.push_back(loss_of());
    (void)values_of(hidden);  // written by the next call
  }
  EXPECT_EQ(graphs(), 1u);
  for (std::size_t run = 0; run < issued.size(); ++run) {
    EXPECT_EQ(repeated[run].get().ce, issued[run].get().ce) << run;
    EXPECT_EQ(repeated[run].get().total, issued[run].get().total) << run;
    EXPECT_EQ(repeated[run].get().tokens, 3) << run;
    if (run > 0) {
      EXPECT_NE(issued[run].get().ce, issued[run - 1].get().ce);
    }
  }
}

TEST_F(RepeatingTableTest, a_call_that_cannot_wait_ends_the_collecting_and_nothing_is_lost_or_done_twice) {  // RT-2
  const Tensor a = tensor(0, {rows, width}), b = tensor(1, {rows, width});
  write(b, std::vector<float>(rows * width, 1.0F));
  for (int run = 1; run <= 3; ++run) {
    std::vector<float> host(rows * width, static_cast<float>(run));
    ops().repeat(place, [&] {
      ops().run(Add{.a = b, .b = b, .out = b});
      ops().upload(Tensor(host.data(), DType::f32, {rows, width}), a);
      ops().run(Add{.a = a, .b = b, .out = b});
    });
    const std::vector<float> found = values_of(b);
    EXPECT_EQ(found.front(), run == 1 ? 3.0F : run == 2 ? 8.0F : 19.0F);
  }
  EXPECT_EQ(graphs(), 0u);
}

TEST_F(RepeatingTableTest,
       work_of_another_library_comes_after_earlier_calls_of_the_pass_and_before_later_ones) {  // OQ-1
  const DeviceQueue* const queue = queue_of(ops());
  ASSERT_NE(queue, nullptr);
  EXPECT_EQ(queue->device(), 0);
  const Tensor a = tensor(0, {rows, width}), b = tensor(1, {rows, width});
  for (int run = 1; run <= 3; ++run) {
    write(a, std::vector<float>(rows * width, 1.0F));
    write(b, std::vector<float>(rows * width, 0.0F));
    ops().repeat(place, [&] {
      ops().run(Add{.a = a, .b = a, .out = a});
      ASSERT_EQ(queue->stream(), device_->stream());
      ASSERT_EQ(cudaMemcpyAsync(b.raw(), a.raw(), a.bytes(), cudaMemcpyDeviceToDevice, device_->stream()), cudaSuccess);
      ops().run(Add{.a = a, .b = b, .out = a});
    });
    EXPECT_EQ(values_of(b).front(), 2.0F) << run;
    EXPECT_EQ(values_of(a).front(), 4.0F) << run;
  }
}

TEST_F(RepeatingTableTest, waiting_for_the_queue_completes_the_calls_of_the_pass) {  // OQ-1
  const Tensor a = tensor(0, {rows, width});
  write(a, std::vector<float>(rows * width, 1.0F));
  ops().repeat(place, [&] {
    ops().run(Add{.a = a, .b = a, .out = a});
    queue_of(ops())->wait();
    std::vector<float> found(rows * width);
    device_->memory().read(reinterpret_cast<std::byte*>(found.data()), a.raw(), a.bytes());
    EXPECT_EQ(found.front(), 2.0F);
  });
}

TEST_F(RepeatingTableTest, a_pass_that_throws_leaves_its_calls_out_and_the_next_one_is_whole) {
  const Tensor a = tensor(0, {rows, width});
  write(a, std::vector<float>(rows * width, 1.0F));
  EXPECT_THROW(ops().repeat(place,
                            [&] {
                              ops().run(Add{.a = a, .b = a, .out = a});
                              throw std::runtime_error("a section's");
                            }),
               std::runtime_error);
  EXPECT_EQ(values_of(a).front(), 1.0F);
  ops().run(Add{.a = a, .b = a, .out = a});
  EXPECT_EQ(values_of(a).front(), 2.0F) << "issued as ever";
  ops().repeat(place, [&] { ops().run(Add{.a = a, .b = a, .out = a}); });
  EXPECT_EQ(values_of(a).front(), 4.0F);
}

TEST_F(RepeatingTableTest, passes_within_a_pass_are_part_of_it) {
  const Tensor a = tensor(0, {rows, width});
  write(a, std::vector<float>(rows * width, 1.0F));
  for (int run = 1; run <= 3; ++run) {
    ops().repeat(place, [&] {
      ops().run(Add{.a = a, .b = a, .out = a});
      ops().repeat(place + 1, [&] { ops().run(Add{.a = a, .b = a, .out = a}); });
    });
  }
  EXPECT_EQ(values_of(a).front(), 64.0F);
  EXPECT_EQ(graphs(), 1u);
}

}  // namespace
}  // namespace maestro::cuda
