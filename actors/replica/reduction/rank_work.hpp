// SPDX-License-Identifier: Apache-2.0
// A job of a rank for its device, and its result.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "actors/messages/messages.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// The result of a job: there at once, or computed when the device has completed the job.
class WorkResult {
 public:
  WorkResult() = default;
  explicit WorkResult(WorkDone done) : done_(std::move(done)) {}
  explicit WorkResult(std::function<WorkDone()> complete) : complete_(std::move(complete)) {}
  /// Returns the result of an exchange with peers, which may fail after the job: `broken` then returns the failure in
  /// one line.
  [[nodiscard]] static WorkResult of_exchange(std::function<std::string()> broken) {
    WorkResult result;
    result.broken_ = std::move(broken);
    return result;
  }
  /// Both only when the device has completed the job, broken() first: if it is not empty, the result is invalid.
  [[nodiscard]] std::string broken() const { return broken_ ? broken_() : std::string(); }
  [[nodiscard]] WorkDone get() const { return complete_ ? complete_() : done_; }

 private:
  WorkDone done_;
  std::function<WorkDone()> complete_;
  std::function<std::string()> broken_;
};

/// Runs on the device's thread. An error ends the run, and so does an exception other than ExchangeBroken.
using RankJob = std::function<Result<WorkResult>()>;

/// An exchange with peers could not be queued; if a peer is gone, its loss is the better explanation.
class ExchangeBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace maestro
