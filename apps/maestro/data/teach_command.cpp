// SPDX-License-Identifier: Apache-2.0
// `maestro teach JOB --out DIR`: records of a distillation job's teacher, for training without it. With --from FILE the
// rows are a server's answers (served_teacher.hpp), and the job's teacher may be missing.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "actors/job/resolved_job.hpp"
#include "actors/process/signal_watcher.hpp"
#include "apps/distill/compose.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/usable_cores.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/data/teacher/served_teacher.hpp"
#include "runtime/data/teacher/teacher_records.hpp"
#include "runtime/data/teacher/teacher_writer.hpp"
#include "runtime/files/checksum.hpp"
#include "runtime/job/job_document.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/job/job_table.hpp"
#include "runtime/model/weights_fingerprint.hpp"
#include "runtime/observe/progress.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "sections/decoder/foreign_tokens.hpp"
#include "sections/distill/recorded_teacher.hpp"
#include "sections/distill/student_table.hpp"
#include "sections/distill/teaching.hpp"

namespace maestro {

namespace {

struct TeachArguments {
  std::filesystem::path job;
  std::vector<std::string> overrides;
  std::filesystem::path out;
  std::filesystem::path from;
  std::string teacher;
  std::int64_t k = 64;
  double p = 1;
  std::uint64_t shard_samples = 256;
  PlugInChoice plug_ins;
};

constexpr int status_of_leaving = 130;

/// Sums over finished shards.
struct Totals {
  explicit Totals(const TeacherRecords& records) {
    for (const RecordedShard& shard : records.shards) {
      rows += static_cast<double>(shard.rows);
      bytes += static_cast<double>(shard.bytes);
      entries += static_cast<double>(shard.entries);
      rest += shard.rest;
    }
  }
  double rows = 0;
  double bytes = 0;
  double entries = 0;
  double rest = 0;
};

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::size_t index_of(const ResolvedJob& plan, const std::string& teacher) {
  for (std::size_t at = 0; at < plan.sections.size(); ++at) {
    const GraphNode& node = plan.graph.nodes()[at];
    if (node.section_name() != teacher) continue;
    if (node.stages > 1 || node.layout.ranks() > 1) {
      throw JobError("teach: each core runs the full teacher; leave " + teacher + ".tensor, context and pipeline at 1");
    }
    if (plan.sections[at].config.emulated()) throw JobError("teach: the teacher is emulated; leave its devices out");
    return at;
  }
  throw JobError("teach: the job lacks a section named " + teacher);
}

TeachingOptions teaching_options(const ResolvedJob& plan, std::size_t teacher, const OperatorTable& ops) {
  const PlannedSection& planned = plan.sections[teacher];
  const GraphNode& node = plan.graph.nodes()[teacher];
  TeachingOptions options;
  options.factory = planned.factory;
  options.context.name = node.section_name();
  options.context.seed = static_cast<std::uint64_t>(plan.train.seed);
  options.context.precision = planned.config.precision;
  options.context.values = InitialValues::later;
  options.context.ops = &ops;
  options.weights = planned.config.weights;
  options.micro_batch = node.micro_batch;
  options.micro_batch_tokens = node.micro_batch_rows;
  options.threads = std::ssize(usable_cores());
  return options;
}

/// Returns the identity of the job's teacher, as its records name it.
std::map<std::string, std::string> identity(const ResolvedJob& plan, std::size_t teacher) {
  const SectionConfig& config = plan.sections[teacher].config;
  const Section& section = *plan.meta_sections[teacher];
  return {{"model", section.description()},
          {"other settings", checksum_of(section.config_json())},
          {"precision", config.precision == DType::bf16 ? "bf16" : "fp32"},
          {"weights", config.weights.empty() ? "random values of seed " + std::to_string(plan.train.seed)
                                             : weights_fingerprint(config.weights).value_or_throw()}};
}

void check_app(const JobTable& root) {
  const std::string name = read_app(root).name;
  if (name != "distillation") {
    root.fail("app", "is \"" + name + "\"; teach takes a job of the app \"distillation\"");
  }
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Opens a job's data, as its run does, without its sections.
std::shared_ptr<const Corpus> corpus_of(const JobTable& root) {
  DataConfig data = read_data(root.table("data"));
  std::vector<std::string> sections = read_teacher_names(root.table("student"));
  sections.insert(sections.end(), {"student", "plain"});
  for (const std::string& section : sections) {
    if (data.tokenizer.empty()) data.tokenizer = tokenizer_folder(root.table(section)).value_or("");
  }
  if (data.tokenizer.empty()) data.tokenizer = "bytes";
  const TrainConfig train = read_train(root.table("train"));
  data.work_folder = train.out + "/data";
  return open_corpus(data, static_cast<std::uint64_t>(train.seed));
}

/// Set by the signals that end a run; a second SIGINT leaves at once (SW-2, stop once).
class StopFlag {
 public:
  explicit StopFlag(Console& console)
      : signals_([this, &console](int signal) {
          if (requests_.signalled(signal, std::chrono::steady_clock::now()) == StopRequests::Wish::leave_at_once) {
            _exit(status_of_leaving);
          }
          if (!stop_.exchange(true)) console.note("stopping; the unfinished shard is left out");
        }) {}
  [[nodiscard]] const std::atomic<bool>& get() const { return stop_; }

 private:
  std::atomic<bool> stop_ = false;
  StopRequests requests_;
  SignalWatcher signals_;  // last: its thread uses the others
};

/// Reports finished shards, with the pace of this run's shards.
class ShardLines {
 public:
  explicit ShardLines(Console& console) : console_(&console) {}
  /// Returns a call for each finished shard; valid while this lives.
  [[nodiscard]] std::function<void(const TeacherRecords&, std::uint64_t, bool)> sink() {
    return [this](const TeacherRecords& records, std::uint64_t shard, bool kept) { finished(records, shard, kept); };
  }

 private:
  void finished(const TeacherRecords& records, std::uint64_t shard, bool kept) {
    if (kept) {
      ++kept_;
      return;
    }
    if (kept_ > 0) console_->note(std::to_string(kept_) + " shards exist already");
    kept_ = 0;
    const RecordedShard& written = records.shards[static_cast<std::size_t>(shard)];
    rows_ += static_cast<double>(written.rows);
    ++written_;
    const double seconds =
        std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(), 1e-6);
    const auto left = static_cast<double>(records.shard_count() - shard - 1);
    console_->note(written.file + ": shard " + std::to_string(shard + 1) + "/" + std::to_string(records.shard_count()) +
                   formatted("  %.0f tokens/s  ", rows_ / seconds) + format_duration(left * seconds / written_) +
                   " left");
  }

  Console* console_;
  std::uint64_t kept_ = 0;
  double rows_ = 0;
  double written_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

JobDocument document(const TeachArguments& arguments, std::vector<std::string> settings) {
  JobDocument job = JobDocument::load(arguments.job, settings);
  const auto loaded = plug_in_settings(job, arguments.plug_ins, NamedPlugIns::asked_for);
  if (loaded.empty()) return job;
  settings.insert(settings.end(), loaded.begin(), loaded.end());
  return JobDocument::load(arguments.job, settings);
}

std::string teacher_of(const TeachArguments& arguments, const JobTable& root) {
  const JobTable student = root.table("student");
  const std::vector<std::string> names = read_teacher_names(student);
  if (!arguments.teacher.empty()) {
    if (std::ranges::find(names, arguments.teacher) != names.end()) return arguments.teacher;
    const auto nearest = nearest_name(arguments.teacher, names);
    throw JobError("teach: --teacher " + printable(arguments.teacher) + " is not a teacher of [student]; " +
                   (nearest ? "did you mean '" + *nearest + "'?" : "its teachers are " + listed(names)));
  }
  std::vector<std::string> live = names;
  std::erase_if(live, [&](const std::string& name) { return is_recorded(root.table(name)); });
  if (live.size() > 1)
    throw JobError("teach: [student] has the teachers " + listed(live) + "; choose one by --teacher");
  return live.empty() ? names.front() : live.front();
}

ResolvedJob teaching_plan(const TeachArguments& arguments, const std::string& teacher, Console& console) {
  std::vector<std::string> settings = arguments.overrides;
  const JobDocument given = document(arguments, settings);
  if (const JobTable table = given.root().table(teacher); is_recorded(table)) {
    table.fail("type", "this teacher is recorded already; teach runs the model itself: name its weights");
  }
  std::vector<std::string> sections = {teacher};
  if (read_teacher_names(given.root().table("student")).size() == 1) sections.emplace_back("student");
  for (const std::string& section : sections) {
    settings.push_back(section + ".boundary=\"top_k_rest\"");
    settings.push_back(section + ".top_k=" + std::to_string(arguments.k));
  }
  RunOptions options;
  options.check_only = true;
  JobDocument job = document(arguments, settings);
  (void)read_app(job.root());
  App app(std::move(job), std::move(options), console);
  compose_distillation(app);
  ResolvedJob plan = app.plan();
  refuse_rollouts(plan, "teach records answers to the data, and not to the samples that");
  return plan;
}

TeacherRecords records_of(const TeachArguments& arguments, const Corpus& corpus) {
  if (corpus.patch_columns() > 0) throw JobError("teach: data with images cannot be recorded; use text");
  TeacherRecords records;
  records.k = arguments.k;
  records.p = arguments.p;
  records.vocabulary = corpus.vocabulary();
  records.data = corpus.fingerprint();
  records.training_samples = corpus.samples(Split::train);
  records.validation_samples = corpus.samples(Split::validation);
  records.shard_samples = arguments.shard_samples;
  return records;
}

void print_end(const TeachArguments& arguments, const TeacherRecords& records, const std::string& teacher,
               Console& console) {
  const Totals totals(records);
  if (!records.complete()) {
    console.note("stopped after " + std::to_string(records.shards.size()) + " of " +
                 std::to_string(records.shard_count()) + " shards; the same command continues");
    return;
  }
  console.note(printable(arguments.out.string()) + ": " + std::to_string(records.samples()) + " samples, " +
               formatted("%.0f tokens, %.1f bytes a token (%.1f entries), %.3g%% of the probability left out (mean)",
                         totals.rows, totals.bytes / totals.rows, totals.entries / totals.rows,
                         100 * totals.rest / totals.rows));
  console.note("to learn from it: [" + teacher + "] type = \"" + std::string(recorded_teacher_type) + "\", path = \"" +
               printable(arguments.out.string()) + "\"");
}

void run_teacher(const TeachArguments& arguments, Console& console) {
  const JobDocument given = document(arguments, arguments.overrides);
  check_app(given.root());
  const std::string name = teacher_of(arguments, given.root());
  const ResolvedJob job = teaching_plan(arguments, name, console);
  const std::size_t teacher = index_of(job, name);
  for (const std::string& note : job.notes) console.note("note: " + note);
  TeacherRecords wanted = records_of(arguments, *job.corpus);
  wanted.teacher = identity(job, teacher);
  const StopFlag stop(console);
  const cpu::CpuOperatorTable ops;
  std::optional<Teaching> teaching;  // loaded when a shard is to be made
  ShardLines lines(console);
  ShardMaker maker;
  maker.rows = [&](const TeacherRecords& records, std::uint64_t shard) -> std::optional<ShardRows> {
    if (stop.get()) return std::nullopt;
    if (!teaching) teaching.emplace(job.corpus, teaching_options(job, teacher, ops));
    return teaching->rows(records, records.samples_of(shard), stop.get());
  };
  maker.finished = lines.sink();
  print_end(arguments, write_shards(arguments.out, wanted, maker), name, console);
}

void copy_served(const TeachArguments& arguments, Console& console) {
  const JobDocument given = document(arguments, arguments.overrides);
  const std::string teacher = teacher_of(arguments, given.root());
  const std::shared_ptr<const Corpus> corpus = corpus_of(given.root());
  TeacherRecords wanted = records_of(arguments, *corpus);
  if (arguments.k > wanted.vocabulary) {
    throw JobError("teach: --top-k " + std::to_string(arguments.k) + " is above the corpus' " +
                   std::to_string(wanted.vocabulary) + " tokens");
  }
  ServedTeacher served(arguments.from, corpus);
  wanted.teacher["content of --from"] = checksum_of_file(arguments.from).value_or_throw();
  wanted.teacher["temperature"] = "1";  // a line with another temperature is refused
  const StopFlag stop(console);
  ShardLines lines(console);
  ShardMaker maker;
  maker.rows = [&](const TeacherRecords& records, std::uint64_t shard) -> std::optional<ShardRows> {
    if (stop.get()) return std::nullopt;
    return served.rows(records, records.samples_of(shard));
  };
  maker.finished = lines.sink();
  const TeacherRecords records = write_shards(arguments.out, wanted, maker);
  if (records.complete()) served.finish(records);
  print_end(arguments, records, teacher, console);
}

int run_teach(const TeachArguments& arguments, Console& console) {
  if (arguments.from.empty()) {
    run_teacher(arguments, console);
  } else {
    copy_served(arguments, console);
  }
  return 0;
}

}  // namespace

void add_teach(Commands& commands) {
  const auto [command, arguments] =
      commands.add("teach", "record a teacher's outputs, for distillation without the teacher", run_teach);
  command.add_option("job", arguments.job, "job file (TOML) of the app distillation")->required();
  command.add_option("--out", arguments.out, "folder of the records; an existing folder is continued")->required();
  command.add_option("--from", arguments.from,
                     "read rows from a server's answers (JSON lines) instead of running the teacher");
  command.add_option("--teacher", arguments.teacher, "the section to record, if there are several teachers");
  command.add_option("--top-k", arguments.k, "likeliest tokens of each position, at most")
      ->check(whole_number(1, INT32_MAX))
      ->capture_default_str();
  command.add_option("--top-p", arguments.p, "the fewest of these whose probabilities reach p; 1: all")
      ->check(decimal_number(1e-9, 1.0))
      ->capture_default_str();
  command.add_option("--shard-samples", arguments.shard_samples, "samples of a shard, which is written at once")
      ->check(whole_number(1, std::int64_t{1} << 32))
      ->capture_default_str();
  command.add_option("--set", arguments.overrides, "override a key: --set teacher.micro_batch=4")
      ->allow_extra_args(false);
  add_plug_in_options(command, arguments.plug_ins);
}

}  // namespace maestro
