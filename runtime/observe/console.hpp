// SPDX-License-Identifier: Apache-2.0
// Owner of a process's terminal output: a live progress line, and messages that never cut into it.
//
// TE-1 (own line): a message starts on a line of its own and leaves the live line, if any, redrawn below it.
// TE-2 (ends shown): the first and the last progress are always shown.
// TE-3 (empty line at the end): after `finish`, and after destruction, the cursor is at the start of an empty line.
// TE-4 (printable and bounded): a note, an error or a warning is one line of printable text, whatever values it
//       contains; errors and warnings have a bounded length, too. Only the entries of a list that the caller passes as
//       such have lines of their own.
// TE-5 (time): after begin_run() every line begins with the UTC time, unless there is a live line; before, none does.
// TE-6 (JSON): after use_json() every line is a JSON object (LJ-1); there is no live line.
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

/// The streams of output. They outlive the console.
struct ConsoleStreams {
  std::ostream& out;  ///< notes
  std::ostream& err;  ///< progress, warnings, errors
  bool live = false;  ///< `err` is a terminal that understands carriage returns: a line redrawn in place
  std::function<std::size_t()> columns;    ///< width of that terminal; called at every redraw, 80 if absent
  std::function<SystemTime()> clock = {};  ///< of the lines; the system's if absent
};
/// Returns standard output and error of this process; live if standard error is a terminal.
[[nodiscard]] ConsoleStreams standard_streams();

struct ConsolePace {
  std::chrono::milliseconds live{100};    ///< at least this long between two redraws
  std::chrono::milliseconds plain{5000};  ///< and between two lines if there is no live line
};

/// Thread-safe.
class Console {
 public:
  explicit Console(ConsoleStreams streams, ConsolePace pace = {});
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  /// Call before anything is printed.
  void use_json();
  /// The run begins here: lines of text have the time from now on. Idempotent.
  void begin_run();
  /// Returns the form of a line printed now.
  [[nodiscard]] LineForm form();

  void progress(const Progress& progress, SteadyTime now = std::chrono::steady_clock::now());
  /// An empty text is an empty line, which JSON does not have.
  void note(std::string_view text, LogFields fields = {});
  /// Prints a text of several lines that this program has composed, such as help or a table: line breaks and tabs stay,
  /// so a value of others in it has to be printable already.
  void text(std::string_view text);
  /// Prints lines below the text, each with two spaces in front; in JSON the fields have what these lines have.
  void summary(std::string_view text, const std::vector<std::string>& lines, LogFields fields);
  void warning(std::string_view text);
  void error(std::string_view text);
  /// Prints the entries of the error on lines of their own.
  void error(const ListedError& problem);
  /// Prints the line of a process on another host. Returns its text.
  std::string relay(const std::string& host, std::string_view line);
  /// Prints a result that another program reads: the line as it is, in every form.
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
  Progress progress_;               // that of line_
  std::string line_;                // the latest progress; empty: none since the last finish
  bool shown_ = false;              // whether line_ is on the screen
  std::optional<SteadyTime> last_;  // when progress was last shown
};

}  // namespace maestro
