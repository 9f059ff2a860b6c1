// SPDX-License-Identifier: Apache-2.0
// `maestro watch` and `maestro metrics`: follow a run in the terminal, by its control service.
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "apps/maestro/commands.hpp"
#include "apps/maestro/watch/control_options.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/observe/progress.hpp"

namespace maestro {
namespace {

struct WatchArguments {
  RunChoice run;
};

struct MetricsArguments {
  RunChoice run;
  bool follow = false;
  bool json = false;
};

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::int32_t most_rows = 10000;  // rows of an answer
constexpr milliseconds look_again(1000);
constexpr milliseconds ask_again(300);

/// A run's control service; also its next service, if the run continues after losing a process.
class FollowedRun {
 public:
  explicit FollowedRun(ControlTarget target) : target_(std::move(target)), client_(connected()) {
    target_.address = client_->address();
  }
  [[nodiscard]] const std::string& address() const { return target_.address; }

  /// Makes a call; returns nothing when the run has ended.
  template <class Call>
  auto query(Call&& call) -> std::optional<decltype(call(std::declval<ControlClient&>()))> {
    constexpr milliseconds patience(5000);  // for a recovery
    for (const auto deadline = Clock::now() + patience; Clock::now() < deadline;) {
      try {
        if (!client_) client_ = connected();
        return call(*client_);
      } catch (const JobError& problem) {
        if (problem.code() == ErrorCode::timeout) throw;  // the service is there, and stopped
        client_.reset();
        if (ends_) break;
      }
      std::this_thread::sleep_for(milliseconds(200));
    }
    return std::nullopt;
  }
  /// Sets whether losing the service means that the run has ended.
  void set_ends(bool ends) { ends_ = ends; }

 private:
  [[nodiscard]] std::unique_ptr<ControlClient> connected() const { return std::make_unique<ControlClient>(target_); }

  ControlTarget target_;
  std::unique_ptr<ControlClient> client_;
  bool ends_ = false;
};

struct Screen {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

Screen screen() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

bool is_terminal() {
  const char* kind = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

/// Returns a loss curve for each section that has a loss.
std::vector<std::string> curves(const MetricsPage& page, std::size_t width) {
  std::map<std::string, std::vector<double>> losses;
  std::size_t longest = 0;
  for (const MetricsRow& row : page.rows) {
    const auto loss = row.metrics.find("loss");
    if (row.validation || loss == row.metrics.end()) continue;
    losses[row.section].push_back(loss->second);
    longest = std::max(longest, row.section.size());
  }
  std::vector<std::string> lines;
  for (const auto& [section, values] : losses) {
    const std::string name = "loss of " + section + std::string(longest - section.size() + 2, ' ');
    lines.push_back(name + sparkline(values, width > name.size() ? width - name.size() : 0));
  }
  return lines;
}

/// Draws lines over the ones before (ECMA-48: cursor home, erase to the end of the line, and below).
void draw(const std::vector<std::string>& lines, const Screen& size) {
  std::string text = "\x1b[H";
  for (std::size_t at = 0; at < std::min(lines.size(), size.rows - 1); ++at) {
    text += std::string(truncated(lines[at], size.columns - 1)) + "\x1b[K\n";
  }
  std::cout << text << "\x1b[J" << std::flush;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(printable(line, line.size()));
  return lines;
}

/// Follows a run until it ends, or standard output does.
void watch(const ControlTarget& target, Console& console) {
  FollowedRun run(target);
  const bool terminal = is_terminal();
  if (terminal) std::cout << "\x1b[2J";
  std::string last;
  while (std::cout) {
    const auto glance = run.query([](ControlClient& client) { return client.glance(); });
    if (!glance) break;
    run.set_ends(glance->ends);
    if (!terminal && std::exchange(last, glance->heading) != glance->heading) console.note(glance->heading);
    if (terminal) {
      const Screen size = screen();
      const auto page = run.query([](ControlClient& client) { return client.metrics(-2000, 0, most_rows); });
      std::vector<std::string> lines = lines_of(glance->text);
      if (page) {
        const auto drawn = curves(*page, std::min<std::size_t>(size.columns - 1, 100));
        lines.insert(lines.begin() + 1, drawn.begin(), drawn.end());
      }
      draw(lines, size);
    }
    std::this_thread::sleep_for(look_again);
  }
  if (std::cout) console.note("the run at " + run.address() + " has ended");
}

/// Prints the rows that the run still has, and with --follow all later rows.
void print_metrics(const MetricsArguments& arguments, Console& console) {
  FollowedRun run(service_of(arguments.run));
  MetricsPage at;
  while (std::cout) {
    const auto page = run.query(
        [&](ControlClient& client) { return client.metrics(at.next_step_row, at.next_validation_row, most_rows); });
    if (!page) break;
    if (page->lacks_rows) {
      console.warning("rows before " +
                      (page->rows.empty() ? std::string("now") : "step " + std::to_string(page->rows.front().step)) +
                      " have left the run's memory; they are only in its record, steps.jsonl");
    }
    for (const MetricsRow& row : page->rows) {
      arguments.json ? console.answer(json_text(row)) : console.note(plain_text(row));
    }
    at.next_step_row = page->next_step_row;
    at.next_validation_row = page->next_validation_row;
    if (page->rows.size() >= static_cast<std::size_t>(most_rows)) continue;  // there may be more
    if (!arguments.follow) return;
    const auto glance = run.query([](ControlClient& client) { return client.glance(); });
    if (!glance) break;
    run.set_ends(glance->ends);
    std::this_thread::sleep_for(ask_again);
  }
  if (std::cout) console.warning("the run has ended; its record also has the steps of its last moment");
}

int run_watch(const WatchArguments& arguments, Console& console) {
  signal(SIGINT, SIG_DFL);  // the usual end of these commands is not an error
  return call_run(console, [&] { watch(service_of(arguments.run), console); });
}

int run_metrics(const MetricsArguments& arguments, Console& console) {
  signal(SIGINT, SIG_DFL);
  return call_run(console, [&] { print_metrics(arguments, console); });
}

}  // namespace

void add_watch(Commands& commands) {
  const auto [command, arguments] =
      commands.add("watch", "show a run as it goes on, with the curve of its loss", run_watch);
  add_run_choice(command, arguments.run);
}

void add_metrics(Commands& commands) {
  const auto [command, arguments] =
      commands.add("metrics", "print the figures of a run's steps and validations", run_metrics);
  add_run_choice(command, arguments.run);
  command.add_flag("--follow", arguments.follow, "go on until the run ends");
  command.add_flag("--json", arguments.json, "print a line of JSON for each row");
}

}  // namespace maestro
