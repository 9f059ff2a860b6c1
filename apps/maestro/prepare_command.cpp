// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/prepare_command.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "actors/process/signal_watcher.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/prepared_lines.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {

namespace {

/// A signal has asked for the end.
struct Interrupted {};

constexpr std::chrono::seconds between_lines{5};

std::string megabytes(double bytes) {
  return number_text(std::round(bytes / 1e4) / 100) + " MB";
}

/// Lines while a preparation runs.
class Meter {
 public:
  explicit Meter(Console& console) : console_(&console) {}
  void show(const PrepareProgress& progress) {
    last_ = progress;
    const auto now = std::chrono::steady_clock::now();
    if (now - shown_ < between_lines) return;
    shown_ = now;
    console_->note(std::to_string(progress.documents) + " documents, " + std::to_string(progress.tokens) + " tokens, " +
                   speed());
  }
  [[nodiscard]] std::string speed() const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    return megabytes(static_cast<double>(last_.bytes)) + " in " + number_text(std::round(seconds * 10) / 10) + " s, " +
           megabytes(static_cast<double>(last_.bytes) / std::max(seconds, 1e-3)) + "/s";
  }

 private:
  Console* console_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_ = begin_;
  PrepareProgress last_;
};

}  // namespace

PrepareCommand::PrepareCommand(CLI::App& app)
    : command_(app.add_subcommand("prepare", "turn files of text or conversations into tokens")) {
  command_
      ->add_option("files", files_,
                   "files and folders: text, JSON Lines, JSON lists, tar archives (WebDataset), also compressed")
      ->required();
  command_
      ->add_option("--tokenizer", tokenizer_,
                   "a model's folder or its name in the hub's cache, its tokenizer file, or bytes")
      ->required();
  command_->add_option("--out", out_, "the folder for the prepared data; it must not exist yet")->required();
  command_->add_flag("--as-text", as_text_, "files are plain text, whatever their names and first characters");
  command_->add_flag("--no-begin-of-text", no_begin_of_text_,
                     "leave out the begin-of-text tokens of the tokenizer, such as <bos>");
  command_->add_option("--field", field_, "the column of the text of rows (default: the columns are recognised)");
  command_->add_option(
      "--template", template_,
      "the chat template of conversations: auto (beside the tokenizer, default), chatml, none, or a file");
  command_->add_option("--end-of-turn", end_of_turn_,
                       "the token that ends an answer, appended if the template does not write it (default: those at "
                       "which the tokenizer's folder ends a text)");
  command_->add_option("--date", date_, "the day that a chat template prints, as 2026-01-31 (default: today)");
  command_->add_option("--learn", learn_, "the answers of a conversation that are learned: answers (all) or last")
      ->transform(CLI::IsMember({"answers", "last"}));
  command_->add_option("--validation", validation_, "the share of documents for validation (default: 0.01)")
      ->check(decimal_number(0.0, 0.9));
  command_->add_option("--jobs", jobs_, "threads (default: one for each core)");
  command_->add_option("--max-bad", max_bad_, "bad rows that are left out and counted (default: 0)");
}

PrepareOptions PrepareCommand::options() const {
  PrepareOptions options;
  options.inputs.assign(files_.begin(), files_.end());
  options.tokenizer = tokenizer_ == "bytes" ? tokenizer_ : find_model(tokenizer_).value_or_throw();
  options.text_column = field_;
  options.as_text = as_text_;
  options.begin_of_text = !no_begin_of_text_;
  options.chat_template = template_;
  options.end_of_turn = end_of_turn_;
  options.date = date_;
  options.learned = learn_ == "last" ? LearnedAnswers::last : LearnedAnswers::all;
  options.validation_fraction = validation_;
  options.jobs = jobs_ > 0 ? jobs_ : std::max(1U, std::thread::hardware_concurrency());
  options.max_bad = max_bad_;
  return options;
}

int PrepareCommand::run(Console& console) const {
  std::atomic<bool> stopped = false;
  const SignalWatcher watcher([&](int) { stopped = true; });
  Meter meter(console);
  PrepareCalls calls;
  calls.warn = [&](const std::string& line) { console.warning("prepare: " + line); };
  calls.progress = [&](const PrepareProgress& progress) {
    if (stopped) throw Interrupted();
    meter.show(progress);
  };
  try {
    const PreparedIndex index = prepare_data(options(), out_, calls);
    console.text(prepared_lines(index));
    console.note("prepared " + meter.speed() + "; to read samples: maestro data " + printable(out_) + " --show 3");
  } catch (const Interrupted&) {
    console.error("prepare: interrupted; nothing was written");
    return 130;
  }
  return 0;
}

}  // namespace maestro
