// SPDX-License-Identifier: Apache-2.0
// Command-line side of the control service: finds the run, makes the call, and formats the answer as text or JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "actors/launch/join_terms.hpp"

namespace maestro {

struct ControlTarget {
  std::string address;               ///< empty: the only run of this user on this host
  std::filesystem::path keys;        ///< folder of `maestro keys`, for addresses of other hosts
  std::filesystem::path token_file;  ///< overrides the token file in the user's runtime folder
};

/// Calls throw JobError, a single line: no run at the address, refused, no answer in time.
class ControlClient {
 public:
  /// Throws JobError: no run, or several runs and no address.
  explicit ControlClient(const ControlTarget& target);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  enum class Form { text, json };
  /// `name`: "status", "plan", "checkpoint", "pause", "resume" or "stop". The answer ends without a line break.
  [[nodiscard]] std::string call(const std::string& name, Form form);
  /// Returns how this host's process joins the run; `devices`: ProcessEnv::join_devices.
  [[nodiscard]] JoinTerms join(const std::string& section, const std::string& devices);
  /// As call().
  [[nodiscard]] std::string leave(std::int32_t process, Form form);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
