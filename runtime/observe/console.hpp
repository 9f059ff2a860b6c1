// SPDX-License-Identifier: Apache-2.0
// Owner of a process's terminal output: a live progress line, and messages that never cut into it.
//
// TE-1 (own line): a message starts on a separate line and leaves the live line, if any, redrawn below it.
// TE-2 (ends shown): the first and the last progress are always shown.
// TE-3 (empty line at the end): after `finish`, and after destruction, the cursor is at the start of an empty line.
// TE-4 (printable and bounded): a note, an error or a warning is a single line of printable text, whatever values it
//       contains; errors and warnings have a bounded length, too. Only the entries of a list that the caller passes as
//       a list have separate lines.
// TE-5 (time): after begin_run() every line begins with the UTC time, unless there is a live line; before, none does.
// TE-6 (JSON): after use_json() every line is a JSON object (LJ-1), without a live line.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "runtime/core/line_form.hpp"
#include "runtime/core/listed_error.hpp"
#include "runtime/observe/log_line.hpp"
#include "runtime/observe/progress.hpp"

namespace maestro {

/// Streams of output. They outlive the console.
struct ConsoleStreams {
  std::ostream& out;  ///< notes
  std::ostream& err;  ///< progress, warnings, errors
  bool live = false;  ///< `err` is a terminal that understands carriage returns: a line redrawn in place
  std::function<std::size_t()> columns;    ///< width of that terminal; called at every redraw, 80 if absent
  std::function<SystemTime()> clock = {};  ///< clock of the lines; the system's if absent
};
/// Returns standard output and error of this process; live if standard error is a terminal.
[[nodiscard]] ConsoleStreams standard_streams();

struct ConsolePace {
  std::chrono::milliseconds live{100};    ///< least time between two redraws
  std::chrono::milliseconds plain{5000};  ///< least time between two lines without a live line
};

/// Thread-safe.
class Console {
 public:
  explicit Console(ConsoleStreams streams, ConsolePace pace = {});
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  /// Switches to JSON; called before anything is printed.
  void use_json();
  /// Begins the run: from now on lines of text have the time. Idempotent.
  void begin_run();
  /// Returns the form of a line printed now.
  [[nodiscard]] LineForm form();

  void progress(const Progress& progress, SteadyTime now = std::chrono::steady_clock::now());
  /// Prints a note. An empty text is an empty line, which JSON leaves out.
  void note(std::string_view text, LogFields fields = {});
  /// Prints a text of several lines that this program has composed, such as help or a table: line breaks and tabs stay,
  /// so foreign values in it must already be printable.
  void text(std::string_view text);
  /// Prints lines below the text, each with two leading spaces; JSON has the fields instead of these lines.
  void summary(std::string_view text, const std::vector<std::string>& lines, LogFields fields);
  void warning(std::string_view text);
  void error(std::string_view text);
  /// Prints the error's entries on separate lines.
  void error(const ListedError& problem);
  /// Prints the line of a process on another host. Returns its text.
  std::string relay(const std::string& host, std::string_view line);
  /// Prints a result that another program reads: the unchanged line, in every form.
  void answer(std::string_view line);
  /// Shows the last progress and ends its line; progress may start anew.
  void finish();

 private:
  [[nodiscard]] SystemTime clock() const;
  [[nodiscard]] LineForm form_now() const;
  void message(std::ostream& stream, LogLine line);
  void print(std::ostream& stream, const std::string& lines);
  void show();
  void draw();
  void erase();

  std::mutex mutex_;  // guards the members below
  ConsoleStreams streams_;
  ConsolePace pace_;
  LineForm form_ = LineForm::plain;
  Progress progress_;               // progress in line_
  std::string line_;                // latest progress; empty: none since the last finish
  bool shown_ = false;              // line_ is on the screen
  std::optional<SteadyTime> last_;  // time when progress was last shown
};

}  // namespace maestro
