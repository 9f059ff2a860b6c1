// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/scratch.hpp"

#include <utility>

namespace maestro::cpu {

ScratchPool::Lease::~Lease() {
  for (const Tensor& tensor : working_->taken) working_->arena.release(tensor);
  working_->taken.clear();
  pool_->give_back(std::move(working_));
}

Tensor ScratchPool::Lease::tensor(Shape shape, DType dtype) {
  working_->taken.push_back(working_->arena.allocate(shape, dtype));
  return working_->taken.back();
}

ScratchPool::Lease ScratchPool::lease() {
  std::unique_ptr<Working> working;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      working = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (working == nullptr) working = std::make_unique<Working>();
  return {*this, std::move(working)};
}

void ScratchPool::give_back(std::unique_ptr<Working> working) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(working));
}

}  // namespace maestro::cpu
