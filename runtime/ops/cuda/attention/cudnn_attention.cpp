// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cuda/attention/cudnn_attention.hpp"

#include <cudnn_frontend.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "runtime/ops/cuda/attention/cudnn_sequences.hpp"
#include "runtime/ops/cuda/device_error.hpp"

namespace maestro::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorHandle = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<std::int64_t, void*>;

/// Names of a graph's tensors. Tensor t's offsets are tensor t + offsets_of.
enum TensorId : std::int64_t { q = 1, k, v, out, stats, dout, dq, dk, dv, q_lengths, k_lengths, offsets_of = 100 };

std::vector<std::int64_t> list(const std::array<std::int64_t, 4>& values) {
  return {values.begin(), values.end()};
}

/// A graph of an attention call and its plan, while it is described and built.
class Sketch {
 public:
  explicit Sketch(const CudnnKey& key) : key_(key), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  [[nodiscard]] TensorHandle input(TensorId id, const HeadView& view, fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_uid(id).set_dim(list(view.sizes)).set_stride(list(view.strides)).set_data_type(type);
    TensorHandle tensor = graph_->tensor(attributes);
    if (!key_.dense) tensor->set_ragged_offset(offsets(id));
    return tensor;
  }
  void output(const TensorHandle& tensor, TensorId id, const HeadView& view,
              fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    tensor->set_output(true).set_uid(id).set_dim(list(view.sizes)).set_stride(list(view.strides)).set_data_type(type);
    if (!key_.dense) tensor->set_ragged_offset(offsets(id));
  }

  void describe_forward() {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    set_common(options, !key_.dense);
    auto [of_out, of_stats] =
        graph_->sdpa(input(q, part_of_qkv(key_, HeadPart::query)), input(k, part_of_qkv(key_, HeadPart::key)),
                     input(v, part_of_qkv(key_, HeadPart::value)), options);
    output(of_out, out, view_of_out(key_));
    output(of_stats, stats, view_of_stats(key_), fe::DataType_t::FLOAT);
  }
  void describe_backward(bool deterministic) {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
    options.set_deterministic_algorithm(deterministic);
    set_common(options, !key_.dense || masks_last_keys(key_));
    if (!key_.dense) options.set_max_total_seq_len_q(key_.rows).set_max_total_seq_len_kv(key_.rows);
    auto [of_dq, of_dk, of_dv] = graph_->sdpa_backward(
        input(q, part_of_qkv(key_, HeadPart::query)), input(k, part_of_qkv(key_, HeadPart::key)),
        input(v, part_of_qkv(key_, HeadPart::value)), input(out, view_of_out(key_)), input(dout, view_of_out(key_)),
        input(stats, view_of_stats(key_), fe::DataType_t::FLOAT), options);
    output(of_dq, dq, part_of_qkv(key_, HeadPart::query));
    output(of_dk, dk, part_of_qkv(key_, HeadPart::key));
    output(of_dv, dv, part_of_qkv(key_, HeadPart::value));
  }

  /// Returns an empty string, or the reason why a plan cannot be built.
  [[nodiscard]] std::string build(cudnnHandle_t handle) {
    try {
      fe::error_t result = graph_->validate();
      if (result.is_good()) result = graph_->build_operation_graph(handle);
      if (result.is_good()) result = graph_->create_execution_plans({fe::HeurMode_t::A});
      if (result.is_good()) result = graph_->check_support();
      if (result.is_good()) result = graph_->build_plans();
      return result.is_good() ? std::string() : "cuDNN: " + result.get_message();
    } catch (const std::exception& error) {  // older parts of the frontend throw
      return std::string("cuDNN: ") + error.what();
    }
  }
  [[nodiscard]] std::shared_ptr<fe::graph::Graph> graph() const { return graph_; }

 private:
  template <class Options>
  void set_common(Options& options, bool with_lengths) {
    options.set_attn_scale(static_cast<float>(key_.scale));
    if (key_.causal) {
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
      // Keys are seen if key + bound > query.
      if (key_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key_.window));
    }
    if (!with_lengths) return;
    options.set_padding_mask(true).set_seq_len_q(lengths(q_lengths)).set_seq_len_kv(lengths(k_lengths));
  }
  [[nodiscard]] TensorHandle column(std::int64_t id, std::int64_t count, fe::DataType_t type) {
    auto attributes = fe::graph::Tensor_attributes();
    attributes.set_uid(id).set_dim({count, 1, 1, 1}).set_stride({1, 1, 1, 1}).set_data_type(type);
    return graph_->tensor(attributes);
  }
  [[nodiscard]] TensorHandle lengths(TensorId id) { return column(id, key_.batch, fe::DataType_t::INT32); }
  [[nodiscard]] TensorHandle offsets(TensorId id) {
    return column(id + offsets_of, key_.batch + 1, fe::DataType_t::INT64);
  }

  CudnnKey key_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

void* part(const Tensor& qkv, const CudnnKey& key, HeadPart which) {
  return qkv.data<bfloat16>() + part_of_qkv(key, which).first;
}

}  // namespace

class CudnnAttention::Library {
 public:
  Library(const Launch& at, const CudnnAttentionOptions& options) : at_(at), options_(options) {
    cudnnHandle_t handle = nullptr;
    const cudnnStatus_t created = cudnnCreate(&handle);
    handle_.reset(handle);
    if (created != CUDNN_STATUS_SUCCESS) {
      unusable_ = std::string("cudnnCreate: ") + cudnnGetErrorString(created);
      return;
    }
    const cudnnStatus_t placed = cudnnSetStream(handle, at.stream);
    if (placed != CUDNN_STATUS_SUCCESS) unusable_ = std::string("cudnnSetStream: ") + cudnnGetErrorString(placed);
  }

  struct Plan {
    std::string refusal;
    std::shared_ptr<fe::graph::Graph> forward;
    std::shared_ptr<fe::graph::Graph> backward;
    std::size_t forward_bytes = 0;
    std::size_t backward_bytes = 0;
  };

  /// Chooses a key from the arguments only, so that forward and backward choose the same.
  [[nodiscard]] const std::pair<const CudnnKey, Plan>& plan(const AttentionShape& shape,
                                                            const SequenceSummary& summary) {
    CudnnKey key = ragged_key(shape, summary);
    if (summary.uniform) {
      const CudnnKey dense = dense_key(shape, summary);
      const bool known = plans_.contains(dense);
      if (known || dense_plans_ < most_dense_plans) key = dense;
      if (!known && key.dense) ++dense_plans_;
    }
    const auto found = plans_.find(key);
    return found != plans_.end() ? *found : *plans_.emplace(key, make(key)).first;
  }

  void forward(const CudnnForward& tensors, const AttentionShape& shape, const CudnnSequences& sequences) {
    const auto& [key, plan] = usable(shape, sequences.summary);
    const Workspace::Scope scope(*at_.workspace);
    Pointers pointers = pointers_of(key, tensors);
    if (!key.dense) add_ragged(key, sequences, pointers);
    execute(key, *plan.forward, plan.forward_bytes, pointers);
  }

  void backward(const CudnnForward& tensors, const CudnnBackward& gradients, const AttentionShape& shape,
                const CudnnSequences& sequences) {
    const auto& [key, plan] = usable(shape, sequences.summary);
    const Workspace::Scope scope(*at_.workspace);
    Pointers pointers = pointers_of(key, tensors);
    pointers[dout] = gradients.dout.raw();
    pointers[dq] = part(gradients.dqkv, key, HeadPart::query);
    pointers[dk] = part(gradients.dqkv, key, HeadPart::key);
    pointers[dv] = part(gradients.dqkv, key, HeadPart::value);
    if (!key.dense) add_ragged(key, sequences, pointers);
    if (masks_last_keys(key)) add_lengths(make_arrays(key, sequences), pointers);
    execute(key, *plan.backward, plan.backward_bytes, pointers);
  }

  [[nodiscard]] std::size_t plans() const { return plans_.size(); }

 private:
  struct Destroy {
    // A handle that cannot be destroyed is lost with its context; nothing can receive the error.
    void operator()(cudnnHandle_t handle) const { static_cast<void>(cudnnDestroy(handle)); }
  };

  [[nodiscard]] Plan make(const CudnnKey& key) {
    Plan plan;
    plan.refusal = unusable_.empty() ? version_refusal(key, cudnnGetVersion()) : unusable_;
    if (!plan.refusal.empty()) return plan;
    Sketch forward(key);
    forward.describe_forward();
    plan.refusal = forward.build(handle_.get());
    if (!plan.refusal.empty()) return plan;
    Sketch backward(key);
    backward.describe_backward(options_.deterministic);
    plan.refusal = backward.build(handle_.get());
    if (!plan.refusal.empty()) return plan;
    plan.forward = forward.graph();
    plan.backward = backward.graph();
    plan.forward_bytes = static_cast<std::size_t>(plan.forward->get_workspace_size());
    plan.backward_bytes = static_cast<std::size_t>(plan.backward->get_workspace_size());
    if (std::max(plan.forward_bytes, plan.backward_bytes) > options_.most_workspace_bytes) {
      plan.refusal = "cuDNN wants a workspace of " + std::to_string(plan.forward_bytes >> 20) + " MiB forward and " +
                     std::to_string(plan.backward_bytes >> 20) + " MiB backward; " +
                     std::to_string(options_.most_workspace_bytes >> 20) + " are allowed";
      plan.forward.reset();
      plan.backward.reset();
    }
    return plan;
  }

  [[nodiscard]] const std::pair<const CudnnKey, Plan>& usable(const AttentionShape& shape,
                                                              const SequenceSummary& summary) {
    const auto& found = plan(shape, summary);
    if (!found.second.refusal.empty()) throw DeviceError(describe(found.first) + ": " + found.second.refusal);
    return found;
  }

  [[nodiscard]] static Pointers pointers_of(const CudnnKey& key, const CudnnForward& tensors) {
    return {{q, part(tensors.qkv, key, HeadPart::query)},
            {k, part(tensors.qkv, key, HeadPart::key)},
            {v, part(tensors.qkv, key, HeadPart::value)},
            {out, tensors.out.raw()},
            {stats, tensors.lse.raw()}};
  }

  /// Makes the lengths and offsets of a plan's sequences in the workspace.
  [[nodiscard]] RaggedArrays make_arrays(const CudnnKey& key, const CudnnSequences& sequences) {
    const auto count = static_cast<std::size_t>(key.batch) + 1;
    RaggedArrays arrays{.lengths = at_.workspace->take_array<std::int32_t>(count),
                        .qkv = at_.workspace->take_array<std::int64_t>(count),
                        .out = at_.workspace->take_array<std::int64_t>(count),
                        .stats = at_.workspace->take_array<std::int64_t>(count)};
    ragged_arrays(at_, sequences.offsets, sequences.summary.sequences, key.batch,
                  {.qkv = key.qkv_columns(), .out = key.out_columns(), .stats = key.heads}, arrays);
    return arrays;
  }
  static void add_lengths(const RaggedArrays& arrays, Pointers& pointers) {
    pointers[q_lengths] = arrays.lengths;
    pointers[k_lengths] = arrays.lengths;
  }
  /// Adds the pointers that a ragged plan needs in addition to its tensors.
  void add_ragged(const CudnnKey& key, const CudnnSequences& sequences, Pointers& pointers) {
    const RaggedArrays arrays = make_arrays(key, sequences);
    Pointers added;
    for (const auto& [id, memory] : pointers) {
      const bool is_out = id == out || id == dout;
      added[id + offsets_of] = id == stats ? arrays.stats : is_out ? arrays.out : arrays.qkv;
    }
    add_lengths(arrays, added);
    pointers.merge(added);
  }

  void execute(const CudnnKey& key, const fe::graph::Graph& graph, std::size_t bytes, Pointers& pointers) {
    std::byte* workspace = bytes == 0 ? nullptr : at_.workspace->take(bytes);
    fe::error_t result = graph.execute(handle_.get(), pointers, workspace);
    if (result.is_bad()) throw DeviceError(describe(key) + ": cuDNN: " + result.get_message());
  }

  Launch at_;
  CudnnAttentionOptions options_;
  std::unique_ptr<cudnnContext, Destroy> handle_;
  std::string unusable_;  // reason why the library is unusable; empty: it is usable
  std::map<CudnnKey, Plan> plans_;
  std::size_t dense_plans_ = 0;
};

CudnnAttention::CudnnAttention(const Launch& at, const CudnnAttentionOptions& options)
    : library_(std::make_unique<Library>(at, options)) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::refusal(const AttentionShape& shape, DType act, const SequenceSummary& summary) {
  if (act != DType::bf16) return "cuDNN's attention is used for bf16 only, not for " + std::string(name_of(act));
  if (summary.rows == 0) return {};
  return library_->plan(shape, summary).second.refusal;
}

void CudnnAttention::forward(const CudnnForward& tensors, const AttentionShape& shape,
                             const CudnnSequences& sequences) {
  if (sequences.summary.rows > 0) library_->forward(tensors, shape, sequences);
}

void CudnnAttention::backward(const CudnnForward& tensors, const CudnnBackward& gradients, const AttentionShape& shape,
                              const CudnnSequences& sequences) {
  if (sequences.summary.rows > 0) library_->backward(tensors, gradients, shape, sequences);
}

std::size_t CudnnAttention::plans() const {
  return library_->plans();
}

}  // namespace maestro::cuda
