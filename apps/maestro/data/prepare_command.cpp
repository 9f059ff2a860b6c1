// SPDX-License-Identifier: Apache-2.0
// `maestro prepare FILES... --tokenizer MODEL --out DIR`: data as tokens, for [data] kind = "prepared".
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "actors/process/signal_watcher.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/data/prepared_lines.hpp"
#include "apps/maestro/number_options.hpp"
#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/dataset/prepare.hpp"

namespace maestro {

namespace {

struct PrepareArguments {
  std::vector<std::string> files;
  std::string tokenizer;
  std::string model;
  std::string images;
  std::string resample_order = "pillow13";
  std::string out;
  bool as_text = false;
  bool no_begin_of_text = false;
  std::string field;
  std::string chat_template = "auto";
  std::string end_of_turn;
  std::string date;
  std::string learn = "answers";
  double validation = 0.01;
  std::size_t jobs = 0;
  std::uint64_t max_bad = 0;
};

/// Thrown after a signal that ends the command.
struct Interrupted {};

constexpr std::chrono::seconds between_lines{5};

std::string megabytes(double bytes) {
  return number_text(std::round(bytes / 1e4) / 100) + " MB";
}

/// Prints lines while a preparation runs.
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

PrepareOptions prepare_options(const PrepareArguments& arguments) {
  PrepareOptions options;
  options.inputs.assign(arguments.files.begin(), arguments.files.end());
  if (!arguments.model.empty()) options.processor = find_model(arguments.model).value_or_throw();
  if (arguments.model.empty() && arguments.tokenizer.empty()) {
    throw JobError("prepare: give --tokenizer, or --model for conversations about images");
  }
  if (arguments.model.empty() && !arguments.images.empty()) {
    throw JobError("prepare: --images is of no use without --model, whose processor reads images");
  }
  const std::string& tokenizer = arguments.tokenizer.empty() ? arguments.model : arguments.tokenizer;
  options.tokenizer = tokenizer == "bytes" ? tokenizer : find_model(tokenizer).value_or_throw();
  options.images = arguments.images;
  options.resample_order = arguments.resample_order == "horizontal" ? PassOrder::horizontal : PassOrder::pillow13;
  options.text_column = arguments.field;
  options.as_text = arguments.as_text;
  options.begin_of_text = !arguments.no_begin_of_text;
  options.chat_template = arguments.chat_template;
  options.end_of_turn = arguments.end_of_turn;
  options.date = arguments.date;
  options.learned = static_cast<LearnedAnswers>(std::ranges::find(learned_answers_names, arguments.learn) -
                                                learned_answers_names.begin());
  options.validation_fraction = arguments.validation;
  options.jobs = arguments.jobs > 0 ? arguments.jobs : std::max(1U, std::thread::hardware_concurrency());
  options.max_bad = arguments.max_bad;
  return options;
}

/// Prepares the files and prints the result. Returns 130 after a signal; then no files are left.
int run_prepare(const PrepareArguments& arguments, Console& console) {
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
    const PreparedIndex index = prepare_data(prepare_options(arguments), arguments.out, calls);
    console.text(prepared_lines(index));
    console.note("prepared " + meter.speed() + "; to read samples: maestro data " + printable(arguments.out) +
                 " --show 3");
  } catch (const Interrupted&) {
    console.error("prepare: interrupted; nothing was written");
    return 130;
  }
  return 0;
}

}  // namespace

void add_prepare(Commands& commands) {
  const auto [command, arguments] =
      commands.add("prepare", "turn files of text or conversations into tokens", run_prepare);
  command
      .add_option(
          "files", arguments.files,
          "files and folders: text, JSON Lines, JSON lists, Parquet, tar archives (WebDataset), also compressed")
      ->required();
  command.add_option(
      "--tokenizer", arguments.tokenizer,
      "a model's folder or its name in the hub's cache, its tokenizer file, or bytes (default: --model)");
  command.add_option("--model", arguments.model,
                     "conversations about images or sounds: a model's folder or its name in the hub's cache, whose "
                     "processor reads them");
  command.add_option("--images", arguments.images,
                     "the folder of images or sounds that rows name (default: images next to each file)");
  command
      .add_option("--resample-order", arguments.resample_order,
                  "the order of passes when images are resized: pillow13 (default), or horizontal for Pillow up to 12 "
                  "and torchvision")
      ->transform(CLI::IsMember({"pillow13", "horizontal"}));
  command.add_option("--out", arguments.out, "the folder for the prepared data; it must not exist yet")->required();
  command.add_flag("--as-text", arguments.as_text, "files are plain text, whatever their names and first characters");
  command.add_flag("--no-begin-of-text", arguments.no_begin_of_text,
                   "leave out the tokenizer's begin-of-text tokens, such as <bos>");
  command.add_option("--field", arguments.field,
                     "the column of rows with the text (default: the columns are recognised)");
  command.add_option(
      "--template", arguments.chat_template,
      "the chat template of conversations: auto (next to the tokenizer, default), chatml, none, or a file");
  command.add_option("--end-of-turn", arguments.end_of_turn,
                     "the token that ends an answer, appended if the template does not write it (default: the "
                     "tokens that end a text in the tokenizer's folder)");
  command.add_option("--date", arguments.date, "the day that a chat template prints, as 2026-01-31 (default: today)");
  command
      .add_option(
          "--learn", arguments.learn,
          "the answers of a conversation that are learned: answers (all) or last; none: only prompts are kept, up to "
          "the last message of a user")
      ->transform(CLI::IsMember({"answers", "last", "none"}));
  command.add_option("--validation", arguments.validation, "the share of documents for validation (default: 0.01)")
      ->check(decimal_number(0.0, 0.9));
  command.add_option("--jobs", arguments.jobs, "threads (default: one for each core)");
  command.add_option("--max-bad", arguments.max_bad, "bad rows that are left out and counted (default: 0)");
}

}  // namespace maestro
