// SPDX-License-Identifier: Apache-2.0
// A piece of work of a rank for its device, and what it gives.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "actors/messages/messages.hpp"

namespace maestro {

/// What a piece of work gives: known at once, or asked for when the device has completed it.
class WorkResult {
 public:
  WorkResult(WorkDone known) : known_(std::move(known)) {}                            // NOLINT: stands for either
  WorkResult(std::function<WorkDone()> complete) : complete_(std::move(complete)) {}  // NOLINT
  /// Of an exchange with peers, which may break behind the work's back: `broken` then says how, in one line.
  [[nodiscard]] static WorkResult of_exchange(std::function<std::string()> broken) {
    WorkResult result{WorkDone()};
    result.broken_ = std::move(broken);
    return result;
  }
  /// To be asked first, when the device has completed the work. Not empty: what it gives means nothing.
  [[nodiscard]] std::string broken() const { return broken_ ? broken_() : std::string(); }
  [[nodiscard]] WorkDone get() const { return complete_ ? complete_() : known_; }

 private:
  WorkDone known_;
  std::function<WorkDone()> complete_;
  std::function<std::string()> broken_;
};

/// Runs on the device's thread. It may throw ExchangeBroken; any other exception ends the run.
using RankJob = std::function<WorkResult()>;

/// An exchange with peers could not be queued; perhaps one of them is gone, which others tell better.
class ExchangeBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace maestro
