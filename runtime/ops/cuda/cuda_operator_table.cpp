// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/cuda_operator_table.hpp"

#include <cassert>

#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/products/plain_weight.hpp"

namespace maestro::cuda {

namespace {

constexpr std::size_t products_bytes = std::size_t{64} << 20;  // what cuBLASLt's best algorithms ask for on Hopper

std::span<std::byte> bytes_of(const SpaceMemory& memory) {
  return {memory.data(), memory.size()};
}

/// What products are planned for: 0, all of the device, unless the stream has a part of it only.
int planned_multiprocessors(int of_stream) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  int all = 0;
  check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  return of_stream < all ? of_stream : 0;
}

void copy_bytes(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > 0) check(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

/// For kernels that know no memory but the device's.
SequenceLayout device_layout(const SequenceLayout& layout) {
  return {layout.device_offsets, layout.positions, layout.device_offsets};
}

}  // namespace

CudaOperatorTable::Engines::Engines(const CudaTableOptions& options)
    : products_memory(*options.memory, products_bytes),
      launch{options.stream, options.multiprocessors, &workspace},
      products(launch, bytes_of(products_memory), {options.tf32, planned_multiprocessors(options.multiprocessors)}),
      staging(options.stream, *options.pinned) {
  CudnnAttentionOptions cudnn;
  cudnn.deterministic = options.deterministic;
  attention.emplace(launch, cudnn);
  products.tune(options.tune);
  products.say_slow(options.say);
}

CudaOperatorTable::CudaOperatorTable(const CudaTableOptions& options)
    : options_(options), engines_(std::make_unique<Engines>(options)) {}

void CudaOperatorTable::say_once(const std::string& refusal) const {
  constexpr std::size_t most = 8;  // reasons have figures of the micro-batch in them
  auto& said = engines_->refusals_said;
  if (refusal.empty() || said.size() == most || !said.insert(refusal).second) return;
  if (options_.say) options_.say("attention is done by own kernels: " + refusal);
}

// ---- memory ----

void CudaOperatorTable::zero(const Tensor& to) const {
  if (to.bytes() > 0) check(cudaMemsetAsync(to.raw(), 0, to.bytes(), at().stream), "cudaMemsetAsync");
}

void CudaOperatorTable::copy(const Tensor& from, const Tensor& to) const {
  assert(from.dtype() == to.dtype() && from.bytes() == to.bytes());
  copy_bytes(to.raw(), from.raw(), to.bytes(), cudaMemcpyDeviceToDevice, at().stream);
}

void CudaOperatorTable::upload(const Tensor& host_from, const Tensor& to) const {
  assert(host_from.bytes() == to.bytes());
  copy_bytes(to.raw(), host_from.raw(), to.bytes(), cudaMemcpyDefault, at().stream);
}

void CudaOperatorTable::download(const Tensor& from, const Tensor& host_to) const {
  assert(from.bytes() == host_to.bytes());
  copy_bytes(host_to.raw(), from.raw(), from.bytes(), cudaMemcpyDefault, at().stream);
}

void CudaOperatorTable::put(std::span<const std::byte> values, const Tensor& to) const {
  assert(values.size() == to.bytes());
  engines_->staging.put(values, to.raw());
}

// ---- matrix products ----

std::unique_ptr<PackedWeight> CudaOperatorTable::pack(const Tensor& w, DType compute, PackFor /*use*/,
                                                      std::unique_ptr<PackedWeight> /*reuse*/) const {
  assert(w.dtype() == compute);
  static_cast<void>(compute);
  return std::make_unique<PlainWeight>(w);
}

void CudaOperatorTable::linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
                               Activation activation) const {
  engines_->products.linear(x, plain(w), bias, y);
  if (activation == Activation::gelu) cuda::gelu(at(), y, y);
}

void CudaOperatorTable::linear_gelu(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& pre,
                                    const Tensor& y) const {
  engines_->products.linear_gelu(x, plain(w), bias, pre, y);
}

void CudaOperatorTable::linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx,
                                              bool accumulate) const {
  engines_->products.linear_backward_input(dy, plain(w), dx, accumulate);
}

void CudaOperatorTable::linear_backward_input_gelu(const Tensor& dy, const PackedWeight& w, const Tensor& pre,
                                                   const Tensor& dpre) const {
  engines_->products.linear_backward_input_gelu(dy, plain(w), pre, dpre);
}

void CudaOperatorTable::linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                               const Tensor& dbias) const {
  engines_->products.linear_backward_weight(dy, x, dw, dbias);
}

// ---- normalisation ----

void CudaOperatorTable::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                                   const Tensor& y, const Tensor& mean, const Tensor& rstd) const {
  norm(at(), x, {weight, bias, epsilon}, y, mean, rstd);
}

void CudaOperatorTable::layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                            const Tensor& rstd, const Tensor& dx, bool accumulate,
                                            const Tensor& dweight, const Tensor& dbias) const {
  norm_backward(at(), dy, x, weight, mean, rstd, {dx, accumulate, dweight, dbias});
}

void CudaOperatorTable::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                                 const Tensor& rstd) const {
  norm(at(), x, {weight, {}, epsilon}, y, {}, rstd);
}

void CudaOperatorTable::rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                          const Tensor& dx, bool accumulate, const Tensor& dweight) const {
  norm_backward(at(), dy, x, weight, {}, rstd, {dx, accumulate, dweight, {}});
}

void CudaOperatorTable::add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                                       double epsilon, const Tensor& sum, const Tensor& y, const Tensor& mean,
                                       const Tensor& rstd) const {
  add_norm(at(), a, b, sum, {weight, bias, epsilon}, y, mean, rstd);
}

void CudaOperatorTable::add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double epsilon,
                                     const Tensor& sum, const Tensor& y, const Tensor& rstd) const {
  add_norm(at(), a, b, sum, {weight, {}, epsilon}, y, {}, rstd);
}

// ---- pointwise ----

void CudaOperatorTable::gelu(const Tensor& x, const Tensor& y) const {
  cuda::gelu(at(), x, y);
}

void CudaOperatorTable::gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  cuda::gelu_backward(at(), dy, x, dx);
}

void CudaOperatorTable::swiglu(const Tensor& x, const Tensor& y) const {
  cuda::swiglu(at(), x, y);
}

void CudaOperatorTable::swiglu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  cuda::swiglu_backward(at(), dy, x, dx);
}

void CudaOperatorTable::add(const Tensor& a, const Tensor& b, const Tensor& out) const {
  cuda::add(at(), a, b, out);
}

void CudaOperatorTable::cast(const Tensor& from, const Tensor& to) const {
  cuda::cast(at(), from, to);
}

// ---- embedding and positions ----

void CudaOperatorTable::embedding(const Tensor& table, const Tensor& ids, const Tensor& positions_table,
                                  std::span<const std::int32_t> positions, const Tensor& y) const {
  cuda::embedding(at(), table, ids, positions_table, positions, y);
}

void CudaOperatorTable::embedding_backward(const Tensor& dy, const Tensor& ids, std::span<const std::int32_t> positions,
                                           const Tensor& dtable, const Tensor& dpositions) const {
  cuda::embedding_backward(at(), dy, ids, positions, dtable, dpositions);
}

void CudaOperatorTable::shift_ids(const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) const {
  cuda::shift_ids(at(), ids, by, limit, out);
}

void CudaOperatorTable::pick_columns(const Tensor& from, const Tensor& columns, const Tensor& to) const {
  cuda::pick_columns(at(), from, columns, to);
}

void CudaOperatorTable::gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const {
  cuda::gather_rows(at(), from, index, to);
}

void CudaOperatorTable::scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index,
                                         const Tensor& to) const {
  cuda::scatter_add_rows(at(), rows, index, to);
}

void CudaOperatorTable::rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions,
                               double theta, int direction) const {
  cuda::rotary(at(), qkv, shape, positions, theta, direction);
}

// ---- attention ----

bool CudaOperatorTable::by_cudnn(const AttentionShape& shape, DType act, const SequenceSummary& summary) const {
  const std::string refusal = engines_->attention->refusal(shape, act, summary);
  if (act == DType::bf16) say_once(refusal);  // f32 has no other kernels: nothing to tell
  return refusal.empty();
}

std::string CudaOperatorTable::attention_refusal(const AttentionShape& shape) const {
  return flash_refusal(shape);  // what cuDNN takes, own kernels take too
}

void CudaOperatorTable::attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                                  const Tensor& out, const Tensor& lse) const {
  if (qkv.rows() == 0) return;
  const SequenceSummary summary = summarize(layout.offsets);
  if (!by_cudnn(shape, qkv.dtype(), summary)) {
    return flash_attention(at(), qkv, shape, device_layout(layout), out, lse);
  }
  engines_->attention->forward({qkv, out, lse}, shape, {summary, layout.device_offsets.data()});
}

void CudaOperatorTable::attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                           const AttentionShape& shape, const SequenceLayout& layout,
                                           const Tensor& dqkv) const {
  if (qkv.rows() == 0) return;
  const SequenceSummary summary = summarize(layout.offsets);
  if (!by_cudnn(shape, qkv.dtype(), summary)) {
    return flash_attention_backward(at(), dout, qkv, out, lse, shape, device_layout(layout), dqkv);
  }
  engines_->attention->backward({qkv, out, lse}, {dout, dqkv}, shape, {summary, layout.device_offsets.data()});
}

// ---- flat vectors ----

void CudaOperatorTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                              std::span<float> variance, const AdamWStep& step) const {
  adamw(value, gradient, mean, variance, step, {});
}

void CudaOperatorTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                              std::span<float> variance, const AdamWStep& step, std::span<bfloat16> rounded) const {
  const auto count = static_cast<std::int64_t>(value.size());
  cuda::adamw(at(), {value.data(), gradient.data(), mean.data(), variance.data(), rounded.data(), count}, step);
}

Pending<double> CudaOperatorTable::sum_of_squares(std::span<const float> values) const {
  const auto sum = engines_->staging.figure<double>();
  cuda::sum_of_squares(at(), values.data(), static_cast<std::int64_t>(values.size()), sum.get(), false);
  return Pending<double>(std::shared_ptr<const double>(sum));
}

void CudaOperatorTable::add_into(std::span<float> into, std::span<const float> values) const {
  cuda::add_into(at(), into.data(), values.data(), static_cast<std::int64_t>(into.size()));
}

}  // namespace maestro::cuda
