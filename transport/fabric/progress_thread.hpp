// SPDX-License-Identifier: Apache-2.0
// The thread of an endpoint that calls libfabric: posts writes, reads completions, keeps deadlines. Internal.
//
// Only this thread posts writes and reads completions; other threads put requests into the inbox and wake it. The
// thread checks the inbox under its lock before every rest, so that it misses no request. The thread holds no lock
// while the handler runs.
//
// PT-3 (single end per write): every write put into the inbox ends exactly once, as WriteDone or as WriteFailed, also
//       across stop(). The only exception is PT-5: then EndpointFailed stands for all writes not reported yet.
// PT-5 (stuck library): if a call into libfabric never returns, a watchdog reports EndpointFailed; the thread is then
//       abandoned with everything it may touch, and never calls the handler again.
// PT-6 (completions that are kept back): if a write to an abandoned peer does not end within `shortest_stuck_limit`, and
//       the provider completes writes in order, the thread closes the endpoint and reports EndpointFailed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/fabric/fabric_domain.hpp"
#include "transport/fabric/idle_backoff.hpp"
#include "transport/fabric/library_call.hpp"
#include "transport/fabric/write_queue.hpp"
#include "transport/transfer_types.hpp"

namespace maestro {

struct PeerLink {
  fi_addr_t address = FI_ADDR_UNSPEC;
  std::string name;           ///< name in messages
  std::optional<Error> lost;  ///< set: the peer is lost, and no write to it is accepted
  std::chrono::steady_clock::time_point lost_at = {};
};

/// Counts of an endpoint. Any thread may add and read.
struct TransferCounters {
  std::atomic<std::uint64_t> writes_done{0};
  std::atomic<std::uint64_t> bytes_done{0};
  std::atomic<std::uint64_t> writes_failed{0};
  std::atomic<std::uint64_t> remote_writes{0};
  std::atomic<std::uint64_t> receive_errors{0};

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t count = 1) {
    counter.fetch_add(count, std::memory_order_relaxed);
  }
  [[nodiscard]] TransferStats read() const;
};

/// Shared with its thread, so that memory that an abandoned thread may touch stays alive (PT-5).
class ProgressThread : public std::enable_shared_from_this<ProgressThread> {
 public:
  using Clock = WriteQueue::Clock;

  /// `domain` is shared with its regions, which may outlive this thread. The caller must stop() in the end.
  [[nodiscard]] static std::shared_ptr<ProgressThread> start(std::shared_ptr<FabricDomain> domain,
                                                             std::chrono::milliseconds timeout,
                                                             EndpointHandler handler);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Any thread:
  PeerHandle add_peer(PeerLink link);
  void write(const WriteRequest& request);
  void abandon(PeerHandle peer);
  /// Finishes the writes accepted so far, or lets their deadlines pass; then ends the thread. May be called again.
  /// Returns false if the thread was abandoned inside libfabric: the domain must not be closed.
  bool stop();
  [[nodiscard]] TransferStats stats() const { return counters_.read(); }

 private:
  ProgressThread(std::shared_ptr<FabricDomain> domain, std::chrono::milliseconds timeout, EndpointHandler handler);
  struct Inbox {
    std::vector<PeerLink> peers;
    std::vector<WriteRequest> writes;
    std::vector<PeerHandle> abandoned;
    bool stop = false;
    [[nodiscard]] bool empty() const { return peers.empty() && writes.empty() && abandoned.empty() && !stop; }
  };
  enum class Rest { none, timed, blocked };
  enum class Fate { running, ended, left_behind };

  void run();
  void serve();
  void watch();
  template <class Call>
  std::int64_t call_library(const Call& call);
  void emit(const EndpointEvent& event);
  void wake();  // with mutex_ held
  bool take_inbox();
  Status check(const WriteRequest& request) const;
  bool post_waiting();
  PostOutcome post(QueuedWrite& write, Error& error);
  bool read_completions(int block_ms);
  void handle_completion(const fi_cq_data_entry& entry);
  bool handle_error_completion();
  void expire(Clock::time_point now);
  void rest(Clock::time_point now);
  void close(const Error& reason);
  void report_failures(std::vector<WriteFailed> failures);
  [[nodiscard]] std::string describe(PeerHandle peer) const;

  const std::shared_ptr<FabricDomain> domain_;
  const std::chrono::milliseconds timeout_;
  std::chrono::milliseconds stuck_limit_;  // longest call into libfabric (PT-5)
  const EndpointHandler handler_;

  std::mutex mutex_;  // guards the inbox, rest_, peer_count_, closed_, fate_ and stuck_limit_
  std::condition_variable wake_up_;
  std::condition_variable fate_known_;
  Inbox inbox_;
  Rest rest_ = Rest::none;
  std::uint32_t peer_count_ = 0;
  std::optional<Error> closed_;  // reason why writes are refused
  Fate fate_ = Fate::running;

  // Used only by the thread:
  WriteQueue queue_;
  IdleBackoff backoff_;
  std::vector<PeerLink> peers_;
  std::vector<PeerHandle> lost_;  // peers that may keep back completions (PT-6)
  std::optional<Error> broken_;
  bool stopping_ = false;
  bool condemned_ = false;  // the watchdog has given up the last call into libfabric
  Clock::time_point next_expiry_{};

  TransferCounters counters_;
  LibraryCall library_call_;
  std::mutex join_mutex_;  // lets two threads call stop()
  std::thread thread_;
  std::thread watchdog_;
};

}  // namespace maestro
