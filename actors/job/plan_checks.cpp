// SPDX-License-Identifier: Apache-2.0
#include "actors/job/plan_checks.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

#include "actors/job/memory_table.hpp"
#include "actors/job/placements.hpp"
#include "actors/job/planning_options.hpp"
#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/data/sampler.hpp"
#include "runtime/graph/replica_mix.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/schedule/flow_bounds.hpp"
#include "runtime/schedule/micro_batch_cut.hpp"
#include "sections/parallel_fit.hpp"

namespace maestro {

void check_sources(const Corpus& corpus, const JobTable& mix) {
  const std::vector<SampleSource> sources = corpus.sources();
  const std::vector<SourceTeachers> names = corpus.teachers();
  if (names.empty()) return;
  const std::vector<std::uint64_t> shares = shares_of(sources);
  for (std::size_t at = 0; at < sources.size(); ++at) {
    const JobTable table = mix.table(names[at].source);
    if (sources[at].samples == 0) table.fail("path", "this source contains no training samples");
    if (shares[at] > 0) continue;
    double least = 0;  // for 1 of 1,024 samples, plus a tenth
    for (const SampleSource& source : sources) least += &source == &sources[at] ? 0 : source.weight / 1023 * 1.1;
    char text[32];
    std::snprintf(text, sizeof text, "%.2g", least);
    table.fail("weight", number_text(sources[at].weight) +
                             " gives this source none of 1,024 samples with the other weights; use at least " + text);
  }
}

namespace {

/// Returns whether a section reads samples with images.
bool reads_images(const Corpus& corpus, const GraphNode& node) {
  if (node.sources.all()) return corpus.max_visual() > 0;
  for (const Split split : {Split::train, Split::validation}) {
    for (std::uint64_t sample = 0; sample < corpus.samples(split); ++sample) {
      const SampleId id(sample);
      if (node.sources.has(corpus.source(split, id)) && corpus.pictures(split, id).visual > 0) return true;
    }
  }
  return false;
}

/// Returns a section's micro-batches per step, if it counts samples.
std::int64_t batches_of(const ResolvedJob& plan, const GraphNode& node) {
  return (plan.train.global_batch + node.micro_batch - 1) / node.micro_batch;
}

/// Returns whether each replica needs a micro-batch of every step, and some would not have one.
bool lacks_batches(const ResolvedJob& plan, const GraphNode& node) {
  return node.trained() && !node.follows_consumer() && batches_of(plan, node) < node.replicas;
}

}  // namespace

void fit_defaults(ResolvedJob& plan, const JobTable& root) {
  for (std::uint32_t index = 0; index < plan.sections.size(); ++index) {
    const SectionId section(index);
    const GraphNode& node = plan.graph.node(section);
    if (!lacks_batches(plan, node)) continue;
    SectionConfig& config = plan.sections[index].config;
    const JobTable table = root.table(node.section_name());
    const auto given = [&](const char* key) { return table.has(key); };
    std::string fitted;
    if (!given("micro_batch")) {
      config.micro_batch = std::max<std::int64_t>(1, plan.train.global_batch / node.replicas);
      plan.graph.set_batches(section, config.micro_batch, node.replicas);
      fitted = "micro_batch = " + std::to_string(config.micro_batch);
    }
    const bool counted = given("replicas") || given("devices") || given("processes") || given("speed");
    if (lacks_batches(plan, node) && !counted) {
      config.replicas = batches_of(plan, node);
      plan.graph.set_batches(section, node.micro_batch, config.replicas);
      fitted += (fitted.empty() ? "" : ", ") + std::string("replicas = ") + std::to_string(config.replicas);
    }
    if (fitted.empty() || node.stage > 0) continue;
    plan.notes.push_back(node.section_name() + ": " + fitted + " by default, as train.global_batch = " +
                         std::to_string(plan.train.global_batch) + " allows no more");
  }
}

void follow_devices(ResolvedJob& plan, const JobTable& root) {
  for (std::uint32_t index = 0; index < plan.sections.size(); ++index) {
    SectionConfig& config = plan.sections[index].config;
    if (config.devices_of.empty()) continue;
    const SectionId first = plan.graph.stages_of(config.devices_of).front();
    const GraphNode& other = plan.graph.node(first);
    const std::int64_t pipeline = plan.sections[first.value()].config.pipeline;
    const std::int64_t devices = pipeline * other.ranks_before(other.replicas);
    const std::int64_t replicas = devices / config.devices_of_replica();
    const std::string of_other =
        "\"" + config.devices_of + "\" has " + std::to_string(devices) + (devices == 1 ? " device" : " devices");
    const JobTable table = root.table(config.name);
    if (!config.contexts.empty()) {
      if (config.devices_of_all() == devices) continue;
      table.fail_among({"replicas", "devices"},
                       of_other + ", and replicas = " + text_of_mix(config.contexts) + " takes " +
                           std::to_string(config.devices_of_all()) + "; nearest that fits: replicas = " +
                           text_of_mix(nearest_mix(config.contexts, config.tensor * config.pipeline, devices)));
    }
    if (replicas * config.devices_of_replica() != devices) {
      table.fail_among({"devices", "tensor", "context", "pipeline"},
                       of_other + ", and a replica of " + config.name + " takes " +
                           std::to_string(config.devices_of_replica()) + "; use a number that divides them");
    }
    if (config.least > 0 || (table.has("replicas") && config.replicas != replicas)) {
      table.fail_among({"replicas", "devices"}, of_other + ", for " + std::to_string(replicas) + " replicas of " +
                                                    config.name + "; leave replicas out");
    }
    config.replicas = replicas;
    plan.graph.set_batches(SectionId(index), plan.graph.node(SectionId(index)).micro_batch, replicas);
  }
}

void check_batches(const ResolvedJob& plan) {
  for (const GraphNode& node : plan.graph.nodes()) {
    if (!lacks_batches(plan, node)) continue;
    const std::int64_t samples = plan.train.global_batch;
    const std::int64_t batches = batches_of(plan, node);
    const std::string& name = node.section_name();
    const std::string way_out = samples >= node.replicas
                                    ? name + ".micro_batch = " + std::to_string(samples / node.replicas)
                                    : name + ".replicas = " + std::to_string(batches) + ", or train.global_batch = " +
                                          std::to_string((node.replicas - 1) * node.micro_batch + 1) + " or more";
    throw JobError(name + ": train.global_batch = " + std::to_string(samples) + " makes " + std::to_string(batches) +
                   (batches == 1 ? " micro-batch of " : " micro-batches of ") +
                   std::to_string(std::min(node.micro_batch, samples)) + ", too few for " +
                   std::to_string(node.replicas) + " replicas; use " + way_out);
  }
}

void check_in_flight(const ResolvedJob& plan) {
  const std::vector<std::int64_t> bounds = in_flight_bounds(plan.graph, plan.train.global_batch);
  for (std::size_t index = 0; index < bounds.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.max_in_flight >= bounds[index] || !node.runs_backward()) continue;
    const std::string needed = std::to_string(bounds[index]);
    throw JobError(node.section_name() + ".max_in_flight = " + std::to_string(node.max_in_flight) +
                   ": a downstream section uses samples from " + needed + " micro-batches of " +
                   std::to_string(node.micro_batch) + " at once; use " +
                   (bounds[index] > most_slots ? "" : node.section_name() + ".max_in_flight = " + needed + ", or ") +
                   "a larger " + node.section_name() + ".micro_batch");
  }
}

void raise_in_flight(ResolvedJob& plan) {
  for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
    const SectionId section(index);
    const GraphNode& node = plan.graph.node(section);
    if (!plan.graph.splits_passes(section)) continue;
    const std::int64_t needed = most_needed_at_once(plan.graph, section, plan.largest);
    if (node.max_in_flight >= needed) continue;
    if (needed > most_slots) {
      throw JobError(node.section_name() + ": a downstream micro-batch may need " + std::to_string(needed) +
                     " micro-batches of this section at once, and at most " + std::to_string(most_slots) +
                     " can be in flight; use a larger " + node.section_name() +
                     ".micro_batch_tokens, or fewer samples in a downstream micro-batch");
    }
    plan.notes.push_back(node.name + ": max_in_flight = " + std::to_string(node.max_in_flight) + " raised to " +
                         std::to_string(needed) + ", since a downstream micro-batch may need as many");
    plan.graph.set_max_in_flight(section, needed);
  }
}

void check_devices(const ResolvedJob& plan, std::int64_t devices) {
  for (const PlannedSection& planned : plan.sections) {
    const SectionConfig& config = planned.config;
    if (config.pipeline == 1 || planned.stage.index > 0 || config.emulated()) continue;
    const Degrees wanted{config.placed(), config.pipeline, {config.tensor, config.context}};
    if (config.devices_of_all() <= devices) continue;
    if (!config.contexts.empty()) {
      throw JobError(config.name + ".replicas = " + text_of_mix(config.contexts) +
                         " with tensor x pipeline = " + std::to_string(config.tensor * config.pipeline) + " needs " +
                         std::to_string(config.devices_of_all()) + " devices, and there are " +
                         std::to_string(devices) + "; nearest that fits: replicas = " +
                         text_of_mix(nearest_mix(config.contexts, config.tensor * config.pipeline, devices)) +
                         "; or create more CPU devices with --cpu-devices " + std::to_string(config.devices_of_all()),
                     ErrorCode::unavailable);
    }
    throw JobError(config.name + ": " + text_of(wanted) + " needs " + std::to_string(wanted.devices()) +
                       " devices, and there are " + std::to_string(devices) +
                       "; nearest that fits: " + text_of(nearest_fit(wanted, devices)) +
                       "; or create more CPU devices with --cpu-devices " + std::to_string(wanted.devices()),
                   ErrorCode::unavailable);
  }
}

namespace {

/// Throws JobError if the ranks on a device need more than the smallest `memory_mib` of their sections.
void check_shared_memory(const ResolvedJob& plan, const DeviceId& device, const std::vector<const RankMemory*>& ranks) {
  constexpr double mib = 1024.0 * 1024.0;
  const SectionConfig* least = nullptr;
  double sum = 0;
  std::string parts;
  for (const RankMemory* rank : ranks) {
    const SectionConfig& config = plan.sections[rank->section.value()].config;
    if (config.memory_mib > 0 && (least == nullptr || config.memory_mib < least->memory_mib)) least = &config;
    const double bytes = rank->demand.on_cuda ? rank->use.on_device() : rank->use.sum();
    sum += bytes;
    parts += (parts.empty() ? "" : ", ") + plan.graph.node(rank->section).name + " replica " +
             std::to_string(rank->replica.value()) + " " + in_mib(bytes);
  }
  if (least == nullptr || sum <= static_cast<double>(least->memory_mib) * mib) return;
  throw JobError(least->name + ".memory_mib = " + std::to_string(least->memory_mib) + ": the sections on " +
                 text_of(device) + " need about " + in_mib(sum) + " together (" + parts +
                 "); give them separate devices, lower a micro_batch, or raise memory_mib");
}

}  // namespace

void check_memory(const ResolvedJob& plan) {
  const MemoryEstimate estimate = estimate_memory(plan);
  std::map<MemoryEstimate::DeviceOfHost, std::vector<const RankMemory*>> by_device;
  for (const RankMemory& rank : estimate.ranks) {
    const std::int64_t memory_mib = plan.sections[rank.section.value()].config.memory_mib;
    check_memory(plan.graph.node(rank.section).section_name(), rank.demand, memory_mib);
    const ReplicaPlacement& place = *find_place(plan.places, rank.section, rank.replica);
    by_device[{place.host, place.devices.at(rank.rank.value())}].push_back(&rank);
  }
  for (const auto& [at, ranks] : by_device) {
    if (ranks.size() > 1) check_shared_memory(plan, at.second, ranks);
  }
}

namespace {

bool fits_memory(const ResolvedJob& plan) {
  try {
    check_memory(plan);
    return true;
  } catch (const JobError&) {
    return false;
  }
}

/// Returns whether check_memory() knows enough to allow slack: the section is on cores, or on GPUs with `memory_mib`.
bool may_keep_more(const ResolvedJob& plan, SectionId section) {
  const std::int64_t memory_mib = plan.sections[section.value()].config.memory_mib;
  return std::ranges::all_of(plan.places, [&](const ReplicaPlacement& place) {
    const auto fits = [&](const DeviceId& device) {
      return device.kind == DeviceId::Kind::cpu || (device.is_cuda() && memory_mib > 0);
    };
    return place.section != section || std::ranges::all_of(place.devices, fits);
  });
}

}  // namespace

void add_slack(ResolvedJob& plan, const JobTable& root) {
  for (std::uint32_t index = 0; index < plan.sections.size(); ++index) {
    const SectionId first(index);
    const GraphNode& node = plan.graph.node(first);
    if (node.stages == 1 || node.stage > 0 || !node.runs_backward()) continue;
    const std::vector<SectionId> stages = plan.graph.stages_of(node.section);
    const auto may = [&](SectionId stage) { return may_keep_more(plan, stage); };
    if (root.table(node.section).has("max_in_flight") || !std::ranges::all_of(stages, may)) continue;
    const SectionGraph before = plan.graph;
    for (const SectionId stage : stages) {
      const std::int64_t kept = 2 * node.stages - plan.graph.node(stage).stage;
      plan.graph.set_max_in_flight(stage, std::clamp(kept, plan.graph.node(stage).max_in_flight, most_slots));
    }
    if (fits_memory(plan)) continue;
    plan.graph = before;
    plan.notes.push_back(node.section + ": its stages keep at most " + std::to_string(node.stages) +
                         " micro-batches in flight; memory_mib is too small for twice as many");
  }
}

void check_emulated(ResolvedJob& plan) {
  for (const PlannedSection& section : plan.sections) {
    if (!section.config.emulated()) continue;
    for (const auto& [key, every] : {std::pair("checkpoint_every", plan.train.checkpoint_every),
                                     std::pair("archive_every", plan.train.archive_every)}) {
      if (every == 0) continue;
      throw JobError(section.config.name + ".devices: an emulated section keeps no state for train." + key + " = " +
                     std::to_string(every) + "; leave it at 0");
    }
    if (!plan.options.resume.empty()) {
      throw JobError(section.config.name + ".devices: an emulated section keeps no state to resume from");
    }
    plan.train.checkpoint_at_end = false;
    if (section.stage.index == 0) plan.notes.push_back(section.config.name + ": emulated, its passes are timed waits");
  }
}

namespace {

/// Checks that the shares of a device add up to at most 1. Sections without a share use the idle time and do not count.
void check_shares(const ResolvedJob& plan) {
  constexpr double rounding = 1e-9;  // for instance in a sum of ten tenths
  std::map<DeviceId, std::vector<const SectionConfig*>> sharers;
  for (const PlannedSection& section : plan.sections) {
    const SectionConfig& config = section.config;
    const std::set<DeviceId> devices(config.devices.begin(), config.devices.end());  // replicas share one part
    for (const DeviceId& device : devices) {
      if (config.share < 1) sharers[device].push_back(&config);
    }
  }
  for (const auto& [device, sections] : sharers) {
    double sum = 0;
    std::string keys;
    for (const SectionConfig* section : sections) {
      sum += section->share;
      keys += (keys.empty() ? "" : " + ") + section->name + ".share";
    }
    if (sum <= 1 + rounding) continue;
    throw JobError(keys + " = " + number_text(sum) + " of " + text_of(device) +
                   ": shares of a device add up to at most 1");
  }
}

/// Checks that a replica's ranks are all on cores or all on GPUs: a group uses host memory or GPU memory.
void check_one_kind(const SectionConfig& config, const ReplicaPlacement& place) {
  const auto other = std::ranges::find_if(
      place.devices, [&](const DeviceId& device) { return device.is_cuda() != place.devices.front().is_cuda(); });
  if (other == place.devices.end()) return;
  throw JobError(config.name + ".devices: the ranks of replica " + std::to_string(place.replica.value()) + " are on " +
                 text_of(place.devices.front()) + " and " + text_of(*other) +
                 "; name cores for all ranks of a replica, or GPUs for all of them");
}

}  // namespace

void check_cuda(const ResolvedJob& plan) {
  for (const PlannedSection& section : plan.sections) {
    const SectionConfig& config = section.config;
    if (config.share == 1 || std::ranges::any_of(config.devices, &DeviceId::is_cuda)) continue;
    throw JobError(config.name +
                   ".share divides a CUDA device's multiprocessors, and the section is not on one; leave it out");
  }
  for (const ReplicaPlacement& place : plan.places) check_one_kind(plan.sections[place.section.value()].config, place);
  check_shares(plan);
}

void check_shadows(ResolvedJob& plan) {
  if (plan.train.shadow_every == 0) return;
  const std::string key = "train.shadow_every = " + std::to_string(plan.train.shadow_every) + ": ";
  const LaunchInfo& run = plan.options.launch_info;
  if (plan.train.recover == RecoverChoice::off) {
    throw JobError(key +
                   "a run continues from a checkpoint in memory only with train.recover = \"restart\"; leave it at 0");
  }
  if (run.several_hosts()) {
    throw JobError(key + "hosts cannot read each other's memory; use train.checkpoint_every");
  }
  if (has_emulated(plan)) throw JobError(key + "emulated sections keep no state; leave it at 0");
  if (run.starts_others() || run.place.launcher == JobLauncher::maestro || plan.options.check_only) return;
  plan.notes.push_back(key + "no effect, as rank 0 starts no other processes here");
  plan.train.shadow_every = 0;
}

void check_guard(const ResolvedJob& plan) {
  if (plan.guard.action == GuardAction::note) return;
  if (plan.guard.action == GuardAction::skip) {
    if (has_emulated(plan))
      throw JobError("guard.action = \"skip\": emulated sections compute no gradients; use \"note\"");
    return;
  }
  const std::string key = "guard.action = \"rollback\": ";
  const TrainConfig& train = plan.train;
  if (has_emulated(plan)) throw JobError(key + "emulated sections keep no state to go back to; use \"note\"");
  const bool archives = train.archive_every > 0 && train.archive == ArchiveChoice::full;
  if (train.checkpoint_every == 0 && !archives) {
    throw JobError(key + "there would be no checkpoint to go back to; set train.checkpoint_every, or " +
                   "train.archive_every with train.archive = \"full\"");
  }
  const LaunchInfo& run = plan.options.launch_info;
  if (run.place.processes == 1 || plan.options.check_only) return;
  if (!run.starts_others() && run.place.launcher != JobLauncher::maestro) {
    throw JobError(key + "rank 0 starts no other processes here, so it cannot start them again; use \"note\", or " +
                   "start the run with --processes or --hosts");
  }
  if (train.recover == RecoverChoice::off) {
    throw JobError(key + "the processes of a run are started again only with train.recover = \"restart\"");
  }
}

void check_predictions(const ResolvedJob& plan, const JobTable& root) {
  std::vector<std::string> sections;
  for (const GraphNode& node : plan.graph.nodes()) {
    const bool listed = !sections.empty() && sections.back() == node.section_name();
    if (node.plays_in_steps() && !listed) sections.push_back(node.section_name());
  }
  const auto check = [&](const std::string& key, const std::string& name) {
    if (std::ranges::find(sections, name) != sections.end()) return;
    const auto nearest = nearest_name(name, sections);
    root.table("plan").fail(
        key, "there is no section '" + printable(name) + "'" + (nearest ? "; did you mean '" + *nearest + "'?" : ""));
  };
  for (const std::string& name : plan.planned.keep) check("keep", name);
  for (const auto& [name, ms] : plan.planned.predicted_passes_ms) check("predicted_passes_ms", name);
}

void check_placements(const ResolvedJob& plan) {
  const std::vector<bool> repeatable = plan.graph.repeatable();
  for (std::size_t index = 0; index < plan.sections.size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    if (node.least == 0) continue;
    std::string problem = why_placements_stay(plan.graph, plan.places);
    if (!repeatable[index]) {
      problem = "section '" + node.section_name() + "' " +
                (node.trained() ? "is trained" : "gets inputs or gradients from a trained section");
    } else if (scheduling_policy(plan)->synchronous()) {
      problem = "schedule.policy = \"" + plan.schedule.policy + "\" fixes the placement of a step";
    }
    if (problem.empty()) continue;
    throw JobError(node.section_name() + ".replicas: replicas with least and most move between processes, but " +
                   problem + "; give a number, for example " + node.section_name() +
                   ".replicas = " + std::to_string(node.replicas));
  }
}

void check_sounds(const Corpus& corpus, const std::string& hearing, const JobTable& data) {
  if (hearing.empty() == (corpus.sounds() == nullptr)) return;
  if (!hearing.empty()) {
    data.fail("processor", "names no model for images and sounds, so section " + hearing +
                               " lacks sounds; name the model, or prepare the data with it");
  }
  data.fail("processor",
            std::string("names a model for images and sounds, which only app = \"omni\" trains; use it, ") +
                "or a model for one of the two");
}

void check_visual(const ResolvedJob& plan) {
  if (plan.corpus->max_visual() == 0) return;
  for (std::uint32_t index = 0; index < plan.graph.nodes().size(); ++index) {
    const GraphNode& node = plan.graph.nodes()[index];
    for (const Port& port : node.ports.inputs) {
      const bool of_images = port.name == "visual" || port.name.starts_with("visual_");
      if (!of_images || !counts_visual(port.axis)) continue;
      const bool connected = std::ranges::any_of(plan.graph.edges(), [&](const GraphEdge& edge) {
        return edge.to == SectionId(index) && edge.to_port == port.name;
      });
      if (connected || !reads_images(*plan.corpus, node)) continue;
      throw JobError("section '" + node.section_name() + "' reads samples with images, but no section sends it their " +
                     "rows: connect a projector's output " + port.name +
                     " (in an app of this program: add a table for the projector, and one for the vision encoder)");
    }
  }
}

void check_trained(const ResolvedJob& plan) {
  if (std::ranges::any_of(plan.graph.nodes(), [](const GraphNode& node) { return node.trained(); })) return;
  std::string names;
  for (const GraphNode& node : plan.graph.nodes()) {
    if (node.plays_in_steps()) names += (names.empty() ? "" : ", ") + node.name;
  }
  throw JobError("no section is trained; set trained = true in one of " + names);
}

void check_frozen(const ResolvedJob& plan, const JobTable& root) {
  for (std::size_t at = 0; at < plan.sections.size(); ++at) {
    const GraphNode& node = plan.graph.nodes()[at];
    const SectionConfig& config = plan.sections[at].config;
    const bool frozen = node.frozen() ? plan.held[at].largest > 0 : config.lora.given();
    if (!frozen || !config.weights.empty() || config.random || config.emulated()) continue;
    const std::string what = node.frozen() ? "the section is frozen" : "below adapters the section is frozen";
    root.table(node.section_name())
        .fail("weights", "is not given, and " + what + ": it would keep random values; name a folder of " +
                             std::string("weights, or set weights = \"random\" to keep them"));
  }
}

void check_spread(const SectionConfig& config, const GraphNode& node, Section& meta_section) {
  const auto by_rows = [](const Parameter& parameter) { return parameter.rule().by_rows(); };
  const std::deque<Parameter>& parameters = meta_section.parameters().all();
  if (node.trained() && !parameters.empty() && std::ranges::all_of(parameters, by_rows)) {
    const std::string useless =
        " is without effect: gradients of rows are sent in f32, and each replica keeps all "
        "their sums of squares; leave it out";
    if (config.zero) throw JobError(node.section_name() + ".zero:" + useless);
    if (node.gradient_wire != GradientWire::f32) throw JobError(node.section_name() + ".gradient_wire:" + useless);
  }
  if (node.mixed() && !meta_section.spreads_over_ranks()) {
    throw JobError(node.section_name() + ".replicas = " + text_of_mix(node.contexts) +
                   ": a section of this type works on one device; use replicas = " + std::to_string(node.replicas));
  }
  if (node.layout.ranks() > 1 && !meta_section.spreads_over_ranks()) {
    const bool tensor = node.layout.tensor > 1;
    throw JobError(node.section_name() + (tensor ? ".tensor = " : ".context = ") +
                   std::to_string(tensor ? node.layout.tensor : node.layout.context) +
                   ": a section of this type works on one device; leave tensor and context at 1, and use replicas");
  }
}

void check_owns_experts(const GraphNode& node, Section& whole) {
  if (node.layout.expert == 1) return;
  const auto of_experts = [](const Parameter& parameter) { return parameter.holding() == Holding::expert_parts; };
  if (std::ranges::any_of(whole.weights().parameters->all(), of_experts)) return;
  check_expert_fit(node.section_name(), 0, node.layout);
}

void check_recompute(const SectionConfig& config, const GraphNode& node, const Section& meta_section) {
  if (config.recompute == 0) return;
  const std::string key = node.section_name() + ".recompute";
  if (!node.runs_backward()) {
    throw JobError(key + " does not apply to a frozen section that passes no gradient: it keeps no values");
  }
  if (!meta_section.recomputes())
    throw JobError(key + ": the section cannot recompute layers; decoders and vision encoders can");
}

void check_lora(const SectionConfig& config, const GraphNode& node, const Section& meta_section) {
  if (!config.lora.given()) return;
  const std::string key = node.section_name() + ".lora";
  if (node.generates()) return;  // the section's whose weights it takes
  if (!node.trained()) throw JobError(key + " does not apply to a frozen section: adapters are trained");
  if (!meta_section.takes_adapters())
    throw JobError(key + ": a section of this type does not support adapters; decoders do");
  if (const std::string type = vision_language_type(config.weights); !type.empty()) {
    throw JobError(
        key + ": the weights are the language model of a " + type + " folder" +
        ", whose adapters would not fit the complete model; make a folder of its own first (docs/models.md)");
  }
}

}  // namespace maestro
