// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/operator_table.hpp"

#include <cassert>
#include <cstring>
#include <stdexcept>

namespace maestro {

namespace {

void copy_on_host(const ConstTensor& from, const Tensor& to) {
  assert(from.dtype() == to.dtype() && from.bytes() == to.bytes());
  if (to.bytes() > 0) std::memcpy(to.raw(), from.raw(), to.bytes());
}

}  // namespace

std::unique_ptr<PackedWeight> OperatorTable::pack_blocks(const Mxfp4Rows& /*w*/,
                                                         std::unique_ptr<PackedWeight> /*reuse*/,
                                                         WeightGroup /*group*/) const {
  throw std::logic_error("pack_blocks: this table takes no blocks");
}

void OperatorTable::run(const Zero& op) const {
  assert(memory().host());
  if (op.to.bytes() > 0) std::memset(op.to.raw(), 0, op.to.bytes());
}

void OperatorTable::run(const Copy& op) const {
  assert(memory().host());
  copy_on_host(op.from, op.to);
}

void OperatorTable::run(const Upload& op) const {
  assert(memory().host());
  copy_on_host(op.from, op.to);
}

void OperatorTable::run(const Download& op) const {
  assert(memory().host());
  copy_on_host(op.from, op.to);
}

void OperatorTable::run(const Put& op) const {
  assert(memory().host() && op.values.size() == op.to.bytes());
  if (!op.values.empty()) std::memcpy(op.to.raw(), op.values.data(), op.values.size());
}

}  // namespace maestro
