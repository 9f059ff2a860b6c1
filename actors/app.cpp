#include "actors/app.hpp"

#include <algorithm>

#include "actors/corpus_section.hpp"
#include "actors/launcher.hpp"
#include "actors/process_run.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/state/atomic_file.hpp"

namespace maestro {

namespace {

DataShape shape_of(const DataConfig& data, const Corpus& corpus) {
  DataShape shape;
  shape.sequence = data.sequence;
  shape.vocabulary = corpus.vocabulary();
  shape.tokenizer = data.kind == "text" ? data.tokenizer : data.kind;
  return shape;
}

/// A batch that replicas cannot share evenly would leave some of them idle in every step.
void check_batches(const JobPlan& plan) {
  for (const GraphNode& node : plan.graph.nodes()) {
    if (node.mode != Mode::forward_backward || node.replicas == 1) continue;
    const std::int64_t batches = (plan.train.global_batch + node.micro_batch - 1) / node.micro_batch;
    if (batches >= node.replicas) continue;
    throw JobError(node.name + ": train.global_batch = " + std::to_string(plan.train.global_batch) + " makes " +
                   std::to_string(batches) + (batches == 1 ? " micro-batch of " : " micro-batches of ") +
                   std::to_string(node.micro_batch) + ", too few for " + std::to_string(node.replicas) +
                   " replicas; use " + node.name + ".micro_batch = " +
                   std::to_string(std::max<std::int64_t>(1, plan.train.global_batch / node.replicas)));
  }
}

/// A section that keeps too few micro-batches would wait for a gradient that needs its own next forward pass (FB-1).
void check_in_flight(const JobPlan& plan) {
  const std::vector<FlowBounds> bounds = flow_bounds(plan.graph, plan.train.global_batch, 0);
  for (std::size_t index = 0; index < bounds.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.max_in_flight >= bounds[index].in_flight || node.mode != Mode::forward_backward) continue;
    const std::string needed = std::to_string(bounds[index].in_flight);
    throw JobError(node.name + ".max_in_flight = " + std::to_string(node.max_in_flight) +
                   ": a section behind it takes samples of " + needed + " of its micro-batches of " +
                   std::to_string(node.micro_batch) + " at once; use " + node.name + ".max_in_flight = " + needed +
                   ", or a larger " + node.name + ".micro_batch");
  }
}

}  // namespace

App::App(JobDocument job, RunOptions options, Console& console)
    : document_(std::move(job)), options_(std::move(options)), console_(&console), registry_(builtin_sections()) {}

SectionBuilder& App::source(std::string name) {
  SectionBuilder& builder = builders_.emplace_back();
  builder.name_ = std::move(name);
  builder.mode_ = Mode::source;
  return builder;
}

SectionBuilder& App::section(std::string name, std::string type) {
  SectionBuilder& builder = builders_.emplace_back();
  builder.name_ = std::move(name);
  builder.type_ = std::move(type);
  return builder;
}

SectionBuilder& App::section(std::string name, SectionFactory factory) {
  SectionBuilder& builder = builders_.emplace_back();
  builder.name_ = std::move(name);
  builder.factory_ = std::move(factory);
  return builder;
}

void App::resolve_section(const SectionBuilder& builder, const DataShape& data, JobPlan& plan) const {
  PlannedSection planned;
  GraphNode node;
  node.name = builder.name_;
  node.mode = builder.mode_;
  if (builder.mode_ == Mode::source) {
    planned.config.name = builder.name_;
    planned.factory = [corpus = plan.corpus](const SectionContext&) { return std::make_unique<CorpusSection>(corpus); };
    node.micro_batch = plan.train.global_batch;
    node.max_in_flight = plan.train.ahead;
  } else {
    const JobTable settings = table(builder.name_);
    const Training training = builder.mode_ == Mode::forward_backward ? Training::optimized : Training::none;
    planned.config = read_section(settings, builder.name_, builder.defaults_, training);
    planned.factory = builder.factory_;
    if (!planned.factory) {
      const std::string type = settings.text("type", builder.type_);
      planned.factory = registry_.build(type, {builder.name_, settings, document_.root(), data});
    }
    node.replicas = planned.config.replicas;
    node.micro_batch = planned.config.micro_batch;
    node.max_in_flight = planned.config.max_in_flight;
  }
  SectionContext context;
  context.name = builder.name_;
  context.seed = static_cast<std::uint64_t>(plan.train.seed);
  context.precision = planned.config.precision;
  context.trained = builder.mode_ == Mode::forward_backward;
  context.prototype = true;
  const cpu::CpuOperatorTable ops;
  context.ops = &ops;
  // A prototype, for its ports, costs and complaints; replicas are built where they run.
  const std::unique_ptr<Section> prototype = planned.factory(context);
  node.ports = prototype->ports();
  for (std::string& note : prototype->notes()) plan.notes.push_back(builder.name_ + ": " + note);
  const double forward = prototype->cost({data.sequence}).flops / static_cast<double>(data.sequence);
  plan.flops_per_token.push_back(context.trained ? 3 * forward : forward);
  plan.graph.add(std::move(node));
  plan.sections.push_back(std::move(planned));
}

JobPlan App::resolve() {
  JobPlan plan;
  plan.options = options_;
  plan.name = document_.root().text("name", "job");
  plan.train = read_train(table("train"));
  plan.transport = read_transport(table("transport"));
  const DataConfig data = read_data(table("data"));
  plan.corpus = open_corpus(data, static_cast<std::uint64_t>(plan.train.seed));
  plan.max_sample_tokens = data.sequence;
  const DataShape shape = shape_of(data, *plan.corpus);
  for (const SectionBuilder& builder : builders_) resolve_section(builder, shape, plan);
  for (const auto& [from, to] : edges_) plan.graph.connect(from.section, from.port, to.section, to.port);
  document_.finish();
  plan.graph.validate();
  check_batches(plan);
  check_in_flight(plan);
  PlacementRequest request;
  request.processes = options_.processes;
  request.cores = static_cast<std::int64_t>(usable_cores().size());
  for (const PlannedSection& section : plan.sections) request.devices.push_back(section.config.devices);
  plan.places = place(plan.graph, request);
  plan.effective_job = document_.to_toml();
  return plan;
}

RunResult App::run() {
  const JobPlan plan = resolve();
  ProcessRun process(plan, *console_);
  process.prepare();
  if (options_.check_only) {
    RunResult result;
    result.status = 0;
    return result;
  }
  return process.run();
}

}  // namespace maestro
