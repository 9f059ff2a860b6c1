// SPDX-License-Identifier: Apache-2.0
// Times products of rows in groups on one core: of one weight, which stays in the caches, and of 64 weights in turn,
// which do not fit them; with blocks of rows, and row by row (GroupedLinear::rows_alone). Prints GFLOP/s.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "runtime/core/aligned_memory.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"

namespace maestro {
namespace {

struct Shape2 {
  std::int64_t n, k;
};

/// Returns the GFLOP/s of the fastest of some passes over all groups, after one that warms up.
double rate(const cpu::CpuOperatorTable& ops, Shape2 shape, std::int64_t groups, std::int64_t rows, DType dtype,
            bool alone) {
  const auto filled = [](Shape sizes, DType type) {
    auto memory = std::make_unique<AlignedMemory>(static_cast<std::size_t>(sizes.elements()) * size_of(type));
    const Tensor tensor(memory->data(), type, sizes);
    for (std::int64_t i = 0; i < sizes.elements(); ++i) {
      const float value = static_cast<float>(i % 7) - 3;
      type == DType::f32 ? tensor.data<float>()[i] = value : (tensor.data<bfloat16>()[i] = bfloat16(value), 0);
    }
    return std::pair{std::move(memory), tensor};
  };
  const auto [w_memory, w] = filled({groups * shape.n, shape.k}, DType::f32);
  const auto [x_memory, x] = filled({groups * rows, shape.k}, dtype);
  const auto [y_memory, y] = filled({groups * rows, shape.n}, dtype);
  const auto [o_memory, offsets] = filled({groups + 1, 1}, DType::f32);
  for (std::int32_t i = 0; i <= groups; ++i) {
    reinterpret_cast<std::int32_t*>(offsets.raw())[i] = i * static_cast<std::int32_t>(rows);
  }
  std::unique_ptr<PackedWeight> packed;
  for (std::int64_t group = 0; group < groups; ++group) {
    packed =
        ops.pack(w.row_slice(group * shape.n, shape.n), dtype, PackFor::forward, std::move(packed), {group, groups});
  }
  const GroupedLinear call{.x = x,
                           .w = packed.get(),
                           .offsets = Tensor(offsets.raw(), DType::i32, Shape{groups + 1}),
                           .y = y,
                           .rows_alone = alone};
  double least = 1e9;
  for (int pass = 0; pass < 6; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    const int repeats = groups == 1 ? 64 : 1;
    for (int i = 0; i < repeats; ++i) ops.run(call);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (pass > 0) least = std::min(least, taken.count() / repeats);
  }
  return 2.0 * static_cast<double>(groups * rows * shape.n * shape.k) / least / 1e9;
}

void print_rates() {
  const cpu::CpuOperatorTable ops;
  std::printf(
      "| product | rows of a weight | one weight | 64 in turn | one, row by row | 64, row by row |\n"
      "|---|---|---|---|---|---|\n");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape2 shape : {Shape2{2048, 1024}, Shape2{1024, 1024}, Shape2{256, 512}}) {
      for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128}) {
        std::printf("| %s %ld x %ld | %ld |", dtype == DType::f32 ? "fp32" : "bf16", static_cast<long>(shape.n),
                    static_cast<long>(shape.k), static_cast<long>(rows));
        for (const bool alone : {false, true}) {
          for (const std::int64_t groups : {1, 64})
            std::printf(" %.1f |", rate(ops, shape, groups, rows, dtype, alone));
        }
        std::printf("\n");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace maestro

int main() {
  maestro::print_rates();
}
