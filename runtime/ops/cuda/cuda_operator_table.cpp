// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/cuda_operator_table.hpp"

#include <cassert>

#include "runtime/core/result.hpp"
#include "runtime/ops/cuda/attention/cached_attention.hpp"
#include "runtime/ops/cuda/attention/flash_attention.hpp"
#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/products/plain_weight.hpp"

namespace maestro::cuda {

namespace {

constexpr std::size_t products_bytes = std::size_t{64} << 20;  // for cuBLASLt's best algorithms on Hopper

std::span<std::byte> bytes_of(const SpaceMemory& memory) {
  return {memory.data(), memory.size()};
}

/// Returns the multiprocessors that products are planned for: 0, the full device, unless the stream has only a part.
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

/// Returns the call for kernels, which read only device memory.
template <class Op>
Op on_device(Op op) {
  op.layout.offsets = op.layout.device_offsets;
  return op;
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
  products.report_slow(options.report);
}

CudaOperatorTable::CudaOperatorTable(const CudaTableOptions& options)
    : options_(options), engines_(std::make_unique<Engines>(options)) {}

void CudaOperatorTable::wait() const {
  check(cudaStreamSynchronize(options_.stream), "cudaStreamSynchronize");
}

void CudaOperatorTable::make_current() const noexcept {
  static_cast<void>(cudaSetDevice(options_.device));
}

void CudaOperatorTable::say_once(const std::string& refusal) const {
  constexpr std::size_t most = 8;  // reasons contain figures of the micro-batch
  auto& reported = engines_->refusals_reported;
  if (refusal.empty() || reported.size() == most || !reported.insert(refusal).second) return;
  if (options_.report) options_.report("attention is done by own kernels: " + refusal);
}

// ---- memory ----

void CudaOperatorTable::run(const Zero& op) const {
  if (op.to.bytes() > 0) check(cudaMemsetAsync(op.to.raw(), 0, op.to.bytes(), at().stream), "cudaMemsetAsync");
}

void CudaOperatorTable::run(const Copy& op) const {
  assert(op.from.dtype() == op.to.dtype() && op.from.bytes() == op.to.bytes());
  copy_bytes(op.to.raw(), op.from.raw(), op.to.bytes(), cudaMemcpyDeviceToDevice, at().stream);
}

void CudaOperatorTable::run(const Upload& op) const {
  assert(op.from.bytes() == op.to.bytes());
  copy_bytes(op.to.raw(), op.from.raw(), op.to.bytes(), cudaMemcpyDefault, at().stream);
}

void CudaOperatorTable::run(const Download& op) const {
  assert(op.from.bytes() == op.to.bytes());
  copy_bytes(op.to.raw(), op.from.raw(), op.from.bytes(), cudaMemcpyDefault, at().stream);
}

void CudaOperatorTable::run(const Put& op) const {
  assert(op.values.size() == op.to.bytes());
  engines_->staging.put(op.values, op.to.raw());
}

// ---- matrix products ----

std::unique_ptr<PackedWeight> CudaOperatorTable::pack(const Tensor& w, DType compute, PackFor /*use*/,
                                                      std::unique_ptr<PackedWeight> reuse, WeightGroup group) const {
  assert(w.dtype() == compute);
  static_cast<void>(compute);
  if (group.index > 0) return reuse;  // the first group's view has all groups
  return std::make_unique<PlainWeight>(Tensor(w.raw(), w.dtype(), Shape{group.count * w.rows(), w.columns()}));
}

std::unique_ptr<PackedWeight> CudaOperatorTable::pack_blocks(const Mxfp4Rows& w, std::unique_ptr<PackedWeight> reuse,
                                                             WeightGroup group) const {
  if (reuse == nullptr) reuse = std::make_unique<OwnedBlocks>(memory(), group.count * w.rows, w.columns);
  static_cast<OwnedBlocks&>(*reuse).write(w, group.index);
  return reuse;
}

void CudaOperatorTable::run(const Linear& op) const {
  if (op.rows_alone && op.x.rows() > 1) {
    for (std::int64_t row = 0; row < op.x.rows(); ++row) {
      run(Linear{.x = op.x.row_slice(row, 1),
                 .w = op.w,
                 .bias = op.bias,
                 .y = op.y.row_slice(row, 1),
                 .activation = op.activation,
                 .pre = op.pre.defined() ? op.pre.row_slice(row, 1) : op.pre});
    }
    return;
  }
  if (op.pre.defined() && op.activation.value() == GeluKind::tanh) {
    return engines_->products.linear_gelu(op.x, plain(*op.w), op.bias, op.pre, op.y);
  }
  const Tensor& product = op.pre.defined() ? op.pre : op.y;
  engines_->products.linear(op.x, plain(*op.w), op.bias, product);
  if (op.activation) gelu(at(), {.x = product, .y = op.y, .kind = *op.activation});
}

void CudaOperatorTable::run(const LinearBackwardInput& op) const {
  assert(!op.pre.defined() || !op.accumulate);
  if (op.pre.defined() && op.activation == GeluKind::tanh) {
    return engines_->products.linear_backward_input_gelu(op.dy, plain(*op.w), op.pre, op.dx);
  }
  engines_->products.linear_backward_input(op.dy, plain(*op.w), op.dx, op.accumulate);
  if (op.pre.defined()) gelu_backward(at(), {.dy = op.dx, .x = op.pre, .dx = op.dx, .kind = op.activation});
}

void CudaOperatorTable::run(const LinearBackwardWeight& op) const {
  engines_->products.linear_backward_weight(op.dy, op.x, op.dw, op.dbias);
}

// ---- maestro's kernels ----

void CudaOperatorTable::run(const Norm& op) const {
  norm(at(), op);
}

void CudaOperatorTable::run(const NormBackward& op) const {
  norm_backward(at(), op);
}

void CudaOperatorTable::run(const HeadNorm& op) const {
  head_norm(at(), op);
}

void CudaOperatorTable::run(const HeadNormBackward& op) const {
  head_norm_backward(at(), op);
}

void CudaOperatorTable::run(const Gelu& op) const {
  gelu(at(), op);
}

void CudaOperatorTable::run(const GeluBackward& op) const {
  gelu_backward(at(), op);
}

void CudaOperatorTable::run(const Glu& op) const {
  glu(at(), op);
}

void CudaOperatorTable::run(const GluBackward& op) const {
  glu_backward(at(), op);
}

void CudaOperatorTable::run(const Softcap& op) const {
  softcap(at(), op);
}

void CudaOperatorTable::run(const Add& op) const {
  add(at(), op.a, op.b, op.out);
}

void CudaOperatorTable::run(const Cast& op) const {
  cast(at(), op.from, op.to);
}

void CudaOperatorTable::run(const Embedding& op) const {
  embedding(at(), op);
}

void CudaOperatorTable::run(const EmbeddingBackward& op) const {
  embedding_backward(at(), op);
}

void CudaOperatorTable::run(const ShiftIds& op) const {
  shift_ids(at(), op.ids, op.by, op.limit, op.out);
}

void CudaOperatorTable::run(const PickColumns& op) const {
  pick_columns(at(), op.from, op.columns, op.to);
}

void CudaOperatorTable::run(const IndexSelect& op) const {
  index_select(at(), op.from, op.index, op.to);
}

void CudaOperatorTable::run(const IndexAdd& op) const {
  index_add(at(), op.rows, op.index, op.to);
}

void CudaOperatorTable::run(const Rotary& op) const {
  rotary(at(), op);
}

void CudaOperatorTable::run(const TopK& op) const {
  top_k(at(), op.logits, op.values, op.indices, op.columns);
}

// ---- mixtures of experts ----

void CudaOperatorTable::run(const Route& op) const {
  route(at(), op);
}

void CudaOperatorTable::run(const RouteBackward& op) const {
  route_backward(at(), op);
}

void CudaOperatorTable::run(const CountRoutes& op) const {
  count_routes(at(), op);
}

void CudaOperatorTable::run(const SortRoutes& op) const {
  sort_routes(at(), op);
}

void CudaOperatorTable::run(const GroupedLinear& op) const {
  grouped_linear(at(), op);
}

void CudaOperatorTable::run(const GroupedLinearBackwardInput& op) const {
  grouped_linear_backward_input(at(), op);
}

void CudaOperatorTable::run(const GroupedLinearBackwardWeight& op) const {
  grouped_linear_backward_weight(at(), op);
}

void CudaOperatorTable::run(const CombineRows& op) const {
  combine_rows(at(), op);
}

void CudaOperatorTable::run(const GroupedBias& op) const {
  grouped_bias(at(), op);
}

void CudaOperatorTable::run(const GroupedBiasBackward& op) const {
  grouped_bias_backward(at(), op);
}

// ---- gated delta rule ----

void CudaOperatorTable::run(const DeltaRule& op) const {
  delta_rule(at(), on_device(op));
}

void CudaOperatorTable::run(const DeltaRuleBackward& op) const {
  delta_rule_backward(at(), on_device(op));
}

void CudaOperatorTable::run(const CachedDelta& op) const {
  cached_delta(at(), op);
}

// ---- latent attention ----

void CudaOperatorTable::run(const LatentHeads& op) const {
  latent_heads(at(), op);
}

void CudaOperatorTable::run(const LatentHeadsBackward& op) const {
  latent_heads_backward(at(), op);
}

// ---- attention ----

template <class Op>
bool CudaOperatorTable::by_cudnn(const Op& op, const SequenceSummary& summary) const {
  const DType act = op.qkv.dtype();
  const std::string refusal = op.queries.parts > 1      ? "context ranks share the queries of a head"
                              : !op.layout.ends.empty() ? "rows see rows after them, as the tokens of an image do"
                                                        : engines_->attention->refusal(op.shape, act, summary);
  if (act == DType::bf16) say_once(refusal);  // f32 has only these kernels: nothing to report
  return refusal.empty();
}

std::string CudaOperatorTable::attention_refusal(const AttentionShape& shape) const {
  return flash_refusal(shape);  // maestro's kernels take every shape that cuDNN takes
}

void CudaOperatorTable::run(const Attention& op) const {
  if (op.qkv.rows() == 0) return;
  const SequenceSummary summary = summarize(op.layout.offsets);
  if (!by_cudnn(op, summary)) return flash_attention(at(), on_device(op));
  engines_->attention->forward({op.qkv, op.out, op.lse}, op.shape, {summary, op.layout.device_offsets.data()});
}

void CudaOperatorTable::run(const AttentionBackward& op) const {
  if (op.qkv.rows() == 0) return;
  const SequenceSummary summary = summarize(op.layout.offsets);
  if (!by_cudnn(op, summary)) return flash_attention_backward(at(), on_device(op));
  engines_->attention->backward({op.qkv, op.out, op.lse}, {op.dout, op.dqkv}, op.shape,
                                {summary, op.layout.device_offsets.data()});
}

void CudaOperatorTable::run(const CachedAttention& op) const {
  cached_attention(at(), op);
}

void CudaOperatorTable::run(const AttentionSinks& op) const {
  attention_sinks(at(), op);
}

void CudaOperatorTable::run(const AttentionSinksBackward& op) const {
  attention_sinks_backward(at(), op);
}

void CudaOperatorTable::run(const CausalConv& op) const {
  causal_conv(at(), on_device(op));
}

void CudaOperatorTable::run(const CausalConvBackward& op) const {
  causal_conv_backward(at(), on_device(op));
}

void CudaOperatorTable::run(const CachedConv& op) const {
  cached_conv(at(), op);
}

// ---- flat vectors ----

void CudaOperatorTable::run(const AdamW& op) const {
  assert(op.rounded.empty() || op.rounded.size() == op.value.size());
  const auto count = static_cast<std::int64_t>(op.value.size());
  adamw(at(), {op.value.data(), op.gradient.data(), op.mean, op.variance, op.rounded.data(), count}, op.step);
}

void CudaOperatorTable::run(const StepCounts& op) const {
  step_counts(at(), op);
}

Pending<double> CudaOperatorTable::run(const SumOfSquares& op) const {
  const auto sum = engines_->staging.figure<double>();
  sum_of_squares(at(), op.values.data(), static_cast<std::int64_t>(op.values.size()), sum.get(), false);
  return Pending<double>(std::shared_ptr<const double>(sum));
}

void CudaOperatorTable::run(const AddInto& op) const {
  add_into(at(), op.into.data(), op.values.data(), static_cast<std::int64_t>(op.into.size()));
}

// ---- for section authors ----

void CudaOperatorTable::run(const Scale& op) const {
  scale(at(), op);
}

void CudaOperatorTable::run(const Multiply& op) const {
  multiply(at(), op);
}

void CudaOperatorTable::run(const Curved& op) const {
  curved(at(), op);
}

void CudaOperatorTable::run(const CurvedBackward& op) const {
  curved_backward(at(), op);
}

void CudaOperatorTable::run(const MemoryGate& op) const {
  memory_gate(at(), op);
}

void CudaOperatorTable::run(const MemoryGateBackward& op) const {
  memory_gate_backward(at(), op);
}

void CudaOperatorTable::run(const Softmax& op) const {
  softmax(at(), op);
}

void CudaOperatorTable::run(const SoftmaxBackward& op) const {
  softmax_backward(at(), op);
}

void CudaOperatorTable::run(const RowDot& op) const {
  row_dot(at(), op);
}

void CudaOperatorTable::run(const Cosine& op) const {
  cosine(at(), op);
}

void CudaOperatorTable::run(const CosineBackward& op) const {
  cosine_backward(at(), op);
}

void CudaOperatorTable::run(const CopyColumns& op) const {
  copy_columns(at(), op);
}

Pending<LossSums> CudaOperatorTable::run(const SumLoss& op) const {
  const auto sums = engines_->staging.figure<LossSums>();
  sum_rows(at(), {}, {.ce = op.values, .kl = {}, .teacher_ce = {}}, {}, sums.get(), false);
  return Pending<LossSums>(std::shared_ptr<const LossSums>(sums));
}

void CudaOperatorTable::run(const Custom& op) const {
  if (op.op->cuda == nullptr) {
    throw JobError("operator '" + std::string(op.op->name) + "' has no function for CUDA devices",
                   ErrorCode::unavailable);
  }
  op.op->cuda(op, at().stream);
}

}  // namespace maestro::cuda
