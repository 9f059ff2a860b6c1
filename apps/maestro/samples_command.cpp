// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/samples_command.hpp"

#include <iostream>
#include <memory>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/process/app.hpp"
#include "actors/process/start_point.hpp"
#include "actors/run/data_source.hpp"
#include "actors/run/run_journal.hpp"
#include "apps/maestro/bundled_apps.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace {

constexpr std::int64_t devices_of_any_job = 1024;  // none is used

/// Throws JobError where the corpus is not the one of the run.
void check_same_data(const Corpus& corpus, const RunStart& start, std::uint64_t step) {
  Manifest now, then;
  now.data = corpus.fingerprint();
  for (const auto& [name, value] : start.data) {
    if (now.data.contains(name)) then.data.emplace(name, value);  // the others are of frozen weights
  }
  const std::vector<std::string> changed = compare_origins("the record", then, now, true);
  if (changed.empty()) return;
  throw JobError("samples: step " + std::to_string(step) +
                 " was trained on other data than there is now: " + changed.front());
}

/// The text of a sample, in which [image] stands for the positions of a picture.
std::string text_of(const Corpus& corpus, SampleId sample, const Tokenizer& tokenizer) {
  const auto length = static_cast<std::size_t>(corpus.length(Split::train, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  corpus.read(Split::train, sample, tokens, targets);
  std::string text;
  for (std::size_t first = 0; first < length;) {
    std::size_t end = first;
    while (end < length && (tokens[end] < 0) == (tokens[first] < 0)) ++end;
    text += tokens[first] < 0 ? "[image]" : tokenizer.decode(std::span(tokens).subspan(first, end - first));
    first = end;
  }
  return text;
}

}  // namespace

SamplesCommand::SamplesCommand(CLI::App& app)
    : command_(app.add_subcommand("samples", "show the samples that a step of a run was trained on")) {
  command_->add_option("run", run_, "the run's folder, train.out")->required();
  command_->add_option("--step", step_, "the step")->required()->check(CLI::PositiveNumber);
  command_->add_flag("--text", text_, "print the text of each");
}

int SamplesCommand::run(Console& console) const {
  const std::filesystem::path record = run_ / record_folder;
  const std::string digest = recorded_digest(record, step_).value_or_throw();
  const RunStart start = start_of_step(record, step_).value_or_throw();
  JobDocument job = JobDocument::parse(start.job_file, "the job in " + (record / events_file).string());
  const BundledApp& bundled = read_app(job.root());
  RunOptions options;
  options.check_only = true;
  options.cpu_devices = devices_of_any_job;
  App app(std::move(job), std::move(options), console);
  bundled.compose(app);
  const JobPlan plan = app.plan();

  const Corpus& corpus = *plan.corpus;
  check_same_data(corpus, start, step_);
  const DataCursor cursor = DataCursor::of(start.cursor).value_or_throw();
  const BatchDrawer drawer(plan.corpus, Sampler(static_cast<std::uint64_t>(plan.train.seed), corpus.sources()));
  const std::vector<SampleRef> samples = drawer.training(StepId(step_), plan.train.global_batch, cursor).samples;
  if (digest_of(samples) != digest) {
    throw JobError("samples: step " + std::to_string(step_) + " had samples of digest " + printable(digest) +
                   ", and the job draws those of digest " + digest_of(samples) +
                   " now: this version of maestro draws others, or samples can no longer be read");
  }
  std::cout << "step " << step_ << ": " << samples.size() << " samples of " << printable(corpus.describe()) << "\n";
  const auto tokenizer = text_ ? make_tokenizer(plan.tokenizer.empty() ? "bytes" : plan.tokenizer) : nullptr;
  const bool mixed = corpus.sources().size() > 1;
  for (const SampleRef& sample : samples) {
    std::cout << (text_ ? "--- " : "") << "sample " << sample.id.value() << ", "
              << corpus.length(Split::train, sample.id) << " tokens, " << corpus.targets(Split::train, sample.id)
              << " learned" << (mixed ? ", source " + std::to_string(corpus.source(Split::train, sample.id)) : "")
              << "\n";
    if (text_) std::cout << text_of(corpus, sample.id, *tokenizer) << "\n";
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace maestro
