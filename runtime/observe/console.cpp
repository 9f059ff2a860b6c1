// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

constexpr std::size_t usual_columns = 80;
constexpr std::size_t longest_line = 2000;  // bytes of a warning or an error: TE-4
constexpr std::string_view entry_start = "\n  ";
// Carriage return, and erase to the end of the line (ECMA-48 EL).
constexpr std::string_view erase_line = "\r\x1b[K";

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usual_columns;
  return size.ws_col;
}

bool is_live_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

/// Makes a message printable and bounded (TE-4).
std::string as_lines(std::string_view text) {
  std::string lines;
  for (;;) {
    const std::size_t end = text.find(entry_start);
    lines += printable(text.substr(0, end), longest_line);
    if (end == std::string_view::npos) return lines;
    lines += entry_start;
    text.remove_prefix(end + entry_start.size());
  }
}

/// Writes the text in a single call: a line cut in two by a kill or by another process's output would be read as part
/// of the next line.
void write(std::ostream& stream, const std::string& text) {
  stream << text << std::flush;
}

}  // namespace

ConsoleStreams standard_streams() {
  return {std::cout, std::cerr, is_live_terminal(), terminal_columns};
}

Console::Console(ConsoleStreams streams, ConsolePace pace) : streams_(std::move(streams)), pace_(pace) {}

Console::~Console() {
  finish();
}

void Console::progress(const Progress& progress, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  line_ = format_progress(progress);
  shown_ = false;
  const auto pace = streams_.live ? pace_.live : pace_.plain;
  if (last_ && now - *last_ < pace) return;
  last_ = now;
  show();
}

void Console::note(std::string_view text) {
  message(streams_.out, "", text);
}
void Console::warning(std::string_view text) {
  message(streams_.err, "warning: ", as_lines(text));
}
void Console::error(std::string_view text) {
  message(streams_.err, "error: ", as_lines(text));
}

void Console::finish() {
  const std::lock_guard lock(mutex_);
  if (line_.empty()) return;
  if (!shown_) show();
  if (streams_.live) write(streams_.err, "\n");
  line_.clear();
  last_.reset();
}

void Console::message(std::ostream& stream, std::string_view prefix, std::string_view text) {
  const std::lock_guard lock(mutex_);
  erase();
  write(stream, std::string(prefix).append(text).append(1, '\n'));
  draw();
}

void Console::show() {
  if (streams_.live) {
    draw();
  } else {
    write(streams_.err, line_ + '\n');
  }
  shown_ = true;
}

void Console::draw() {
  if (!streams_.live || line_.empty()) return;
  const std::size_t columns = streams_.columns ? streams_.columns() : usual_columns;
  // The last column stays free: many terminals break the line after it is written.
  const auto visible = truncated(line_, columns > 0 ? columns - 1 : 0);
  write(streams_.err, std::string(erase_line).append(visible));
  shown_ = true;
}

void Console::erase() {
  if (!streams_.live || line_.empty()) return;
  write(streams_.err, std::string(erase_line));
}

}  // namespace maestro
