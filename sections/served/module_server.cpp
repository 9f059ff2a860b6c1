// SPDX-License-Identifier: Apache-2.0
#include "sections/served/module_server.hpp"

#include <algorithm>

namespace maestro {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds first_pause(20);
constexpr milliseconds longest_pause(500);

}  // namespace

bool server_missing(const JobError& error) {
  switch (error.code()) {
    case ErrorCode::unavailable:
    case ErrorCode::not_found:
    case ErrorCode::peer_lost:
    case ErrorCode::timeout:
      return true;
    default:
      return false;
  }
}

void connect_within(milliseconds patience, const std::function<void()>& connect,
                    const std::function<void(milliseconds)>& pause) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + patience;
  for (milliseconds next = first_pause;; next = std::min(2 * next, longest_pause)) {
    try {
      return connect();
    } catch (const JobError& error) {
      if (!server_missing(error) || error.code() == ErrorCode::timeout || patience == milliseconds(0)) throw;
      if (Clock::now() + next >= deadline) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(patience).count();
        throw JobError(std::string(error.what()) + " (tried for " + std::to_string(seconds) + " s)", error.code());
      }
    }
    pause(next);  // no event tells when a server begins to listen
  }
}

}  // namespace maestro
