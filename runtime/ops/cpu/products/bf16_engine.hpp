// SPDX-License-Identifier: Apache-2.0
// Products of bf16 operands by oneDNN's matmul primitive, for CPUs with AMX.
//
// A primitive is compiled for a fixed set of sizes. To bound their number, products are cut into blocks of 512 rows, a
// block with a smaller multiple of 64 rows, and a last block padded with zero rows to a multiple of 16: at most eleven
// primitives are compiled per weight and use.
//
// Few rows cost as much as reading the weights, so a kernel of maestro reads them in memory order.
#pragma once

#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>

#include "runtime/ops/cpu/pointwise/pointwise_kernels.hpp"
#include "runtime/ops/cpu/products/matrix_kernels.hpp"
#include "runtime/ops/cpu/products/product_engine.hpp"
#include "runtime/ops/cpu/scratch.hpp"

namespace maestro::cpu {

class Bf16Engine final : public ProductEngine {
 public:
  /// `scratch` must outlive the engine.
  explicit Bf16Engine(ScratchPool& scratch, Isa isa = best_isa());

  [[nodiscard]] std::unique_ptr<PackedPanel> pack(const Tensor& w, PackFor use,
                                                  std::unique_ptr<PackedPanel> reuse) const override;
  void multiply(const Matrix& in, const PackedPanel& right, PackFor use, const Matrix& out,
                const Epilogue& epilogue) const override;
  [[nodiscard]] std::int64_t few_rows() const override { return 8; }
  void multiply_each(const Matrix& in, const PackedPanel& right, const Matrix& out,
                     const Epilogue& epilogue) const override;
  void copy_column(const PackedPanel& right, std::int64_t column, float* to) const override;
  void add_outer_products(const Tensor& dy, const Tensor& x, const Tensor& dw) const override;

  /// Sizes and epilogue of a compiled product.
  struct Key {
    enum class Kind : std::uint8_t { packed, outer };
    Kind kind = Kind::packed;
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;
    std::int64_t in_stride = 0;
    std::int64_t out_stride = 0;
    DType out = DType::bf16;
    bool bias = false;
    std::optional<GeluKind> activation{};
    bool accumulate = false;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// Returns the number of products compiled so far.
  [[nodiscard]] std::size_t primitives() const;

  /// `count` rows that a product of `padded` rows computes.
  struct RowBlock {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t padded = 0;
  };

 private:
  struct Operands {
    const void* in = nullptr;
    const void* right = nullptr;
    void* out = nullptr;
    const float* bias = nullptr;
  };
  struct Product {
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
  };
  [[nodiscard]] Product compile(const Key& key, const dnnl::memory::desc& right) const;
  /// Returns the compiled product, from the cache or new; `right` is a function of the sizes. References stay valid:
  /// the cache only grows.
  [[nodiscard]] const Product& product(const Key& key, const dnnl::memory::desc& right) const;
  /// Multiplies few rows by a panel in the layout of RowProductCall.
  void multiply_in_blocks(const Matrix& in, const std::byte* right, const Matrix& out, const Epilogue& epilogue) const;
  void multiply_block(const Matrix& in, const PackedPanel& right, const Matrix& out, const Epilogue& epilogue,
                      const RowBlock& block) const;
  void run(const Key& key, const dnnl::memory::desc& right, const Operands& operands,
           ScratchPool::Lease& scratch) const;

  const MatrixKernels& kernels_;
  const PointwiseKernels& pointwise_;
  ScratchPool& scratch_;
  dnnl::engine engine_;
  mutable std::mutex mutex_;  // guards products_
  mutable std::map<Key, Product> products_;
};

}  // namespace maestro::cpu
