// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/operator_calls.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "runtime/device/cuda/members.hpp"
#include "runtime/ops/cuda/figure_copy.hpp"

namespace maestro::cuda {

// ---- a pass as a value ----

/// Replaces a reference to host memory by a reference to a copy in this pass.
template <class T>
void OperatorPass::hold(T& member) {
  if constexpr (std::is_same_v<T, const PackedWeight*>) {
    if (member != nullptr) member = &weights_.emplace_back(plain_weight(*member));
  } else if constexpr (std::is_same_v<T, SequenceLayout>) {
    if (offsets_.empty() || !std::ranges::equal(offsets_.back(), member.offsets)) {
      offsets_.emplace_back(member.offsets.begin(), member.offsets.end());
    }
    member.offsets = offsets_.back();  // shared by consecutive calls with the same offsets
  } else if constexpr (std::is_same_v<T, const RotaryFrequencies*>) {
    if (frequencies_.empty() || frequencies_.back() != *member) frequencies_.push_back(*member);
    member = &frequencies_.back();
  } else if constexpr (std::is_same_v<T, std::span<const std::byte>>) {
    member = lists_.emplace_back(member.begin(), member.end());
  } else if constexpr (std::is_same_v<T, CrossEntropyHead> || std::is_same_v<T, DistillationHead>) {
    for_each_member(member, [this](auto& each) { this->hold(each); });
  }
}

/// Appends words that determine the member's value.
template <class T>
void OperatorPass::write(const T& member) {
  if constexpr (std::is_same_v<T, double>) {
    words_.push_back(std::bit_cast<std::uint64_t>(member));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    words_.push_back(static_cast<std::uint64_t>(member));
  } else if constexpr (std::is_same_v<T, Tensor> || std::is_same_v<T, ConstTensor>) {
    words_.push_back(reinterpret_cast<std::uintptr_t>(member.raw()));
    write(member.dtype());
    write(member.shape().rank());
    for (int axis = 0; axis < member.shape().rank(); ++axis) write(member.shape()[axis]);
  } else if constexpr (std::is_same_v<T, const PackedWeight*>) {
    write(member != nullptr);
    if (member == nullptr) return;
    const PlainWeight& weight = plain_weight(*member);
    for (const Tensor& part : {weight.tensor(), weight.blocks(), weight.scales()}) write(part);
  } else if constexpr (std::is_same_v<T, const RotaryFrequencies*>) {
    write_contents(std::as_bytes(std::span(member->inverse)));
    write_contents(std::as_bytes(std::span(member->axis)));
    write(member->magnitude);
  } else if constexpr (std::is_same_v<T, SequenceLayout>) {
    write_contents(std::as_bytes(member.offsets));
    write(member.positions);
    write(member.device_offsets);
    write(member.ends);
    write(member.axes);
  } else if constexpr (std::is_same_v<T, std::span<const std::byte>>) {
    write_contents(member);
  } else if constexpr (std::is_pointer_v<T>) {
    words_.push_back(reinterpret_cast<std::uintptr_t>(member));
  } else if constexpr (requires { member.has_value(); }) {  // an optional
    write(member.has_value());
    if (member) write(*member);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {  // an array
    for (const auto& each : member) write(each);
  } else if constexpr (requires {
                         member.data();
                         member.size();
                       }) {  // a span in device memory
    write(member.data());
    write(member.size());
  } else {
    for_each_member(member, [this](const auto& each) { this->write(each); });
  }
}

void OperatorPass::write_contents(std::span<const std::byte> bytes) {
  write(bytes.size());
  const std::size_t first = words_.size();
  words_.resize(first + (bytes.size() + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
  if (!bytes.empty()) std::memcpy(words_.data() + first, bytes.data(), bytes.size());
}

void OperatorPass::add(AnyOperator call) {
  write(call.index());
  std::visit(
      [this](auto& op) {
        for_each_member(op, [this](auto& member) {
          this->write(member);
          this->hold(member);
        });
      },
      call);
  calls_.push_back(std::move(call));
}

GraphKey OperatorPass::key() const {
  GraphKey key = 0;
  for (const std::uint64_t word : words_) {
    // The finalizer of MurmurHash3 (Appleby 2011), a bijection, of the key so far and the new word.
    key = (std::rotl(key, 29) + 0x9e3779b97f4a7c15U) ^ word;
    key = (key ^ (key >> 33)) * 0xff51afd7ed558ccdU;
    key = (key ^ (key >> 33)) * 0xc4ceb9fe1a85ec53U;
    key ^= key >> 33;
  }
  return key;
}

void OperatorPass::clear() {
  calls_.clear();
  words_.clear();
  weights_.clear();
  offsets_.clear();
  frequencies_.clear();
  lists_.clear();
}

// ---- the calls as work of a graph ----

Pending<LossSums> OperatorCalls::promise() {
  auto promised = std::make_shared<Pending<LossSums>>(LossSums());
  figures_.push_back(promised);
  return Pending<LossSums>(std::shared_ptr<const Pending<LossSums>>(std::move(promised)));
}

void OperatorCalls::clear() {
  if (pass_.use_count() > 1) {
    pass_ = std::make_shared<OperatorPass>();  // a graph keeps the other
  } else {
    pass_->clear();
  }
  figures_.clear();
  recording_.reset();
}

void OperatorCalls::issue() {
  recording_.reset();
  auto figure = figures_.begin();
  for (const AnyOperator& call : pass_->calls()) {
    std::visit(
        [&](const auto& op) {
          if constexpr (std::is_same_v<ResultOf<std::remove_cvref_t<decltype(op)>>, Pending<LossSums>>) {
            **figure++ = table_->run(op);
          } else {
            static_cast<void>(table_->run(op));
          }
        },
        call);
  }
}

void OperatorCalls::prepare() {
  recording_ = std::make_shared<Kept>();
  for (const AnyOperator& call : pass_->calls()) {
    const auto* put = std::get_if<Put>(&call);
    if (put == nullptr) continue;
    recording_->lists.emplace_back(*pinned_, put->values.size());
    std::memcpy(recording_->lists.back().data(), put->values.data(), put->values.size());
  }
  // The recorded calls take memory for their figures from pinned memory, which must be available before.
  std::vector<SpaceMemory> taken;
  for (std::size_t figure = 0; figure < figures_.size(); ++figure) taken.emplace_back(*pinned_, sizeof(LossSums));
}

std::shared_ptr<void> OperatorCalls::record() {
  auto list = recording_->lists.begin();
  for (const AnyOperator& call : pass_->calls()) {
    std::visit(
        [&](const auto& op) {
          using Op = std::remove_cvref_t<decltype(op)>;
          if constexpr (std::is_same_v<Op, Put>) {
            table_->upload(Tensor((list++)->data(), op.to.dtype(), op.to.shape()), op.to);
          } else if constexpr (std::is_same_v<ResultOf<Op>, Pending<LossSums>>) {
            recording_->figures.push_back(table_->run(op));
          } else {
            static_cast<void>(table_->run(op));
          }
        },
        call);
  }
  recording_->pass = pass_;
  return std::exchange(recording_, nullptr);
}

bool OperatorCalls::equals(const void* kept) const {
  return *pass_ == *static_cast<const Kept*>(kept)->pass;
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
