// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_reader.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/core/hub_cache.hpp"
#include "runtime/core/printable.hpp"

namespace maestro {
namespace {

constexpr Range at_least_zero{.min = 0};
constexpr Range counts{.min = 1, .max = most_counted};
constexpr Range counts_or_zero{.min = 0, .max = most_counted};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange seconds{.min = 1e-3, .max = 1e6};  // a millisecond to 11 days: durations are kept in int64 ns
constexpr NumberRange proper_fraction{.min = 0.0, .max = 1.0, .min_open = true, .max_open = true};

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return inet_pton(AF_INET, text.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), ignored.data()) == 1;
}

/// "eth0", or "auto".
bool is_interface(const std::string& text) {
  constexpr std::size_t longest = 15;  // IFNAMSIZ - 1
  const auto in_name = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; };
  return !text.empty() && text != "localhost" && text.size() <= longest &&
         std::isalpha(static_cast<unsigned char>(text[0])) != 0 && std::ranges::all_of(text, in_name);
}

std::string nonempty(const JobTable& table, std::string_view key, std::string value, const std::string& example) {
  if (value.empty()) table.fail(key, "must not be empty; give " + example);
  return value;
}

/// Throws for keys of other kinds of corpus, which the corpus would ignore silently.
void refuse_for_kind(const JobTable& data, DataKind kind, std::initializer_list<std::string_view> keys,
                     const std::string& kinds) {
  for (const std::string_view key : keys) {
    if (!data.has(key)) continue;
    data.fail(key, "has no meaning with kind = \"" + std::string(name_of(kind)) + "\"; it belongs to kind = " + kinds);
  }
}

void check_pictures(const JobTable& data, const DataConfig& read) {
  const bool llava = read.kind == DataKind::llava;
  const bool noise = read.kind == DataKind::synthetic_images;
  if ((llava || noise) && read.image_size % read.patch != 0) {
    data.fail_among({"image_size", "patch"},
                    "image_size = " + std::to_string(read.image_size) +
                        " is no multiple of patch = " + std::to_string(read.patch) + "; the nearest below is " +
                        std::to_string(std::max(read.image_size / read.patch, std::int64_t{1}) * read.patch));
  }
  if (llava && read.max_image_size < read.patch) {
    data.fail_among({"max_image_size", "patch"}, "max_image_size = " + std::to_string(read.max_image_size) +
                                                     " holds no patch of " + std::to_string(read.patch) + " pixels");
  }
  if (!read.validation_path.empty() && data.has("validation_fraction")) {
    data.fail("validation_fraction", "has no meaning beside a validation_path; remove one of them");
  }
}

/// Reads the keys of corpora with pictures.
void read_pictures(const JobTable& data, DataConfig& out) {
  constexpr std::int64_t largest = 16384;  // side of the largest picture that is read, runtime/data/image.hpp
  const bool llava = out.kind == DataKind::llava;
  const bool noise = out.kind == DataKind::synthetic_images;
  if (!llava) {
    refuse_for_kind(data, out.kind, {"images", "validation_path", "max_image_size", "max_bad_samples"}, "\"llava\"");
  }
  if (!noise) refuse_for_kind(data, out.kind, {"image_share"}, "\"synthetic_images\"");
  if (!llava && !noise) {
    refuse_for_kind(data, out.kind, {"patch", "image_size"}, "\"llava\" and \"synthetic_images\"");
  }
  out.images = data.text("images", out.images,
                         {"llava: the folder of the pictures (PNG, JPEG); empty: `images` beside the file"});
  out.validation_path = data.text("validation_path", out.validation_path,
                                  {"llava: a JSON file for validation; empty: `validation_fraction` of `path`"});
  out.patch = data.integer("patch", out.patch, {.min = 1, .max = 1024},
                           {"llava, synthetic_images: the side of a patch", "pixels"});
  out.image_size = data.integer("image_size", out.image_size, {.min = noise ? 1 : 0, .max = largest},
                                {"llava, synthetic_images: the longer side of a resized picture, a multiple of "
                                 "`patch`; 0 (llava): native size",
                                 "pixels"});
  out.max_image_size =
      data.integer("max_image_size", out.max_image_size, {.min = 1, .max = largest},
                   {"llava: the longest side of a native picture; larger pictures are shrunk to it", "pixels"});
  out.image_share = data.number("image_share", out.image_share, {.min = 0.0, .max = 1.0},
                                {"synthetic_images: the share of samples with a picture"});
  out.max_bad_samples = data.integer("max_bad_samples", out.max_bad_samples, counts_or_zero,
                                     {"llava: broken samples and pictures that are left out and counted; the next "
                                      "broken sample ends the run with the list",
                                      "samples"});
  check_pictures(data, out);
}

/// Checks the path against the kind.
void check_path(const JobTable& data, const DataConfig& read) {
  if (read.kind == DataKind::text && read.path.empty()) {
    data.fail_among({"path", "kind"}, "kind = \"text\" needs data.path, a text file or a folder of them");
  }
  if (read.kind == DataKind::llava && read.path.empty()) {
    data.fail_among({"path", "kind"}, "kind = \"llava\" needs data.path, a JSON file of conversations");
  }
  const bool synthetic = read.kind == DataKind::synthetic || read.kind == DataKind::synthetic_images;
  if (synthetic && !read.path.empty()) {
    data.fail("path", "kind = \"" + std::string(name_of(read.kind)) +
                          "\" reads no file; remove the path or set kind = \"text\"");
  }
}

}  // namespace

std::string read_name(const JobTable& root) {
  return root.text("name", "job", {"the job's name, for messages and the report"});
}

std::string read_model(const JobTable& table, std::string_view key, std::string fallback, KeyHelp help) {
  auto found = find_model(table.text(key, std::move(fallback), help));
  if (!found) table.fail(key, found.error().message);
  return *std::move(found);
}

namespace {

ExportChoice read_export(const JobTable& train, const TrainConfig& read) {
  const ExportChoice chosen = train.choice(
      "export", read.export_dtype, export_choice_names,
      {"the dtype of the models that a finished run writes to `out`/models, a complete Hugging Face folder "
       "for each trained section; source: that of `weights`, f32 without; none: no models"});
  if (read.checkpoint_at_end || !train.has("export") || chosen == ExportChoice::none) return chosen;
  train.fail("export", "needs the checkpoint at the end; set checkpoint_at_end = true, or export = \"none\"");
}

}  // namespace

TrainConfig read_train(const JobTable& train) {
  TrainConfig out;
  out.steps = train.integer("steps", out.steps, counts, {"optimizer steps of every trained section", "steps"});
  out.seed = train.integer("seed", out.seed, at_least_zero, {"the seed of initial values and of the sample order"});
  out.global_batch = train.integer("global_batch", out.global_batch, {.min = 1, .max = most_samples_of_a_step},
                                   {"samples of a step, over all replicas", "samples"});
  out.deterministic = train.flag("deterministic", out.deterministic,
                                 {"true: plans use FLOP models only, and two runs give bitwise equal losses; false: "
                                  "plans use measured times, and GPUs the fastest products and attention"});
  out.cuda_graphs =
      train.choice("cuda_graphs", out.cuda_graphs, cuda_graphs_names,
                   {"replay of repeated GPU passes as CUDA graphs; auto: where the CPU issues a pass more "
                    "slowly than the GPU computes it; results are the same"});
  out.checkpoint_every = train.integer("checkpoint_every", out.checkpoint_every, counts_or_zero,
                                       {"steps between checkpoints; 0: only at the end and on Ctrl-C", "steps"});
  out.shadow_every = train.integer("shadow_every", out.shadow_every, counts_or_zero,
                                   {"steps between checkpoints in the memory of the host, from which a run goes on "
                                    "after the loss of a process; 0: none",
                                    "steps"});
  out.checkpoint_at_end = train.flag("checkpoint_at_end", out.checkpoint_at_end,
                                     {"a checkpoint and the trained weights are written at the end"});
  out.keep_checkpoints = train.integer("keep_checkpoints", out.keep_checkpoints, counts,
                                       {"checkpoints kept; older checkpoints are removed"});
  out.export_dtype = read_export(train, out);
  out.validate_every = train.integer("validate_every", out.validate_every, counts_or_zero,
                                     {"steps between validations; 0: only at the end", "steps"});
  out.validation_samples = train.integer("validation_samples", out.validation_samples, counts_or_zero,
                                         {"validation samples at most; 0: the whole validation part", "samples"});
  out.ahead = train.integer("ahead", out.ahead, {.min = 1, .max = 1024},
                            {"steps announced beyond the oldest unfinished step", "steps"});
  out.stall_timeout_s = train.number("stall_timeout_s", out.stall_timeout_s, {.min = 0, .max = 1e6},
                                     {"a run without progress for this time, or for four times its longest gap so far, "
                                      "ends with an error; 0: never",
                                      "s"});
  out.peer_timeout_s = train.number("peer_timeout_s", out.peer_timeout_s, seconds,
                                    {"silence after which a process counts as lost", "s"});
  out.recover = train.choice(
      "recover", out.recover, recover_choice_names,
      {"when a process is lost: restart: others take its replicas of frozen sections, or the job goes on from "
       "the state of other replicas, its newest checkpoint or its start; off: the run ends with an error"});
  out.max_recoveries = train.integer("max_recoveries", out.max_recoveries, counts_or_zero,
                                     {"lost processes after which a run goes on; the next ends it"});
  out.clip = train.choice("clip", out.clip, clip_scope_names,
                          {"the gradient norm for clipping: of each section, or of all sections together"});
  out.out = nonempty(
      train, "out",
      train.text("out", out.out, {"the folder for checkpoints, weights, report and trace, of one run at a time"}),
      "a folder for the run's files");
  return out;
}

DataConfig read_data(const JobTable& data) {
  DataConfig out;
  out.kind = data.choice("kind", out.kind, data_kind_names,
                         {"text, llava (conversations about pictures), or generated for trials: synthetic, "
                          "synthetic_images"});
  out.path = data.text("path", out.path,
                       {"text: a file or folder; llava: the JSON file of conversations; generated data have no path"});
  out.tokenizer =
      read_model(data, "tokenizer", out.tokenizer,
                 {"the tokenizer of text: \"bytes\" (a token per byte), a model's folder or its name on the "
                  "hub, or its tokenizer file; without it, the tokenizer beside the weights of the sections "
                  "that read tokens, else bytes"});
  const bool generated = out.kind != DataKind::text && out.kind != DataKind::llava;
  if (generated && !out.tokenizer.empty() && out.tokenizer != "bytes") {
    refuse_for_kind(data, out.kind, {"tokenizer"}, "\"text\" and \"llava\"");
  }
  out.sequence = data.integer("sequence", out.sequence, {.min = 1, .max = most_tokens_of_a_sample},
                              {"the length of a sample", "tokens"});
  out.vocabulary = data.integer("vocabulary", out.vocabulary, {.min = 2, .max = std::int64_t{1} << 31},
                                {"generated data: the number of different tokens", "tokens"});
  if (out.kind != DataKind::text) refuse_for_kind(data, out.kind, {"max_file_mb"}, "\"text\"");
  out.max_file_mb =
      data.number("max_file_mb", out.max_file_mb, positive, {"text: larger files of a folder are left out", "MB"});
  out.validation_fraction = data.number("validation_fraction", out.validation_fraction, proper_fraction,
                                        {"the last part of the corpus, kept for validation"});
  read_pictures(data, out);
  check_path(data, out);
  return out;
}

EmulationConfig read_emulation(const JobTable& emulation) {
  EmulationConfig out;
  out.gflops = emulation.number("gflops", out.gflops, positive,
                                {"the speed of an emulated device, for pass times from FLOP models", "GFLOP/s"});
  return out;
}

ScheduleConfig read_schedule(const JobTable& schedule) {
  ScheduleConfig out;
  out.policy =
      schedule.choice("policy", out.policy, {"arrival", "bulk_synchronous", "wavefront"},
                      {"the placement and order of micro-batches: wavefront (searched), arrival (as they come, "
                       "round the replicas), bulk_synchronous (equal shares, then a barrier: the baseline)"});
  out.budget_ms = schedule.number("budget_ms", out.budget_ms, {.min = 0.0, .max = 3.6e6, .min_open = true},
                                  {"planning time of a step, with train.deterministic = false", "ms"});
  out.evaluations =
      schedule.integer("evaluations", out.evaluations, counts_or_zero,
                       {"plans tried for a step, with train.deterministic = true; 0: by the step's size", "plans"});
  return out;
}

TransportConfig read_transport(const JobTable& transport) {
  TransportConfig out;
  out.provider = transport.choice("provider", out.provider, {"auto", "shm", "tcp", "verbs", "efa"},
                                  {"the libfabric provider; auto: shm where all processes are on one machine"});
  out.force_rma = transport.flag("force_rma", out.force_rma, {"RMA writes also inside a process, for tests"});
  out.slots = transport.integer("slots", out.slots, {.min = 1, .max = most_slots},
                                {"micro-batches in transfer per edge and consumer replica; between hosts 8 where the "
                                 "key is absent",
                                 "slots"});
  out.chunk_kib = transport.integer("chunk_kib", out.chunk_kib, {.min = 1, .max = std::int64_t{1} << 20},
                                    {"the largest single RMA write", "KiB"});
  out.timeout_s =
      transport.number("timeout_s", out.timeout_s, seconds, {"a write that has not left within this time fails", "s"});
  out.listen =
      transport.text("listen", out.listen,
                     {"the address that processes listen on: an address, an interface (\"eth0\"), or \"auto\": "
                      "the address that leads to process 0"});
  if (!is_address(out.listen) && !is_interface(out.listen)) {
    transport.fail("listen",
                   "expected an address such as 127.0.0.1 (this machine only), an interface such as eth0, or auto, "
                   "got \"" +
                       printable(out.listen) + '"');
  }
  out.port = transport.integer("port", out.port, {.min = 0, .max = 65535},
                               {"the port of process 0; 0: any free port, or the port of the cluster's launcher"});
  out.keys =
      transport.text("keys", out.keys, {"the key folder made by `maestro keys`, for addresses that other hosts reach"});
  out.start_timeout_s = transport.number("start_timeout_s", out.start_timeout_s, seconds,
                                         {"the time within which all processes must have joined", "s"});
  return out;
}

}  // namespace maestro
