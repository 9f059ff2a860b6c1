// SPDX-License-Identifier: Apache-2.0
// Compares arrays for cuDNN's ragged tensors with the offsets that they are made from.
#include "runtime/ops/cuda/attention/cudnn_sequences.hpp"

#include "tests/ops/cuda/kernel_test.hpp"

namespace maestro::cuda {
namespace {

class CudnnSequencesOnDevice : public KernelTest {};

TEST_F(CudnnSequencesOnDevice, offsets_count_elements_and_added_sequences_are_empty) {
  for (const std::int64_t batch : {3, 4, 127, 128, 300}) {
    const std::vector<std::int32_t> offsets = {0, 5, 5, 12};
    const Tensor device = upload(OwnedTensor(DType::i32, Shape{4}, Values(offsets.begin(), offsets.end())));
    const Tensor lengths = empty(DType::i32, Shape{batch});
    const Tensor qkv = empty(DType::i64, Shape{batch + 1});
    const Tensor out = empty(DType::i64, Shape{batch + 1});
    const Tensor stats = empty(DType::i64, Shape{batch + 1});
    run([&] {
      ragged_arrays(at_, device.data<std::int32_t>(), 3, batch, {.qkv = 1000, .out = 10, .stats = 2},
                    {.lengths = lengths.data<std::int32_t>(),
                     .qkv = qkv.data<std::int64_t>(),
                     .out = out.data<std::int64_t>(),
                     .stats = stats.data<std::int64_t>()});
    });
    std::vector<std::int64_t> got(static_cast<std::size_t>(batch + 1));
    const auto fetch = [&](const Tensor& from) {
      check(cudaMemcpy(got.data(), from.raw(), from.bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    };
    for (const auto& [tensor, columns] : {std::pair{qkv, 1000}, {out, 10}, {stats, 2}}) {
      fetch(tensor);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], offsets[std::min<std::size_t>(i, 3)] * columns);
    }
    Values wanted(static_cast<std::size_t>(batch));
    wanted[0] = 5;
    wanted[2] = 7;
    EXPECT_EQ(download(lengths), wanted);
  }
}

}  // namespace
}  // namespace maestro::cuda
