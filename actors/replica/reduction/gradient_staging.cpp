// SPDX-License-Identifier: Apache-2.0
#include "actors/replica/reduction/gradient_staging.hpp"

#include <cassert>

namespace maestro {

namespace {

Tensor as_tensor(std::span<float> values) {
  return {values.data(), DType::f32, Shape{static_cast<std::int64_t>(values.size())}};
}

}  // namespace

GradientStaging::GradientStaging(const OperatorTable& ops, std::span<float> gradients)
    : ops_(&ops), gradients_(gradients) {
  if (ops.memory().host() || gradients.empty()) return;
  copy_ = AlignedMemory(gradients.size_bytes());
  pinned_ = PinnedBlock(ops.memory(), {copy_.data(), copy_.size()});
}

std::span<float> GradientStaging::values() const {
  if (!apart()) return gradients_;
  return {reinterpret_cast<float*>(copy_.data()), gradients_.size()};
}

std::span<float> GradientStaging::values_of(std::span<const float> part) const {
  const auto first = static_cast<std::size_t>(part.data() - gradients_.data());
  assert(first + part.size() <= gradients_.size());
  return values().subspan(first, part.size());
}

void GradientStaging::copy_to_host(std::span<float> part) const {
  if (!part.empty()) ops_->download(as_tensor(part), as_tensor(values_of(part)));
}

void GradientStaging::copy_to_device(std::span<float> part) const {
  if (!part.empty()) ops_->upload(as_tensor(values_of(part)), as_tensor(part));
}

}  // namespace maestro
