// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/ops/cuda/delta/delta_chunks.cuh"
#include "runtime/ops/cuda/kernels.hpp"
#include "runtime/ops/cuda/launch_rows.cuh"

namespace maestro::cuda {

namespace {

/// Blocks of a launch and their working memory.
template <class T>
struct DeltaLaunch {
  template <class Op>
  DeltaLaunch(const Launch& at, const Op& op, std::int64_t samples, bool backward) {
    const DeltaShape& shape = op.shape;
    assert(op.qkv.columns() == shape.qkv_columns() && op.gates.columns() == 2 * shape.value_heads);
    const DeltaSizes sizes{static_cast<int>(shape.key_heads), static_cast<int>(shape.value_heads),
                           static_cast<int>(shape.key_size), static_cast<int>(shape.value_size)};
    blocks = std::min<std::int64_t>(samples * shape.key_heads, 2 * std::int64_t{at.multiprocessors});
    auto* working = at.workspace->take_array<float>(static_cast<std::size_t>(blocks * sizes.working(backward)));
    inputs = {sizes,
              op.qkv.template data<T>(),
              op.gates.template data<T>(),
              op.a_log.template data<float>(),
              op.dt_bias.template data<float>(),
              working};
  }
  [[nodiscard]] LaunchShape settings(const Launch& at, const char* name) const {
    return {name, dim3(static_cast<unsigned>(blocks)), dim3(delta_threads), 0, at.stream};
  }
  DeltaInputs<T> inputs{};
  std::int64_t blocks = 0;
};

}  // namespace

void delta_rule(const Launch& at, const DeltaRule& op) {
  const std::int64_t samples = op.layout.sequences();
  if (samples == 0 || op.qkv.rows() == 0) return;
  with_type(op.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Workspace::Scope scope(*at.workspace);
    const DeltaLaunch<T> launched(at, op, samples, false);
    launch(launched.settings(at, "delta_rule"), delta_rule_kernel<T, DeltaSamples>, launched.inputs,
           DeltaSamples{op.layout.offsets.data()}, static_cast<int>(samples), data_of<float>(op.states),
           op.out.data<T>());
  });
}

void delta_rule_backward(const Launch& at, const DeltaRuleBackward& op) {
  const std::int64_t samples = op.layout.sequences(), heads = op.shape.value_heads;
  if (samples == 0 || op.qkv.rows() == 0) return;
  with_type(op.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Workspace::Scope scope(*at.workspace);
    const DeltaLaunch<T> launched(at, op, samples, true);
    const auto parts = static_cast<std::size_t>(samples * heads);
    float* da_log = at.workspace->take_array<float>(parts);
    float* ddt_bias = at.workspace->take_array<float>(parts);
    const DeltaGradients<T> gradients{
        op.dout.data<T>(), op.states.data<float>(), op.dqkv.data<T>(), op.dgates.data<T>(), da_log, ddt_bias};
    launch(launched.settings(at, "delta_rule_backward"), delta_rule_backward_kernel<T>, launched.inputs,
           DeltaSamples{op.layout.offsets.data()}, static_cast<int>(samples), gradients);
    const auto add = [&](const float* from, const Tensor& to) {
      if (!to.defined()) return;
      launch_rows(at, "delta_weights", heads, 1,
                  DeltaWeightSums{from, static_cast<int>(samples), static_cast<int>(heads), to.data<float>()});
    };
    add(da_log, op.da_log);
    add(ddt_bias, op.ddt_bias);
  });
}

void cached_delta(const Launch& at, const CachedDelta& op) {
  const std::int64_t rows = op.qkv.rows(), samples = op.sequences.empty() ? 1 : rows;
  if (rows == 0) return;
  with_type(op.qkv.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const Workspace::Scope scope(*at.workspace);
    const DeltaLaunch<T> launched(at, op, samples, false);
    const DeltaSequences places{op.sequences.empty() ? nullptr : op.sequences.data(), op.state.data<float>(),
                                op.state.columns(), rows, op.first == 0};
    float* const none = nullptr;
    launch(launched.settings(at, "cached_delta"), delta_rule_kernel<T, DeltaSequences>, launched.inputs, places,
           static_cast<int>(samples), none, op.out.data<T>());
  });
}

}  // namespace maestro::cuda
