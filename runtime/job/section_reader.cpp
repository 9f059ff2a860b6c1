// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "runtime/core/nearest_name.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/relative_speeds.hpp"
#include "runtime/job/job_reader.hpp"

namespace maestro {
namespace {

constexpr NumberRange not_negative{.min = 0.0};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange decay{.min = 0.0, .max = 1.0, .max_open = true};
// Far above any model, yet small enough that products of two sizes fit an int64.
constexpr std::int64_t no_bound = std::int64_t{1} << 31;  // samples: a global batch is smaller

std::string setting(std::string_view key, std::int64_t value) {
  return std::string(key) + " = " + std::to_string(value);
}

/// Returns whether `devices` names a section in place of devices: a single name that no device could have.
bool names_section(const std::vector<std::string>& names) {
  if (names.size() != 1 || names.front().empty()) return false;
  return names.front() != text_of({DeviceId::Kind::emulated}) && names.front().find(':') == std::string::npos;
}

/// Returns the devices with these names; the placement checks whether they exist. A single "emulated" is without
/// number.
std::vector<DeviceId> devices_named(const JobTable& section, const std::vector<std::string>& names) {
  constexpr DeviceId::Kind emulated = DeviceId::Kind::emulated;
  if (names.size() == 1 && names.front() == text_of({emulated})) return {{emulated}};
  std::vector<DeviceId> devices;
  for (const std::string& name : names) {
    std::optional<DeviceId> device = parse_device(name);
    if (!device) {
      section.fail("devices", "\"" + printable(name) +
                                  "\" is not a device; expected cpu:K, cuda:K or emulated:K, for example cpu:0, or " +
                                  "a single emulated");
    }
    devices.push_back(*std::move(device));
  }
  const auto is_emulated = [](const DeviceId& device) { return device.kind == emulated; };
  if (!std::ranges::all_of(devices, is_emulated) && std::ranges::any_of(devices, is_emulated)) {
    section.fail("devices", "names " + text_of(*std::ranges::find_if(devices, is_emulated)) + " with " +
                                text_of(*std::ranges::find_if_not(devices, is_emulated)) +
                                "; a section is on emulated devices only, or on others only");
  }
  return devices;
}

void check_devices(const JobTable& section, const SectionConfig& config) {
  if (config.emulated() && !config.devices[0].numbered) return;
  const std::string automatic =
      config.emulated() ? ", or a single \"emulated\" for a device per rank" : ", or none to place them automatically";
  const auto named = static_cast<std::int64_t>(config.devices.size());
  const std::int64_t needed = config.devices_of_all();
  if (named == 0 || named == needed) return;
  const std::string names = "names " + std::to_string(named) + (named == 1 ? " device" : " devices") + " for ";
  if (config.devices_of_replica() == 1) {
    const std::string key = config.least > 0 ? "replicas.least" : "replicas";
    section.fail_among({"devices", "replicas"},
                       names + setting(key, config.placed()) + "; name one per replica" + automatic);
  }
  if (!config.contexts.empty()) {
    section.fail_among({"devices", "replicas"}, names + "replicas whose contexts, times pipeline x tensor, add up to " +
                                                    std::to_string(needed) + "; name " + std::to_string(needed) +
                                                    automatic);
  }
  section.fail_among({"devices", "tensor", "context", "pipeline", "replicas"},
                     names + "replicas x pipeline x context x tensor = " + std::to_string(needed) + "; name " +
                         std::to_string(needed) + automatic);
}

void check_processes(const JobTable& section, const SectionConfig& config) {
  const auto named = static_cast<std::int64_t>(config.processes.size());
  const std::int64_t needed = config.placed() * config.pipeline;
  if (named == 0 || named == needed) return;
  section.fail_among({"processes", "replicas", "pipeline"},
                     "names " + std::to_string(named) + (named == 1 ? " process" : " processes") +
                         " for replicas x pipeline = " + std::to_string(needed) + "; name " + std::to_string(needed) +
                         ", or none to place them in turn");
}

/// Returns the number of replicas for which a list names `named` devices or processes, with `of_replica` each;
/// `otherwise` if the list is empty or the division leaves a rest.
std::int64_t replicas_named(std::size_t named, std::int64_t of_replica, std::int64_t otherwise) {
  const auto count = static_cast<std::int64_t>(named);
  return count > 0 && count % of_replica == 0 ? count / of_replica : otherwise;
}

/// Reads fp32 or bf16.
DType read_dtype(const JobTable& section, const char* key, DType fallback, const KeyHelp& help) {
  const std::vector<std::string> names{std::string(name_of(DType::f32)), std::string(name_of(DType::bf16))};
  return section.choice(key, std::string(name_of(fallback)), names, help) == names[1] ? DType::bf16 : DType::f32;
}

}  // namespace

std::string read_type(const JobTable& section, std::string fallback) {
  return section.text("type", std::move(fallback), {"the section type; absent: the app's choice"});
}

DType read_precision(const JobTable& section, DType fallback) {
  return read_dtype(section, "precision", fallback, {"the arithmetic; master weights are fp32"});
}

OptimizerConfig read_optimizer(const JobTable& section, OptimizerConfig defaults) {
  OptimizerConfig out = std::move(defaults);
  out.lr = section.number("lr", out.lr, not_negative, {"the learning rate after the warm-up"});
  out.min_lr = section.number("min_lr", out.min_lr, not_negative, {"the learning rate at the end of the schedule"});
  out.warmup_steps = section.integer("warmup_steps", out.warmup_steps, {.min = 0, .max = most_counted},
                                     {"steps of a linear rise from zero", "steps"});
  out.schedule = section.choice("schedule", out.schedule, learning_rate_schedule_names,
                                {"the course of the learning rate from lr to min_lr"});
  out.weight_decay =
      section.number("weight_decay", out.weight_decay, not_negative, {"AdamW's weight decay, on matrices only"});
  out.beta1 = section.number("beta1", out.beta1, decay, {"AdamW's decay of the first moment"});
  out.beta2 = section.number("beta2", out.beta2, decay, {"AdamW's decay of the second moment"});
  out.epsilon = section.number("epsilon", out.epsilon, positive, {"AdamW's addend to the denominator"});
  out.clip_norm =
      section.number("clip_norm", out.clip_norm, not_negative, {"the largest gradient norm; 0: no clipping"});
  out.moments =
      read_dtype(section, "moments", out.moments,
                 {"the type of AdamW's moments; bf16 takes half the memory and rounds each at random, so that "
                  "the expected value equals fp32's"});
  if (out.min_lr > out.lr) {
    section.fail_among({"min_lr", "lr"}, "min_lr is the end of the schedule and must not exceed lr");
  }
  return out;
}

namespace {

/// Reads a number, or a list with a number per replica.
void read_speed(const JobTable& section, SectionConfig& out) {
  std::vector<double> speeds = section.number_or_numbers(
      "speed", out.speed, {.min = 1e-3, .max = 1e3},
      {"the FLOP rate relative to the other sections: 0.5 for devices of half the speed; for plans that do not "
       "follow measured times (train.deterministic), and for emulated devices; if the replicas' devices differ, a list "
       "by replica: all plans divide micro-batches by it"});
  const auto named = static_cast<std::int64_t>(speeds.size());
  if (section.holds_list("speed") && named != out.replicas) {
    section.fail_among({"speed", "replicas"}, "names " + std::to_string(named) + (named == 1 ? " speed" : " speeds") +
                                                  " for " + setting("replicas", out.replicas) +
                                                  "; name one per replica, or a number for all of them");
  }
  if (!out.contexts.empty()) {  // costs are those on the widest replica, so that a narrower one is slower
    speeds.resize(out.contexts.size(), speeds.front());
    for (std::size_t replica = 0; replica < speeds.size(); ++replica) {
      speeds[replica] *= static_cast<double>(out.contexts[replica]) / static_cast<double>(out.context);
    }
  }
  RelativeSpeeds relative = relative_speeds(std::move(speeds));
  out.speed = relative.fastest;
  if (section.has("speed") || !out.contexts.empty()) out.replica_speeds = std::move(relative.speeds);
}

constexpr Range copies{.min = 1, .max = 16384};
constexpr Range degree{.min = 1, .max = 1024};

/// A table of a list: replicas = [{context = 4}, {count = 2, context = 1}].
struct ReplicasAlike {
  std::int64_t count = 1;
  std::int64_t context = 1;
};

ReplicasAlike read_alike(const JobTable& table) {
  ReplicasAlike alike;
  alike.count = table.integer("count", alike.count, copies, {"replicas with this context"});
  alike.context =
      table.integer("context", alike.context, degree,
                    {"their context, in place of the section's key; plans give long samples to wide replicas "
                     "if that makes a step shorter",
                     "devices"});
  return alike;
}

/// Reads the list, whose replicas may differ in their context.
void read_mix(const JobTable& section, SectionConfig& out) {
  std::vector<std::int64_t> contexts;
  for (const JobTable& table : section.tables("replicas")) {
    const ReplicasAlike alike = read_alike(table);
    contexts.insert(contexts.end(), static_cast<std::size_t>(alike.count), alike.context);
  }
  const auto count = static_cast<std::int64_t>(contexts.size());
  if (count < copies.min || count > copies.max) {
    section.fail("replicas", "lists " + std::to_string(count) + " replicas; expected from 1 to " +
                                 std::to_string(copies.max) + ", such as [{context = 2}, {count = 2, context = 1}]");
  }
  if (section.has("context")) {
    section.fail("context", "replicas lists the context of each replica; leave context out, or set replicas = " +
                                std::to_string(count));
  }
  out.replicas = count;
  out.context = std::ranges::max(contexts);
  if (std::ranges::min(contexts) < out.context) out.contexts = std::move(contexts);
}

/// Reads a number, a table: replicas = {least = 1, most = 4}, or a list of tables. Without any, the reference lists the
/// keys of all.
void read_replicas(const JobTable& section, SectionConfig& out) {
  if (section.holds_list("replicas")) return read_mix(section, out);
  const bool may_move = section.holds_table("replicas");
  if (!may_move) {
    out.replicas =
        section.integer("replicas", out.replicas, copies,
                        {"data-parallel copies; each takes complete micro-batches; absent: as many as `devices` "
                         "or `processes` names; an app may choose another default, which a small batch lowers"});
    if (section.has("replicas")) return;
  }
  const JobTable bounds = section.table("replicas");
  const std::int64_t least = bounds.integer(
      "least", 1, copies,
      {"instead of a number, in a frozen section without trained sections before it: replicas with separate devices "
       "at the start; the others share these until a process joins the run"});
  const std::int64_t most = bounds.integer(
      "most", least, copies, {"the number of replicas, and of processes that can hold one at the same time"});
  enum class Elastic : std::uint8_t { off, automatic };
  constexpr std::array<std::string_view, 2> names{"off", "auto"};
  const Elastic elastic = bounds.choice(
      "elastic", Elastic::off, names,
      {"auto: rank 0 starts a process for the section if consumers wait for it in over 5% of the time, and ends one "
       "if these processes are idle in over 50%; off: processes join and leave by command"});
  if (!may_move) {
    (void)read_alike(bounds);  // absent: only the reference learns the keys
    return;
  }
  out.elastic = elastic == Elastic::automatic;
  if (most < least) bounds.fail("most", "must be at least least = " + std::to_string(least));
  out.replicas = most;
  out.least = least;
}

/// Reads how the ranks of a replica divide experts; tensor and context are known.
void read_experts_layout(const JobTable& section, SectionConfig& out) {
  out.expert =
      section.integer("expert", out.expert, degree,
                      {"devices of a replica that share the experts of a layer, each with complete experts; rows "
                       "travel to them; divides `tensor` x `context` and `experts`; 1: `tensor` cuts each expert",
                       "devices"});
  if (out.expert > 1 && !out.contexts.empty()) {
    section.fail_among({"expert", "replicas"},
                       setting("expert", out.expert) +
                           ": replicas of several contexts cannot share experts alike; leave expert out, or set "
                           "replicas = " +
                           std::to_string(out.contexts.size()));
  }
  const std::int64_t parts = out.expert > 1 ? 1 : out.tensor;
  if (section.integer("expert_tensor", parts, degree,
                      {"devices that cut each expert; only the default is built: with `expert` above 1 it is 1, "
                       "otherwise `tensor`",
                       "devices"}) != parts) {
    section.fail("expert_tensor", "is not built for values other than " + std::to_string(parts) + " with " +
                                      setting("expert", out.expert) + "; leave it out");
  }
}

void read_layout(const JobTable& section, SectionConfig& out) {
  read_replicas(section, out);
  out.tensor = section.integer(
      "tensor", out.tensor, degree,
      {"devices that share each layer of a replica: heads, feed-forward network and vocabulary are cut", "devices"});
  out.context = section.integer("context", out.context, degree,
                                {"devices that share the rows of each micro-batch; samples are cut at the shares' "
                                 "ends; a list in `replicas` sets it by replica",
                                 "devices"});
  read_experts_layout(section, out);
  out.pipeline = section.integer("pipeline", out.pipeline, degree,
                                 {"stages of consecutive layers, on separate devices", "stages"});
  out.chunks =
      section.integer("chunks", out.chunks, {.min = 1, .max = 64},
                      {"stages on each device of a pipeline, which interleaves them: stage s is on device s mod "
                       "`pipeline`, so the pipeline fills and drains in shorter passes",
                       "stages"});
  if (out.chunks > 1 && out.pipeline == 1) {
    section.fail_among({"chunks", "pipeline"}, "chunks = " + std::to_string(out.chunks) +
                                                   ": a pipeline of 1 has nothing to interleave; set pipeline");
  }
  if (out.chunks > 1 && out.stages() > most_slots) {
    section.fail_among({"chunks", "pipeline"}, "pipeline x chunks = " + std::to_string(out.stages()) +
                                                   " stages; at most " + std::to_string(most_slots));
  }
}

void read_micro_batches(const JobTable& section, SectionConfig& out) {
  if (section.has("micro_batch_tokens") && !section.has("micro_batch")) out.micro_batch = no_bound;
  out.micro_batch =
      section.integer("micro_batch", out.micro_batch, {.min = 1, .max = no_bound},
                      {"samples of a pass at most; without limit if only micro_batch_tokens is given", "samples"});
  out.micro_batch_tokens =
      section.integer("micro_batch_tokens", out.micro_batch_tokens, {.min = 0, .max = most_counted},
                      {"tokens of a pass at most, patches in a vision section; 0: no limit", "tokens"});
  out.max_in_flight =
      section.integer("max_in_flight", out.max_in_flight, {.min = 1, .max = most_slots},
                      {"micro-batches between forward and backward per replica; by default, stage s of a "
                       "pipeline of P has 2 P - s on cores and where memory_mib suffices, else P - s, "
                       "and at least 2",
                       "micro-batches"});
}

void read_weights(const JobTable& section, SectionConfig& out) {
  out.weights =
      read_model(section, "weights", out.weights,
                 {"a Hugging Face folder (F32, BF16 or F16) to start from, which also sets absent shape keys, "
                  "or the name of a model in the hub's cache on this machine (\"Qwen/Qwen3-0.6B\"); "
                  "\"random\": random values are intended, as a frozen section must state; empty: random"});
  out.random = out.weights == random_weights;
  if (out.random) out.weights.clear();
}

void read_products(const JobTable& lora, LoraConfig& out) {
  const std::vector<std::string> known{"qkv", "out", "ffn"};
  bool* const chosen[] = {&out.qkv, &out.out, &out.ffn};
  const std::vector<std::string> names = lora.texts(
      "on", known,
      {"the products that have adapters: query, key and value; the attention's output; the feed-forward network"});
  if (names.empty()) lora.fail("on", "is empty: nothing would be trained; name some of qkv, out, ffn");
  for (bool* product : chosen) *product = false;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      const auto near = nearest_name(name, known);
      lora.fail("on", "\"" + printable(name) + "\" is not one of qkv, out, ffn" +
                          (near ? "; did you mean '" + *near + "'?" : ""));
    }
    bool& product = *chosen[found - known.begin()];
    if (product) lora.fail("on", "\"" + name + "\" is named twice");
    product = true;
  }
}

/// Reads a table: lora = {rank = 16, alpha = 32, on = ["qkv", "out", "ffn"]}.
void read_lora(const JobTable& section, SectionConfig& out) {
  const JobTable lora = section.table(
      "lora", {"low-rank adapters that are trained instead of the weights: {rank = 16, alpha = 32, on = [\"qkv\", "
               "\"out\", \"ffn\"]}"});
  out.lora.rank = lora.integer("rank", 0, {.min = 1, .max = 4096},
                               {"rank r of low-rank adapters (LoRA), which are trained instead of the weights; the "
                                "weights are frozen"});
  out.lora.alpha =
      lora.number("alpha", static_cast<double>(out.lora.rank), positive,
                  {"the adapters' product is scaled by alpha / rank; absent: rank, so that the scale is 1"});
  read_products(lora, out.lora);
  const double dropout = lora.number("dropout", 0, not_negative, {"dropout of adapters is not supported: only 0"});
  if (dropout != 0) lora.fail("dropout", "adapters are trained without dropout; set 0 or leave it out");
  if (section.has("lora") && !out.lora.given()) lora.fail("rank", "is not given; name the rank of the adapters");
}

}  // namespace

SectionConfig read_section(const JobTable& section, std::string name, SectionConfig defaults, Training training) {
  SectionConfig out = std::move(defaults);
  out.name = std::move(name);
  read_layout(section, out);
  read_micro_batches(section, out);
  out.recompute = section.integer_or_word(
      "recompute", out.recompute, {.min = 0, .max = 4096}, {{"layers", 1}, {"none", 0}},
      {"layers per group whose values the backward pass computes again instead of keeping them: less memory for an "
       "additional forward pass, and the same bits; \"layers\": 1; \"none\" or 0: all values are kept",
       "layers"});
  const std::vector<std::string> devices = section.texts(
      "devices", texts_of(out.devices),
      {"cpu:K or cuda:K, in the order of replica, stage, context part, tensor part; emulated:K: emulated devices, with "
       "timed waits as passes, on which sections and replicas take turns; a single \"emulated\": a device per rank; "
       "the name of a section: all devices of that section, with as many replicas; empty: placed automatically"});
  if (names_section(devices)) {
    out.devices_of = devices.front();
    out.devices.clear();
  } else {
    out.devices = devices_named(section, devices);
  }
  const bool counted = section.has("replicas") || (out.emulated() && !out.devices[0].numbered);
  if (!counted) out.replicas = replicas_named(out.devices.size(), out.devices_of_replica(), out.replicas);
  out.precision = read_precision(section, out.precision);
  constexpr std::array<std::string_view, 2> wires{"own", "bf16"};
  out.sends_bf16 = section.choice("wire", std::string(wires[out.sends_bf16]), {wires.begin(), wires.end()},
                                  {"the type of the tensors that the section sends to other sections and stages, and "
                                   "of their gradients; own: the section's dtype; bf16: f32 tensors are rounded, for "
                                   "half the bytes"}) == wires[1];
  read_weights(section, out);
  out.share =
      section.number("share", out.share, {.min = 0.0, .max = 1.0, .min_open = true},
                     {"the part of a CUDA device's multiprocessors, if sections share a device and the driver can "
                      "divide it; 1: streams share all, trained sections first"});
  read_speed(section, out);
  out.memory_mib =
      section.integer("memory_mib", out.memory_mib, {.min = 0, .max = most_counted},
                      {"memory of a device, for all sections on it: a job that cannot fit, by an estimate, is refused "
                       "with the largest micro-batch that fits; 0: not checked",
                       "MiB"});
  if (training == Training::optimized) {
    out.trained = section.flag("trained", out.trained,
                               {"false: the section is frozen; gradients still pass through it to trained sections "
                                "before it"});
    out.zero = section.flag("zero", out.zero, {"optimizer state is sharded over the replicas"});
    out.gradient_wire = section.choice(
        "gradient_wire", out.gradient_wire, gradient_wire_names,
        {"the format of gradients between replicas: bf16 halves the bytes, e4m3 (parts in e4m3, sums in bf16) takes "
         "3/8; the replicas' sums are rounded accordingly, and the record has wire_error"});
    out.optimizer = read_optimizer(section, out.optimizer);
    read_lora(section, out);
  }
  out.processes =
      section.integers("processes", {.min = 0, .max = most_counted},
                       {"the process of each replica and stage, stages of a replica in a row; empty: in turn"});
  if (!counted && out.devices.empty()) {
    out.replicas = replicas_named(out.processes.size(), out.pipeline, out.replicas);
  }
  check_devices(section, out);
  check_processes(section, out);
  return out;
}

}  // namespace maestro
