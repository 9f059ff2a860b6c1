// SPDX-License-Identifier: Apache-2.0
// Status codes on the data path: a `Result<T>` is a value or an `Error`, and may not be dropped.
// Exceptions (`JobError`) are for start-up and invalid user input only; see docs/architecture.md.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace maestro {

enum class ErrorCode {
  invalid_argument,  ///< the caller's or the user's input is wrong
  not_found,         ///< a file, section, port or provider does not exist
  unavailable,       ///< a resource is busy or missing on this machine; may work elsewhere or later
  corrupt,           ///< stored or received bytes fail their check
  peer_lost,         ///< another process or actor of the job is gone
  timeout,           ///< a deadline passed
  cancelled,         ///< stopped on request
  internal,          ///< an invariant of this program is broken
};

/// An error as a single line for users: operation, place, cause, nearest valid value.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;
};

/// Thrown at start-up for invalid input; `what()` is the line that the user sees. Never crosses an actor handler.
class JobError : public std::runtime_error {
 public:
  explicit JobError(std::string message, ErrorCode code = ErrorCode::invalid_argument)
      : std::runtime_error(std::move(message)), code_(code) {}
  explicit JobError(Error error) : std::runtime_error(std::move(error.message)), code_(error.code) {}
  [[nodiscard]] ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }
  /// Returns the value or throws JobError; for start-up code.
  T value_or_throw() && {
    if (!ok()) throw JobError(std::get<1>(std::move(state_)));
    return std::get<0>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

/// A Result without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : failed_(true), error_(std::move(error)) {}  // NOLINT: implicit by design
  [[nodiscard]] bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const { return error_; }
  void or_throw() const {
    if (failed_) throw JobError(error_);
  }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace maestro
