// SPDX-License-Identifier: Apache-2.0
// `maestro samples RUN --step K`: the samples that a step of a run was trained on.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <vector>

#include "actors/job/data_source.hpp"
#include "actors/job/resolved_job.hpp"
#include "actors/run/record/run_journal.hpp"
#include "apps/maestro/commands.hpp"
#include "apps/maestro/number_options.hpp"
#include "apps/maestro/run/plug_in_option.hpp"
#include "apps/maestro/run/recorded_job.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/observe/printed_line.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {

namespace {

struct SamplesArguments {
  std::filesystem::path run;
  std::uint64_t step = 0;
  bool text = false;
  PlugInChoice plug_ins;
};

std::vector<std::int32_t> tokens_of(const Corpus& corpus, SampleId sample) {
  const auto length = static_cast<std::size_t>(corpus.length(Split::train, sample));
  std::vector<std::int32_t> tokens(length), targets(length);
  corpus.read(Split::train, sample, tokens, targets);
  return tokens;
}

/// Returns "51 tokens", or "51 tokens after <s>" for a sample that begins as the tokenizer begins a text.
std::string length_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  const std::span<const std::int32_t> before = tokenizer.begin_of_text();
  const bool begins = !before.empty() && std::ranges::mismatch(before, tokens).in1 == before.end();
  const std::string count = std::to_string(tokens.size() - (begins ? before.size() : 0)) + " tokens";
  return begins ? count + " after " + printable(spelled_begin_of_text(tokenizer)) : count;
}

/// Returns a sample's text; [image] stands for the positions of an image.
std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (std::size_t first = 0; first < tokens.size();) {
    std::size_t end = first;
    while (end < tokens.size() && (tokens[end] < 0) == (tokens[first] < 0)) ++end;
    text += tokens[first] < 0 ? "[image]" : tokenizer.decode(tokens.subspan(first, end - first));
    first = end;
  }
  return text;
}

/// Opens the data of the run's job again and draws the step's samples. Throws JobError if their digest is not the
/// digest in the record.
int run_samples(const SamplesArguments& arguments, Console& console) {
  const std::filesystem::path record = arguments.run / record_folder;
  const std::string digest = recorded_digest(record, arguments.step).value_or_throw();
  const RunStart start = start_of_step(record, arguments.step).value_or_throw();
  RunOptions options;
  options.check_only = true;
  const ResolvedJob plan =
      job_app(recorded_document(record, start, {}, arguments.plug_ins), std::move(options), console).plan();

  refuse_rollouts(plan,
                  "samples shows samples of the data; record/rollouts.jsonl has some, and with record = true "
                  "record/rollouts has all, of the samples that");
  const Corpus& corpus = *plan.corpus;
  if (const std::string other = changed_data(start, corpus.fingerprint()); !other.empty()) {
    throw JobError("samples: step " + std::to_string(arguments.step) +
                   " was trained on other data than there is now: " + other);
  }
  const DataCursor cursor = DataCursor::of(start.cursor).value_or_throw();
  const BatchDrawer drawer(plan.corpus, Sampler(static_cast<std::uint64_t>(plan.train.seed), corpus.sources()));
  const std::vector<SampleRef> samples =
      drawer.training(StepId(arguments.step), plan.train.global_batch, cursor).samples;
  if (digest_of(samples) != digest) {
    throw JobError("samples: step " + std::to_string(arguments.step) + " had samples of digest " + printable(digest) +
                   ", and the job draws samples of digest " + digest_of(samples) +
                   " now: this version of maestro draws others, or samples can no longer be read");
  }
  PrintedLine() << "step " << arguments.step << ": " << samples.size() << " samples of "
                << printable(corpus.describe());
  const auto tokenizer = make_tokenizer(plan.tokenizer);
  const bool mixed = corpus.sources().size() > 1;
  for (const SampleRef& sample : samples) {
    const std::string from = corpus.origin(sample.id), origin = from.empty() ? "" : "; " + printable(from);
    const std::vector<std::int32_t> tokens = tokens_of(corpus, sample.id);
    PrintedLine() << (arguments.text ? "--- " : "") << "sample " << sample.id.value() << ", "
                  << length_of(tokens, *tokenizer) << ", " << corpus.targets(Split::train, sample.id) << " learned"
                  << (mixed ? ", source " + std::to_string(corpus.source(Split::train, sample.id)) : "") << origin;
    if (arguments.text) print_foreign_text(text_of(tokens, *tokenizer) + "\n");
  }
  std::cout.flush();
  return std::cout ? 0 : 1;
}

}  // namespace

void add_samples(Commands& commands) {
  const auto [command, arguments] =
      commands.add("samples", "show the samples that a step of a run was trained on", run_samples);
  command.add_option("run", arguments.run, "the run's folder, train.out")->required();
  command.add_option("--step", arguments.step, "the step")->required()->check(whole_number(1));
  command.add_flag("--text", arguments.text, "print the text of each");
  add_plug_in_options(command, arguments.plug_ins);
}

}  // namespace maestro
