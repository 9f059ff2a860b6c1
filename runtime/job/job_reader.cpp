// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/job_reader.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>

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

std::string nonempty_text(const JobTable& table, std::string_view key, std::string fallback, const std::string& what) {
  auto value = table.text(key, std::move(fallback));
  if (value.empty()) table.fail(key, "must not be empty; give " + what);
  return value;
}

/// Refuses keys of other kinds of corpus: they would be ignored silently.
void refuse_for_kind(const JobTable& data, const std::string& kind, std::initializer_list<std::string_view> keys,
                     const std::string& kinds) {
  for (const std::string_view key : keys) {
    if (data.has(key)) data.fail(key, "has no meaning with kind = \"" + kind + "\"; it belongs to kind = " + kinds);
  }
}

/// Keys of corpora with pictures.
void read_pictures(const JobTable& data, DataConfig& out) {
  constexpr std::int64_t largest = 16384;  // side of the largest picture that is read, runtime/data/image.hpp
  const bool llava = out.kind == "llava";
  const bool noise = out.kind == "synthetic_images";
  if (!llava) {
    refuse_for_kind(data, out.kind, {"images", "validation_path", "max_image_size", "max_bad_samples"}, "\"llava\"");
  }
  if (!noise) refuse_for_kind(data, out.kind, {"image_share"}, "\"synthetic_images\"");
  if (!llava && !noise) {
    refuse_for_kind(data, out.kind, {"patch", "image_size"}, "\"llava\" and \"synthetic_images\"");
  }
  out.images = data.text("images", out.images);
  out.validation_path = data.text("validation_path", out.validation_path);
  out.patch = data.integer("patch", out.patch, {.min = 1, .max = 1024});
  out.image_size = data.integer("image_size", out.image_size, {.min = noise ? 1 : 0, .max = largest});
  out.max_image_size = data.integer("max_image_size", out.max_image_size, {.min = 1, .max = largest});
  out.image_share = data.number("image_share", out.image_share, {.min = 0.0, .max = 1.0});
  out.max_bad_samples = data.integer("max_bad_samples", out.max_bad_samples, counts_or_zero);
  if ((llava || noise) && out.image_size % out.patch != 0) {
    data.fail_among({"image_size", "patch"},
                    "image_size = " + std::to_string(out.image_size) +
                        " is no multiple of patch = " + std::to_string(out.patch) + "; the nearest below is " +
                        std::to_string(std::max(out.image_size / out.patch, std::int64_t{1}) * out.patch));
  }
  if (llava && out.max_image_size < out.patch) {
    data.fail_among({"max_image_size", "patch"}, "max_image_size = " + std::to_string(out.max_image_size) +
                                                     " holds no patch of " + std::to_string(out.patch) + " pixels");
  }
  if (!out.validation_path.empty() && data.has("validation_fraction")) {
    data.fail("validation_fraction", "has no meaning beside a validation_path; remove one of them");
  }
}

/// What path has to be for each kind.
void check_path(const JobTable& data, const DataConfig& read) {
  if (read.kind == "text" && read.path.empty()) {
    data.fail_among({"path", "kind"}, "kind = \"text\" needs data.path, a text file or a folder of them");
  }
  if (read.kind == "llava" && read.path.empty()) {
    data.fail_among({"path", "kind"}, "kind = \"llava\" needs data.path, a JSON file of conversations");
  }
  const bool synthetic = read.kind == "synthetic" || read.kind == "synthetic_images";
  if (synthetic && !read.path.empty()) {
    data.fail("path", "kind = \"" + read.kind + "\" reads no file; remove the path or set kind = \"text\"");
  }
}

}  // namespace

TrainConfig read_train(const JobTable& train) {
  TrainConfig out;
  out.steps = train.integer("steps", out.steps, counts);
  out.seed = train.integer("seed", out.seed, at_least_zero);
  out.global_batch = train.integer("global_batch", out.global_batch, {.min = 1, .max = most_samples_of_a_step});
  out.deterministic = train.flag("deterministic", out.deterministic);
  out.cuda_graphs = train.choice("cuda_graphs", out.cuda_graphs, {"auto", "always", "never"});
  out.checkpoint_every = train.integer("checkpoint_every", out.checkpoint_every, counts_or_zero);
  out.checkpoint_at_end = train.flag("checkpoint_at_end", out.checkpoint_at_end);
  out.keep_checkpoints = train.integer("keep_checkpoints", out.keep_checkpoints, counts);
  out.validate_every = train.integer("validate_every", out.validate_every, counts_or_zero);
  out.validation_samples = train.integer("validation_samples", out.validation_samples, counts_or_zero);
  out.ahead = train.integer("ahead", out.ahead, {.min = 1, .max = 1024});
  out.stall_timeout_s = train.number("stall_timeout_s", out.stall_timeout_s, {.min = 0, .max = 1e6});
  out.peer_timeout_s = train.number("peer_timeout_s", out.peer_timeout_s, seconds);
  out.clip = train.choice("clip", out.clip, {"section", "global"});
  out.out = nonempty_text(train, "out", out.out, "a folder for the run's files");
  return out;
}

DataConfig read_data(const JobTable& data) {
  DataConfig out;
  out.kind = data.choice("kind", out.kind, {"text", "llava", "synthetic", "synthetic_images"});
  out.path = data.text("path", out.path);
  out.tokenizer = nonempty_text(data, "tokenizer", out.tokenizer, "\"bytes\"");
  out.sequence = data.integer("sequence", out.sequence, {.min = 1, .max = most_tokens_of_a_sample});
  out.vocabulary = data.integer("vocabulary", out.vocabulary, {.min = 2, .max = std::int64_t{1} << 31});
  if (out.kind != "text") refuse_for_kind(data, out.kind, {"max_file_mb"}, "\"text\"");
  out.max_file_mb = data.number("max_file_mb", out.max_file_mb, positive);
  out.validation_fraction = data.number("validation_fraction", out.validation_fraction, proper_fraction);
  read_pictures(data, out);
  check_path(data, out);
  return out;
}

EmulationConfig read_emulation(const JobTable& emulation) {
  EmulationConfig out;
  out.gflops = emulation.number("gflops", out.gflops, positive);
  return out;
}

ScheduleConfig read_schedule(const JobTable& schedule) {
  ScheduleConfig out;
  out.policy = schedule.choice("policy", out.policy, {"arrival", "bulk_synchronous", "wavefront"});
  out.budget_ms = schedule.number("budget_ms", out.budget_ms, {.min = 0.0, .max = 3.6e6, .min_open = true});
  out.evaluations = schedule.integer("evaluations", out.evaluations, counts_or_zero);
  return out;
}

TransportConfig read_transport(const JobTable& transport) {
  TransportConfig out;
  out.provider = transport.choice("provider", out.provider, {"auto", "shm", "tcp", "verbs", "efa"});
  out.force_rma = transport.flag("force_rma", out.force_rma);
  out.slots = transport.integer("slots", out.slots, {.min = 1, .max = most_slots});
  out.chunk_kib = transport.integer("chunk_kib", out.chunk_kib, {.min = 1, .max = std::int64_t{1} << 20});
  out.timeout_s = transport.number("timeout_s", out.timeout_s, seconds);
  out.listen = transport.text("listen", out.listen);
  if (!is_address(out.listen) && !is_interface(out.listen)) {
    transport.fail("listen",
                   "expected an address such as 127.0.0.1 (this machine only), an interface such as eth0, or auto, "
                   "got \"" +
                       printable(out.listen) + '"');
  }
  out.port = transport.integer("port", out.port, {.min = 0, .max = 65535});
  out.keys = transport.text("keys", out.keys);
  out.start_timeout_s = transport.number("start_timeout_s", out.start_timeout_s, seconds);
  return out;
}

}  // namespace maestro
