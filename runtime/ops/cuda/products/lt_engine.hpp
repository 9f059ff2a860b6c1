// SPDX-License-Identifier: Apache-2.0
// Products by cuBLASLt: describes a product, finds its algorithm once and keeps it.
//
// LE-1 (kept algorithms): equal requests on equally aligned memory run the same algorithm from the first time on, so
//       that results are the same bit for bit within a process; without tuning also from run to run on the same device
//       and library.
// LE-2 (reduction order): no algorithm reduces parts of a sum in the output's memory, and none uses atomic
//       additions.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/ops/cuda/products/lt_handles.hpp"

namespace maestro::cuda {

/// Serves a single stream; not thread-safe. The device must be current when a member is called.
class LtEngine {
 public:
  /// `workspace`: device memory (32 MiB or more for the best algorithms), 256-byte aligned; outlives the engine.
  LtEngine(cudaStream_t stream, std::span<std::byte> workspace, const LtArithmetic& arithmetic);

  /// Sets whether new products are timed with each of the best candidates, which waits for the stream. At most the
  /// first `most_tuned` products are timed, so that lengths that change with every micro-batch end in the heuristic's
  /// choice.
  void tune(bool on) { tune_ = on; }

  /// Enqueues the product. Returns false, without enqueueing anything, if the library lacks an algorithm for it. Any
  /// other failure throws DeviceError naming the product.
  [[nodiscard]] bool run(const ProductRequest& request, const ProductPointers& pointers);

  [[nodiscard]] std::size_t plans() const { return plans_.size(); }
  [[nodiscard]] std::size_t tuned() const { return tuned_; }
  /// Returns descriptions of the requested products that lack an algorithm.
  [[nodiscard]] std::vector<std::string> refused() const;

  static constexpr std::size_t most_tuned = 256;
  static constexpr std::size_t most_plans = 4096;  ///< limit; then all plans are dropped and made again as needed

 private:
  struct Key {
    ProductRequest request;
    std::array<std::uint32_t, 5> alignments{};  ///< alignments of a, b, d, vector, auxiliary: kernels rely on them
    auto operator<=>(const Key&) const = default;
  };
  struct Ready {
    ProductPlan plan;
    LtMatmul matmul;
    LtLayout a;
    LtLayout b;
    LtLayout d;
    bool usable = false;
    cublasLtMatmulAlgo_t algorithm{};
  };

  static Key key_of(const ProductRequest& request, const ProductPointers& pointers);
  Ready& ready(const ProductRequest& request, const ProductPointers& pointers);
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> candidates(const Ready& ready, const Key& key) const;
  [[nodiscard]] cublasLtMatmulAlgo_t fastest(Ready& ready, const ProductPointers& pointers,
                                             const std::vector<cublasLtMatmulAlgo_t>& candidates);
  [[nodiscard]] cublasStatus_t enqueue(const Ready& ready, const ProductPointers& pointers,
                                       const cublasLtMatmulAlgo_t& algorithm) const;
  static void point(const Ready& ready, const ProductPointers& pointers);

  cudaStream_t stream_;
  std::span<std::byte> workspace_;
  LtArithmetic arithmetic_;
  LtHandle handle_;
  std::map<Key, Ready> plans_;
  bool tune_ = false;
  std::size_t tuned_ = 0;
};

}  // namespace maestro::cuda
