// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/cuda_device.hpp"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace maestro::cuda {

namespace {

/// Timer whose marks are events on the device's stream.
class StreamTimer final : public WorkTimer {
 public:
  StreamTimer(std::shared_ptr<EventPool> events, cudaStream_t stream) : events_(std::move(events)), stream_(stream) {}
  void mark() override {
    marks_.push_back(events_->take());
    check(cudaEventRecord(marks_.back().get(), stream_), "a mark of time");
  }
  [[nodiscard]] double milliseconds(std::size_t from, std::size_t to) const override {
    const CurrentDevice current(events_->device());
    float passed = 0;
    check(cudaEventElapsedTime(&passed, marks_.at(from).get(), marks_.at(to).get()), "the time between marks");
    return passed;
  }

 private:
  std::shared_ptr<EventPool> events_;
  cudaStream_t stream_;
  std::vector<PooledEvent> marks_;
};

int multiprocessors_of(int device) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  return count;
}

/// Checks that runtime work runs on a part's stream and that the device's events mark it there. The driver documents
/// events only for streams of their context.
cudaError_t try_work(cudaStream_t stream) {
  const Event mark;
  void* word = nullptr;
  cudaError_t result = cudaMalloc(&word, sizeof(int));
  if (result == cudaSuccess) result = cudaMemsetAsync(word, 0, sizeof(int), stream);
  if (result == cudaSuccess) result = cudaEventRecord(mark.get(), stream);
  if (result == cudaSuccess) result = cudaStreamSynchronize(stream);
  if (result == cudaSuccess) result = cudaEventQuery(mark.get());
  static_cast<void>(cudaFree(word));
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  return result;
}

}  // namespace

EventState QueryEvent::operator()(const PolledEvent& polled) const {
  if (!polled.failure.empty()) return {false, polled.device + ": " + polled.failure};
  CurrentDevice::keep(polled.event->device());  // the thread belongs to the poller
  const cudaError_t result = cudaEventQuery(polled.event->get());
  if (result == cudaSuccess) return {true, {}};
  static_cast<void>(cudaGetLastError());
  if (result == cudaErrorNotReady) {
    const std::string failed = polled.groups ? polled.groups->failure() : std::string();
    return failed.empty() ? EventState{} : EventState{false, polled.device + ": " + failed};
  }
  return {false, polled.device + ": " + cudaGetErrorString(result) + " (" + cudaGetErrorName(result) +
                     ", found after the work that failed)"};
}

/// Counter of pending completions, for CD-3 (drained stop).
class CudaDevice::Outstanding {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      --count_;
    }
    none_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

CudaDevice::CudaDevice(const DeviceOptions& options, Poller& poller, DeviceParts& parts, const TableMaker& make_table)
    : name_(options.name),
      index_(static_cast<int>(options.index)),
      poller_(poller),
      number_(poller.new_stream()),
      copy_number_(poller.new_stream()),
      outstanding_(std::make_shared<Outstanding>()),
      events_(std::make_shared<EventPool>(index_)),
      timed_events_(std::make_shared<EventPool>(index_, true)),
      pinned_(index_) {
  const CurrentDevice current(index_);
  work_ = std::make_unique<WorkStream>(open_stream(options, parts));
  copies_ = Stream(Priority::critical);  // a copy always has a waiting receiver
  memory_ = std::make_unique<DeviceSpace>(index_, *work_, events_);
  const auto report = [log = options.log, name = name_](const std::string& line) {
    if (log) log(name + ": " + line);
  };
  graphs_ = std::make_unique<GraphCache>(*work_, events_, timed_events_, report, graph_options(options.graphs));
  table_ = make_table(
      {index_, stream(), multiprocessors_, *memory_, pinned_, *graphs_, report, options.deterministic, options.graphs});
  thread_ = std::make_unique<WorkThread>([device = index_] { CurrentDevice::keep(device); });
}

Stream CudaDevice::open_stream(const DeviceOptions& options, DeviceParts& parts) {
  multiprocessors_ = multiprocessors_of(index_);
  if (options.share < 1) {
    std::string why_not;
    part_ = parts.take(options.share, why_not);
    if (part_ != nullptr) {
      Stream stream = part_->stream(options.priority);
      const cudaError_t tried = try_work(stream.get());
      if (tried == cudaSuccess) {
        multiprocessors_ = part_->multiprocessors();
        return stream;
      }
      why_not = std::string("the runtime does not work on its stream: ") + cudaGetErrorString(tried);
      stream = Stream(nullptr);
      part_.reset();
    }
    if (options.log) {
      options.log(name_ + ": its multiprocessors are not divided for a share of " + std::to_string(options.share) +
                  " (" + why_not + "); sections share them by priority");
    }
  }
  return Stream(options.priority);
}

CudaDevice::~CudaDevice() {
  stop();
  const CurrentDevice current(index_);
  thread_.reset();
  table_.reset();
  graphs_.reset();
  memory_.reset();
  copies_ = Stream(nullptr);
  work_.reset();
  part_.reset();
}

PolledEvent CudaDevice::mark_behind(cudaStream_t stream, const std::function<void()>& queue) {
  PolledEvent mark{std::nullopt, name_, {}, groups_};
  try {
    queue();
    PooledEvent event = events_->take();
    check(cudaEventRecord(event.get(), stream), "the end of work");
    mark.event = std::move(event);
  } catch (const DeviceError& failed) {
    mark.failure = failed.what();
  }
  return mark;
}

void CudaDevice::deliver(StreamNumber number, PolledEvent mark, std::function<void(const std::string& failure)> done) {
  outstanding_->begin();
  poller_.add(number, std::move(mark),
              [outstanding = outstanding_, done = std::move(done)](const std::string& failure) mutable {
                std::exchange(done, {})(failure);  // ends before the device may: it holds objects that use the device
                outstanding->end();
              });
}

void CudaDevice::finish(std::function<void(const std::string& failure)> done) {
  deliver(number_, mark_behind(stream(), [] {}), std::move(done));
}

void CudaDevice::move(const std::byte* from, std::byte* to, std::size_t bytes,
                      std::function<void(const std::string& failure)> done) {
  const CurrentDevice current(index_);
  const auto queue = [&] {
    if (bytes > 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copy_stream()), "a copy outside the stream");
  };
  const std::lock_guard lock(copy_order_);  // CD-4
  deliver(copy_number_, mark_behind(copy_stream(), queue), std::move(done));
}

std::unique_ptr<WorkTimer> CudaDevice::timer() {
  return std::make_unique<StreamTimer>(timed_events_, stream());
}

void CudaDevice::stop() {
  thread_->stop();
  const CurrentDevice current(index_);
  static_cast<void>(cudaStreamSynchronize(stream()));  // the completions report its failure
  static_cast<void>(cudaStreamSynchronize(copy_stream()));
  outstanding_->wait();
}

}  // namespace maestro::cuda
