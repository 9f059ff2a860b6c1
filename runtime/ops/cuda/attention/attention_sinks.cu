// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

/// An item is a head.
struct SinkFactors {
  const float* sinks;  // (H)
  float* lse;          // (M, H)
  float* factors;      // (M, H)
  int heads;

  __device__ void operator()(std::int64_t row, int head) const {
    const std::int64_t at = row * heads + head;
    const element::SinkTerm term = element::sink_term(lse[at], sinks[head]);
    factors[at] = term.factor;
    lse[at] = term.lse;
  }
};

/// An item is a head.
struct SinkGradients {
  const float* sinks;  // (H)
  const float* lse;    // (M, H)
  const float* dots;   // (M, H)
  float* terms;        // (M, H)
  int heads;

  __device__ void operator()(std::int64_t row, int head) const {
    const std::int64_t at = row * heads + head;
    terms[at] = -element::exponential(sinks[head] - lse[at]) * dots[at];
  }
};

}  // namespace

void attention_sinks(const Launch& at, const AttentionSinks& op) {
  const std::int64_t heads = op.sinks.elements();
  assert(op.lse.columns() == heads && op.factors.elements() == op.lse.elements());
  launch_rows(
      at, "attention_sinks", op.lse.rows(), heads,
      SinkFactors{op.sinks.data<float>(), op.lse.data<float>(), op.factors.data<float>(), static_cast<int>(heads)});
}

void attention_sinks_backward(const Launch& at, const AttentionSinksBackward& op) {
  const std::int64_t heads = op.sinks.elements();
  assert(op.lse.columns() == heads && op.dots.elements() == op.lse.elements() && op.dsinks.elements() == heads);
  if (op.lse.rows() == 0) return;
  const Workspace::Scope scope(*at.workspace);
  auto* terms = at.workspace->take_array<float>(static_cast<std::size_t>(op.lse.elements()));
  launch_rows(at, "attention_sinks_backward", op.lse.rows(), heads,
              SinkGradients{op.sinks.data<float>(), op.lse.data<float>(), op.dots.data<float>(), terms,
                            static_cast<int>(heads)});
  add_column_sums(at, Tensor(terms, DType::f32, op.lse.shape()), op.dsinks);
}

}  // namespace maestro::cuda
