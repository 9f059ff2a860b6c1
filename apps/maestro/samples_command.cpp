// SPDX-License-Identifier: Apache-2.0
#include "apps/maestro/samples_command.hpp"

#include <iostream>
#include <memory>
#include <vector>

#include "actors/plan/job_plan.hpp"
#include "actors/run/data_source.hpp"
#include "actors/run/run_journal.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/recorded_job.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace {

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
  command_->add_option("--step", step_, "the step")->required()->check(whole_number(1));
  command_->add_flag("--text", text_, "print the text of each");
  add_plug_in_options(*command_, plug_ins_);
}

int SamplesCommand::run(Console& console) const {
  const std::filesystem::path record = run_ / record_folder;
  const std::string digest = recorded_digest(record, step_).value_or_throw();
  const RunStart start = start_of_step(record, step_).value_or_throw();
  RunOptions options;
  options.check_only = true;
  const JobPlan plan = job_app(recorded_document(record, start, {}, plug_ins_), std::move(options), console).plan();

  const Corpus& corpus = *plan.corpus;
  if (const std::string other = changed_data(start, corpus.fingerprint()); !other.empty()) {
    throw JobError("samples: step " + std::to_string(step_) + " was trained on other data than there is now: " + other);
  }
  const DataCursor cursor = DataCursor::of(start.cursor).value_or_throw();
  const BatchDrawer drawer(plan.corpus, Sampler(static_cast<std::uint64_t>(plan.train.seed), corpus.sources()));
  const std::vector<SampleRef> samples = drawer.training(StepId(step_), plan.train.global_batch, cursor).samples;
  if (digest_of(samples) != digest) {
    throw JobError("samples: step " + std::to_string(step_) + " had samples of digest " + printable(digest) +
                   ", and the job draws those of digest " + digest_of(samples) +
                   " now: this version of maestro draws others, or samples can no longer be read");
  }
  PrintedLine() << "step " << step_ << ": " << samples.size() << " samples of " << printable(corpus.describe());
  const auto tokenizer = text_ ? make_tokenizer(plan.tokenizer.empty() ? "bytes" : plan.tokenizer) : nullptr;
  const bool mixed = corpus.sources().size() > 1;
  for (const SampleRef& sample : samples) {
    const std::string from = corpus.origin(sample.id), origin = from.empty() ? "" : "; " + printable(from);
    PrintedLine() << (text_ ? "--- " : "") << "sample " << sample.id.value() << ", "
                  << corpus.length(Split::train, sample.id) << " tokens, " << corpus.targets(Split::train, sample.id)
                  << " learned" << (mixed ? ", source " + std::to_string(corpus.source(Split::train, sample.id)) : "")
                  << origin;
    if (text_) print_foreign_text(text_of(corpus, sample.id, *tokenizer) + "\n");
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace maestro
