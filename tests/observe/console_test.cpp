// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/console.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string erase = "\r\x1b[K";

/// Returns the screen of a terminal after `text`: carriage return, erase-to-end-of-line and line breaks obeyed.
std::vector<std::string> screen_of(const std::string& text) {
  std::vector<std::string> lines(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else if (text[i] == '\r') {
      column = 0;
    } else if (text.compare(i, 3, "\x1b[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else {
      lines.back().resize(std::max(lines.back().size(), column + 1), ' ');
      lines.back()[column++] = text[i];
    }
  }
  return lines;
}

struct Terminal {
  std::ostringstream stream;  // both outputs of a terminal
  std::size_t columns = 40;
  ConsoleStreams streams() {
    return {stream, stream, true, [this] { return columns; }};
  }
};

TEST(LiveConsole, redraws_one_line_in_place) {
  Terminal terminal;
  Console console(terminal.streams());
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.progress({2, 9, {}, {}, {}}, SteadyTime{} + seconds(1));
  EXPECT_EQ(terminal.stream.str(), erase + "step 1/9" + erase + "step 2/9");
}

TEST(LiveConsole, redraws_no_faster_than_its_pace) {
  Terminal terminal;
  Console console(terminal.streams());
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.progress({2, 9, {}, {}, {}}, SteadyTime{} + milliseconds(50));
  EXPECT_EQ(terminal.stream.str(), erase + "step 1/9");
  console.progress({3, 9, {}, {}, {}}, SteadyTime{} + milliseconds(100));
  EXPECT_EQ(screen_of(terminal.stream.str()), std::vector<std::string>{"step 3/9"});
}

TEST(LiveConsole, the_line_never_reaches_the_edge_of_the_terminal) {
  Terminal terminal;
  Console console(terminal.streams());
  terminal.columns = 6;
  console.progress({1, 9, 2.0, {}, {}}, SteadyTime{});
  EXPECT_EQ(screen_of(terminal.stream.str()).back(), "step ");
  terminal.columns = 9;
  console.progress({2, 9, 2.0, {}, {}}, SteadyTime{} + seconds(1));
  EXPECT_EQ(screen_of(terminal.stream.str()).back(), "step 2/9");
  terminal.columns = 0;
  console.progress({3, 9, 2.0, {}, {}}, SteadyTime{} + seconds(2));
  EXPECT_EQ(screen_of(terminal.stream.str()).back(), "");
}

TEST(LiveConsole, messages_stand_above_the_live_line) {  // TE-1
  Terminal terminal;
  Console console(terminal.streams());
  console.error("early");
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.error("student stopped");
  console.warning("slow");
  console.note("saved");
  EXPECT_EQ(screen_of(terminal.stream.str()),
            (std::vector<std::string>{"error: early", "error: student stopped", "warning: slow", "saved", "step 1/9"}));
}

TEST(LiveConsole, a_message_redraws_the_latest_progress) {  // TE-1
  Terminal terminal;
  Console console(terminal.streams());
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.progress({2, 9, {}, {}, {}}, SteadyTime{});
  console.note("saved");
  EXPECT_EQ(screen_of(terminal.stream.str()), (std::vector<std::string>{"saved", "step 2/9"}));
}

TEST(LiveConsole, finish_shows_the_last_progress_and_ends_its_line) {  // TE-2, TE-3
  Terminal terminal;
  Console console(terminal.streams());
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.progress({9, 9, {}, {}, {}}, SteadyTime{});
  console.finish();
  EXPECT_EQ(screen_of(terminal.stream.str()), (std::vector<std::string>{"step 9/9", ""}));
  console.note("done");
  console.finish();
  EXPECT_EQ(screen_of(terminal.stream.str()), (std::vector<std::string>{"step 9/9", "done", ""}));
}

TEST(LiveConsole, destruction_ends_the_line) {  // TE-3
  Terminal terminal;
  { Console(terminal.streams()).progress({1, 9, {}, {}, {}}, SteadyTime{}); }
  EXPECT_EQ(screen_of(terminal.stream.str()), (std::vector<std::string>{"step 1/9", ""}));
}

TEST(LiveConsole, messages_of_many_threads_stay_whole) {
  Terminal terminal;
  Console console(terminal.streams());
  constexpr int threads = 4, rounds = 200;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (int i = 1; i <= rounds; ++i) {
        console.progress({i, rounds, {}, {}, {}}, SteadyTime{} + seconds(i));
        console.error("whole");
      }
    });
  }
  for (auto& worker : workers) worker.join();
  console.finish();
  const auto screen = screen_of(terminal.stream.str());
  ASSERT_EQ(screen.size(), threads * rounds + 2u);
  for (std::size_t i = 0; i < threads * rounds; ++i) ASSERT_EQ(screen[i], "error: whole") << i;
}

struct Pipes {
  std::ostringstream out, err;
  ConsoleStreams streams() { return {out, err, false, {}}; }
};

TEST(PlainConsole, prints_the_first_and_the_last_progress_and_few_between) {
  Pipes pipes;
  Console console(pipes.streams());
  for (int step = 1; step <= 99; ++step)
    console.progress({step, 99, {}, {}, {}}, SteadyTime{} + milliseconds(100 * step));
  console.finish();
  EXPECT_EQ(pipes.err.str(), "step  1/99\nstep 51/99\nstep 99/99\n");
}

TEST(PlainConsole, the_last_progress_is_not_printed_twice) {
  Pipes pipes;
  {
    Console console(pipes.streams());
    console.progress({1, 1, {}, {}, {}}, SteadyTime{});
    console.finish();
    console.finish();
  }
  EXPECT_EQ(pipes.err.str(), "step 1/1\n");
}

TEST(PlainConsole, holds_no_control_characters_and_keeps_notes_apart) {
  Pipes pipes;
  {
    Console console(pipes.streams());
    console.progress({1, 2, {}, {}, {}}, SteadyTime{});
    console.note("n");
    console.warning("w");
    console.error("e");
    console.progress({2, 2, {}, {}, {}}, SteadyTime{});
  }
  EXPECT_EQ(pipes.out.str(), "n\n");
  EXPECT_EQ(pipes.err.str(), "step 1/2\nwarning: w\nerror: e\nstep 2/2\n");
}

TEST(Console, an_error_is_one_printable_line_whatever_its_values_hold) {  // TE-4
  Pipes pipes;
  Console console(pipes.streams());
  console.error("data.path: \"a\nb\x1b[2J\xff\" does not exist");
  console.warning("c\r\nd");
  EXPECT_EQ(pipes.err.str(), "error: data.path: \"a\\nb\\x1b[2J\\xff\" does not exist\nwarning: c\\x0d\\nd\n");
}

TEST(Console, an_error_has_a_bounded_length_and_a_list_in_it_lines_of_its_own) {  // TE-4
  Pipes pipes;
  Console console(pipes.streams());
  console.error(std::string(100'000, 'x'));
  EXPECT_EQ(pipes.err.str(), "error: " + std::string(2000, 'x') + "...\n");
  pipes.err.str("");
  console.error("2 bad samples:\n  first\n  second" + std::string(5000, 'x'));
  EXPECT_EQ(pipes.err.str(), "error: 2 bad samples:\n  first\n  second" + std::string(1994, 'x') + "...\n");
}

TEST(Console, progress_starts_anew_after_finish) {
  Pipes pipes;
  Console console(pipes.streams());
  console.progress({1, 1, {}, {}, {}}, SteadyTime{});
  console.finish();
  console.progress({1, 5, {}, {}, {}}, SteadyTime{});
  EXPECT_EQ(pipes.err.str(), "step 1/1\nstep 1/5\n");
}

}  // namespace
}  // namespace maestro
