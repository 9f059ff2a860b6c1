// SPDX-License-Identifier: Apache-2.0
// Command-line side of the control service: finds the run, makes the call, and formats the answer as text or JSON.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "actors/control/control_text.hpp"
#include "actors/launch/join_terms.hpp"

namespace maestro {

struct ControlTarget {
  std::string address;               ///< empty: the only run of this user on this host
  std::filesystem::path keys;        ///< folder of `maestro keys`, for addresses of other hosts
  std::filesystem::path token_file;  ///< overrides the token file in the user's runtime folder
};

/// Rows from some row on, and the rows to go on with.
struct MetricsPage {
  std::vector<MetricsRow> rows;
  std::int64_t next_step_row = 0;
  std::int64_t next_validation_row = 0;
  bool lacks_rows = false;  ///< rows before the first have left the run's memory; its record has them
};

/// A run at a moment.
struct RunGlance {
  bool ends = false;    ///< it stops or has finished
  std::string heading;  ///< a line: state, step, speed, loss
  std::string text;     ///< the same and all below it, lines without a break at the end
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
  [[nodiscard]] RunGlance glance();
  /// Returns at most `most` (1 to 10000) rows of steps and as many of validations, by their steps, from these numbers
  /// on; a negative number counts from the end.
  [[nodiscard]] MetricsPage metrics(std::int64_t first_step_row, std::int64_t first_validation_row, std::int32_t most);
  /// Returns the address of the run.
  [[nodiscard]] const std::string& address() const;
  /// Returns how this host's process joins the run; `devices`: ProcessEnv::join_devices.
  [[nodiscard]] JoinTerms join(const std::string& section, const std::string& devices);
  /// As call().
  [[nodiscard]] std::string leave(std::int32_t process, Form form);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace maestro
