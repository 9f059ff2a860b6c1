// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/operator_calls.hpp"

#include <cstring>

#include "runtime/ops/cuda/figure_copy.hpp"

namespace maestro::cuda {

namespace {

/// Which call, where there is no method's address to tell by.
enum class OtherCall : std::uint8_t { put = 1, cross_entropy_head, distillation_head };

std::optional<PlainWeight> held(const PackedWeight* weight) {
  if (weight == nullptr) return std::nullopt;
  return PlainWeight(plain(*weight));
}

const PackedWeight* pointer_to(const std::optional<PlainWeight>& weight) {
  return weight ? &*weight : nullptr;
}

/// A student's side whose weights are held with it.
class HeldHead {
 public:
  explicit HeldHead(const CrossEntropyHead& head)
      : head_(head), forward_(held(head.head)), backward_(held(head.head_backward)) {}
  [[nodiscard]] CrossEntropyHead get() const {
    CrossEntropyHead head = head_;
    head.head = pointer_to(forward_);
    head.head_backward = pointer_to(backward_);
    return head;
  }

 private:
  CrossEntropyHead head_;
  std::optional<PlainWeight> forward_;
  std::optional<PlainWeight> backward_;
};

}  // namespace

void CallKey::word(std::uint64_t value) {
  // The finalizer of MurmurHash3 (Appleby 2011), a bijection, of what was so far and the new word.
  value_ = (std::rotl(value_, 29) + 0x9e3779b97f4a7c15U) ^ value;
  value_ = (value_ ^ (value_ >> 33)) * 0xff51afd7ed558ccdU;
  value_ = (value_ ^ (value_ >> 33)) * 0xc4ceb9fe1a85ec53U;
  value_ ^= value_ >> 33;
}

void CallKey::add(const Tensor& tensor) {
  add(static_cast<const void*>(tensor.raw()));
  add(tensor.dtype());
  add(tensor.shape().rank());
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) add(tensor.shape()[axis]);
}

void CallKey::add(const AttentionShape& shape) {
  add(shape.heads);
  add(shape.kv_heads);
  add(shape.head_size);
  add(shape.causal);
}

void CallKey::add(const SequenceLayout& layout) {
  add_contents(std::as_bytes(layout.offsets));
  add(layout.positions);
  add(layout.device_offsets);
}

void CallKey::add(const CrossEntropyHead& head) {
  add(head.hidden);
  for (const PackedWeight* weight : {head.head, head.head_backward}) {
    add(weight != nullptr);
    if (weight != nullptr) add(*weight);
  }
  add(head.vocabulary);
  add(head.targets);
  add(head.scale);
  add(head.dhidden);
  add(head.dhead);
}

void CallKey::add(const DistillationHead& head) {
  add(head.student);
  add(head.boundary);
  add(head.teacher_hidden);
  add(head.teacher_head != nullptr);
  if (head.teacher_head != nullptr) add(*head.teacher_head);
  add(head.teacher_logits);
  add(head.teacher_values);
  add(head.teacher_indices);
  add(head.teacher_vocabulary);
  add(head.shared_vocabulary);
  add(head.divergence);
  add(head.temperature);
  add(head.alpha);
  add(head.beta);
}

void CallKey::add_contents(std::span<const std::byte> bytes) {
  add(bytes.size());
  while (!bytes.empty()) {
    std::uint64_t next = 0;
    const std::size_t count = std::min(bytes.size(), sizeof next);
    std::memcpy(&next, bytes.data(), count);
    word(next);
    bytes = bytes.subspan(count);
  }
}

HeldArguments::Layout HeldArguments::hold(const SequenceLayout& layout) {
  if (latest_ == nullptr || !std::ranges::equal(*latest_, layout.offsets)) {
    latest_ = std::make_shared<const std::vector<std::int32_t>>(layout.offsets.begin(), layout.offsets.end());
  }
  return {latest_, layout.positions, layout.device_offsets};
}

void OperatorCalls::add_put(std::span<const std::byte> values, const Tensor& to) {
  key_.add(OtherCall::put);
  key_.add_contents(values);
  key_.add(to);
  if (values.empty()) return;
  lists_.emplace_back(values.begin(), values.end());
  calls_.push_back([this, at = lists_.size() - 1, to](const OperatorTable& table) {
    if (recording_ == nullptr) return table.put(lists_[at], to);
    table.upload(Tensor(recording_->lists[at].data(), to.dtype(), to.shape()), to);
  });
}

Pending<LossSums> OperatorCalls::add_cross_entropy_head(const CrossEntropyHead& head) {
  key_.add(OtherCall::cross_entropy_head);
  key_.add(head);
  return add_figure(
      [student = HeldHead(head)](const OperatorTable& table) { return table.cross_entropy_head(student.get()); });
}

Pending<LossSums> OperatorCalls::add_distillation_head(const DistillationHead& head) {
  key_.add(OtherCall::distillation_head);
  key_.add(head);
  return add_figure(
      [student = HeldHead(head.student), teacher = held(head.teacher_head), rest = head](const OperatorTable& table) {
        DistillationHead whole = rest;
        whole.student = student.get();
        whole.teacher_head = pointer_to(teacher);
        return table.distillation_head(whole);
      });
}

template <class Make>
Pending<LossSums> OperatorCalls::add_figure(Make make) {
  auto promised = std::make_shared<Pending<LossSums>>(LossSums());
  figures_.push_back(promised);
  calls_.push_back([this, at = figures_.size() - 1, make = std::move(make)](const OperatorTable& table) {
    Pending<LossSums> figure = make(table);
    if (recording_ != nullptr) return recording_->figures.push_back(std::move(figure));
    *figures_[at] = std::move(figure);
  });
  return Pending<LossSums>(std::shared_ptr<const Pending<LossSums>>(std::move(promised)));
}

void OperatorCalls::clear() {
  key_ = CallKey();
  held_.clear();
  calls_.clear();
  lists_.clear();
  figures_.clear();
  recording_.reset();
}

void OperatorCalls::issue() {
  recording_.reset();
  for (const Call& call : calls_) call(*table_);
}

void OperatorCalls::prepare() {
  recording_ = std::make_shared<Kept>();
  for (const std::vector<std::byte>& list : lists_) {
    recording_->lists.emplace_back(*pinned_, list.size());
    std::memcpy(recording_->lists.back().data(), list.data(), list.size());
  }
  // Figures are taken from pinned memory while the calls are recorded: it has to be there by then.
  std::vector<SpaceMemory> taken;
  for (std::size_t figure = 0; figure < figures_.size(); ++figure) taken.emplace_back(*pinned_, sizeof(LossSums));
}

std::shared_ptr<void> OperatorCalls::record() {
  for (const Call& call : calls_) call(*table_);
  return std::exchange(recording_, nullptr);
}

void OperatorCalls::replayed(void* kept) {
  const std::vector<Pending<LossSums>>& recorded = static_cast<const Kept*>(kept)->figures;
  for (std::size_t at = 0; at < figures_.size(); ++at) {
    *figures_[at] = recorded[at].copied([this](const LossSums& figure) { return copy_of(figure); });
  }
}

std::shared_ptr<const LossSums> OperatorCalls::copy_of(const LossSums& figure) const {
  auto release = [pinned = pinned_](LossSums* value) {
    pinned->release(reinterpret_cast<std::byte*>(value), sizeof(LossSums));
  };
  const std::shared_ptr<LossSums> copy(new (pinned_->allocate(sizeof(LossSums))) LossSums(), std::move(release));
  copy_figure(stream_, &figure, copy.get());
  return copy;
}

}  // namespace maestro::cuda
