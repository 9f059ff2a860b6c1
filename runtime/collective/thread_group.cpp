// SPDX-License-Identifier: Apache-2.0
#include "runtime/collective/thread_group.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/collective/abort_reason.hpp"
#include "runtime/collective/collective_share.hpp"
#include "runtime/collective/group_barrier.hpp"
#include "runtime/core/usable_cores.hpp"

namespace maestro {
namespace {

/// Polls before a sleep: 4 to 20 microseconds, depending on the CPU, less than the cost of a sleep and a wake-up.
constexpr int spins_on_own_cores = 300;

/// State that the ranks share.
class ThreadGroup {
 public:
  ThreadGroup(std::int64_t ranks, int spins)
      : barrier_(ranks, spins), calls_(static_cast<std::size_t>(ranks)), violations_(calls_.size()) {}

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(calls_.size()); }

  void run(std::int64_t rank, const CollectiveCall& call) {
    calls_[static_cast<std::size_t>(rank)] = call;
    if (!barrier_.open()) throw_aborted(rank, call);
    do_share(rank);
    barrier_.meet();
    if (violated_.load(std::memory_order_relaxed)) throw_violation();
    if (barrier_.aborted()) throw_aborted(rank, call);
  }

  void abort(const std::string& why) {
    reason_.set(why);
    barrier_.abort();
  }
  [[nodiscard]] std::string failure() const { return reason_.is_set() ? reason_.why() : std::string(); }

 private:
  /// Performs the rank's share. noexcept: if a rank left here, its peers would wait forever (GB-3).
  void do_share(std::int64_t rank) noexcept {
    std::string wrong = call_violation(calls_, rank);
    if (wrong.empty()) return perform_share(calls_, rank);
    violations_[static_cast<std::size_t>(rank)] = std::move(wrong);
    violated_.store(true, std::memory_order_relaxed);  // the barrier orders it
  }

  [[noreturn]] void throw_violation() {
    const auto first = std::find_if(violations_.begin(), violations_.end(), [](auto& text) { return !text.empty(); });
    abort(*first);
    throw std::logic_error(*first);
  }

  [[noreturn]] void throw_aborted(std::int64_t rank, const CollectiveCall& call) const {
    throw CommunicatorAborted(std::string(name_of(call.kind)) + " on rank " + std::to_string(rank) + " of " +
                              std::to_string(size()) + ": the group was aborted: " + reason_.why());
  }

  GroupBarrier barrier_;
  std::vector<CollectiveCall> calls_;    // by rank; a rank writes its call before open(), all read until meet()
  std::vector<std::string> violations_;  // by rank; written once, between open() and the last meet()
  std::atomic<bool> violated_ = false;
  AbortReason reason_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, std::int64_t rank) : group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] std::int64_t size() const override { return group_->size(); }
  [[nodiscard]] std::int64_t rank() const override { return rank_; }
  void all_reduce_sum(std::span<float> values) override {
    group_->run(rank_, {.kind = CollectiveKind::all_reduce_sum, .values = values});
  }
  void all_reduce_max(std::span<float> values) override {
    group_->run(rank_, {.kind = CollectiveKind::all_reduce_max, .values = values});
  }
  void all_gather_rows(const Tensor& part, const Tensor& whole) override {
    group_->run(rank_, {.kind = CollectiveKind::all_gather_rows, .from = part, .to = whole});
  }
  void reduce_scatter_rows(const Tensor& whole, const Tensor& part) override {
    group_->run(rank_, {.kind = CollectiveKind::reduce_scatter_rows, .from = whole, .to = part});
  }
  void exchange(const Tensor& from, std::span<const BlockTransfer> sends, const Tensor& to,
                std::span<const BlockTransfer> receives) override {
    group_->run(rank_,
                {.kind = CollectiveKind::exchange, .from = from, .to = to, .sends = sends, .receives = receives});
  }
  void reduce_to_shards(std::span<float> values) override {
    group_->run(rank_, {.kind = CollectiveKind::reduce_to_shards, .values = values});
  }
  void gather_shards(std::span<float> values) override {
    group_->run(rank_, {.kind = CollectiveKind::gather_shards, .values = values});
  }
  void abort(const std::string& why) override { group_->abort(why); }
  [[nodiscard]] std::string failure() const override { return group_->failure(); }

 private:
  std::shared_ptr<ThreadGroup> group_;  // shared: ranks end in any order
  std::int64_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(std::int64_t ranks, std::int64_t device_threads) {
  if (ranks < 1) throw std::invalid_argument("make_thread_group: " + std::to_string(ranks) + " ranks; at least 1");
  const bool own_cores = std::max(ranks, device_threads) <= std::ssize(usable_cores());
  const auto group = std::make_shared<ThreadGroup>(ranks, own_cores ? spins_on_own_cores : 0);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace maestro
