// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/distill_command.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "apps/maestro/bundled_apps.hpp"
#include "apps/maestro/end_lines.hpp"
#include "apps/maestro/run_options.hpp"
#include "apps/maestro/train_command.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

std::string default_corpus() {
  const char* repository = std::getenv("MAESTRO_REPOSITORY");
  if (repository != nullptr && fs::is_directory(repository)) return repository;
  throw JobError(
      "the default corpus is missing: $MAESTRO_REPOSITORY names no folder; give a text file or folder: "
      "maestro distill --data PATH");
}

std::optional<double> metric(const RunResult& result, const std::string& section, const std::string& name) {
  const auto found = result.validation.find(section);
  if (found == result.validation.end()) return std::nullopt;
  const auto value = found->second.find(name);
  return value == found->second.end() ? std::nullopt : std::optional(value->second);
}

std::string text(const char* format, double value) {
  char line[64];
  std::snprintf(line, sizeof line, format, value);
  return line;
}

std::string loss_text(const std::optional<double>& loss, const char* absent) {
  return loss ? text("%.4f", *loss) : absent;
}

void print_table(const RunResult& teacher, const RunResult& student, Console& console) {
  const auto distilled = metric(student, "student", "ce");
  const auto plain = metric(student, "plain", "ce");
  const auto teacher_ce = metric(student, "student", "teacher_ce");
  console.note("");
  console.note("validation loss (nats per byte, lower is better)");
  console.note("  teacher             " + loss_text(teacher_ce, "not computed with boundary = \"top_k\""));
  console.note("  student, distilled  " + loss_text(distilled, "not measured"));
  console.note("  student, plain      " + loss_text(plain, "not measured") +
               (plain && distilled ? "   distillation gains " + text("%+.4f", *plain - *distilled) : ""));
  console.note("speed");
  console.note("  teacher training    " + text("%.1f samples/s", teacher.samples_per_s) + ", " +
               text("%.0f s", teacher.train_seconds));
  console.note("  distillation        " + text("%.1f samples/s", student.samples_per_s) + ", " +
               text("%.0f s", student.train_seconds));
  console.note("  peak memory         " + text("%.0f MB", student.max_rss_mb));
  console.note("  moved by RMA        " + text("%.1f MB", static_cast<double>(student.bytes) / 1e6) + " in " +
               std::to_string(student.writes) + " writes (" + student.provider + ")");
  console.note("files");
  console.note("  report              " + student.report);
  console.note("  trace               " + student.trace + "   (open in https://ui.perfetto.dev)");
  print_weights(student, console);
}

}  // namespace

DistillCommand::DistillCommand(CLI::App& app)
    : command_(app.add_subcommand("distill", "train a teacher, distil a student from it, compare")) {
  command_->add_option("--data", arguments_.data, "text file or folder (default: the repository's own text)");
  command_->add_option("--out", arguments_.out, "folder for weights, checkpoints, report and trace");
  command_->add_option("--seed", arguments_.seed, "random seed");
  command_->add_option("--set", arguments_.overrides, "override a key of the distillation job")
      ->allow_extra_args(false);
  command_->add_option("--teacher-set", arguments_.teacher_overrides, "override a key of the teacher's job")
      ->allow_extra_args(false);
  add_run_options(*command_, arguments_.run);
}

int DistillCommand::run(Console& console) const {
  const std::string corpus = arguments_.data.empty() ? default_corpus() : arguments_.data;
  const fs::path jobs = bundled_jobs() / "distill";
  const std::vector<std::string> common = {"data.path=" + quoted(fs::absolute(corpus).lexically_normal().string()),
                                           "train.seed=" + std::to_string(arguments_.seed)};
  TrainArguments teacher_job;
  teacher_job.job = jobs / "teacher.toml";
  teacher_job.overrides = common;
  teacher_job.overrides.push_back("train.out=" + quoted((arguments_.out / "teacher").string()));
  teacher_job.overrides.insert(teacher_job.overrides.end(), arguments_.teacher_overrides.begin(),
                               arguments_.teacher_overrides.end());
  teacher_job.run = arguments_.run;
  teacher_job.run.fresh = true;  // repeated runs are common; files of an earlier run stay, beside the new files
  teacher_job.run.report = arguments_.out / "teacher" / "report.json";
  teacher_job.run.trace.clear();
  console.note("[1/2] training the teacher");
  const RunResult teacher = train(teacher_job, console);
  if (teacher.status != 0 || teacher.interrupted) return teacher.status;

  if (teacher.weights.count("teacher") == 0) {
    throw JobError("the teacher's job kept no weights to distil from; leave train.checkpoint_at_end = true");
  }

  TrainArguments student_job;
  student_job.job = jobs / "distill.toml";
  student_job.overrides = common;
  student_job.overrides.push_back("train.out=" + quoted((arguments_.out / "distill").string()));
  student_job.overrides.push_back("teacher.weights=" + quoted(teacher.weights.at("teacher")));
  student_job.overrides.insert(student_job.overrides.end(), arguments_.overrides.begin(), arguments_.overrides.end());
  student_job.run = arguments_.run;
  student_job.run.fresh = true;
  if (student_job.run.report.empty()) student_job.run.report = arguments_.out / "distill" / "report.json";
  if (student_job.run.trace.empty()) student_job.run.trace = arguments_.out / "distill" / "trace.json";
  console.note("[2/2] distilling it into a student, and training the same student without it");
  const RunResult student = train(student_job, console);
  if (student.status != 0 || student.interrupted) return student.status;
  print_table(teacher, student, console);
  return 0;
}

}  // namespace maestro
