// SPDX-License-Identifier: Apache-2.0
// A person's side of the control service: finds the run, makes the call, and shows the answer as text or JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace maestro {

struct ControlTarget {
  std::string address;               ///< empty: the one run of this user on this host
  std::filesystem::path keys;        ///< folder of `maestro keys`, for addresses of other hosts
  std::filesystem::path token_file;  ///< instead of the token that the run has left in its user's folder
};

/// Calls throw JobError of one line: nobody there, refused, no answer in time.
class ControlClient {
 public:
  /// Throws JobError: no run, or several and none was chosen.
  explicit ControlClient(const ControlTarget& target);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  enum class Form { text, json };
  /// "status", "plan", "checkpoint", "pause", "resume" or "stop"; the answer ends without a line break.
  [[nodiscard]] std::string call(const std::string& name, Form form);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
