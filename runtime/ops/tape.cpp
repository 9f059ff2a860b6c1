// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/tape.hpp"

#include <cassert>

#include "runtime/ops/call_checks.hpp"

namespace maestro {

namespace {
const Tensor undefined_tensor;
}

const Tensor& Block::tensor() const {
  return state_ == nullptr ? undefined_tensor : state_->tensor;
}
bool Block::shared() const {
  return state_ != nullptr && (state_->references > 1 || !state_->owned);
}
void Block::retain() {
  if (state_ != nullptr) ++state_->references;
}
void Block::drop() {
  if (state_ == nullptr || --state_->references > 0) return;
  Tape* tape = state_->tape;
  if (state_->owned) tape->arena_->release(state_->tensor);
  tape->free_blocks_.push_back(state_);
  state_ = nullptr;
}

const Tensor& Var::value() const {
  return node_->value.tensor();
}
bool Var::needs_gradient() const {
  return node_ != nullptr && node_->needs_gradient;
}
const Tensor& Var::gradient() const {
  return node_->gradient.tensor();
}
void Var::retain() {
  if (node_ != nullptr) ++node_->references;
}
void Var::drop() {
  if (node_ == nullptr || --node_->references > 0) return;
  node_->value = Block();
  node_->gradient = Block();
  node_->tape->free_vars_.push_back(node_);
  node_ = nullptr;
}

Tape::Tape(const OperatorTable& ops, Arena& arena, DType compute, bool record)
    : ops_(&ops), arena_(&arena), compute_(compute), record_(record) {}

Tape::~Tape() {
  clear();
}

Block Tape::make_block(const Tensor& tensor, bool owned) {
  Block::State* state = nullptr;
  if (free_blocks_.empty()) {
    state = &block_store_.emplace_back();
  } else {
    state = free_blocks_.back();
    free_blocks_.pop_back();
  }
  *state = Block::State{this, tensor, 0, owned};
  return Block(state);
}

Block Tape::scratch(Shape shape, DType dtype) {
  return make_block(arena_->allocate(shape, dtype), true);
}

Block Tape::indices(std::span<const std::int32_t> values) {
  Block block = scratch({static_cast<std::int64_t>(values.size())}, DType::i32);
  ops_->put(std::as_bytes(values), block.tensor());
  return block;
}

Var Tape::input(const Tensor& value, bool needs_gradient) {
  return make_var(make_block(value, false), needs_gradient);
}

Var Tape::output(Shape shape, DType dtype, bool needs_gradient) {
  return make_var(scratch(shape, dtype), needs_gradient);
}

Var Tape::make_var(Block value, bool needs_gradient) {
  Var::State* state = nullptr;
  if (free_vars_.empty()) {
    state = &var_store_.emplace_back();
  } else {
    state = free_vars_.back();
    free_vars_.pop_back();
  }
  state->tape = this;
  state->references = 0;
  state->needs_gradient = record_ && needs_gradient;
  state->value = std::move(value);
  return Var(state);
}

void Tape::forget(const Var& var) {
  const Tensor& value = var.value();
  var.node_->value = make_block(Tensor(nullptr, value.dtype(), value.shape()), false);
}

void Tape::remember(const Var& var, Block value) {
  assert(value.tensor().shape() == var.value().shape() && value.tensor().dtype() == var.value().dtype());
  var.node_->value = std::move(value);
}

Tape::Target Tape::gradient_target(const Var& var) {
  Var::State& state = *var.node_;
  if (!state.gradient.defined()) {
    state.gradient = scratch(state.value.tensor().shape(), state.value.tensor().dtype());
    return {state.gradient.tensor(), false};
  }
  if (state.gradient.shared()) {  // TP-2
    Block own = scratch(state.gradient.tensor().shape(), state.gradient.tensor().dtype());
    ops_->copy(state.gradient.tensor(), own.tensor());
    state.gradient = std::move(own);
  }
  return {state.gradient.tensor(), true};
}

Block Tape::gradient_block(const Var& var) {
  return var.node_->gradient;
}

Block Tape::take_gradient(const Var& var) {
  return std::exchange(var.node_->gradient, Block());
}

void Tape::add_gradient(const Var& var, const Block& gradient) {
  Var::State& state = *var.node_;
  check_gradient(state.value.tensor(), gradient.tensor());
  const DType dtype = state.value.tensor().dtype();
  if (!state.gradient.defined() && gradient.tensor().dtype() == dtype) {
    state.gradient = gradient;
    return;
  }
  const Target target = gradient_target(var);
  if (target.accumulate) {
    ops_->run(Add{.a = target.tensor, .b = gradient.tensor(), .out = target.tensor});
  } else {
    ops_->run(Cast{.from = gradient.tensor(), .to = target.tensor});
  }
}

void Tape::seed(const Var& var, const Tensor& gradient) {
  // A gradient without rows may be without memory, but its backward step must run: other ranks may wait in theirs.
  const bool nothing = gradient.raw() == nullptr && gradient.bytes() == 0;
  add_gradient(var, nothing ? scratch(gradient.shape(), gradient.dtype()) : make_block(gradient, false));
}

void Tape::push(Var of, Closure closure) {
  const bool root = !of.defined();
  entries_.push_back(Entry{std::move(of), root, closure});
}

void Tape::destroy(Closure& closure) {
  closure.destroy(closure.object);
  closures_.release(static_cast<std::byte*>(closure.object), closure.bytes);
}

void Tape::backward() {
  while (!entries_.empty()) {
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    struct Destroyed {  // also when the closure throws, for example because its collective is aborted
      Tape& tape;
      Closure& closure;
      ~Destroyed() { tape.destroy(closure); }
    } const after{*this, entry.closure};
    if (entry.root || entry.of.gradient().defined()) entry.closure.run(entry.closure.object);
  }
}

void Tape::clear() {
  while (!entries_.empty()) {
    destroy(entries_.back().closure);
    entries_.pop_back();
  }
}

}  // namespace maestro
