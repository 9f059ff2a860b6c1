// SPDX-License-Identifier: Apache-2.0
// Autograd: operators of the forward pass are recorded with their backward closures, which run in reverse order.
// A section author writes only the forward pass, with the functions of functions.hpp.
//
// TP-1 (lifetime of values): a value lives while a Var handle or a recorded closure refers to it, and not longer; its
//       memory returns to the arena at once, or earlier if it is forgotten. In a forward-only tape that happens as soon
//       as the author's handle is destroyed.
// TP-2 (no writes to shared gradients): a gradient block that is shared between two Vars is never written in place.
// TP-3 (arena empty after a pass): after backward() or clear() the arena holds nothing of this tape, except through
//       handles still held outside.
// TP-4 (no allocation for repeated shapes): a pass whose shapes have occurred before allocates nothing from the system.
//
// Not thread-safe; a tape belongs to a single device thread at a time. Vars must not outlive their tape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/core/arena.hpp"
#include "runtime/ops/operator_table.hpp"

namespace maestro {

class Tape;

/// A reference-counted piece of arena memory (single-threaded count), or borrowed memory that is never freed here.
class Block {
 public:
  Block() = default;
  Block(const Block& other) : state_(other.state_) { retain(); }
  Block(Block&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Block& operator=(Block other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~Block() { drop(); }
  [[nodiscard]] const Tensor& tensor() const;
  [[nodiscard]] bool defined() const { return state_ != nullptr; }
  /// Returns true when another holder would observe a write; borrowed memory always counts as shared.
  [[nodiscard]] bool shared() const;

 private:
  friend class Tape;
  struct State {
    Tape* tape = nullptr;
    Tensor tensor;
    std::uint32_t references = 0;
    bool owned = false;
  };
  explicit Block(State* state) : state_(state) { retain(); }
  void retain();
  void drop();
  State* state_ = nullptr;
};

/// Handle to a value on the tape and, later, its gradient. Copies refer to the same value.
class Var {
 public:
  Var() = default;
  Var(const Var& other) : node_(other.node_) { retain(); }
  Var(Var&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Var& operator=(Var other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Var() { drop(); }

  [[nodiscard]] bool defined() const { return node_ != nullptr; }
  [[nodiscard]] const Tensor& value() const;
  [[nodiscard]] bool needs_gradient() const;
  /// Returns the gradient so far; undefined before the first contribution.
  [[nodiscard]] const Tensor& gradient() const;

 private:
  friend class Tape;
  struct State {
    Tape* tape = nullptr;
    Block value;
    Block gradient;
    std::uint32_t references = 0;
    bool needs_gradient = false;
  };
  explicit Var(State* state) : node_(state) { retain(); }
  void retain();
  void drop();
  State* node_ = nullptr;
};

class Tape {
 public:
  /// Creates a tape; with `record` false for a forward-only pass, which keeps nothing.
  Tape(const OperatorTable& ops, Arena& arena, DType compute, bool record);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  [[nodiscard]] const OperatorTable& ops() const { return *ops_; }
  [[nodiscard]] Arena& arena() { return *arena_; }
  /// Returns the dtype of activations between matrix products ("act").
  [[nodiscard]] DType compute() const { return compute_; }
  [[nodiscard]] bool recording() const { return record_; }
  /// Returns whether results of products do not depend on which other rows there are (Linear::rows_alone).
  [[nodiscard]] bool rows_alone() const { return rows_alone_; }
  void set_rows_alone(bool alone) { rows_alone_ = alone; }

  /// Returns a value in memory that the caller keeps alive until backward() or clear().
  Var input(const Tensor& value, bool needs_gradient = false);
  /// Returns a fresh uninitialised value; `shape` may be empty. The value needs a gradient if the tape records and
  /// `needs_gradient` is set.
  Var output(Shape shape, DType dtype, bool needs_gradient);
  /// Returns another value in the same memory, with a separate gradient if the tape records.
  Var alias(const Var& of) { return make_var(of.node_->value, true); }
  /// Gives up the memory of a value whose backward steps read at most its shape, or run after remember().
  void forget(const Var& var);
  /// Sets a forgotten value again; `value` has its shape and dtype.
  void remember(const Var& var, Block value);
  /// Calls `make` while nothing is recorded, and returns its result.
  template <class Make>
  auto unrecorded(Make make) {
    struct Restored {
      bool& record;
      bool before;
      ~Restored() { record = before; }
    } const after{record_, std::exchange(record_, false)};
    return make();
  }
  /// Returns scratch memory that lives as long as its handle.
  Block scratch(Shape shape, DType dtype);
  /// Returns a block (N) i32 with a copy of `values`, host memory that may change after the call.
  Block indices(std::span<const std::int32_t> values);

  /// Records the backward step for the operator that made `of`. The closure runs once, when the gradient is complete
  /// (skipped if there is none), and keeps its captures alive until then.
  template <class Backward>
  void record(const Var& of, Backward backward) {
    if (record_) push(of, erase(std::move(backward)));
  }
  /// Records the closure like record(), for operators without an output Var (losses): it always runs.
  template <class Backward>
  void record_root(Backward backward) {
    if (record_) push(Var(), erase(std::move(backward)));
  }

  struct Target {
    Tensor tensor;            ///< destination of the gradient, with the Var's dtype and shape
    bool accumulate = false;  ///< add to the present values
  };
  /// Returns the destination of `var`'s gradient for an operator's backward pass: allocated on first use, unshared
  /// (TP-2).
  Target gradient_target(const Var& var);
  /// Returns the gradient of `var` as a block that can be passed on without a copy.
  Block gradient_block(const Var& var);
  /// Returns the gradient of `var` and removes it: the backward step of `var` is skipped.
  Block take_gradient(const Var& var);
  /// Adds `gradient` to var's gradient: shares the block if it is the first contribution and has the same dtype.
  void add_gradient(const Var& var, const Block& gradient);
  /// Seeds an output's gradient from outside memory (a gradient from an edge), even without rows.
  void seed(const Var& var, const Tensor& gradient);

  /// Runs all closures in reverse and drops them.
  void backward();
  /// Drops everything recorded without running it.
  void clear();

 private:
  friend class Var;
  friend class Block;
  struct Closure {
    void* object = nullptr;
    std::size_t bytes = 0;
    void (*run)(void*) = nullptr;
    void (*destroy)(void*) = nullptr;
  };
  struct Entry {
    Var of;
    bool root = false;
    Closure closure;
  };
  template <class Backward>
  Closure erase(Backward&& backward) {
    using F = std::decay_t<Backward>;
    static_assert(alignof(F) <= 64);
    Closure closure;
    closure.bytes = sizeof(F);
    closure.object = new (closures_.allocate(sizeof(F))) F(std::forward<Backward>(backward));
    closure.run = [](void* object) { (*static_cast<F*>(object))(); };
    closure.destroy = [](void* object) { static_cast<F*>(object)->~F(); };
    return closure;
  }
  void push(Var of, Closure closure);
  void destroy(Closure& closure);
  Var make_var(Block value, bool needs_gradient);
  Block make_block(const Tensor& tensor, bool owned);

  const OperatorTable* ops_;
  Arena* arena_;
  Arena closures_{std::size_t{256} << 10};  // memory of the CPU, on every device
  DType compute_;
  bool record_;
  bool rows_alone_ = false;
  std::vector<Entry> entries_;
  std::deque<Var::State> var_store_;  // stable addresses, recycled through the free lists below
  std::deque<Block::State> block_store_;
  std::vector<Var::State*> free_vars_;
  std::vector<Block::State*> free_blocks_;
};

}  // namespace maestro
