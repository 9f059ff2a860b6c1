// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <utility>

#include "runtime/core/printable.hpp"
#include "runtime/core/printable_text.hpp"

namespace maestro {
namespace {

constexpr std::size_t usual_columns = 80;
constexpr std::size_t longest_line = 2000;  // bytes of a warning or an error (TE-4)
constexpr std::size_t no_limit = static_cast<std::size_t>(-1);
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

/// Returns a message with the entries of its list below it (TE-4).
std::string with_entries(std::string_view text, const std::vector<std::string>& entries, std::size_t longest) {
  std::string lines = printable(text, longest);
  for (const std::string& entry : entries) lines.append(entry_start).append(printable(entry, longest));
  return lines;
}

/// Writes the text in a single call: a line that a kill or another process's output cuts in two would be read as part
/// of the next line.
void write(std::ostream& stream, const std::string& text) {
  stream << text << std::flush;
}

LogFields fields_of(const Progress& progress) {
  LogFields fields = {{"step", progress.step}, {"steps", progress.total}};
  if (progress.loss) fields.emplace_back("loss", *progress.loss);
  for (const auto& [name, value] : progress.parts) fields.emplace_back(name, value);
  if (progress.samples_per_s) fields.emplace_back("samples_per_s", *progress.samples_per_s);
  if (progress.seconds_left) fields.emplace_back("seconds_left", *progress.seconds_left);
  return fields;
}

}  // namespace

ConsoleStreams standard_streams() {
  return {std::cout, std::cerr, is_live_terminal(), terminal_columns};
}

Console::Console(ConsoleStreams streams, ConsolePace pace) : streams_(std::move(streams)), pace_(pace) {}

Console::~Console() {
  finish();
}

void Console::use_json() {
  const std::lock_guard lock(mutex_);
  form_ = LineForm::json;
  streams_.live = false;
}

void Console::begin_run() {
  const std::lock_guard lock(mutex_);
  if (form_ == LineForm::plain) form_ = LineForm::timed;
}

LineForm Console::form() {
  const std::lock_guard lock(mutex_);
  return form_now();
}

SystemTime Console::clock() const {
  return streams_.clock ? streams_.clock() : std::chrono::system_clock::now();
}

LineForm Console::form_now() const {
  return streams_.live ? LineForm::plain : form_;
}

void Console::progress(const Progress& progress, SteadyTime now) {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
  line_ = printable_line(format_progress(progress));
  shown_ = false;
  const auto pace = streams_.live ? pace_.live : pace_.plain;
  if (last_ && now - *last_ < pace) return;
  last_ = now;
  show();
}

void Console::note(std::string_view text, LogFields fields) {
  message(streams_.out, {LogLevel::info, printable_line(text), std::move(fields)});
}

void Console::text(std::string_view text) {
  message(streams_.out, {LogLevel::info, printable_text(text), {}});
}

void Console::summary(std::string_view text, const std::vector<std::string>& lines, LogFields fields) {
  const std::lock_guard lock(mutex_);
  const bool json = form_now() == LineForm::json;
  const LogLine line{LogLevel::info, with_entries(text, json ? std::vector<std::string>() : lines, no_limit),
                     std::move(fields)};
  print(streams_.out, format_line(line, form_now(), clock()));
}

void Console::warning(std::string_view text) {
  message(streams_.err, {LogLevel::warning, printable(text, longest_line), {}});
}
void Console::error(std::string_view text) {
  message(streams_.err, {LogLevel::error, printable(text, longest_line), {}});
}
void Console::error(const ListedError& problem) {
  message(streams_.err, {LogLevel::error, with_entries(problem.headline(), problem.entries(), longest_line), {}});
}

std::string Console::relay(const std::string& host, std::string_view line) {
  const std::lock_guard lock(mutex_);
  RelayedLine relayed = relayed_line(host, printable_line(line), form_now(), clock());
  print(streams_.err, relayed.printed);
  return std::move(relayed.text);
}

void Console::answer(std::string_view line) {
  const std::lock_guard lock(mutex_);
  print(streams_.out, std::string(line) + '\n');
}

void Console::finish() {
  const std::lock_guard lock(mutex_);
  if (line_.empty()) return;
  if (!shown_) show();
  if (streams_.live) write(streams_.err, "\n");
  line_.clear();
  last_.reset();
}

void Console::message(std::ostream& stream, LogLine line) {
  const std::lock_guard lock(mutex_);
  if (line.message.empty() && form_now() == LineForm::json) return;
  print(stream, format_line(line, form_now(), clock()));
}

void Console::print(std::ostream& stream, const std::string& lines) {
  erase();
  write(stream, lines);
  draw();
}

void Console::show() {
  if (streams_.live) {
    draw();
  } else {
    write(streams_.err, format_line({LogLevel::progress, line_, fields_of(progress_)}, form_now(), clock()));
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
