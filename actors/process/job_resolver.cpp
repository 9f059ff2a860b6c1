// SPDX-License-Identifier: Apache-2.0
#include "actors/process/job_resolver.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "actors/job/chosen_sections.hpp"
#include "actors/job/data_source.hpp"
#include "actors/job/learning_rates.hpp"
#include "actors/job/pass_memory.hpp"
#include "actors/job/plan_checks.hpp"
#include "actors/job/section_context.hpp"
#include "actors/process/sample_cost.hpp"
#include "actors/process/section_devices.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/device/backend.hpp"
#include "runtime/graph/replica_mix.hpp"
#include "runtime/job/job_reader.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/observe/max_rss.hpp"
#include "runtime/ops/cpu/cpu_operator_table.hpp"
#include "runtime/schedule/stage_cut.hpp"
#include "sections/corpus_section.hpp"
#include "sections/decoder/foreign_tokens.hpp"

namespace maestro {

namespace {

DataShape shape_of(const DataConfig& data, const Corpus& corpus, const SampleRef& largest) {
  DataShape shape;
  shape.sequence = largest.tokens;
  shape.vocabulary = corpus.vocabulary();
  shape.tokenizer = is_generated(data.kind) ? std::string(name_of(data.kind)) : data.tokenizer;
  shape.patch_columns = corpus.patch_columns();
  shape.marks = corpus.has_marks();
  shape.pictures = corpus.picture_grids();
  shape.sounds = corpus.sounds() != nullptr;
  return shape;
}

/// Returns the section's stages that have the port; all stages if none has it, so that connecting reports an error.
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

/// Calls methods of a section; turns its exceptions into a JobError with the section's name.
void at_section(const std::string& name, const std::function<void()>& work) {
  try {
    work();
  } catch (const JobError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& problem) {
    throw JobError("section '" + name + "' cannot be planned: " + printable(problem.what()));
  }
}

constexpr double flops_per_ms_of_a_gflops = 1e6;
constexpr double bytes_per_mb = 1e6;
/// Memory that actors, threads, transport and kernels use from the plan to the first step, measured with small jobs.
constexpr double bytes_of_start = 25e6;

}  // namespace

/// Builds the plan of a single app.
class JobResolver {
 public:
  explicit JobResolver(Composition& composed) : composed_(composed) {}
  [[nodiscard]] ResolvedJob resolve() &&;

 private:
  [[nodiscard]] JobTable table(std::string_view name) const { return composed_.document.root().table(name); }
  DataShape read_tables();
  /// Returns whether the job trains a section that can be trained.
  /// Gives a generator what it takes over from the section whose weights it takes.
  void follow(SectionConfig& generator, const JobTable& settings, const std::string& trained) const;
  [[nodiscard]] bool is_trained(const SectionBuilder& builder) const;
  [[nodiscard]] bool is_generator(const SectionBuilder& builder) const;
  /// Returns the section whose weights a generator takes; empty: no edge names it.
  [[nodiscard]] std::string weights_of(const std::string& generator) const;
  /// Returns epoch_positions(), before the sections are resolved.
  [[nodiscard]] std::uint64_t positions_of_epoch() const;
  /// Returns the generator, or one of several; empty: there is none.
  [[nodiscard]] std::string generator() const;
  void read_stages();
  /// Gives a section the settings of the stage.
  void apply_stage(SectionConfig& config, const JobTable& settings) const;
  /// Gives a section the devices of the section that its `devices` names.
  void take_devices(SectionConfig& config, const JobTable& settings) const;
  [[nodiscard]] std::optional<std::string> tokenizer_of_weights() const;
  /// Returns the description of the data for a section's reading.
  [[nodiscard]] DataShape shape_in(Reading reading, const DataShape& own) const;
  [[nodiscard]] std::vector<std::string> reading_notes() const;
  [[nodiscard]] std::map<std::string, Role> roles_by_section() const;
  void resolve_section(const SectionBuilder& builder, const DataShape& data, Role role);
  /// Leaves out a generator whose samples are read back.
  void read_back(const JobTable& generator, const std::string& name);
  [[nodiscard]] SectionContext meta_context(const PlannedSection& planned, const GraphNode& node) const;
  void add_node(PlannedSection planned, GraphNode node);
  /// Checks that the section's replicas of each context can be made, and that their ports fit one graph.
  void check_contexts(const PlannedSection& planned, const GraphNode& node) const;
  void add_stages(const PlannedSection& section, const GraphNode& node, bool in_flight_given);
  /// Calls `work`; its errors begin with the place of a top-level key, unless `key` is empty.
  void at_key(const std::string& key, const std::function<void()>& work) const;
  [[nodiscard]] bool has_port(const PortRef& of, bool input) const;
  /// Returns the output for the reading of the section with the input `to`.
  [[nodiscard]] PortRef output_of(const PortRef& from, const PortRef& to) const;
  void connect(const PortRef& from, const PortRef& to);
  void connect_all();
  void set_costs();

  Composition& composed_;
  ResolvedJob plan_;
};

bool JobResolver::is_generator(const SectionBuilder& builder) const {
  if (builder.role_ == Role::source || builder.factory_) return false;
  return read_type(table(builder.name_), builder.type_) == generator_type;
}

std::string JobResolver::weights_of(const std::string& generator) const {
  for (const ComposedEdge& edge : composed_.edges) {
    if (edge.to.section == generator && edge.to.port == weights_port) return edge.from.section;
  }
  return "";
}

void JobResolver::follow(SectionConfig& generator, const JobTable& settings, const std::string& trained) const {
  const SectionConfig sender = read_section(table(trained), trained);
  if (!settings.has("precision")) generator.precision = sender.precision;
  generator.lora = sender.lora;
  if (generator.lora.given() && !settings.has("weights")) {  // the adapters' base
    generator.weights = sender.weights;
    generator.random = sender.random;
  }
}

std::string JobResolver::generator() const {
  const auto found =
      std::ranges::find_if(composed_.builders, [this](const SectionBuilder& each) { return is_generator(each); });
  return found == composed_.builders.end() ? "" : found->name_;
}

bool JobResolver::is_trained(const SectionBuilder& builder) const {
  if (plan_.stage.given()) return plan_.stages.trains(composed_.stage, builder.name_);
  return table(builder.name_).flag("trained", builder.defaults_.trained);
}

std::map<std::string, Role> JobResolver::roles_by_section() const {
  std::map<std::string, Role> roles;
  for (const SectionBuilder& builder : composed_.builders) {
    if (is_generator(builder)) {
      roles[builder.name_] = Role::generator;
      continue;
    }
    const bool frozen = builder.role_ == Role::trained && !is_trained(builder);
    roles[builder.name_] = frozen ? Role::frozen : builder.role_;
  }
  // Gradients pass through a frozen section if a section before it is trained.
  for (std::size_t round = 0; round < composed_.builders.size(); ++round) {
    for (const auto& [from, to, key, if_present] : composed_.edges) {
      const auto producer = roles.find(from.section);
      const auto consumer =
          std::ranges::find(composed_.builders, to.section, [](const auto& builder) { return builder.name_; });
      if (producer == roles.end() || consumer == composed_.builders.end() || consumer->role_ != Role::trained) continue;
      const bool gradients = producer->second == Role::passing || producer->second == Role::trained;
      if (Role& role = roles[to.section]; gradients && role == Role::frozen) role = Role::passing;
    }
  }
  return roles;
}

void JobResolver::resolve_section(const SectionBuilder& builder, const DataShape& data, Role role) {
  PlannedSection planned;
  GraphNode node;
  node.name = builder.name_;
  node.role = role;
  node.sources = builder.sources_;
  node.reading = builder.hears_ ? Reading::sounds : CorpusSection::reading_of(*plan_.corpus, builder.reader_);
  if (role == Role::source) {
    planned.config.name = builder.name_;
    planned.factory = [corpus = plan_.corpus, made = generator().empty() ? nullptr : plan_.samples](
                          const SectionContext&) { return std::make_unique<CorpusSection>(corpus, made); };
    node.micro_batch = plan_.train.global_batch;
    node.max_in_flight = plan_.train.ahead;
    return add_node(std::move(planned), std::move(node));
  }
  const JobTable settings = table(builder.name_);
  const bool optimized = builder.role_ == Role::trained && role != Role::generator;
  const Training training = optimized ? Training::optimized : Training::none;
  planned.config = read_section(settings, builder.name_, builder.defaults_, training);
  if (!planned.config.devices_of.empty()) take_devices(planned.config, settings);
  if (plan_.stage.given()) apply_stage(planned.config, settings);
  planned.factory = builder.factory_;
  if (!planned.factory) {
    const std::string type = read_type(settings, builder.type_);
    const Corpus* const corpus = &CorpusSection::corpus_in(node.reading, *plan_.corpus);
    SectionTable described{builder.name_, settings, composed_.document.root(), shape_in(node.reading, data),
                           std::shared_ptr<const Corpus>(plan_.corpus, corpus)};
    if (role == Role::generator) described.weights_of = weights_of(builder.name_);
    described.generator = generator();
    if (!described.weights_of.empty()) follow(planned.config, settings, described.weights_of);
    planned.factory = composed_.registry.build(type, described);
  }
  if (role == Role::generator && !read_generator(settings).rollouts.empty()) return read_back(settings, builder.name_);
  node.replicas = planned.config.replicas;
  node.least = planned.config.least;
  node.layout = {planned.config.tensor, planned.config.context, planned.config.expert};
  node.contexts = planned.config.contexts;
  // Between the last stage's passes of a micro-batch, its device may run passes of its other stages.
  node.splits = node.runs_backward() && (builder.splits_ || planned.config.chunks > 1);
  node.gradient_wire = planned.config.gradient_wire;
  node.sends_bf16 = planned.config.sends_bf16;
  if (node.gradient_wire != GradientWire::f32 && (node.replicas == 1 || !node.trained())) {
    plan_.notes.push_back(
        node.name + ": gradient_wire has no effect: " + (node.trained() ? "it has one replica" : "it is not trained"));
  }
  if (node.mixed()) {
    plan_.notes.push_back(node.name + ": replicas = " + text_of_mix(node.contexts) + " on " +
                          std::to_string(planned.config.devices_of_all()) + " devices");
  }
  node.micro_batch = std::min(planned.config.micro_batch, std::max(plan_.train.global_batch, plan_.validation_samples));
  node.micro_batch_rows = planned.config.micro_batch_tokens;
  node.max_in_flight = planned.config.max_in_flight;
  if (planned.config.stages() == 1) return add_node(std::move(planned), std::move(node));
  add_stages(planned, node, settings.has("max_in_flight"));
}

void JobResolver::take_devices(SectionConfig& config, const JobTable& settings) const {
  const auto found = std::ranges::find(composed_.builders, config.devices_of, &SectionBuilder::name_);
  if (found == composed_.builders.end() || found->role_ == Role::source || found->name_ == config.name) {
    std::vector<std::string> names;
    for (const SectionBuilder& builder : composed_.builders) {
      if (builder.role_ != Role::source && builder.name_ != config.name) names.push_back(builder.name_);
    }
    refuse_devices_of(config, settings, names);
  }
  const Training training = found->role_ == Role::trained ? Training::optimized : Training::none;
  maestro::take_devices(config, settings, read_section(table(found->name_), found->name_, found->defaults_, training));
}

void JobResolver::read_back(const JobTable& generator, const std::string& name) {
  plan_.rollouts = RolloutPlan{read_generator(generator), name, std::nullopt, {}};
  plan_.notes.push_back(name + ": its samples are read from " + printable(plan_.rollouts->config.rollouts) +
                        ", and it makes none");
}

SectionContext JobResolver::meta_context(const PlannedSection& planned, const GraphNode& node) const {
  SectionContext context = planned_context(plan_, planned, node);
  context.meta = true;
  context.ops = plan_.meta_ops.get();
  context.for_cuda = std::ranges::any_of(planned.config.devices, &DeviceId::is_cuda);
  context.parallel.layout = node.layout;
  return context;
}

void JobResolver::add_node(PlannedSection planned, GraphNode node) {
  // The meta section serves ports, costs and checks; each process builds its replicas.
  const std::shared_ptr<Section> meta_section = planned.factory(meta_context(planned, node));
  check_recompute(planned.config, node, *meta_section);
  check_lora(planned.config, node, *meta_section);
  check_spread(planned.config, node, *meta_section);
  if (node.stages == 1) check_owns_experts(node, *meta_section);
  node.ports = meta_section->ports();
  for (auto* const ports : {&node.ports.inputs, &node.ports.outputs}) {
    for (Port& port : *ports) port.axis = axis_in(node.reading, port.axis);
  }
  check_contexts(planned, node);
  plan_.held.push_back(held_elements(*meta_section, node.trained() ? "" : planned.config.weights));
  plan_.below.push_back(held_below_adapters(*meta_section));
  const std::string type = vision_language_type(planned.config.weights);
  if (!type.empty() && node.stage == 0 && parse_hf_config(meta_section->config_json(), "config.json").ok()) {
    plan_.notes.push_back(node.section_name() + ": reads the language model in " + planned.config.weights + ", a " +
                          type + " model");
  }
  for (const std::string& note : meta_section->notes()) plan_.notes.push_back(node.section_name() + ": " + note);
  plan_.meta_sections.push_back(meta_section);
  plan_.graph.add(std::move(node));
  plan_.sections.push_back(std::move(planned));
}

void JobResolver::check_contexts(const PlannedSection& planned, const GraphNode& node) const {
  for (const std::int64_t context : std::set<std::int64_t>(node.contexts.begin(), node.contexts.end())) {
    GraphNode narrower = node;
    narrower.layout.context = context;
    const Ports ports = planned.factory(meta_context(planned, narrower))->ports();
    if (narrower.layout.ranks() == 1) continue;  // which has all rows
    const auto same = [](const Port& one, const Port& other) { return one.sharding == other.sharding; };
    if (std::ranges::equal(ports.inputs, node.ports.inputs, same) &&
        std::ranges::equal(ports.outputs, node.ports.outputs, same)) {
      continue;
    }
    throw JobError(node.section_name() + ".replicas: with context = " + std::to_string(context) +
                   " a replica's ranks hold other rows of its ports than with context = " +
                   std::to_string(node.layout.context) + "; use tensor = 1, or a context of 2 or more in each replica");
  }
}

void JobResolver::add_stages(const PlannedSection& section, const GraphNode& node, bool in_flight_given) {
  const SectionConfig& config = section.config;
  const std::unique_ptr<Section> whole = section.factory(meta_context(section, node));
  check_owns_experts(node, *whole);
  const LayerCosts costs = whole->layer_costs(shape_of(plan_.largest, node.reading));
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  if (config.stages() > std::max<std::int64_t>(layers, 1)) {
    const bool chunks = config.pipeline <= layers;  // which are too many
    const std::int64_t fits = chunks ? layers / config.pipeline : layers;
    const std::string key = chunks ? "chunks" : "pipeline";
    throw JobError(config.name + "." + key + " = " + std::to_string(chunks ? config.chunks : config.pipeline) + ": " +
                   (layers == 0 ? "this section cannot be cut into stages; leave pipeline at 1"
                                : "it has " + std::to_string(layers) + " layers; nearest that fits: " + key + " = " +
                                      std::to_string(fits)));
  }
  check_named_once(config);
  std::string cut;
  std::int64_t first = 0;
  const std::vector<std::int64_t> sizes = cut_stages(costs.layers, costs.before, costs.after, config.stages());
  for (std::int64_t stage = 0; stage < config.stages(); ++stage) {
    PlannedSection planned = section;
    planned.stage = {stage, config.stages(), first, sizes[static_cast<std::size_t>(stage)]};
    planned.config.devices = devices_of_stage(config, stage);
    planned.config.processes = processes_of_stage(config, stage);
    GraphNode part = node;
    part.name = node.name + ".stage" + std::to_string(stage);
    part.section = node.name;
    part.stage = stage;
    part.stages = config.stages();
    // 1F1B: a stage continues while its first micro-batch passes through the later stages.
    if (!in_flight_given) part.max_in_flight = std::max(part.max_in_flight, config.stages() - stage);
    first += planned.stage.layers;
    cut += (cut.empty() ? "" : ", ") + std::to_string(planned.stage.layers);
    add_node(std::move(planned), std::move(part));
  }
  plan_.notes.push_back(config.name + ": stages of " + cut + " layers");
}

void JobResolver::at_key(const std::string& key, const std::function<void()>& work) const {
  try {
    work();
  } catch (const JobError& problem) {
    if (key.empty()) throw;
    composed_.document.root().fail(key, problem.what());
  }
}

bool JobResolver::has_port(const PortRef& of, bool input) const {
  const Ports& ports = plan_.graph.node(stages_with_port(plan_.graph, of.section, of.port, input).front()).ports;
  return std::ranges::count(input ? ports.inputs : ports.outputs, of.port, &Port::name) > 0;
}

PortRef JobResolver::output_of(const PortRef& from, const PortRef& to) const {
  const SectionId producer = stages_with_port(plan_.graph, from.section, from.port, false).front();
  if (plan_.graph.node(producer).role != Role::source) return from;
  const SectionId consumer = stages_with_port(plan_.graph, to.section, to.port, true).front();
  return {from.section, CorpusSection::port_for(from.port, plan_.graph.node(consumer).reading)};
}

void JobResolver::connect(const PortRef& from, const PortRef& to) {
  if (plan_.rollouts && to.section == plan_.rollouts->name) return;  // read back
  const std::optional<SectionId> generator = plan_.graph.find(to.section);
  if (generator && plan_.graph.node(*generator).generates()) {
    if (from.port != weights_port || to.port != weights_port) {
      throw JobError("a generator takes weights alone: write " + from.section + ".weights -> " + to.section +
                     ".weights; its prompts are the corpus'");
    }
    for (const SectionId stage : stages_with_port(plan_.graph, from.section, from.port, false)) {
      plan_.graph.connect_weights(stage, *generator);
    }
    return;
  }
  // Stages share a section's ports; a port of several stages (tokens) is connected to all of them.
  const std::vector<SectionId> producers = stages_with_port(plan_.graph, from.section, from.port, false);
  for (const SectionId consumer : stages_with_port(plan_.graph, to.section, to.port, true)) {
    plan_.graph.connect(plan_.graph.node(producers.back()).name, from.port, plan_.graph.node(consumer).name, to.port);
  }
}

void JobResolver::connect_all() {
  for (const ComposedEdge& edge : composed_.edges) {
    at_key(edge.key, [&] {
      const PortRef from = output_of(edge.from, edge.to);
      if (!edge.if_present || (has_port(from, false) && has_port(edge.to, true))) connect(from, edge.to);
    });
  }
  for (const GraphNode& node : std::vector<GraphNode>(plan_.graph.nodes())) {
    if (node.stage + 1 >= node.stages) continue;
    plan_.graph.connect(node.name, "stream", node.section + ".stage" + std::to_string(node.stage + 1), "stream");
  }
}

ResolvedJob JobResolver::resolve() && {
  const DataShape shape = read_tables();
  const std::map<std::string, Role> roles = roles_by_section();
  for (const SectionBuilder& builder : composed_.builders) {
    at_section(builder.name_, [&] { resolve_section(builder, shape, roles.at(builder.name_)); });
  }
  connect_all();
  choose_sections(plan_.graph, plan_.corpus->teachers(), composed_.document.root());
  composed_.document.finish();
  at_key(composed_.edges.empty() ? "" : composed_.edges.front().key, [&] { plan_.graph.validate(); });
  check_visual(plan_);
  check_trained(plan_);
  check_predictions(plan_, composed_.document.root());
  check_frozen(plan_, composed_.document.root());
  follow_devices(plan_, composed_.document.root());
  fit_defaults(plan_, composed_.document.root());
  follow_devices(plan_, composed_.document.root());  // defaults may have changed the other section's replicas
  check_batches(plan_);
  check_in_flight(plan_);
  raise_in_flight(plan_);
  set_costs();
  check_emulated(plan_);
  place_sections(plan_, composed_.options);
  check_cuda(plan_);
  plan_rollouts(plan_, composed_.document.root());
  plan_.program_bytes = rss_mb() * bytes_per_mb + bytes_of_start;
  const auto limited = [](const PlannedSection& section) { return section.config.memory_mib > 0; };
  if (std::ranges::any_of(plan_.sections, limited)) add_pass_bytes(plan_);
  add_slack(plan_, composed_.document.root());
  check_memory(plan_);
  check_placements(plan_);
  check_shadows(plan_);
  check_guard(plan_);
  check_pause(plan_);
  std::ranges::move(schedule_notes(plan_), std::back_inserter(plan_.notes));
  plan_.effective_job = composed_.document.to_toml();
  plan_.settings = composed_.document.settings();
  return std::move(plan_);
}

/// Returns the tokenizer's folder from the weights of the first section that reads tokens and has one; check_tokens()
/// compares the other sections' tokenizers with it.
std::optional<std::string> JobResolver::tokenizer_of_weights() const {
  for (const auto& [from, to, key, if_present] : composed_.edges) {
    if (from.port != "tokens") continue;
    if (auto folder = tokenizer_folder(table(to.section))) return folder;
  }
  return std::nullopt;
}

DataShape JobResolver::shape_in(Reading reading, const DataShape& own) const {
  if (reading == Reading::own) return own;
  const Corpus& other = CorpusSection::corpus_in(reading, *plan_.corpus);
  DataShape shape = own;
  shape.sequence = other.max_length();
  shape.vocabulary = other.vocabulary();
  shape.tokenizer = other.own_tokenizer();
  shape.patch_columns = other.patch_columns();
  shape.marks = other.has_marks();
  shape.pictures = other.picture_grids();
  return shape;
}

std::vector<std::string> JobResolver::reading_notes() const {
  std::map<std::string, std::string> notes;  // by reader
  for (const SectionBuilder& builder : composed_.builders) {
    if (builder.folder_.empty() || plan_.corpus->patch_columns() == 0) continue;
    const Reading reading = CorpusSection::reading_of(*plan_.corpus, builder.reader_);
    notes[builder.reader_] = builder.reader_ + ": reads " +
                             (reading == Reading::tokens ? "its own tokens for images, and images by "
                                                         : "the data's tokens, and images by ") +
                             (reading == Reading::own ? "the data's image processor"
                                                      : "the image processor of " + printable(builder.folder_));
  }
  std::vector<std::string> lines;
  for (auto& [reader, line] : notes) lines.push_back(std::move(line));
  return lines;
}

DataShape JobResolver::read_tables() {
  plan_.options = composed_.options;
  plan_.notes = composed_.options.notes;
  plan_.meta_ops = std::make_shared<cpu::CpuOperatorTable>();
  plan_.name = read_name(composed_.document.root());
  plan_.train = read_train(table("train"));
  plan_.transport = resolve_transport(composed_);
  plan_.schedule = read_schedule(table("schedule"), policy_names());
  plan_.observers = composed_.observers.read(composed_.document.root());
  std::ranges::copy(composed_.own_observers, std::back_inserter(plan_.observers));
  plan_.guard = read_guard(table("guard"));
  plan_.planned = read_plan(table("plan"));
  plan_.emulation = read_emulation(table("emulation"));
  plan_.unit_per_ms = plan_.emulation.gflops * flops_per_ms_of_a_gflops;
  if (!composed_.corpus) {
    composed_.corpus = composed_.corpora.open(table("data"), static_cast<std::uint64_t>(plan_.train.seed));
  }
  DataConfig data = composed_.corpus ? DataConfig() : read_data(table("data"));
  if (data.tokenizer.empty()) data.tokenizer = tokenizer_of_weights().value_or("bytes");
  data.work_folder = plan_.train.out + "/data";
  for (const SectionBuilder& builder : composed_.builders) {
    if (!builder.folder_.empty()) data.readers.emplace(builder.reader_, builder.folder_);
  }
  const auto note = [&](const std::string& line) { plan_.notes.push_back(line); };
  plan_.corpus = composed_.corpus ? composed_.corpus : composed_.opened;
  if (!plan_.corpus) plan_.corpus = open_corpus(data, static_cast<std::uint64_t>(plan_.train.seed), note);
  check_sources(*plan_.corpus, table("data").table("mix"));
  const auto hearing = std::ranges::find_if(composed_.builders, &SectionBuilder::hears_);
  check_sounds(*plan_.corpus, hearing == composed_.builders.end() ? "" : hearing->name_, table("data"));
  std::ranges::copy(reading_notes(), std::back_inserter(plan_.notes));
  if (data.kind == DataKind::prepared) data.tokenizer = plan_.corpus->own_tokenizer();
  read_stages();
  if (plan_.train.epochs > 0) plan_.train.steps = steps_of_epochs(plan_.train, positions_of_epoch());
  plan_.max_bad_samples = data.max_bad_samples;
  plan_.largest = {SampleId(0), plan_.corpus->max_length(), plan_.corpus->max_patches(), plan_.corpus->max_visual(), 1};
  if (const Corpus* const other = plan_.corpus->other()) {
    plan_.largest.other_patches = other->max_patches();
    plan_.largest.other_visual = other->max_visual();
    plan_.largest.other_images = 1;
    if (other->rewrites_tokens()) {
      plan_.largest.answers = plan_.largest.tokens;
      plan_.largest.other_tokens = other->max_length();
    }
  }
  if (const Corpus* const sounds = plan_.corpus->sounds()) {
    plan_.largest.frames = sounds->max_patches();
    plan_.largest.heard = sounds->max_visual();
    plan_.largest.clips = 1;
  }
  plan_.validation_samples = static_cast<std::int64_t>(validation_size(*plan_.corpus, plan_.train.validation_samples));
  if (!composed_.corpus && !is_generated(data.kind)) plan_.tokenizer = data.tokenizer;
  DataShape shape = shape_of(data, *plan_.corpus, plan_.largest);
  if (composed_.corpus) shape.tokenizer.clear();  // [data] does not describe a corpus that the app provides
  return shape;
}

std::uint64_t JobResolver::positions_of_epoch() const {
  const std::uint64_t samples = plan_.corpus->samples(Split::train);
  const std::string name = generator();
  return name.empty() ? samples : samples * static_cast<std::uint64_t>(read_generator(table(name)).samples_per_prompt);
}

void JobResolver::read_stages() {
  plan_.stages = TrainingStages::read(composed_.document.root());
  if (!plan_.stages.given()) return;
  std::vector<std::string> trainable, frozen;
  for (const SectionBuilder& builder : composed_.builders) {
    if (builder.role_ != Role::source) (builder.role_ == Role::trained ? trainable : frozen).push_back(builder.name_);
  }
  plan_.stages.check(trainable, frozen);
  const JobTable train = table("train");
  TrainConfig& config = plan_.train;
  if (config.epochs > 0) train.fail("epochs", "does not apply to a job with [[stages]]; they have steps");
  if (config.schedule_steps > 0) {
    train.fail("schedule_steps", "does not apply to a job with [[stages]]: a learning rate decays over a stage");
  }
  if (train.has("steps") && config.steps != plan_.stages.steps()) {
    train.fail("steps", "is " + std::to_string(config.steps) + ", but the [[stages]] have " +
                            std::to_string(plan_.stages.steps()) + " steps; set it to their sum, or leave it out");
  }
  plan_.stage = plan_.stages.span(composed_.stage);
  config.steps = plan_.stage.end;
  for (std::size_t stage = 0; stage < plan_.stages.count(); ++stage) plan_.notes.push_back(plan_.stages.line(stage));
  if (plan_.stage.last()) return;
  config.checkpoint_at_end = true;  // the next stage begins from it
  config.export_dtype = ExportChoice::none;
}

void JobResolver::apply_stage(SectionConfig& config, const JobTable& settings) const {
  config.optimizer.lr = plan_.stages.lr(composed_.stage, config.name).value_or(config.optimizer.lr);
  if (config.emulated()) settings.fail("devices", "are emulated: they keep no state, which [[stages]] hand over");
  if (config.elastic || config.least > 0) {
    settings.fail("replicas", "that are elastic or join later do not apply to a job with [[stages]]");
  }
}

void JobResolver::set_costs() {
  plan_.cost = sample_cost(plan_.graph, plan_.meta_sections);
  if (composed_.costs) {
    plan_.unit_per_ms = 1;
    plan_.cost = [names = plan_.graph.nodes(), costs = composed_.costs](SectionId section, const SampleRef& sample) {
      return costs(names[section.value()].name, sample);
    };
  }
  for (std::uint32_t index = 0; index < plan_.meta_sections.size(); ++index) {
    PassCost cost;
    at_section(plan_.graph.node(SectionId(index)).section_name(),
               [&] { cost = plan_.cost(SectionId(index), plan_.largest); });
    plan_.flops_per_token.push_back((cost.forward + cost.backward) / static_cast<double>(plan_.largest.tokens));
  }
}

ResolvedJob resolve_job(Composition& composed) {
  return JobResolver(composed).resolve();
}

}  // namespace maestro
