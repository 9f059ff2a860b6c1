// SPDX-License-Identifier: Apache-2.0
// Client of the control service for the command line: calls a run, and formats the answer as text or JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "actors/control/control_text.hpp"
#include "actors/launch/join_terms.hpp"

namespace maestro {

struct ControlTarget {
  std::string address;               ///< "unix:/PATH" or "HOST:PORT"
  std::filesystem::path keys;        ///< folder of `maestro keys`, for addresses on other hosts
  std::filesystem::path token_file;  ///< overrides the token file in the user's runtime folder
};

/// A page of rows, and the first rows of the next page.
struct MetricsPage {
  std::vector<MetricsRow> rows;
  std::int64_t next_step_row = 0;
  std::int64_t next_validation_row = 0;
  bool lacks_rows = false;  ///< the run's memory no longer holds the rows before the first; its record has them
};

/// A run's status at a moment.
struct RunGlance {
  bool ends = false;  ///< the run stops or has finished
  std::string job;
  std::string state;       ///< "running", "paused", ...
  std::int64_t step = 0;   ///< the last complete step
  std::int64_t steps = 0;  ///< steps of the run
  std::string heading;     ///< state, step, speed and loss in a line
  std::string text;        ///< heading and all lines below it, without a break at the end
};

/// Calls throw JobError, a single line: no run at the address, refused, or no answer in time.
class ControlClient {
 public:
  /// Connects to the run. Throws JobError if there is none.
  explicit ControlClient(const ControlTarget& target);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  enum class Form { text, json };
  /// Calls `name`: "status", "plan", "checkpoint", "pause", "resume" or "stop". The answer ends without a line break.
  [[nodiscard]] std::string call(const std::string& name, Form form);
  [[nodiscard]] RunGlance glance();
  /// Returns rows of steps and of validations, at most `most` (1 to 10000) each, sorted by step, beginning with these
  /// row numbers; a negative number counts from the end.
  [[nodiscard]] MetricsPage metrics(std::int64_t first_step_row, std::int64_t first_validation_row, std::int32_t most);
  /// Returns the address of the run.
  [[nodiscard]] const std::string& address() const;
  /// Returns how a process of this host joins the run. `devices`: ProcessEnv::join_devices.
  [[nodiscard]] JoinTerms join(const std::string& section, const std::string& devices);
  /// Lets a process leave; returns the answer like call().
  [[nodiscard]] std::string leave(std::int32_t process, Form form);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
