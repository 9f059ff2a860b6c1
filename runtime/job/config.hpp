// SPDX-License-Identifier: Apache-2.0
// Typed settings of a job, as read from its TOML file. Plain data: `read_*` in job_reader.hpp fills and checks them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"

// clang-format off
namespace maestro {

/// Slots of one ring at most: a write names its slot in 6 bits. Micro-batches in flight have a slot each.
inline constexpr std::int64_t most_slots = 64;

/// Far above any run, and small enough that a count times a size or a batch fits an int64.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 40;
/// The planner cuts a step into micro-batches of whole samples before it begins.
inline constexpr std::int64_t most_samples_of_a_step = std::int64_t{1} << 20;
inline constexpr std::int64_t most_tokens_of_a_sample = std::int64_t{1} << 24;

/// [train]
struct TrainConfig {
  std::int64_t steps = 100;             ///< optimizer steps of every trained section
  std::int64_t seed = 1;
  std::int64_t global_batch = 16;       ///< samples per step, over all replicas
  bool deterministic = true;            ///< two runs of one plan give bitwise equal losses
  std::string cuda_graphs = "auto";     ///< for passes that repeat: "auto" where they pay, "always" or "never"
  std::int64_t checkpoint_every = 0;    ///< steps between checkpoints; 0: only at the end and on Ctrl-C
  bool checkpoint_at_end = true;        ///< also where the trained weights are kept
  std::int64_t keep_checkpoints = 2;    ///< older ones are removed
  std::int64_t validate_every = 0;      ///< steps between validations; 0: only at the end
  std::int64_t validation_samples = 64; ///< at most; 0: all of the validation split, negative is refused
  std::int64_t ahead = 2;               ///< steps announced beyond the oldest unfinished one
  double stall_timeout_s = 10.0;        ///< time without any progress after which a run ends; 0: never
  double peer_timeout_s = 2.0;          ///< silence after which a process counts as lost
  std::string clip = "section";         ///< "section": each section by its own norm; "global": one norm over all
  std::string out = "runs/default";     ///< folder for checkpoints, weights, report and trace
};

/// [data]
struct DataConfig {
  std::string path;                     ///< text file or folder; empty for kind = "synthetic"
  std::string kind = "text";            ///< "text", "llava", "synthetic" or "synthetic_images"
  std::string tokenizer = "bytes";
  std::int64_t sequence = 128;          ///< tokens per sample
  std::int64_t vocabulary = 256;        ///< of the synthetic corpus; bytes have 256
  double max_file_mb = 4;               ///< larger text files of a folder are left out; 10^6 bytes
  double validation_fraction = 0.1;     ///< last part of the corpus, never trained on
  std::string images;                   ///< kind = "llava": folder of the pictures; empty: "images" beside the file
  std::string validation_path;          ///< kind = "llava": a file of its own for validation; empty: a fraction
  std::int64_t patch = 8;               ///< pixels on a patch's side
  std::int64_t image_size = 64;         ///< longer side of a resized picture, pixels; 0: native size
  std::int64_t max_image_size = 1024;   ///< native pictures larger than this are shrunk to it
  double image_share = 0.5;             ///< kind = "synthetic_images": samples that have one
  std::int64_t max_bad_samples = 0;     ///< broken samples or pictures that are left out before the run ends
};

/// Slots where the job does not say: what hides a round trip of 40 ms behind micro-batches of 10 ms, with some to spare.
inline constexpr std::int64_t slots_between_hosts = 8;

/// [transport]
struct TransportConfig {
  std::string provider = "auto";        ///< auto, shm, tcp, verbs, efa
  bool force_rma = false;               ///< RMA also inside one process
  std::int64_t slots = 2;               ///< per edge and consumer replica; see slots_between_hosts
  std::int64_t chunk_kib = 1024;        ///< largest single RMA write
  double timeout_s = 5.0;               ///< a write that finds no way out within this time fails
  std::string listen = "127.0.0.1";     ///< address, interface, or "auto"
  std::int64_t port = 0;                ///< where rank 0 is found by the other processes; 0: any free one
  std::string keys;                     ///< folder made by `maestro keys`; needed between hosts
  double start_timeout_s = 60;          ///< for all processes to come
};

/// [schedule]
struct ScheduleConfig {
  std::string policy = "wavefront";     ///< wavefront, arrival, bulk_synchronous
  double budget_ms = 20;                ///< of planning one step, beside the step before it
  std::int64_t evaluations = 200;       ///< schedules that a deterministic plan tries; 0: by the size of the step
};

/// [emulation]: what emulated devices pretend to be
struct EmulationConfig {
  double gflops = 100000;               ///< of one device, for times out of FLOP models
};

/// Keys every section has, under the section's own name.
struct OptimizerConfig {
  double lr = 3e-4;
  double min_lr = 0.0;                  ///< end of the schedule
  std::int64_t warmup_steps = 0;
  std::string schedule = "cosine";      ///< cosine, linear, constant
  double weight_decay = 0.1;            ///< on matrices only
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;               ///< 0: off
};

/// `weights` of a section that is meant to keep random values.
inline constexpr const char* random_weights = "random";

struct SectionConfig {
  std::string name;
  bool trained = true;                  ///< false: frozen, though gradients may pass through to sections before it
  std::int64_t replicas = 1;            ///< data-parallel degree
  std::int64_t tensor = 1;              ///< devices that share each layer of a replica: heads, FFN and vocabulary are cut
  std::int64_t context = 1;             ///< devices that share the rows of each micro-batch
  std::int64_t pipeline = 1;            ///< stages of consecutive layers
  bool zero = false;                    ///< optimizer state is sharded over the replicas
  bool random = false;                  ///< weights = "random": random values are meant, also of a frozen section
  std::int64_t micro_batch = 8;         ///< samples; with micro_batch_tokens alone: as many as those allow
  std::int64_t micro_batch_tokens = 0;  ///< tokens (patches, for a vision section) at most; 0: no bound
  std::vector<std::string> devices;     ///< "cpu:K", "cuda:K": per replica, in it per stage, in it per rank (context-major);
                                        ///< {"emulated"}: one per replica; empty: automatically
  DType precision = DType::f32;         ///< of the arithmetic; master weights are always fp32
  std::string weights;                  ///< Hugging Face folder to start from; empty: random
  std::int64_t max_in_flight = 2;       ///< micro-batches between forward and backward, per replica
  std::int64_t memory_mib = 0;          ///< what a device may use; a micro-batch that cannot fit is refused; 0: no check
  double share = 1;                     ///< of a CUDA device's multiprocessors, where sections share one
  OptimizerConfig optimizer;
  /// Devices of one replica: stages x context parts x tensor parts.
  [[nodiscard]] std::int64_t devices_of_replica() const { return tensor * context * pipeline; }
  [[nodiscard]] bool emulated() const { return devices.size() == 1 && devices[0] == "emulated"; }
};

/// Shape of a decoder: GPT-2 family (layer norm, learned positions, GELU, biases) or Llama family (RMS norm, rotary
/// positions, SwiGLU, grouped-query attention, no biases).
struct DecoderConfig {
  std::string family = "gpt2";          ///< gpt2, llama
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 0;            ///< 0: as many as heads
  std::int64_t ffn = 0;                 ///< 0: 4 x width (gpt2), 8/3 x width rounded up to 64 (llama)
  std::int64_t vocabulary = 256;
  std::int64_t positions = 1024;        ///< longest sequence
  bool tied = true;                     ///< output layer shares the embedding
  double rope_theta = 10000.0;
  double norm_epsilon = 1e-5;
  double init_std = 0.02;
};

}  // namespace maestro
// clang-format on
