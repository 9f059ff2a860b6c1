// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/products/lt_engine.hpp"

#include <limits>

#include "runtime/ops/cuda/device_error.hpp"
#include "runtime/ops/cuda/products/lt_timer.hpp"

namespace maestro::cuda {
namespace {

constexpr int most_candidates = 8;  // the heuristic's order is good: later candidates are seldom the fastest
constexpr int timed_runs = 5;

/// Returns whether a status means that the library lacks this product, as opposed to a fault. The library reports an
/// epilogue that a combination of dtypes lacks as an invalid value.
bool is_refusal(cublasStatus_t status, const ProductRequest& request) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ||
         (status == CUBLAS_STATUS_INVALID_VALUE && request.epilogue != ProductEpilogue::none);
}

}  // namespace

LtEngine::LtEngine(cudaStream_t stream, std::span<std::byte> workspace, const LtArithmetic& arithmetic)
    : stream_(stream), workspace_(workspace), arithmetic_(arithmetic), handle_(make_lt_handle()) {}

bool LtEngine::run(const ProductRequest& request, const ProductPointers& pointers) {
  Ready& product = ready(request, pointers);
  if (!product.usable) return false;
  point(product, pointers);
  const cublasStatus_t status = enqueue(product, pointers, product.algorithm);
  if (is_refusal(status, request)) {
    product.usable = false;
    return false;
  }
  if (status != CUBLAS_STATUS_SUCCESS) check_lt(status, "cublasLtMatmul", describe(request));
  return true;
}

std::vector<std::string> LtEngine::refused() const {
  std::vector<std::string> names;
  for (const auto& [key, product] : plans_) {
    if (!product.usable) names.push_back(describe(key.request));
  }
  return names;
}

LtEngine::Key LtEngine::key_of(const ProductRequest& request, const ProductPointers& pointers) {
  return {request,
          {alignment_of(pointers.a), alignment_of(pointers.b), alignment_of(pointers.d), alignment_of(pointers.vector),
           alignment_of(pointers.auxiliary)}};
}

LtEngine::Ready& LtEngine::ready(const ProductRequest& request, const ProductPointers& pointers) {
  const Key key = key_of(request, pointers);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  if (plans_.size() >= most_plans) plans_.clear();
  const ProductPlan plan = product_plan(request);
  Ready made{.plan = plan,
             .matmul = make_lt_matmul(plan, arithmetic_),
             .a = make_lt_layout(plan.a),
             .b = make_lt_layout(plan.b),
             .d = make_lt_layout(plan.d)};
  if (product_refusal(request).empty()) {
    point(made, pointers);
    const auto algorithms = candidates(made, key);
    made.usable = !algorithms.empty();
    if (made.usable) made.algorithm = algorithms.front();
    if (tune_ && tuned_ < most_tuned && algorithms.size() > 1 && !is_captured(stream_)) {
      made.algorithm = fastest(made, pointers, algorithms);
      ++tuned_;
    }
  }
  return plans_.emplace(key, std::move(made)).first->second;
}

std::vector<cublasLtMatmulAlgo_t> LtEngine::candidates(const Ready& ready, const Key& key) const {
  const LtPreference preference = make_lt_preference();
  set_lt(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_.size()});
  set_lt(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});  // and none at all, which needs no bit; LE-2
  set_lt(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignments[0]);
  set_lt(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignments[1]);
  set_lt(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignments[2]);
  set_lt(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.alignments[2]);
  std::array<cublasLtMatmulHeuristicResult_t, most_candidates> results{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle_.get(), ready.matmul.get(), ready.a.get(), ready.b.get(), ready.d.get(),
                                     ready.d.get(), preference.get(), most_candidates, results.data(), &count);
  const bool refused = is_refusal(status, key.request);
  if (!refused && status != CUBLAS_STATUS_SUCCESS) {
    check_lt(status, "cublasLtMatmulAlgoGetHeuristic", describe(key.request));
  }
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; !refused && i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_.size()) {
      algorithms.push_back(result.algo);
    }
  }
  return algorithms;
}

cublasLtMatmulAlgo_t LtEngine::fastest(Ready& ready, const ProductPointers& pointers,
                                       const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  // A product that adds to its result would add once per run, so it is timed on separate memory.
  TimingMemory own;
  ProductPointers timed = pointers;
  if (ready.plan.beta != 0) {
    const std::int64_t elements = ready.plan.d.leading * ready.plan.d.columns;
    timed.d = own.take(static_cast<std::size_t>(elements) * size_of(ready.plan.d.dtype));
    if (timed.d == nullptr) return candidates.front();
  }
  float least = std::numeric_limits<float>::infinity();
  cublasLtMatmulAlgo_t best = candidates.front();
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    if (enqueue(ready, timed, candidate) != CUBLAS_STATUS_SUCCESS) continue;  // also warms it up
    EventTimer timer(stream_);
    for (int i = 0; i < timed_runs; ++i) check_lt(enqueue(ready, timed, candidate), "cublasLtMatmul");
    const float taken = timer.milliseconds();
    if (taken >= least) continue;
    least = taken;
    best = candidate;
  }
  return best;
}

void LtEngine::point(const Ready& ready, const ProductPointers& pointers) {
  if (ready.plan.vector_length > 0) set_lt(ready.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointers.vector);
  if (ready.plan.auxiliary_leading > 0) {
    set_lt(ready.matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointers.auxiliary);
  }
}

cublasStatus_t LtEngine::enqueue(const Ready& ready, const ProductPointers& pointers,
                                 const cublasLtMatmulAlgo_t& algorithm) const {
  const float alpha = 1;
  return cublasLtMatmul(handle_.get(), ready.matmul.get(), &alpha, pointers.a, ready.a.get(), pointers.b, ready.b.get(),
                        &ready.plan.beta, pointers.d, ready.d.get(), pointers.d, ready.d.get(), &algorithm,
                        workspace_.data(), workspace_.size(), stream_);
}

}  // namespace maestro::cuda
