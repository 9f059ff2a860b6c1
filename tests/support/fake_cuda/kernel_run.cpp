// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/kernel_run.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fiber.hpp"

namespace maestro::fake_cuda {

namespace {

constexpr std::byte poison{0xFF};  // NaN as float and as bf16
constexpr std::byte guard{0xA5};
constexpr std::size_t guard_bytes = 1024;
constexpr std::size_t alignment = 16;
constexpr std::size_t most_threads = 1024;
constexpr unsigned most_blocks_yz = 65535;

std::atomic<Order> order_of_runs{Order::forward};

enum class Wait : std::uint8_t { none, block, warp, ended };

struct Lane {
  Fiber fiber;
  ThreadPlace place;
  Wait wait = Wait::none;
  const char* file = "";
  int line = 0;
  unsigned mask = 0;
  LaneValue value;
};

/// Returns the first 16-byte aligned byte.
std::byte* aligned_in(std::vector<std::byte>& memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return memory.data() + (alignment - address % alignment) % alignment;
}

std::string text(const uint3& at) {
  return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
}

/// Runs one block at a time, with fibers and shared memory that later blocks reuse.
class BlockRun {
 public:
  void run(const KernelCall& call, const uint3& block, Order order);
  /// Drops fibers that are stopped.
  void drop() { lanes_.clear(); }

  Lane& lane() { return *lanes_[current_]; }
  void wait_at_barrier(const char* file, int line);
  const LaneValue* exchange(unsigned mask, const LaneValue& value);
  unsigned lane_number() const { return static_cast<unsigned>(current_ % warp_lanes); }
  std::byte* dynamic_shared();
  std::byte* variable(const void* key, std::size_t bytes);
  [[noreturn]] void fault(const std::string& what);

 private:
  void prepare(const uint3& block);
  void step_all(Order order);
  void run_lane(std::size_t i);
  bool release_block();
  bool release_warps();
  bool release_warp(std::size_t first, std::size_t last);
  [[nodiscard]] std::string stuck() const;
  void check_guard();
  void count_static(std::size_t bytes);

  const KernelCall* call_ = nullptr;
  std::function<void()> body_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::size_t threads_ = 0;
  std::size_t current_ = 0;
  std::size_t ended_ = 0;
  std::string error_;
  std::vector<std::byte> dynamic_;
  /// A shared variable; a guard follows its bytes.
  struct Variable {
    std::vector<std::byte> memory;
    std::size_t bytes = 0;
    bool used = false;  // by this block
    [[nodiscard]] std::byte* first() { return aligned_in(memory); }
  };
  std::map<const void*, Variable> variables_;
  std::size_t static_bytes_ = 0;    // bytes of the variables that this block has used
  std::vector<LaneValue> arrived_;  // result of the last warp operation, by thread
};

struct Fault {};  // unwinds a thread of a failed kernel

thread_local BlockRun own_runner;
/// The thread's runner during a kernel. Kernels read it at every access to threadIdx, and this needs no call.
[[gnu::tls_model("initial-exec")]] constinit thread_local BlockRun* runner = nullptr;

void BlockRun::run(const KernelCall& call, const uint3& block, Order order) {
  call_ = &call;
  prepare(block);
  while (ended_ < threads_) {
    step_all(order);
    if (!error_.empty()) break;
    if (ended_ == threads_) break;
    const bool warps = release_warps();
    if (!warps && !release_block()) error_ = stuck();
    if (!error_.empty()) break;
  }
  if (error_.empty()) check_guard();
  if (error_.empty()) return;
  const std::string message = "kernel " + std::string(call.name) + ", block " + text(block) + ": " + error_;
  error_.clear();
  drop();
  throw KernelError(message);
}

void BlockRun::prepare(const uint3& block) {
  const dim3& size = call_->block;
  threads_ = std::size_t{size.x} * size.y * size.z;
  ended_ = 0;
  while (lanes_.size() < threads_) lanes_.push_back(std::make_unique<Lane>());
  arrived_.resize(std::max(arrived_.size(), (threads_ + warp_lanes - 1) / warp_lanes * warp_lanes));
  if (!body_) {
    body_ = [this] {
      try {
        call_->body();
      } catch (const Fault&) {  // already noted in error_
      }
    };
  }
  for (std::size_t i = 0; i < threads_; ++i) {
    Lane& lane = *lanes_[i];
    const auto n = static_cast<unsigned>(i);
    lane.place = {{n % size.x, n / size.x % size.y, n / size.x / size.y}, block, size, call_->grid};
    lane.wait = Wait::none;
    lane.fiber.begin(body_);
  }
  dynamic_.assign(call_->shared_bytes + guard_bytes + alignment, poison);
  std::fill_n(dynamic_shared() + call_->shared_bytes, guard_bytes, guard);
  static_bytes_ = 0;
  for (auto& [key, variable] : variables_) {
    std::fill_n(variable.first(), variable.bytes, poison);
    variable.used = false;
  }
}

void BlockRun::step_all(Order order) {
  for (std::size_t n = 0; n < threads_ && error_.empty(); ++n) {
    const std::size_t i = order == Order::forward ? n : threads_ - 1 - n;
    if (lanes_[i]->wait == Wait::none) run_lane(i);
  }
}

void BlockRun::run_lane(std::size_t i) {
  current_ = i;
  Lane& lane = *lanes_[i];
  if (!lane.fiber.resume()) return;
  lane.wait = Wait::ended;
  ++ended_;
}

bool BlockRun::release_block() {
  const Lane& first = *lanes_[0];
  for (std::size_t i = 0; i < threads_; ++i) {
    const Lane& lane = *lanes_[i];
    if (lane.wait != Wait::block || lane.line != first.line || std::strcmp(lane.file, first.file) != 0) return false;
  }
  for (std::size_t i = 0; i < threads_; ++i) lanes_[i]->wait = Wait::none;
  return true;
}

bool BlockRun::release_warps() {
  bool any = false;
  for (std::size_t first = 0; first < threads_; first += warp_lanes) {
    any = release_warp(first, std::min<std::size_t>(first + warp_lanes, threads_)) || any;
  }
  return any;
}

bool BlockRun::release_warp(std::size_t first, std::size_t last) {
  bool any = false;
  for (std::size_t i = first; i < last; ++i) {
    if (lanes_[i]->wait != Wait::warp) continue;
    const unsigned mask = lanes_[i]->mask;
    bool complete = true;
    for (unsigned lane = 0; lane < warp_lanes; ++lane) {
      if ((mask >> lane & 1U) == 0) continue;
      const std::size_t peer = first + lane;
      complete = complete && peer < last && lanes_[peer]->wait == Wait::warp && lanes_[peer]->mask == mask;
    }
    if (!complete) continue;
    for (std::size_t peer = first; peer < last; ++peer) {
      if ((mask >> (peer - first) & 1U) == 0) continue;
      arrived_[peer] = lanes_[peer]->value;
      lanes_[peer]->wait = Wait::none;
    }
    any = true;
  }
  return any;
}

std::string BlockRun::stuck() const {
  std::map<std::string, std::size_t> where;
  for (std::size_t i = 0; i < threads_; ++i) {
    const Lane& lane = *lanes_[i];
    const std::string what = lane.wait == Wait::block
                                 ? "wait at the barrier of " + std::string(lane.file) + ":" + std::to_string(lane.line)
                             : lane.wait == Wait::warp ? "wait in a warp operation of mask " + std::to_string(lane.mask)
                                                       : std::string("have ended");
    ++where[what];
  }
  std::string message = "threads do not meet:";
  for (const auto& [what, count] : where) message += " " + std::to_string(count) + " " + what + ";";
  message.pop_back();
  return message;
}

void BlockRun::check_guard() {
  const auto written_after = [](const std::byte* end) {
    return std::any_of(end, end + guard_bytes, [](std::byte value) { return value != guard; });
  };
  if (written_after(dynamic_shared() + call_->shared_bytes)) {
    error_ = "wrote past the " + std::to_string(call_->shared_bytes) + " bytes of dynamic shared memory";
  }
  for (auto& [key, variable] : variables_) {
    if (!written_after(variable.first() + variable.bytes)) continue;
    error_ = "wrote past a shared variable of " + std::to_string(variable.bytes) + " bytes";
    std::fill_n(variable.first() + variable.bytes, guard_bytes, guard);
  }
}

void BlockRun::wait_at_barrier(const char* file, int line) {
  Lane& own = lane();
  own.wait = Wait::block;
  own.file = file;
  own.line = line;
  own.fiber.yield();
}

const LaneValue* BlockRun::exchange(unsigned mask, const LaneValue& value) {
  Lane& own = lane();
  const std::size_t self = current_;
  if ((mask >> lane_number() & 1U) == 0) fault("a lane calls a warp operation whose mask leaves it out");
  own.wait = Wait::warp;
  own.mask = mask;
  own.value = value;
  own.fiber.yield();
  return arrived_.data() + self / warp_lanes * warp_lanes;
}

std::byte* BlockRun::dynamic_shared() {
  return aligned_in(dynamic_);
}

std::byte* BlockRun::variable(const void* key, std::size_t bytes) {
  Variable& variable = variables_[key];
  if (variable.memory.empty()) {
    variable.bytes = bytes;
    variable.memory.assign(bytes + guard_bytes + alignment, poison);
    std::fill_n(variable.first() + bytes, guard_bytes, guard);
  }
  if (!std::exchange(variable.used, true)) count_static(bytes);
  return variable.first();
}

void BlockRun::count_static(std::size_t bytes) {
  static_bytes_ += bytes;
  const std::size_t sum = static_bytes_ + call_->shared_bytes;
  if (sum <= call_->most_shared_bytes) return;
  fault(std::to_string(sum) + " bytes of shared memory, static and dynamic, are more than the " +
        std::to_string(call_->most_shared_bytes) + " that the function may have");
}

void BlockRun::fault(const std::string& what) {
  if (error_.empty()) error_ = "thread " + text(lane().place.thread) + ": " + what;
  throw Fault();
}

void check_limits(const KernelCall& call) {
  const std::size_t threads = std::size_t{call.block.x} * call.block.y * call.block.z;
  const bool blocks = call.grid.x > 0 && call.grid.y > 0 && call.grid.z > 0 && call.grid.y <= most_blocks_yz &&
                      call.grid.z <= most_blocks_yz && call.grid.x <= 0x7fffffffU;
  if (threads == 0 || threads > most_threads || !blocks || call.shared_bytes > shared_bytes_per_block) {
    throw KernelError("kernel " + std::string(call.name) + ": grid, block or shared memory is outside of the limits");
  }
}

}  // namespace

void run_kernel(const KernelCall& call) {
  check_limits(call);
  const Order order = order_of_runs.load();
  const std::uint64_t blocks = std::uint64_t{call.grid.x} * call.grid.y * call.grid.z;
  runner = &own_runner;
  for (std::uint64_t n = 0; n < blocks; ++n) {
    const std::uint64_t i = order == Order::forward ? n : blocks - 1 - n;
    const std::uint64_t rest = i / call.grid.x;
    runner->run(call,
                {static_cast<unsigned>(i % call.grid.x), static_cast<unsigned>(rest % call.grid.y),
                 static_cast<unsigned>(rest / call.grid.y)},
                order);
  }
}

void set_order(Order order) {
  order_of_runs.store(order);
}

const ThreadPlace& place() {
  return runner->lane().place;
}
void block_barrier(const char* file, int line) {
  runner->wait_at_barrier(file, line);
}
const LaneValue* warp_exchange(unsigned mask, const LaneValue& value) {
  return runner->exchange(mask, value);
}
unsigned lane_number() {
  return runner->lane_number();
}
void kernel_fault(const char* what) {
  runner->fault(what);
}
std::byte* dynamic_shared() {
  return runner->dynamic_shared();
}
std::byte* shared_variable(const void* key, std::size_t bytes) {
  return runner->variable(key, bytes);
}

}  // namespace maestro::fake_cuda
