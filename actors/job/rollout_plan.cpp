// SPDX-License-Identifier: Apache-2.0
#include "actors/job/rollout_plan.hpp"

#include <algorithm>
#include <string>

#include "actors/job/resolved_job.hpp"
#include "runtime/core/printable.hpp"
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

void check(const ResolvedJob& plan, const GraphRegister& edge, const JobTable& root) {
  const GraphNode& sender = plan.graph.node(edge.from);
  const GraphNode& generator = plan.graph.node(edge.to);
  const SectionConfig& own = plan.sections[edge.to.value()].config;
  const JobTable table = root.table(generator.name);
  if (plan.sections[edge.from.value()].config.emulated()) {
    root.table(sender.section_name())
        .fail("devices", "are emulated: they lack weights for [" + generator.name + "]");
  }
  if (table.has("weights")) {
    table.fail("weights", "is given by the edge " + sender.section_name() + ".weights -> " + generator.name +
                              ".weights; leave it out");
  }
  if (own.emulated()) table.fail("devices", "are emulated, which cannot make samples");
  const auto on_cuda = [](const PlannedSection& section) {
    return std::ranges::any_of(section.config.devices, &DeviceId::is_cuda);
  };
  if (on_cuda(plan.sections[edge.to.value()])) {
    table.fail("devices", "name a CUDA device; generators run on CPU cores, for example \"cpu:0\"");
  }
  if (plan.corpus->patch_columns() > 0) {
    throw JobError("[" + generator.name + "] makes samples of texts, but the data have images");
  }
  if (plan.stage.given()) throw JobError("[" + generator.name + "] does not apply to a job with [[stages]]");
  for (const GraphNode& node : plan.graph.nodes()) {
    const JobTable other = root.table(node.section_name());
    if (other.has("type") && other.text("type", "") == "recorded_teacher") {
      other.fail("type", "is recorded_teacher, which knows the corpus' samples alone, and not those that [" +
                             generator.name + "] makes; name the teacher's weights");
    }
  }
}

}  // namespace

void refuse_rollouts(const ResolvedJob& plan, const std::string& problem) {
  if (plan.rollouts) throw JobError(problem + " [" + plan.graph.node(plan.rollouts->section).name + "] makes");
}

void plan_rollouts(ResolvedJob& plan, const JobTable& root) {
  for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
    if (!plan.graph.nodes()[index].generates()) continue;
    const std::string& name = plan.graph.nodes()[index].name;
    if (plan.rollouts) throw JobError("a job has one generator at most, and '" + name + "' is another");
    const auto edge = std::ranges::find(plan.graph.registers(), SectionId(index), &GraphRegister::to);
    if (edge == plan.graph.registers().end()) {
      throw JobError("section '" + name + "' makes samples with the weights of a trained section, and no edge names " +
                     "that: connect them, as in \"student.weights -> " + name + ".weights\"");
    }
    check(plan, *edge, root);
    const JobTable table = root.table(name);
    RolloutPlan rollouts{read_generator(table), SectionId(index), {}};
    if (rollouts.config.prompt_tokens == 0 &&
        plan.corpus->targets(Split::train, SampleId(0)) == plan.corpus->length(Split::train, SampleId(0))) {
      table.fail("prompt_tokens",
                 "is not given, and every token of a sample is learned, so that no answer tells where "
                 "its prompt ends; give the number of first tokens that are the prompt");
    }
    if (rollouts.config.prompt_tokens > plan.corpus->max_length()) {
      table.fail("prompt_tokens", "is " + std::to_string(rollouts.config.prompt_tokens) +
                                      ", but samples have at most " + std::to_string(plan.corpus->max_length()) +
                                      " positions (data.sequence)");
    }
    rollouts.stop_tokens =
        stop_tokens(plan, table, root.table(plan.graph.node(edge->from).section_name()), rollouts.config);
    plan.rollouts = std::move(rollouts);
  }
}

}  // namespace maestro
