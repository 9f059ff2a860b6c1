// SPDX-License-Identifier: Apache-2.0
#include "actors/launch/parent_watch.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "runtime/core/process_identity.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace {
constexpr int look_ms = 250;
}  // namespace

ParentWatch::ParentWatch(std::int64_t pid, int input, Lost lost)
    : pid_(pid), lost_(std::move(lost)), input_(input), wake_(::eventfd(0, EFD_CLOEXEC)) {
  // By number: glibc 2.36 declares pidfd_open without C linkage. It fails if rank 0 has ended; watch() detects that.
  if (pid_ != 0) process_ = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid_), 0U)));
  const auto refuse = [](const std::string& why) {
    return JobError("cannot watch rank 0: " + why, ErrorCode::unavailable);
  };
  if (!wake_) throw refuse(std::generic_category().message(errno));
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error& failure) {
    throw refuse(failure.what());
  }
}

ParentWatch::~ParentWatch() {
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

/// Returns whether rank 0 has ended. `events`: events of the watched descriptor.
bool ParentWatch::has_ended(short events) const {
  if (pid_ != 0) return events != 0 || ::getppid() != static_cast<pid_t>(pid_);
  if (events == 0) return false;
  char ignored = 0;
  return ::read(input_, &ignored, 1) <= 0;
}

void ParentWatch::watch() {
  std::int64_t stopped_ms = 0;  // counted per look, so without the time when this process was stopped
  while (true) {
    pollfd waited[2] = {{wake_.get(), POLLIN, 0}, {pid_ != 0 ? process_.get() : input_, POLLIN, 0}};
    (void)::poll(waited, 2, look_ms);
    if (waited[0].revents != 0) return;
    if (has_ended(waited[1].revents)) return lost_("ended");
    stopped_ms = pid_ != 0 && is_stopped(pid_) ? stopped_ms + look_ms : 0;
    if (stopped_ms >= silence_) return lost_("is stopped");
  }
}

}  // namespace maestro
