// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/console.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

namespace maestro {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string erase = "\r\x1b[K";

/// Returns a terminal's screen after `text`, with carriage returns, erase-to-end-of-line and line breaks applied.
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
  std::ostringstream stream;  // both outputs of the terminal
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

TEST(Console, a_note_is_one_printable_line_whatever_its_values_hold) {  // TE-4
  Pipes pipes;
  Console console(pipes.streams());
  console.note("job a\nerror: forged\x1b[31m" + std::string(5000, 'x'));
  console.summary("done\n", {"model a\n\x1b[2J"}, {});
  EXPECT_EQ(console.relay("beta", "a\x1b[2J"), "a\\x1b[2J");
  EXPECT_EQ(pipes.out.str(),
            "job a\\nerror: forged\\x1b[31m" + std::string(5000, 'x') + "\ndone\\n\n  model a\\n\\x1b[2J\n");
  EXPECT_EQ(pipes.err.str(), "beta: a\\x1b[2J\n");
  pipes.out.str("");
  console.text("help\n\ta\x1b[2J");
  EXPECT_EQ(pipes.out.str(), "help\n\ta\\x1b[2J\n");
}

TEST(Console, an_error_has_a_bounded_length_and_a_list_in_it_lines_of_its_own) {  // TE-4
  Pipes pipes;
  Console console(pipes.streams());
  console.error(std::string(100'000, 'x'));
  EXPECT_EQ(pipes.err.str(), "error: " + std::string(2000, 'x') + "...\n");
  pipes.err.str("");
  console.error(ListedError("2 bad samples:", {"first\n  error: forged", "second" + std::string(5000, 'x')}));
  EXPECT_EQ(pipes.err.str(),
            "error: 2 bad samples:\n  first\\n  error: forged\n  second" + std::string(1994, 'x') + "...\n");
  pipes.err.str("");
  console.error("a\n  error: forged");
  EXPECT_EQ(pipes.err.str(), "error: a\\n  error: forged\n");
}

const std::string noon_stamp = "2026-11-24T12:00:00.007Z";
ConsoleStreams at_noon(ConsoleStreams streams) {
  streams.clock = [] { return SystemTime(milliseconds(1795521600007)); };
  return streams;
}

TEST(RunConsole, lines_have_the_time_from_the_begin_of_the_run) {  // TE-5
  Pipes pipes;
  {
    Console console(at_noon(pipes.streams()));
    console.note("before");
    console.error("wrong input");
    EXPECT_EQ(console.form(), LineForm::plain);
    console.begin_run();
    console.begin_run();
    EXPECT_EQ(console.form(), LineForm::timed);
    console.progress({1, 2, {}, {}, {}}, SteadyTime{});
    console.note("  corpus");
    console.warning("w");
    console.error(ListedError("2 bad:", {"first", "second"}));
    console.summary("done", {"loss 1"}, {{"loss", 1.0}});
    EXPECT_EQ(console.relay("beta", "error: there"), "error: there");
    console.answer("{}");
  }
  EXPECT_EQ(pipes.out.str(),
            "before\n" + noon_stamp + "   corpus\n" + noon_stamp + " done\n" + noon_stamp + "   loss 1\n{}\n");
  EXPECT_EQ(pipes.err.str(), "error: wrong input\n" + noon_stamp + " step 1/2\n" + noon_stamp + " warning: w\n" +
                                 noon_stamp + " error: 2 bad:\n" + noon_stamp + "   first\n" + noon_stamp +
                                 "   second\n" + noon_stamp + " beta: error: there\n");
}

TEST(RunConsole, a_live_terminal_shows_no_times) {  // TE-5
  Terminal terminal;
  Console console(at_noon(terminal.streams()));
  console.begin_run();
  console.progress({1, 9, {}, {}, {}}, SteadyTime{});
  console.note("saved");
  console.relay("beta", "error: there");
  EXPECT_EQ(console.form(), LineForm::plain);
  EXPECT_EQ(screen_of(terminal.stream.str()), (std::vector<std::string>{"saved", "beta: error: there", "step 1/9"}));
}

TEST(RunConsole, every_line_is_an_object_in_json) {  // TE-6
  Terminal terminal;                                 // even on a terminal
  {
    Console console(at_noon(terminal.streams()));
    console.use_json();
    console.error("a\nb\x1b[2J\xff");
    console.begin_run();
    Progress progress{2, 9, 2.5, 100.0, 3.5};
    progress.parts = {{"ce", 2.25}};
    console.progress(progress, SteadyTime{});
    console.note("");
    console.note("text of\ntwo lines", {{"step", 2}});
    console.summary("done", {"loss 1"}, {{"loss.student", 1.0}});
    console.relay("beta", "Permission denied");
    EXPECT_EQ(console.form(), LineForm::json);
  }
  std::istringstream lines(terminal.stream.str());
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line));
    EXPECT_EQ(objects.back().at("time"), noon_stamp);
    objects.back().erase("time");
  }
  using nlohmann::json;
  EXPECT_EQ(objects, (std::vector<json>{{{"level", "error"}, {"message", "a\\nb\\x1b[2J\\xff"}},
                                        {{"level", "progress"},
                                         {"message", "step 2/9  loss 2.5000  ce 2.2500  100 samples/s  4s left"},
                                         {"step", 2},
                                         {"steps", 9},
                                         {"loss", 2.5},
                                         {"ce", 2.25},
                                         {"samples_per_s", 100.0},
                                         {"seconds_left", 3.5}},
                                        {{"level", "info"}, {"message", "text of\\ntwo lines"}, {"step", 2}},
                                        {{"level", "info"}, {"message", "done"}, {"loss", {{"student", 1.0}}}},
                                        {{"level", "warning"}, {"message", "Permission denied"}, {"host", "beta"}}}));
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
