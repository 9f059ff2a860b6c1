// SPDX-License-Identifier: Apache-2.0
#include "transport/fabric/progress_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "transport/region_registration.hpp"

namespace maestro {
namespace {

using namespace std::chrono_literals;

// After this silence a provider that can block is left to wake the thread.
constexpr auto block_after = 200us;
// A blocked thread still polls this often, in case the provider misses an event.
constexpr auto longest_block = 100ms;
constexpr std::size_t completions_per_read = 64;
// A call into libfabric is given up after the write timeout, but not before the first limit, and after so many looks.
// After a peer was abandoned the first limit applies: the peer may have left a lock taken.
constexpr auto shortest_stuck_limit = 1000ms;
constexpr int watchdog_looks = 8;

static_assert(sizeof(fi_context2) <= sizeof(QueuedWrite::provider_context));
static_assert(std::is_standard_layout_v<QueuedWrite> && offsetof(QueuedWrite, provider_context) == 0);

ErrorCode code_of(std::int64_t library_error) {
  switch (library_error) {
    case FI_ETIMEDOUT:
      return ErrorCode::timeout;
    case FI_ECANCELED:
      return ErrorCode::cancelled;
    case FI_EINVAL:
    case FI_EMSGSIZE:
      return ErrorCode::invalid_argument;
    case FI_ENOMEM:
      return ErrorCode::unavailable;
    default:
      return ErrorCode::peer_lost;
  }
}

bool outside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
  return offset > limit || bytes > limit - offset;
}

// Starts a thread that takes no signals but its own faults: the application's threads take the others, and run
// libfabric's handlers.
template <class Body>
std::thread start_without_signals(Body&& body) {
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

TransferStats TransferCounters::read() const {
  const auto value = [](const std::atomic<std::uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {value(writes_done), value(bytes_done), value(writes_failed), value(remote_writes), value(receive_errors)};
}

ProgressThread::ProgressThread(std::shared_ptr<FabricDomain> domain, std::chrono::milliseconds timeout,
                               EndpointHandler handler)
    : domain_(std::move(domain)),
      timeout_(timeout),
      stuck_limit_(std::max<std::chrono::milliseconds>(timeout, shortest_stuck_limit)),
      handler_(std::move(handler)),
      queue_(timeout, longest_block),
      backoff_(Clock::now()),
      library_call_(watchdog_looks) {}

std::shared_ptr<ProgressThread> ProgressThread::start(std::shared_ptr<FabricDomain> domain,
                                                      std::chrono::milliseconds timeout, EndpointHandler handler) {
  std::shared_ptr<ProgressThread> progress(new ProgressThread(std::move(domain), timeout, std::move(handler)));
  progress->thread_ = start_without_signals([progress] { progress->run(); });
  progress->watchdog_ = start_without_signals([self = progress.get()] { self->watch(); });  // joined by stop()
  return progress;
}

PeerHandle ProgressThread::add_peer(PeerLink link) {
  const std::lock_guard lock(mutex_);
  inbox_.peers.push_back(std::move(link));
  wake();
  return PeerHandle(peer_count_++);
}

void ProgressThread::write(const WriteRequest& request) {
  std::optional<Error> refused;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) {
      refused = closed_;
    } else {
      inbox_.writes.push_back(request);
      wake();
    }
  }
  if (!refused) return;
  TransferCounters::add(counters_.writes_failed);
  handler_(WriteFailed{request.cookie, *std::move(refused)});
}

void ProgressThread::abandon(PeerHandle peer) {
  const std::lock_guard lock(mutex_);
  inbox_.abandoned.push_back(peer);
  stuck_limit_ = shortest_stuck_limit;
  wake();
  fate_known_.notify_all();  // the watchdog looks more often from now on
}

bool ProgressThread::stop() {
  std::unique_lock lock(mutex_);
  inbox_.stop = true;
  if (!closed_) wake();
  fate_known_.wait(lock, [this] { return fate_ != Fate::running; });
  const bool ended = fate_ == Fate::ended;
  lock.unlock();
  const std::lock_guard join_lock(join_mutex_);
  if (watchdog_.joinable()) watchdog_.join();
  if (thread_.joinable()) ended ? thread_.join() : thread_.detach();
  return ended;
}

void ProgressThread::wake() {
  if (rest_ == Rest::timed) wake_up_.notify_one();
  if (rest_ == Rest::blocked) fi_cq_signal(domain_->completions());
  rest_ = Rest::none;  // a single signal is enough
}

void ProgressThread::run() {
  pthread_setname_np(pthread_self(), "maestro-net");
  serve();
  if (condemned_) return;  // the watchdog has reported the failure already
  const std::lock_guard lock(mutex_);
  fate_ = Fate::ended;
  fate_known_.notify_all();
}

void ProgressThread::serve() {
  for (;;) {
    bool busy = take_inbox();
    busy |= post_waiting();
    busy |= read_completions(0);
    if (condemned_) return;
    const auto now = Clock::now();
    if (busy) backoff_.note_event(now);
    expire(now);
    if (broken_ || (stopping_ && queue_.empty())) break;
    if (!busy) rest(now);
  }
  close(broken_ ? *broken_ : Error{ErrorCode::cancelled, "the endpoint was stopped"});
  if (broken_) emit(EndpointFailed{*broken_});
}

void ProgressThread::watch() {
  pthread_setname_np(pthread_self(), "maestro-watch");
  {
    std::unique_lock lock(mutex_);
    while (!library_call_.look()) {
      const auto limit = stuck_limit_;
      const auto due = [&] { return fate_ != Fate::running || stuck_limit_ != limit; };
      fate_known_.wait_for(lock, limit / watchdog_looks, due);
      if (fate_ != Fate::running) return;
    }
    closed_ = Error{ErrorCode::internal,
                    "a call into libfabric has not returned for " + std::to_string(stuck_limit_.count()) +
                        " ms: with provider shm, a process that was killed may have left a lock taken; restart this "
                        "process, or set transport.provider to \"tcp\""};
  }
  // Only this thread calls the handler now: look() has condemned the other thread (LW-1).
  handler_(EndpointFailed{*closed_});
  const std::lock_guard lock(mutex_);
  fate_ = Fate::left_behind;
  fate_known_.notify_all();
}

// Makes a call into libfabric that may take another process's lock. Returns -FI_EAGAIN if the thread is condemned.
template <class Call>
std::int64_t ProgressThread::call_library(const Call& call) {
  if (condemned_) return -FI_EAGAIN;
  library_call_.enter();
  const std::int64_t result = call();
  condemned_ = !library_call_.leave();
  return condemned_ ? -FI_EAGAIN : result;
}

void ProgressThread::emit(const EndpointEvent& event) {
  if (!condemned_) handler_(event);
}

bool ProgressThread::take_inbox() {
  Inbox taken;
  {
    const std::lock_guard lock(mutex_);
    if (inbox_.empty()) return false;
    std::swap(taken, inbox_);
  }
  std::move(taken.peers.begin(), taken.peers.end(), std::back_inserter(peers_));
  for (auto peer : taken.abandoned) {
    if (peer.value() >= peers_.size()) continue;
    auto& link = peers_[peer.value()];
    link.lost = Error{ErrorCode::peer_lost, "cannot write to " + link.name + ": the peer was lost"};
    link.lost_at = Clock::now();
    if (domain_->completes_in_order()) lost_.push_back(peer);
    report_failures(queue_.give_up(peer, *link.lost));
  }
  const auto now = Clock::now();
  std::vector<WriteFailed> refused;
  for (const auto& request : taken.writes) {
    if (auto checked = check(request); checked) {
      queue_.accept(request, now);
    } else {
      refused.push_back({request.cookie, checked.error()});
    }
  }
  report_failures(std::move(refused));
  stopping_ |= taken.stop;
  return true;
}

Status ProgressThread::check(const WriteRequest& request) const {
  const auto invalid = [](std::string message) { return Error{ErrorCode::invalid_argument, std::move(message)}; };
  if (request.peer.value() >= peers_.size()) {
    return invalid("a write names peer " + std::to_string(request.peer.value()) + ", but only " +
                   std::to_string(peers_.size()) + " are connected");
  }
  const auto& peer = peers_[request.peer.value()];
  if (peer.lost) return *peer.lost;
  const std::string what = "a write of " + std::to_string(request.bytes) + " bytes to " + peer.name;
  if (request.bytes == 0) return invalid(what + " is empty; send the header alone");
  if (request.local == nullptr) return invalid(what + " names no source region");
  if (request.local->registration().domain != domain_) return invalid(what + " reads a region of another endpoint");
  if (outside(request.local_offset, request.bytes, request.local->bytes())) {
    return invalid(what + " reads at offset " + std::to_string(request.local_offset) + " of a source region of " +
                   std::to_string(request.local->bytes()) + " bytes");
  }
  if (outside(request.remote_offset, request.bytes, request.remote.bytes)) {
    return invalid(what + " goes to offset " + std::to_string(request.remote_offset) + " of a region of " +
                   std::to_string(request.remote.bytes) + " bytes");
  }
  if (request.bytes > domain_->max_write_bytes()) {
    return invalid(what + " exceeds the provider's limit of " + std::to_string(domain_->max_write_bytes()) +
                   " bytes; lower transport.chunk_kib");
  }
  return {};
}

bool ProgressThread::post_waiting() {
  const auto before = queue_.waiting();
  if (before == 0) return false;
  report_failures(queue_.post_waiting([this](QueuedWrite& write, Error& error) { return post(write, error); }));
  return queue_.waiting() != before;
}

PostOutcome ProgressThread::post(QueuedWrite& write, Error& error) {
  const auto& request = write.request;
  const auto& source = request.local->registration();
  const auto* bytes = source.data + request.local_offset;
  void* descriptor = fi_mr_desc(source.handle.get());
  const fi_addr_t peer = peers_[request.peer.value()].address;
  const std::uint64_t target = request.remote.base + request.remote_offset;
  void* context = write.provider_context.data();
  auto* endpoint = domain_->endpoint();
  const auto code = call_library([&] {
    return request.immediate
               ? fi_writedata(endpoint, bytes, request.bytes, descriptor, *request.immediate, peer, target,
                              request.remote.key, context)
               : fi_write(endpoint, bytes, request.bytes, descriptor, peer, target, request.remote.key, context);
  });
  if (code == 0) return PostOutcome::posted;
  if (code == -FI_EAGAIN) return PostOutcome::again;
  error = {code_of(-code), "a write of " + std::to_string(request.bytes) + " bytes to " + describe(request.peer) +
                               " was refused (" + fabric_text("fi_writedata", code) + ")"};
  return PostOutcome::failed;
}

bool ProgressThread::read_completions(int block_ms) {
  std::array<fi_cq_data_entry, completions_per_read> entries;
  auto* queue = domain_->completions();
  const auto count = call_library([&] {
    return block_ms > 0 ? fi_cq_sread(queue, entries.data(), entries.size(), nullptr, block_ms)
                        : fi_cq_read(queue, entries.data(), entries.size());
  });
  if (count > 0) {
    for (auto entry = entries.begin(); entry != entries.begin() + count; ++entry) handle_completion(*entry);
    return true;
  }
  if (count == 0 || count == -FI_EAGAIN || count == -FI_EINTR || count == -FI_ECANCELED) return false;
  if (count == -FI_EAVAIL) return handle_error_completion();
  broken_ = Error{ErrorCode::internal, "the transport's completion queue failed (" + fabric_text("fi_cq_read", count) +
                                           "); restart this process"};
  return true;
}

void ProgressThread::handle_completion(const fi_cq_data_entry& entry) {
  if ((entry.flags & FI_REMOTE_WRITE) != 0) {
    TransferCounters::add(counters_.remote_writes);
    emit(RemoteWrite{static_cast<std::uint32_t>(entry.data)});
    return;
  }
  if (entry.op_context == nullptr) return;
  auto& write = *reinterpret_cast<QueuedWrite*>(entry.op_context);
  const auto cookie = write.request.cookie;
  const auto bytes = write.request.bytes;
  if (!queue_.finish(write, Clock::now())) return;  // WQ-4
  TransferCounters::add(counters_.writes_done);
  TransferCounters::add(counters_.bytes_done, bytes);
  emit(WriteDone{cookie});
}

bool ProgressThread::handle_error_completion() {
  fi_cq_err_entry failure{};
  if (fi_cq_readerr(domain_->completions(), &failure, 0) <= 0) return false;
  auto* write = (failure.flags & FI_REMOTE_WRITE) != 0 ? nullptr : queue_.find_posted(failure.op_context);
  if (write == nullptr) {
    // A sender died half-way; CAF's down message reports it.
    TransferCounters::add(counters_.receive_errors);
    return true;
  }
  const auto request = write->request;
  if (!queue_.finish(*write, Clock::now())) return true;
  std::array<char, 256> text{};
  const char* detail =
      fi_cq_strerror(domain_->completions(), failure.prov_errno, failure.err_data, text.data(), text.size());
  report_failures({{request.cookie,
                    Error{code_of(failure.err), "a write of " + std::to_string(request.bytes) + " bytes to " +
                                                    describe(request.peer) + " failed (" + fi_strerror(failure.err) +
                                                    "; " + (detail != nullptr ? detail : "no detail") + ")"}}});
  return true;
}

void ProgressThread::expire(Clock::time_point now) {
  if (now < next_expiry_) return;
  next_expiry_ = now + std::clamp<Clock::duration>(timeout_ / 20, 1ms, longest_block);
  report_failures(queue_.expire(now, [this](PeerHandle peer) { return describe(peer); }));
  std::erase_if(lost_, [this](PeerHandle peer) { return !queue_.has_posted(peer); });
  for (const PeerHandle peer : lost_) {  // PT-6
    if (now - peers_[peer.value()].lost_at < shortest_stuck_limit) continue;
    broken_ = Error{ErrorCode::peer_lost, "with provider shm, a write to " + describe(peer) +
                                              ", which was lost, keeps back the ends of all later writes; set "
                                              "transport.provider to \"tcp\" to avoid this"};
  }
}

void ProgressThread::rest(Clock::time_point now) {
  const auto pause = backoff_.pause(now);
  if (pause == Clock::duration::zero()) return std::this_thread::yield();
  // A write without room is retried by the clock: nothing would wake a blocked thread for it.
  const bool block = domain_->can_block() && queue_.waiting() == 0 && backoff_.silence(now) > block_after;
  std::unique_lock lock(mutex_);
  if (!inbox_.empty()) return;
  rest_ = block ? Rest::blocked : Rest::timed;
  if (block) {
    lock.unlock();
    const auto until = queue_.empty() ? longest_block : std::min<Clock::duration>(longest_block, next_expiry_ - now);
    const auto block_ms = std::chrono::duration_cast<std::chrono::milliseconds>(until).count();
    if (read_completions(std::max(1, static_cast<int>(block_ms)))) backoff_.note_event(Clock::now());
    lock.lock();
  } else {
    wake_up_.wait_for(lock, pause, [this] { return !inbox_.empty(); });
  }
  rest_ = Rest::none;
}

void ProgressThread::close(const Error& reason) {
  Inbox left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = reason;
    std::swap(left, inbox_);
  }
  auto failures = queue_.give_up_all(reason);
  for (const auto& request : left.writes) failures.push_back({request.cookie, reason});
  report_failures(std::move(failures));
}

void ProgressThread::report_failures(std::vector<WriteFailed> failures) {
  TransferCounters::add(counters_.writes_failed, failures.size());
  for (auto& failure : failures) emit(std::move(failure));
}

std::string ProgressThread::describe(PeerHandle peer) const {
  return peers_[peer.value()].name;
}

}  // namespace maestro
