// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_plan.hpp"

#include <algorithm>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/data/rollout_folder.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_generation.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

std::vector<std::int32_t> stop_tokens(const ResolvedJob& plan, const JobTable& generator, const JobTable& sender,
                                      const GeneratorConfig& config) {
  if (plan.tokenizer.empty()) {
    if (!config.stop.empty()) generator.fail("stop", "names texts of tokens, but these data lack a tokenizer");
    return {};
  }
  const auto tokenizer = make_tokenizer(plan.tokenizer);
  std::vector<std::int32_t> stops;
  for (const std::string& text : config.stop) {
    const std::vector<std::int32_t> tokens = tokenizer->encode(text);
    if (tokens.size() != 1) {
      generator.fail("stop", "\"" + printable(text) + "\" is " + std::to_string(tokens.size()) +
                                 " tokens of the data's tokenizer; each text must be a single token");
    }
    stops.push_back(tokens.front());
  }
  const std::string folder = read_weights_folder(sender);
  if (stops.empty() && !folder.empty()) stops = read_stop_tokens(folder).value_or_throw();
  if (stops.empty() && tokenizer->end_of_text()) stops = {*tokenizer->end_of_text()};
  std::erase_if(stops, [&](std::int32_t token) { return token >= plan.corpus->vocabulary(); });
  return stops;
}

/// Checks what concerns the generator's section, and the weights that it takes.
void check_section(const ResolvedJob& plan, const GraphRegister& edge, const JobTable& root) {
  const GraphNode& sender = plan.graph.node(edge.from);
  const GraphNode& generator = plan.graph.node(edge.to);
  const SectionConfig& own = plan.sections[edge.to.value()].config;
  const JobTable table = root.table(generator.name);
  if (plan.sections[edge.from.value()].config.emulated()) {
    root.table(sender.section_name()).fail("devices", "are emulated: they lack weights for [" + generator.name + "]");
  }
  if (table.has("weights")) {
    table.fail("weights", "is given by the edge " + sender.section_name() + ".weights -> " + generator.name +
                              ".weights; leave it out");
  }
  if (own.emulated()) table.fail("devices", "are emulated, which cannot make samples");
}

/// Checks what concerns the samples, whether they are made or read back.
void check_samples(const ResolvedJob& plan, const JobTable& root) {
  const auto& [config, name, section, stops] = *plan.rollouts;
  const JobTable table = root.table(name);
  if (plan.corpus->patch_columns() > 0) {
    throw JobError("[" + name + "] makes samples of texts, but the data have images");
  }
  if (plan.stage.given()) throw JobError("[" + name + "] does not apply to a job with [[stages]]");
  for (const GraphNode& node : plan.graph.nodes()) {
    const JobTable other = root.table(node.section_name());
    if (other.has("type") && other.text("type", "") == "recorded_teacher") {
      other.fail("type", "is recorded_teacher, which knows the corpus' samples alone, and not those that [" + name +
                             "] makes; name the teacher's weights");
    }
  }
  if (plan.corpus->prompts_only() && (config.on_policy < 1 || config.from_step > 1)) {
    const bool share = config.on_policy < 1;
    table.fail(share ? "on_policy" : "from_step",
               "needs samples that are read, but data with learn = \"none\" are prompts without answers; " +
                   std::string(share ? "set it to 1" : "leave it at 1") + ", or learn = \"answers\"");
  }
  if (config.prompt_tokens == 0 &&
      plan.corpus->targets(Split::train, SampleId(0)) == plan.corpus->length(Split::train, SampleId(0))) {
    table.fail("prompt_tokens",
               "is not given, and every token of a sample is learned, so that no answer tells where "
               "its prompt ends; give the number of first tokens that are the prompt");
  }
  if (config.prompt_tokens > plan.corpus->max_length()) {
    table.fail("prompt_tokens", "is " + std::to_string(config.prompt_tokens) + ", but samples have at most " +
                                    std::to_string(plan.corpus->max_length()) + " positions (data.sequence)");
  }
  if (config.rollouts.empty()) return;
  const Result<RolloutFolder> folder = RolloutFolder::find(config.rollouts);
  if (!folder) table.fail("rollouts", folder.error().message);
  const StepId last(static_cast<std::uint64_t>(plan.train.steps));
  if (config.on_policy == 1 && last.value() >= static_cast<std::uint64_t>(config.from_step) && !folder->has(last)) {
    table.fail("rollouts", folder->path().string() + " lacks the samples of step " + std::to_string(last.value()) +
                               ", the last (train.steps)");
  }
}

}  // namespace

std::uint64_t epoch_positions(const ResolvedJob& plan) {
  const std::uint64_t samples = plan.corpus->samples(Split::train);
  return plan.rollouts ? samples * static_cast<std::uint64_t>(plan.rollouts->config.samples_per_prompt) : samples;
}

bool generates(const ResolvedJob& plan) {
  return plan.rollouts && plan.rollouts->section;
}

SamplingOptions sampling_of(const GeneratorConfig& config) {
  return {.temperature = config.temperature, .top_k = config.top_k, .top_p = config.top_p, .log_probabilities = true};
}

void refuse_rollouts(const ResolvedJob& plan, const std::string& problem) {
  if (plan.rollouts) throw JobError(problem + " [" + plan.rollouts->name + "] makes");
}

void plan_rollouts(ResolvedJob& plan, const JobTable& root) {
  if (plan.rollouts) return check_samples(plan, root);  // read back
  for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
    if (!plan.graph.nodes()[index].generates()) continue;
    const std::string& name = plan.graph.nodes()[index].name;
    if (plan.rollouts) throw JobError("a job has one generator at most, and '" + name + "' is another");
    const auto edge = std::ranges::find(plan.graph.registers(), SectionId(index), &GraphRegister::to);
    if (edge == plan.graph.registers().end()) {
      throw JobError("section '" + name + "' makes samples with the weights of a trained section, and no edge names " +
                     "that: connect them, as in \"student.weights -> " + name + ".weights\"");
    }
    check_section(plan, *edge, root);
    const JobTable table = root.table(name);
    RolloutPlan rollouts{read_generator(table), name, SectionId(index), {}};
    rollouts.stop_tokens =
        stop_tokens(plan, table, root.table(plan.graph.node(edge->from).section_name()), rollouts.config);
    plan.rollouts = std::move(rollouts);
    check_samples(plan, root);
  }
  if (plan.rollouts || !plan.corpus->prompts_only()) return;
  throw JobError(
      "the data have prompts without answers (learn = \"none\"), which a generator continues: add a table "
      "[generator] to a distillation, or prepare them with learn = \"answers\"");
}

}  // namespace maestro
