#include "runtime/job/job_reader.hpp"

#include <arpa/inet.h>

#include <array>

#include "runtime/job/printable.hpp"

namespace maestro {
namespace {

constexpr Range at_least_zero{.min = 0};
constexpr Range at_least_one{.min = 1};
constexpr NumberRange positive{.min = 0.0, .min_open = true};
constexpr NumberRange proper_fraction{.min = 0.0, .max = 1.0, .min_open = true, .max_open = true};

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> ignored{};
  return inet_pton(AF_INET, text.c_str(), ignored.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), ignored.data()) == 1;
}

std::string nonempty_text(const JobTable& table, std::string_view key, std::string fallback, const std::string& what) {
  auto value = table.text(key, std::move(fallback));
  if (value.empty()) table.fail(key, "must not be empty; give " + what);
  return value;
}

}  // namespace

TrainConfig read_train(const JobTable& train) {
  TrainConfig out;
  out.steps = train.integer("steps", out.steps, at_least_one);
  out.seed = train.integer("seed", out.seed, at_least_zero);
  out.global_batch = train.integer("global_batch", out.global_batch, at_least_one);
  out.deterministic = train.flag("deterministic", out.deterministic);
  out.checkpoint_every = train.integer("checkpoint_every", out.checkpoint_every, at_least_zero);
  out.checkpoint_at_end = train.flag("checkpoint_at_end", out.checkpoint_at_end);
  out.keep_checkpoints = train.integer("keep_checkpoints", out.keep_checkpoints, at_least_one);
  out.validate_every = train.integer("validate_every", out.validate_every, at_least_zero);
  out.validation_samples = train.integer("validation_samples", out.validation_samples, at_least_zero);
  out.ahead = train.integer("ahead", out.ahead, {.min = 1, .max = 1024});
  out.peer_timeout_s = train.number("peer_timeout_s", out.peer_timeout_s, positive);
  out.clip = train.choice("clip", out.clip, {"section", "global"});
  out.out = nonempty_text(train, "out", out.out, "a folder for the run's files");
  return out;
}

DataConfig read_data(const JobTable& data) {
  DataConfig out;
  out.kind = data.choice("kind", out.kind, {"text", "synthetic"});
  out.path = data.text("path", out.path);
  out.tokenizer = nonempty_text(data, "tokenizer", out.tokenizer, "\"bytes\"");
  out.sequence = data.integer("sequence", out.sequence, at_least_one);
  out.vocabulary = data.integer("vocabulary", out.vocabulary, {.min = 2, .max = std::int64_t{1} << 31});
  out.validation_fraction = data.number("validation_fraction", out.validation_fraction, proper_fraction);
  if (out.kind == "text" && out.path.empty()) {
    data.fail_among({"path", "kind"}, "kind = \"text\" needs data.path, a text file or a folder of them");
  }
  if (out.kind == "synthetic" && !out.path.empty()) {
    data.fail("path", "kind = \"synthetic\" reads no file; remove the path or set kind = \"text\"");
  }
  return out;
}

TransportConfig read_transport(const JobTable& transport) {
  TransportConfig out;
  out.provider = transport.choice("provider", out.provider, {"auto", "shm", "tcp", "verbs", "efa"});
  out.force_rma = transport.flag("force_rma", out.force_rma);
  out.slots = transport.integer("slots", out.slots, {.min = 1, .max = 1024});
  out.chunk_kib = transport.integer("chunk_kib", out.chunk_kib, {.min = 1, .max = std::int64_t{1} << 20});
  out.timeout_s = transport.number("timeout_s", out.timeout_s, positive);
  out.listen = transport.text("listen", out.listen);
  if (!is_address(out.listen)) {
    transport.fail("listen",
                   "expected an IPv4 or IPv6 address such as 127.0.0.1 (this machine only) or 0.0.0.0 (all "
                   "interfaces), got \"" +
                       printable(out.listen) + '"');
  }
  out.port = transport.integer("port", out.port, {.min = 0, .max = 65535});
  return out;
}

}  // namespace maestro
