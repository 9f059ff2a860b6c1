// SPDX-License-Identifier: Apache-2.0
// `maestro distill`: a student learns from a given teacher, or from a small teacher that is trained first.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "actors/job/resolved_job.hpp"
#include "actors/run/record/run_result.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/models/continuations.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/bundled_apps.hpp"
#include "apps/maestro/run/end_lines.hpp"
#include "apps/maestro/run/given_model.hpp"
#include "apps/maestro/run/run_options.hpp"
#include "apps/maestro/run/train_job.hpp"
#include "apps/maestro/watch/card_files.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/job/job_document.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

struct DistillArguments {
  std::string teacher;                ///< folder or name on the hub; empty: a small teacher is trained first
  std::string student;                ///< the same; empty: the bundled shape, from random values
  std::string data;                   ///< empty: the bundled text
  std::optional<std::int64_t> steps;  ///< steps of the distillation; absent: as in the bundled job
  std::optional<std::int64_t>
      sequence;  ///< tokens of a sample; absent: as in the bundled job, or the most that both models take
  std::filesystem::path out = "runs";
  std::vector<std::string> prompts = {"The", "In the", "It is"};  ///< prompts that all models continue at the end
  std::int64_t seed = 1;
  bool memory = false;   ///< the student reads a table of n-grams
  bool experts = false;  ///< the teacher that is trained has experts
  bool on_policy = false;
  std::optional<std::int64_t> staleness;   ///< absent: as in [generator]; needs on_policy
  std::optional<std::int64_t> max_tokens;  ///< most tokens of a continuation; needs on_policy
  std::string rollouts;                    ///< a run whose samples are read; needs on_policy; empty: none
  std::vector<std::string> teacher_overrides;
  std::vector<std::string> overrides;  ///< settings of the distillation job
  RunOptions run;
};

constexpr std::int64_t default_sequence = 256;  // tokens of a sample, if both models take as many

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

/// Prints the losses of teacher and student on validation samples; `unit`: a token of the corpus.
void print_losses(const RunResult& student, const char* unit, Console& console) {
  console.note("");
  console.note(std::string("validation loss (nats per ") + unit + ", lower is better)");
  console.note("  teacher             " +
               loss_text(metric(student, "student", "teacher_ce"), "not computed with boundary = \"top_k\""));
  console.note("  student, distilled  " + loss_text(metric(student, "student", "ce"), "not measured"));
}

void print_comparison(const RunResult& student, Console& console) {
  const auto distilled = metric(student, "student", "ce");
  const auto plain = metric(student, "plain", "ce");
  print_losses(student, "byte", console);
  console.note("  student, plain      " + loss_text(plain, "not measured") +
               (plain && distilled ? "   distillation gains " + text("%+.4f", *plain - *distilled) : ""));
}

/// Returns the settings of the student in distill.toml: a small model from random values.
std::vector<std::string> small_student() {
  std::vector<std::string> settings;
  for (const auto& [key, value] : JobDocument::load(bundled_jobs() / "distill" / "distill.toml").settings()) {
    if (key.starts_with("student.") && key != "student.micro_batch") settings.push_back(key + "=" + value);
  }
  return settings;
}

void append(std::vector<std::string>& settings, const std::vector<std::string>& more) {
  settings.insert(settings.end(), more.begin(), more.end());
}

fs::path corpus_of(const DistillArguments& arguments) {
  return arguments.data.empty() ? bundled_jobs() / "distill" / "texts" : fs::path(arguments.data);
}

std::vector<std::string> common_settings(const DistillArguments& arguments) {
  const fs::path corpus = corpus_of(arguments);
  return {"data.path=" + quoted(fs::absolute(corpus).lexically_normal().string()),
          "data.kind=" + quoted(std::string(name_of(kind_of_data(corpus)))),
          "train.seed=" + std::to_string(arguments.seed)};
}

/// Returns the settings of samples that the student makes. `sequence`: tokens of a sample. A student from random values
/// has nothing to say, and learns from as many samples of the corpus.
std::vector<std::string> on_policy_settings(const DistillArguments& arguments, const fs::path& corpus,
                                            std::int64_t sequence, bool from_random) {
  if (!arguments.on_policy) return {};
  std::vector<std::string> settings = {"student.divergence=\"reverse_kl\"",
                                       std::string("generator.on_policy=") + (from_random ? "0.5" : "1.0")};
  if (kind_of_data(corpus) == DataKind::text) {
    settings.push_back("generator.prompt_tokens=" + std::to_string(std::max<std::int64_t>(1, sequence / 4)));
  }
  if (arguments.staleness) settings.push_back("generator.staleness=" + std::to_string(*arguments.staleness));
  if (arguments.max_tokens) settings.push_back("generator.max_tokens=" + std::to_string(*arguments.max_tokens));
  if (!arguments.rollouts.empty()) settings.push_back("generator.rollouts=" + quoted(arguments.rollouts));
  return settings;
}

/// Returns the settings for the given models: their folders, and a sequence that both take.
std::vector<std::string> model_settings(const DistillArguments& arguments) {
  const std::string teacher = model_folder("--teacher", arguments.teacher);
  std::vector<std::string> settings = {"teacher.weights=" + quoted(teacher)};
  std::int64_t sequence = std::min(default_sequence, positions_of(teacher));
  if (arguments.student.empty()) {
    append(settings, small_student());
    settings.push_back("student.positions=" + std::to_string(arguments.sequence.value_or(sequence)));
  } else {
    const std::string student = model_folder("--student", arguments.student);
    settings.push_back("student.weights=" + quoted(student));
    sequence = std::min(sequence, positions_of(student));
  }
  sequence = arguments.sequence.value_or(sequence);
  settings.push_back("data.sequence=" + std::to_string(sequence));
  append(settings, on_policy_settings(arguments, corpus_of(arguments), sequence, arguments.student.empty()));
  return settings;
}

/// Returns the settings of a memory that the student reads.
std::vector<std::string> memory_settings(const DistillArguments& arguments) {
  if (!arguments.memory) return {};
  std::vector<std::string> settings;
  for (const auto& [key, value] : JobDocument::load(bundled_jobs() / "graph" / "memory.toml").settings()) {
    if (key.starts_with("memory.") || key == "student.memory_layer") settings.push_back(key + "=" + value);
  }
  return settings;
}

TrainArguments distillation(const DistillArguments& arguments, const char* job,
                            const std::vector<std::string>& settings) {
  TrainArguments student;
  student.job = bundled_jobs() / "distill" / job;
  student.overrides = common_settings(arguments);
  student.overrides.push_back("train.out=" + quoted((arguments.out / "distill").string()));
  if (arguments.steps) student.overrides.push_back("train.steps=" + std::to_string(*arguments.steps));
  append(student.overrides, settings);
  append(student.overrides, memory_settings(arguments));
  append(student.overrides, arguments.overrides);
  student.run = arguments.run;
  student.run.fresh = student.run.resume.empty();  // runs are repeated often; an earlier run's files move aside
  const fs::path out = output_folder(student);
  if (student.run.report.empty()) student.run.report = out / "report.json";
  if (student.run.trace.empty()) student.run.trace = out / "trace.json";
  return student;
}

RunResult train_teacher(const DistillArguments& arguments, Console& console) {
  TrainArguments job;
  job.job = bundled_jobs() / "distill" / (arguments.experts ? "moe.toml" : "teacher.toml");
  job.overrides = common_settings(arguments);
  job.overrides.push_back("train.out=" + quoted((arguments.out / (arguments.experts ? "moe" : "teacher")).string()));
  append(job.overrides, arguments.teacher_overrides);
  job.run = arguments.run;
  job.run.fresh = true;
  job.run.report = output_folder(job) / "report.json";
  job.run.trace.clear();
  RunResult teacher = train(job, console);
  teacher.resume.clear();  // the command takes no --resume
  return teacher;
}

void print_texts(const DistillArguments& arguments, const std::string& teacher, const RunResult& run,
                 Console& console) {
  std::vector<NamedModel> models = {{"teacher", teacher}};
  for (const char* section : {"student", "plain"}) {
    const auto trained = run.weights.find(section);
    if (trained != run.weights.end()) models.push_back({section, trained->second});
  }
  print_continuations(models, arguments.prompts, console);
}

void print_card(const DistillArguments& arguments, const TrainArguments& job, Console& console) {
  CardOptions options;
  options.trace = job.run.trace;
  options.prompts = arguments.prompts;
  end_with_card(job, options, console);
}

int distil_given(const DistillArguments& arguments, Console& console) {
  const TrainArguments job = distillation(arguments, "models.toml", model_settings(arguments));
  const RunResult student = train(job, console);
  if (student.status != 0) return student.status;
  if (!student.interrupted) {
    print_losses(student, "token", console);
    print_texts(arguments, model_folder("--teacher", arguments.teacher), student, console);
  }
  print_summary(student, console);
  if (!student.interrupted) print_card(arguments, job, console);
  return 0;
}

int distil_trained(const DistillArguments& arguments, Console& console) {
  console.note(arguments.experts ? "[1/2] training the teacher, a model with experts" : "[1/2] training the teacher");
  const RunResult teacher = train_teacher(arguments, console);
  if (teacher.status == 0) print_summary(teacher, console);
  if (teacher.status != 0 || teacher.interrupted) return teacher.status;
  if (teacher.weights.count("teacher") == 0) {
    throw JobError("the teacher's job kept no weights to distil from; leave train.checkpoint_at_end = true");
  }
  console.note("[2/2] distilling it into a student, and training the same student without it");
  std::vector<std::string> settings = {"teacher.weights=" + quoted(teacher.weights.at("teacher"))};
  const JobDocument bundled = JobDocument::load(bundled_jobs() / "distill" / "distill.toml");
  append(settings, on_policy_settings(arguments, corpus_of(arguments),
                                      bundled.root().table("data").integer("sequence", default_sequence), true));
  const TrainArguments job = distillation(arguments, "distill.toml", settings);
  RunResult student = train(job, console);
  student.resume.clear();  // the command takes no --resume
  if (student.status != 0) return student.status;
  if (!student.interrupted) {
    print_comparison(student, console);
    print_texts(arguments, teacher.weights.at("teacher"), student, console);
  }
  print_summary(student, console);
  if (!student.interrupted) print_card(arguments, job, console);
  return 0;
}

int run_distill(const DistillArguments& arguments, Console& console) {
  return arguments.teacher.empty() ? distil_trained(arguments, console) : distil_given(arguments, console);
}

}  // namespace

void add_distill(Commands& commands) {
  const auto [command, arguments] = commands.add(
      "distill", "distil a student from a teacher: given models, or small ones that are trained", run_distill);
  CLI::Option* teacher = command.add_option("--teacher", arguments.teacher,
                                            "the teacher: a model's folder, or its name in the hub's cache "
                                            "(default: a small teacher is trained first)");
  command
      .add_option("--student", arguments.student,
                  "the student: folder or name (default: a small model with random values)")
      ->needs(teacher);
  command.add_option("--data", arguments.data,
                     "text, conversations (JSON Lines, Parquet, tar), or a folder: texts, or from `maestro prepare` "
                     "(default: two bundled novels)");
  command.add_option("--steps", arguments.steps, "steps of the distillation")->check(whole_number(1));
  command
      .add_option("--sequence", arguments.sequence,
                  "tokens of a sample (default: 256, or the most that both models take)")
      ->check(whole_number(1))
      ->needs(teacher);
  command.add_flag("--memory", arguments.memory, "the student reads a table of n-grams, which is trained with it");
  command.add_flag("--experts", arguments.experts, "the teacher that is trained has experts (moe.toml)")
      ->excludes(teacher);
  CLI::Option* on_policy =
      command.add_flag("--on-policy", arguments.on_policy,
                       "the student continues the data's prompts, and learns from the teacher's view of that");
  command
      .add_option("--staleness", arguments.staleness,
                  "steps that the weights which continue prompts are older than those trained; 0: none, but nothing is "
                  "trained meanwhile (default: 1)")
      ->check(whole_number(0))
      ->needs(on_policy);
  command.add_option("--max-tokens", arguments.max_tokens, "tokens of a continuation at most (default: 256)")
      ->check(whole_number(1))
      ->needs(on_policy);
  command
      .add_option("--rollouts", arguments.rollouts,
                  "read the samples that the run in this folder made (generator.record), in place of a generator")
      ->needs(on_policy);
  command.add_option("--out", arguments.out, "folder for weights, checkpoints, report and trace");
  command
      .add_option("--prompt", arguments.prompts,
                  "a text that teacher and student continue at the end; may be repeated (default: three)")
      ->allow_extra_args(false);
  command.add_option("--seed", arguments.seed, "random seed")->check(whole_number(0));
  command.add_option("--set", arguments.overrides, "override a key of the distillation job")->allow_extra_args(false);
  command.add_option("--teacher-set", arguments.teacher_overrides, "override a key of the trained teacher's job")
      ->allow_extra_args(false)
      ->excludes(teacher);
  add_start_options(command, arguments.run);
  command.get_option("--resume")->needs(teacher);
  add_run_options(command, arguments.run);
}

}  // namespace maestro
