// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/operator_table.hpp"

#include <cassert>
#include <cstring>

namespace maestro {

void OperatorTable::run(const Zero& op) const {
  assert(memory().host());
  if (op.to.bytes() > 0) std::memset(op.to.raw(), 0, op.to.bytes());
}

void OperatorTable::run(const Copy& op) const {
  assert(memory().host() && op.from.dtype() == op.to.dtype() && op.from.bytes() == op.to.bytes());
  if (op.to.bytes() > 0) std::memcpy(op.to.raw(), op.from.raw(), op.to.bytes());
}

void OperatorTable::run(const Upload& op) const {
  copy(op.from, op.to);
}

void OperatorTable::run(const Download& op) const {
  copy(op.from, op.to);
}

void OperatorTable::run(const Put& op) const {
  assert(memory().host() && op.values.size() == op.to.bytes());
  if (!op.values.empty()) std::memcpy(op.to.raw(), op.values.data(), op.values.size());
}

}  // namespace maestro
