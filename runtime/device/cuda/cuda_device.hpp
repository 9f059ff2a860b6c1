// SPDX-License-Identifier: Apache-2.0
// A CUDA device, or a part of it, for a section: a thread that queues work, a stream that runs it in order, a second
// stream for copies, memory, and completions from the process' poller.
//
// CD-1 (one stream): operators of the table queue on the device's main stream only; nothing waits for it in the steady
//       state.
// CD-2 (ordered completions): an event on that stream completes finish(): completions come in call order, and a
//       device failure fails every completion that is outstanding or comes later.
// CD-3 (drained stop): stop() returns when both streams are idle and every completion, of work and of copies, is
//       delivered and destroyed, with everything that it held.
// CD-4 (copies beside work): move() copies on a separate stream, in the order of the calls; neither stream waits for
//       the other. Memory that a copy uses stays its caller's until `done`: if it were released before, it could be
//       given out again.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/collective/group_watch.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/device/completion_poller.hpp"
#include "runtime/device/cuda/device_space.hpp"
#include "runtime/device/cuda/graph_cache.hpp"
#include "runtime/device/cuda/green_contexts.hpp"
#include "runtime/device/work_thread.hpp"

namespace maestro::cuda {

/// A mark in a stream, or the reason why it is missing.
struct PolledEvent {
  std::optional<PooledEvent> event;
  std::string device;  ///< device name, for error messages
  std::string failure;
  std::shared_ptr<GroupWatch> groups = {};  ///< groups that the work before the mark may wait in
};
struct QueryEvent {
  EventState operator()(const PolledEvent& polled) const;
};
/// The poller that all devices in the process share.
using Poller = CompletionPoller<PolledEvent, QueryEvent>;

/// The environment of an operator table, which it outlives.
struct TableSite {
  int device = 0;
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;  ///< multiprocessors of the device's share: the basis for sizing launches
  DeviceSpace& memory;
  PinnedSpace& pinned;
  GraphCache& graphs;
  std::function<void(const std::string&)> report;  ///< receives a line for a person
  bool deterministic = true;
  GraphUse use_of_graphs = GraphUse::where_they_pay;
};
/// Called with the device current.
using TableMaker = std::function<std::unique_ptr<OperatorTable>(const TableSite& site)>;

class CudaDevice final : public Device {
 public:
  /// `poller` and `parts` (of the same device) outlive it. Throws DeviceError and JobError.
  CudaDevice(const DeviceOptions& options, Poller& poller, DeviceParts& parts, const TableMaker& make_table);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const OperatorTable& ops() const override { return *table_; }
  void submit(Priority priority, std::function<void()> work) override { thread_->submit(priority, std::move(work)); }
  void finish(std::function<void(const std::string& failure)> done) override;
  [[nodiscard]] std::unique_ptr<WorkTimer> timer() override;
  [[nodiscard]] std::size_t peak_bytes() const override { return memory_->figures().peak_bytes; }
  /// Copies, also from and to other devices' memory in this process: directly if PeerAccess has them, else by the
  /// driver. With host memory that is not pinned the call waits.
  void move(const std::byte* from, std::byte* to, std::size_t bytes,
            std::function<void(const std::string& failure)> done) override;
  void stop() override;

  [[nodiscard]] int index() const { return index_; }
  [[nodiscard]] cudaStream_t stream() const { return work_->stream.get(); }
  [[nodiscard]] cudaStream_t copy_stream() const { return copies_.get(); }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  [[nodiscard]] DeviceSpace& memory() const { return *memory_; }
  [[nodiscard]] PinnedSpace& pinned() { return pinned_; }
  [[nodiscard]] GraphCache& graphs() { return *graphs_; }
  /// Returns the groups; completions that never arrive read the failure here.
  [[nodiscard]] const std::shared_ptr<GroupWatch>& groups() const { return groups_; }

 private:
  class Outstanding;
  /// Opens the device's part and stream; without green contexts an ordinary stream.
  [[nodiscard]] Stream open_stream(const DeviceOptions& options, DeviceParts& parts);
  /// Calls `queue`, then marks the end of the work on `stream`, or reports the failure.
  [[nodiscard]] PolledEvent mark_behind(cudaStream_t stream, const std::function<void()>& queue);
  void deliver(StreamNumber number, PolledEvent mark, std::function<void(const std::string& failure)> done);

  std::string name_;
  int index_;
  int multiprocessors_ = 0;
  Poller& poller_;
  StreamNumber number_;
  StreamNumber copy_number_;
  std::shared_ptr<Outstanding> outstanding_;  // with the completions, whose last may come from the poller's thread
  std::shared_ptr<GroupWatch> groups_ = std::make_shared<GroupWatch>();
  std::shared_ptr<EventPool> events_;  // with the events that the poller still holds
  std::shared_ptr<EventPool> timed_events_;
  std::unique_ptr<DevicePart> part_;  // before the stream made from it
  std::unique_ptr<WorkStream> work_;
  std::mutex copy_order_;  // orders copies with their events and completions
  Stream copies_{nullptr};
  std::unique_ptr<DeviceSpace> memory_;
  PinnedSpace pinned_;
  std::unique_ptr<GraphCache> graphs_;
  std::unique_ptr<OperatorTable> table_;
  std::unique_ptr<WorkThread> thread_;  // last: it uses everything above
};

}  // namespace maestro::cuda
