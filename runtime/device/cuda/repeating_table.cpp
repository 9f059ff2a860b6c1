// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/repeating_table.hpp"

#include <utility>

namespace maestro::cuda {

struct RepeatingTable::State {
  State(const OperatorTable& table, const RepeatingSite& site)
      : graphs(site.graphs), calls(table, site.pinned, site.stream), places(site.most_plain) {}
  /// Done, whichever way a pass ends.
  void end() {
    inside = collecting = false;
    calls.clear();
  }
  GraphCache& graphs;
  OperatorCalls calls;
  RepeatingPlaces places;
  bool inside = false;      // a pass
  bool collecting = false;  // its calls
};

RepeatingTable::RepeatingTable(std::unique_ptr<const OperatorTable> table, const RepeatingSite& site)
    : table_(std::move(table)), state_(std::make_unique<State>(*table_, site)) {}
RepeatingTable::~RepeatingTable() = default;

void RepeatingTable::repeat(std::uint64_t place, const std::function<void()>& calls) const {
  State& state = *state_;
  if (state.inside || !state.places.worth_a_look(place)) return calls();
  const struct Ended {
    State& state;
    ~Ended() { state.end(); }
  } ended{state};
  state.inside = state.collecting = true;
  calls();
  GraphAction done = GraphAction::plain;
  if (std::exchange(state.collecting, false) && !state.calls.empty()) {
    done = state.graphs.run(state.calls.key(), state.calls);
  }
  state.places.ran(place, done);
}

const OperatorTable& RepeatingTable::now() const {
  if (std::exchange(state_->collecting, false)) state_->calls.issue();
  return *table_;
}

template <class... Parameters, class... Arguments>
void RepeatingTable::call(void (OperatorTable::*method)(Parameters...) const, const Arguments&... arguments) const {
  if (!state_->collecting) return (table_.get()->*method)(arguments...);
  state_->calls.add(method, arguments...);
}

// ---- memory ----

void RepeatingTable::zero(const Tensor& to) const {
  call(&OperatorTable::zero, to);
}
void RepeatingTable::copy(const Tensor& from, const Tensor& to) const {
  call(&OperatorTable::copy, from, to);
}
void RepeatingTable::upload(const Tensor& host_from, const Tensor& to) const {
  now().upload(host_from, to);
}
void RepeatingTable::download(const Tensor& from, const Tensor& host_to) const {
  now().download(from, host_to);
}
void RepeatingTable::put(std::span<const std::byte> values, const Tensor& to) const {
  if (!state_->collecting) return table_->put(values, to);
  state_->calls.add_put(values, to);
}

// ---- matrix products ----

std::unique_ptr<PackedWeight> RepeatingTable::pack(const Tensor& w, DType compute, PackFor use,
                                                   std::unique_ptr<PackedWeight> reuse) const {
  return table_->pack(w, compute, use, std::move(reuse));  // a view: nothing is queued
}
void RepeatingTable::linear(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& y,
                            Activation activation) const {
  call(&OperatorTable::linear, x, w, bias, y, activation);
}
void RepeatingTable::linear_gelu(const Tensor& x, const PackedWeight& w, const Tensor& bias, const Tensor& pre,
                                 const Tensor& y) const {
  call(&OperatorTable::linear_gelu, x, w, bias, pre, y);
}
void RepeatingTable::linear_backward_input(const Tensor& dy, const PackedWeight& w, const Tensor& dx,
                                           bool accumulate) const {
  call(&OperatorTable::linear_backward_input, dy, w, dx, accumulate);
}
void RepeatingTable::linear_backward_input_gelu(const Tensor& dy, const PackedWeight& w, const Tensor& pre,
                                                const Tensor& dpre) const {
  call(&OperatorTable::linear_backward_input_gelu, dy, w, pre, dpre);
}
void RepeatingTable::linear_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw,
                                            const Tensor& dbias) const {
  call(&OperatorTable::linear_backward_weight, dy, x, dw, dbias);
}

// ---- normalisation ----

void RepeatingTable::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon,
                                const Tensor& y, const Tensor& mean, const Tensor& rstd) const {
  call(&OperatorTable::layer_norm, x, weight, bias, epsilon, y, mean, rstd);
}
void RepeatingTable::layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& mean,
                                         const Tensor& rstd, const Tensor& dx, bool accumulate, const Tensor& dweight,
                                         const Tensor& dbias) const {
  call(&OperatorTable::layer_norm_backward, dy, x, weight, mean, rstd, dx, accumulate, dweight, dbias);
}
void RepeatingTable::rms_norm(const Tensor& x, const Tensor& weight, double epsilon, const Tensor& y,
                              const Tensor& rstd) const {
  call(&OperatorTable::rms_norm, x, weight, epsilon, y, rstd);
}
void RepeatingTable::rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& rstd,
                                       const Tensor& dx, bool accumulate, const Tensor& dweight) const {
  call(&OperatorTable::rms_norm_backward, dy, x, weight, rstd, dx, accumulate, dweight);
}
void RepeatingTable::add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                                    double epsilon, const Tensor& sum, const Tensor& y, const Tensor& mean,
                                    const Tensor& rstd) const {
  call(&OperatorTable::add_layer_norm, a, b, weight, bias, epsilon, sum, y, mean, rstd);
}
void RepeatingTable::add_rms_norm(const Tensor& a, const Tensor& b, const Tensor& weight, double epsilon,
                                  const Tensor& sum, const Tensor& y, const Tensor& rstd) const {
  call(&OperatorTable::add_rms_norm, a, b, weight, epsilon, sum, y, rstd);
}

// ---- pointwise ----

void RepeatingTable::gelu(const Tensor& x, const Tensor& y) const {
  call(&OperatorTable::gelu, x, y);
}
void RepeatingTable::gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  call(&OperatorTable::gelu_backward, dy, x, dx);
}
void RepeatingTable::swiglu(const Tensor& x, const Tensor& y) const {
  call(&OperatorTable::swiglu, x, y);
}
void RepeatingTable::swiglu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) const {
  call(&OperatorTable::swiglu_backward, dy, x, dx);
}
void RepeatingTable::add(const Tensor& a, const Tensor& b, const Tensor& out) const {
  call(&OperatorTable::add, a, b, out);
}
void RepeatingTable::cast(const Tensor& from, const Tensor& to) const {
  call(&OperatorTable::cast, from, to);
}

// ---- embedding and positions ----

void RepeatingTable::embedding(const Tensor& table, const Tensor& ids, const Tensor& positions_table,
                               std::span<const std::int32_t> positions, const Tensor& y) const {
  call(&OperatorTable::embedding, table, ids, positions_table, positions, y);
}
void RepeatingTable::embedding_backward(const Tensor& dy, const Tensor& ids, std::span<const std::int32_t> positions,
                                        const Tensor& dtable, const Tensor& dpositions) const {
  call(&OperatorTable::embedding_backward, dy, ids, positions, dtable, dpositions);
}
void RepeatingTable::shift_ids(const Tensor& ids, std::int64_t by, std::int64_t limit, const Tensor& out) const {
  call(&OperatorTable::shift_ids, ids, by, limit, out);
}
void RepeatingTable::pick_columns(const Tensor& from, const Tensor& columns, const Tensor& to) const {
  call(&OperatorTable::pick_columns, from, columns, to);
}
void RepeatingTable::gather_rows(const Tensor& from, std::span<const std::int32_t> index, const Tensor& to) const {
  call(&OperatorTable::gather_rows, from, index, to);
}
void RepeatingTable::scatter_add_rows(const Tensor& rows, std::span<const std::int32_t> index, const Tensor& to) const {
  call(&OperatorTable::scatter_add_rows, rows, index, to);
}
void RepeatingTable::rotary(const Tensor& qkv, const AttentionShape& shape, std::span<const std::int32_t> positions,
                            double theta, int direction) const {
  call(&OperatorTable::rotary, qkv, shape, positions, theta, direction);
}

// ---- attention ----

std::string RepeatingTable::attention_refusal(const AttentionShape& shape) const {
  return table_->attention_refusal(shape);
}
void RepeatingTable::attention(const Tensor& qkv, const AttentionShape& shape, const SequenceLayout& layout,
                               const Tensor& out, const Tensor& lse) const {
  call(&OperatorTable::attention, qkv, shape, layout, out, lse);
}
void RepeatingTable::attention_backward(const Tensor& dout, const Tensor& qkv, const Tensor& out, const Tensor& lse,
                                        const AttentionShape& shape, const SequenceLayout& layout,
                                        const Tensor& dqkv) const {
  call(&OperatorTable::attention_backward, dout, qkv, out, lse, shape, layout, dqkv);
}

// ---- output layers ----

Pending<LossSums> RepeatingTable::cross_entropy_head(const CrossEntropyHead& head) const {
  return state_->collecting ? state_->calls.add_cross_entropy_head(head) : table_->cross_entropy_head(head);
}
Pending<LossSums> RepeatingTable::distillation_head(const DistillationHead& head) const {
  return state_->collecting ? state_->calls.add_distillation_head(head) : table_->distillation_head(head);
}
Pending<LossSums> RepeatingTable::cross_entropy_head(const CrossEntropyHead& head, const VocabularyPart& part) const {
  return part.group == nullptr ? cross_entropy_head(head) : now().cross_entropy_head(head, part);
}
Pending<LossSums> RepeatingTable::distillation_head(const DistillationHead& head, const VocabularyPart& part) const {
  return part.group == nullptr ? distillation_head(head) : now().distillation_head(head, part);
}
void RepeatingTable::top_k(const Tensor& logits, const Tensor& values, const Tensor& indices,
                           std::int64_t columns) const {
  call(&OperatorTable::top_k, logits, values, indices, columns);
}

// ---- flat vectors: no pass has them ----

void RepeatingTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                           std::span<float> variance, const AdamWStep& step) const {
  now().adamw(value, gradient, mean, variance, step);
}
void RepeatingTable::adamw(std::span<float> value, std::span<float> gradient, std::span<float> mean,
                           std::span<float> variance, const AdamWStep& step, std::span<bfloat16> rounded) const {
  now().adamw(value, gradient, mean, variance, step, rounded);
}
Pending<double> RepeatingTable::sum_of_squares(std::span<const float> values) const {
  return now().sum_of_squares(values);
}
void RepeatingTable::add_into(std::span<float> into, std::span<const float> values) const {
  now().add_into(into, values);
}

}  // namespace maestro::cuda
