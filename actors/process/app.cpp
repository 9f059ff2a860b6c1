// SPDX-License-Identifier: Apache-2.0
#include "actors/process/app.hpp"

#include <unistd.h>

#include <algorithm>

#include "actors/plan/corpus_section.hpp"
#include "actors/plan/plan_checks.hpp"
#include "actors/process/process_run.hpp"
#include "actors/run/data_source.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/schedule/stage_cut.hpp"
#include "runtime/state/atomic_file.hpp"

namespace maestro {

namespace {

/// Looks for the driver only when a section names a CUDA device (DB-1). Hosts are assumed to be alike.
CudaDevices cuda_devices(const std::vector<PlannedSection>& sections) {
  const bool named = std::ranges::any_of(sections, [&](const PlannedSection& section) {
    return std::ranges::any_of(section.config.devices, is_cuda_device);
  });
  if (!named) return {};
  return {static_cast<std::int64_t>(cuda_status().devices()), cuda_status().missing};
}

/// Refuses a section that is neither trained nor loaded: its values would be noise, unless the job requests that.
void check_frozen(const JobPlan& plan, const JobTable& root) {
  for (std::size_t at = 0; at < plan.sections.size(); ++at) {
    const GraphNode& node = plan.graph.nodes()[at];
    const SectionConfig& config = plan.sections[at].config;
    const bool keeps_random = node.frozen && config.weights.empty() && plan.rank_parameters[at] > 0;
    if (!keeps_random || config.random || config.emulated()) continue;
    root.table(node.section_name())
        .fail("weights", "is not given, and the section is frozen: it would keep random values; name a folder of " +
                             std::string("weights, or set weights = \"random\" to keep them"));
  }
}

DataShape shape_of(const DataConfig& data, const Corpus& corpus, const SampleRef& largest) {
  DataShape shape;
  shape.sequence = largest.tokens;
  shape.vocabulary = corpus.vocabulary();
  shape.tokenizer = data.kind == "text" ? data.tokenizer : data.kind;
  shape.patch_columns = corpus.patch_columns();
  shape.pictures = corpus.picture_grids();
  return shape;
}

/// Returns the devices of a stage; a section lists devices by replica, and within a replica by stage.
std::vector<std::string> devices_of_stage(const SectionConfig& config, std::int64_t stage) {
  std::vector<std::string> devices;
  const std::int64_t ranks = config.tensor * config.context;
  for (std::size_t at = 0; at < config.devices.size(); ++at) {
    if (static_cast<std::int64_t>(at) / ranks % config.pipeline == stage) devices.push_back(config.devices[at]);
  }
  return devices;
}

/// Returns the stages of a section with this port; all stages if none has it, so that connecting reports an error.
std::vector<SectionId> stages_with_port(const SectionGraph& graph, const std::string& section, const std::string& port,
                                        bool input) {
  const std::vector<SectionId> stages = graph.stages_of(section);
  if (stages.empty()) throw JobError("no section is named '" + section + "'");
  std::vector<SectionId> found;
  for (const SectionId stage : stages) {
    const Ports& ports = graph.node(stage).ports;
    if (std::ranges::count(input ? ports.inputs : ports.outputs, port, &Port::name) > 0) found.push_back(stage);
  }
  return found.empty() ? stages : found;
}

constexpr double flops_per_ms_of_a_gflops = 1e6;

/// Returns FLOPs of a sample, from the sections' own models; a backward pass counts twice the forward pass, or once
/// where the section's parameters are frozen.
SampleCost sample_cost(const SectionGraph& graph, std::vector<std::shared_ptr<const Section>> prototypes) {
  std::vector<double> backward;
  std::vector<std::int64_t> ranks;
  for (const GraphNode& node : graph.nodes()) {
    ranks.push_back(node.layout.ranks());
    backward.push_back(node.mode != Mode::forward_backward ? 0.0 : node.frozen ? 1.0 : 2.0);
  }
  return [backward, ranks, prototypes = std::move(prototypes)](SectionId section, const SampleRef& sample) {
    double flops = prototypes[section.value()]->cost({sample.tokens, sample.patches, sample.images}).flops;
    flops /= static_cast<double>(ranks[section.value()]);  // the ranks share the work evenly
    return PassCost{flops, flops * backward[section.value()]};
  };
}

}  // namespace

App::App(JobDocument job, RunOptions options, Console& console)
    : document_(std::move(job)), options_(std::move(options)), console_(&console), registry_(builtin_sections()) {
  PlaceRequest request;
  request.processes = options_.processes > 1 ? options_.processes : 0;
  request.hosts = options_.hosts;
  request.joins = options_.joins;
  // Checking a job involves no other process, wherever it runs.
  const Environment nothing = [](std::string_view) { return std::nullopt; };
  options_.launch_info = find_run_place(request, options_.check_only ? nothing : process_environment());
  options_.processes = options_.launch_info.place.processes;
}

SectionBuilder& App::source(std::string name) {
  SectionBuilder& builder = builders_.emplace_back();
  builder.name_ = std::move(name);
  builder.mode_ = Mode::source;
  return builder;
}

SectionBuilder& App::source(std::string name, std::shared_ptr<const Corpus> corpus) {
  corpus_ = std::move(corpus);
  return source(std::move(name));
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

std::map<std::string, App::Passes> App::resolve_passes() const {
  std::map<std::string, Passes> passes;
  for (const SectionBuilder& builder : builders_) {
    const bool learns =
        builder.mode_ == Mode::forward_backward && table(builder.name_).flag("trained", builder.defaults_.trained);
    passes[builder.name_] = {learns, learns};
  }
  // Gradients pass through a frozen section when a section before it is trained.
  for (std::size_t round = 0; round < builders_.size(); ++round) {
    for (const auto& [from, to] : edges_) {
      const auto producer = passes.find(from.section);
      const auto consumer = std::ranges::find(builders_, to.section, [](const auto& builder) { return builder.name_; });
      if (producer == passes.end() || consumer == builders_.end() || consumer->mode_ != Mode::forward_backward)
        continue;
      passes[to.section].backward |= producer->second.backward;
    }
  }
  return passes;
}

void App::resolve_section(const SectionBuilder& builder, const DataShape& data, Passes passes, JobPlan& plan) const {
  PlannedSection planned;
  GraphNode node;
  node.name = builder.name_;
  node.mode = builder.mode_;
  if (builder.mode_ == Mode::forward_backward && !passes.backward) node.mode = Mode::forward_only;
  node.frozen = builder.mode_ != Mode::source && !passes.trained;
  if (builder.mode_ == Mode::source) {
    planned.config.name = builder.name_;
    planned.factory = [corpus = plan.corpus](const SectionContext&) { return std::make_unique<CorpusSection>(corpus); };
    node.micro_batch = plan.train.global_batch;
    node.max_in_flight = plan.train.ahead;
    return add_node(std::move(planned), std::move(node), passes, plan);
  }
  const JobTable settings = table(builder.name_);
  const Training training = builder.mode_ == Mode::forward_backward ? Training::optimized : Training::none;
  planned.config = read_section(settings, builder.name_, builder.defaults_, training);
  planned.factory = builder.factory_;
  if (!planned.factory) {
    const std::string type = settings.text("type", builder.type_);
    planned.factory = registry_.build(type, {builder.name_, settings, document_.root(), data});
  }
  node.replicas = planned.config.replicas;
  node.layout = {planned.config.tensor, planned.config.context};
  node.micro_batch = std::min(planned.config.micro_batch, std::max(plan.train.global_batch, plan.validation_samples));
  node.micro_batch_rows = planned.config.micro_batch_tokens;
  node.max_in_flight = planned.config.max_in_flight;
  if (planned.config.pipeline == 1) return add_node(std::move(planned), std::move(node), passes, plan);
  add_stages(planned, node, {passes, settings.has("max_in_flight")}, plan);
}

SectionContext App::prototype_context(const PlannedSection& planned, const GraphNode& node, Passes passes,
                                      const JobPlan& plan) {
  SectionContext context;
  context.name = planned.config.name;
  context.seed = static_cast<std::uint64_t>(plan.train.seed);
  context.precision = planned.config.precision;
  context.trained = passes.trained;
  context.passes_gradient = passes.backward && !passes.trained;
  context.prototype = true;
  context.ops = plan.prototype_ops.get();
  context.for_cuda = std::ranges::any_of(planned.config.devices, is_cuda_device);
  context.parallel.layout = node.layout;
  context.stage = planned.stage;
  return context;
}

void App::add_node(PlannedSection planned, GraphNode node, Passes passes, JobPlan& plan) {
  // A prototype, for ports, costs and errors; replicas are built where they run.
  const std::shared_ptr<Section> prototype = planned.factory(prototype_context(planned, node, passes, plan));
  if (node.layout.ranks() > 1 && !prototype->spreads_over_ranks()) {
    const bool tensor = node.layout.tensor > 1;
    throw JobError(node.section_name() + (tensor ? ".tensor = " : ".context = ") +
                   std::to_string(tensor ? node.layout.tensor : node.layout.context) +
                   ": a section of this type works on one device; leave tensor and context at 1, and use replicas");
  }
  node.ports = prototype->ports();
  std::int64_t parameters = 0;
  for (const Parameter& parameter : prototype->parameters().all()) parameters += parameter.shape().elements();
  plan.rank_parameters.push_back(parameters);
  for (const std::string& note : prototype->notes()) plan.notes.push_back(node.section_name() + ": " + note);
  plan.prototypes.push_back(prototype);
  plan.graph.add(std::move(node));
  plan.sections.push_back(std::move(planned));
}

void App::add_stages(const PlannedSection& section, const GraphNode& node, const StageRequest& request, JobPlan& plan) {
  const SectionConfig& config = section.config;
  const std::unique_ptr<Section> whole = section.factory(prototype_context(section, node, request.passes, plan));
  const LayerCosts costs = whole->layer_costs({plan.largest.tokens, plan.largest.patches, plan.largest.images});
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  if (config.pipeline > std::max<std::int64_t>(layers, 1)) {
    throw JobError(config.name + ".pipeline = " + std::to_string(config.pipeline) + ": " +
                   (layers == 0 ? "this section cannot be cut into stages; leave pipeline at 1"
                                : "it has " + std::to_string(layers) +
                                      " layers; nearest that fits: pipeline = " + std::to_string(layers)));
  }
  for (const std::string& device : config.devices) {
    if (std::ranges::count(config.devices, device) == 1) continue;
    throw JobError(config.name + ".devices: \"" + device +
                   "\" is named twice; the stages and ranks of a section need devices of their own");
  }
  std::string cut;
  std::int64_t first = 0;
  const std::vector<std::int64_t> sizes = cut_stages(costs.layers, costs.before, costs.after, config.pipeline);
  for (std::int64_t stage = 0; stage < config.pipeline; ++stage) {
    PlannedSection planned = section;
    planned.stage = {stage, config.pipeline, first, sizes[static_cast<std::size_t>(stage)]};
    planned.config.devices = devices_of_stage(config, stage);
    GraphNode part = node;
    part.name = node.name + ".stage" + std::to_string(stage);
    part.section = node.name;
    part.stage = stage;
    part.stages = config.pipeline;
    // 1F1B: a stage continues while its first micro-batch passes through the stages behind it.
    if (!request.in_flight_given) part.max_in_flight = std::max(part.max_in_flight, config.pipeline - stage);
    first += planned.stage.layers;
    cut += (cut.empty() ? "" : ", ") + std::to_string(planned.stage.layers);
    add_node(std::move(planned), std::move(part), request.passes, plan);
  }
  plan.notes.push_back(config.name + ": stages of " + cut + " layers");
}

void App::connect_all(JobPlan& plan) const {
  for (const auto& [from, to] : edges_) {
    // Stages share a section's ports; a port of several stages (tokens) is connected to all of them.
    const std::vector<SectionId> producers = stages_with_port(plan.graph, from.section, from.port, false);
    for (const SectionId consumer : stages_with_port(plan.graph, to.section, to.port, true)) {
      plan.graph.connect(plan.graph.node(producers.back()).name, from.port, plan.graph.node(consumer).name, to.port);
    }
  }
  for (const GraphNode& node : std::vector<GraphNode>(plan.graph.nodes())) {
    if (node.stage + 1 >= node.stages) continue;
    plan.graph.connect(node.name, "stream", node.section + ".stage" + std::to_string(node.stage + 1), "stream");
  }
}

JobPlan App::resolve() {
  JobPlan plan;
  plan.options = options_;
  plan.prototype_ops = std::make_shared<cpu::CpuOperatorTable>();
  plan.name = document_.root().text("name", "job");
  plan.train = read_train(table("train"));
  plan.transport = transport();
  plan.schedule = read_schedule(table("schedule"));
  plan.unit_per_ms = read_emulation(table("emulation")).gflops * flops_per_ms_of_a_gflops;
  const DataConfig data = corpus_ ? DataConfig() : read_data(table("data"));
  plan.corpus = corpus_ ? corpus_ : open_corpus(data, static_cast<std::uint64_t>(plan.train.seed));
  plan.max_bad_samples = data.max_bad_samples;
  plan.largest = {SampleId(0), plan.corpus->max_length(), plan.corpus->max_patches(), 1};
  plan.validation_samples = static_cast<std::int64_t>(validation_size(*plan.corpus, plan.train.validation_samples));
  DataShape shape = shape_of(data, *plan.corpus, plan.largest);
  if (corpus_) shape.tokenizer.clear();  // [data] does not describe an app's own corpus
  const std::map<std::string, Passes> passes = resolve_passes();
  for (const SectionBuilder& builder : builders_) resolve_section(builder, shape, passes.at(builder.name_), plan);
  connect_all(plan);
  document_.finish();
  plan.graph.validate();
  check_trained(plan);
  check_frozen(plan, document_.root());
  check_batches(plan);
  check_in_flight(plan);
  raise_in_flight(plan);
  check_memory(plan);
  plan.cost = sample_cost(plan.graph, plan.prototypes);
  if (costs_) {
    plan.unit_per_ms = 1;
    plan.cost = [names = plan.graph.nodes(), costs = costs_](SectionId section, const SampleRef& sample) {
      return costs(names[section.value()].name, sample);
    };
  }
  check_emulated(plan);
  for (std::uint32_t index = 0; index < plan.prototypes.size(); ++index) {
    const PassCost cost = plan.cost(SectionId(index), plan.largest);
    plan.flops_per_token.push_back((cost.forward + cost.backward) / static_cast<double>(plan.largest.tokens));
  }
  PlacementRequest request;
  request.processes = options_.processes;
  request.hosts = options_.launch_info.place.hosts;
  request.cores =
      devices_of_host(options_.launch_info.place, std::ssize(usable_cores()), sysconf(_SC_NPROCESSORS_ONLN));
  if (options_.cpu_devices > 0) request.cores = options_.cpu_devices;
  request.cuda = cuda_devices(plan.sections);
  check_devices(plan, (request.cores + request.cuda.of_host) * (request.hosts.back() + 1));
  for (const PlannedSection& section : plan.sections) request.devices.push_back(section.config.devices);
  plan.places = place(plan.graph, request);
  check_cuda(plan);
  plan.effective_job = document_.to_toml();
  plan.settings = document_.settings();
  return plan;
}

TransportConfig App::transport() const {
  TransportConfig transport = read_transport(table("transport"));
  const bool chosen = table("transport").has("slots");
  if (options_.launch_info.several_hosts() && !chosen) transport.slots = slots_between_hosts;
  if (!options_.listen.empty()) transport.listen = options_.listen;
  if (!options_.keys.empty()) transport.keys = options_.keys.string();
  return transport;
}

std::unique_ptr<JobStart> App::job_start() const {
  if (options_.check_only || options_.processes == 1) return nullptr;
  return std::make_unique<JobStart>(JobStartOptions{options_.launch_info, transport(), options_.ssh, options_.command},
                                    *console_);
}

RunResult App::run() {
  const std::unique_ptr<JobStart> start = job_start();
  std::optional<JobPlan> plan;
  std::optional<ProcessRun> process;
  try {
    plan = resolve();
    process.emplace(*plan, *console_, start.get());
    process->prepare();
  } catch (const JobError& problem) {
    if (start) start->withdraw(problem.what());
    throw;
  }
  if (options_.check_only) {
    for (const std::string& note : plan->notes) console_->note("note: " + note);
    RunResult result;
    result.status = 0;
    return result;
  }
  return process->run();
}

}  // namespace maestro
