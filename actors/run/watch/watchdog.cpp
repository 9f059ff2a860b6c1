// SPDX-License-Identifier: Apache-2.0
#include "actors/run/watch/watchdog.hpp"

#include <system_error>
#include <utility>

#include "runtime/core/result.hpp"

namespace maestro {

Watchdog::Watchdog(Line expired) : expired_(std::move(expired)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& problem) {
    throw JobError(std::string("cannot watch the run: no thread: ") + problem.what(), ErrorCode::unavailable);
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::limit(std::string phase, std::chrono::milliseconds most) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
  part_.clear();
  phase_ends_ = clock_.look(std::chrono::steady_clock::now()) + most;
}

void Watchdog::part(std::string part) {
  const std::lock_guard lock(mutex_);
  part_ = std::move(part);
}

void Watchdog::watch(Progress progress) {
  const std::lock_guard lock(mutex_);
  judge_.emplace(progress.limit, progress.work_limit);
  progress_ = std::move(progress);
}

void Watchdog::stop_watching() {
  std::unique_lock lock(mutex_);
  progress_.reset();
  wake_.wait(lock, [this] { return !looking_; });
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, tick);
    clock_.look(std::chrono::steady_clock::now());
    check_phase(lock);
    check_progress(lock);
  }
}

void Watchdog::check_phase(std::unique_lock<std::mutex>& lock) {
  if (phase_.empty() || clock_.ran() < phase_ends_) return;
  std::string line = std::exchange(phase_, {}) + " did not end in time";
  if (!part_.empty()) line += ": " + part_ + " takes too long";
  lock.unlock();
  expired_(line);
  lock.lock();
}

void Watchdog::check_progress(std::unique_lock<std::mutex>& lock) {
  if (!progress_ || stopping_) return;
  if (!judge_->wants_look(progress_->events->load(std::memory_order_relaxed), clock_.ran())) return;
  const Progress progress = *progress_;
  looking_ = true;
  lock.unlock();
  StallLook look;
  try {
    look = progress.look();
  } catch (const std::exception& problem) {
    look.announced = true;
    look.silent = {std::string("the coordinator (") + problem.what() + ")"};
  }
  lock.lock();
  clock_.look(std::chrono::steady_clock::now());
  const StallJudge::Verdict verdict = judge_->judge(look, clock_.ran());
  if (verdict.ended) progress_.reset();
  lock.unlock();
  if (verdict.report) progress.report(*verdict.report);
  if (verdict.ended) progress.stalled(*verdict.ended);
  lock.lock();
  looking_ = false;
  wake_.notify_all();
}

}  // namespace maestro
