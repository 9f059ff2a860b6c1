// SPDX-License-Identifier: Apache-2.0
// A rank's job for its device, and the job's result.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "actors/messages/messages.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

/// A job's result: available at once, or computed after the device has completed the job.
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
  /// Call both only after the device has completed the job, broken() first: if it is not empty, the result is invalid.
  [[nodiscard]] std::string broken() const { return broken_ ? broken_() : std::string(); }
  [[nodiscard]] WorkDone get() const { return complete_ ? complete_() : done_; }

 private:
  WorkDone done_;
  std::function<WorkDone()> complete_;
  std::function<std::string()> broken_;
};

/// A job on the device's thread. An error ends the run, and so does an exception other than ExchangeBroken.
using RankJob = std::function<Result<WorkResult>()>;

/// Thrown if an exchange with peers cannot be queued; if a peer is lost, its loss is the better explanation.
class ExchangeBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace maestro
