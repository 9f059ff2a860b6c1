// SPDX-License-Identifier: Apache-2.0
// Typed settings of a job, as read from its TOML file. Plain data: `read_*` in job_reader.hpp fills and checks them.
// The names of an enumeration stand in the order of its values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/device_id.hpp"
#include "runtime/core/dtype.hpp"
#include "runtime/core/gradient_wire.hpp"
#include "runtime/job/length_points.hpp"
#include "runtime/job/lora_config.hpp"

// clang-format off
namespace maestro {

/// The maximum number of slots in a ring: a write names its slot in 6 bits. Each micro-batch in flight has a slot.
inline constexpr std::int64_t most_slots = 64;

/// Far above any run, yet small enough that a count times a size or a batch fits an int64.
inline constexpr std::int64_t most_counted = std::int64_t{1} << 40;
/// The planner cuts a step into micro-batches of complete samples before the step begins.
inline constexpr std::int64_t most_samples_of_a_step = std::int64_t{1} << 20;
inline constexpr std::int64_t most_tokens_of_a_sample = std::int64_t{1} << 24;

/// Replay of repeated GPU passes as CUDA graphs.
enum class CudaGraphs : std::uint8_t { automatic, always, never };
inline constexpr std::array<std::string_view, 3> cuda_graphs_names{"auto", "always", "never"};

/// The gradients in the norm for clipping.
enum class ClipScope : std::uint8_t { section, global };
inline constexpr std::array<std::string_view, 2> clip_scope_names{"section", "global"};

/// The element type of the models that a finished run writes; none: no models.
enum class ExportChoice : std::uint8_t { source, f32, bf16, f16, none };
inline constexpr std::array<std::string_view, 5> export_choice_names{"source", "f32", "bf16", "f16", "none"};

/// The part of a checkpoint that is kept forever: everything, or the weights as bf16.
enum class ArchiveChoice : std::uint8_t { full, bf16 };
inline constexpr std::array<std::string_view, 2> archive_choice_names{"full", "bf16"};

/// The reaction of rank 0 to the loss of a process that it has started.
enum class RecoverChoice : std::uint8_t { restart, off };
inline constexpr std::array<std::string_view, 2> recover_choice_names{"restart", "off"};

/// The reaction of the guard to a spike, apart from noting it.
enum class GuardAction : std::uint8_t { note, skip, rollback };
inline constexpr std::array<std::string_view, 3> guard_action_names{"note", "skip", "rollback"};

/// [guard]
struct GuardConfig {
  GuardAction action = GuardAction::note;
  std::int64_t window = 128;            ///< steps that define the usual losses and norms
  double z = 6;                         ///< start of a spike: the loss in robust standard deviations above the median
  double rise = 0.1;                    ///< start of a spike: the least rise of the loss above the median
  std::int64_t patience = 50;           ///< steps until a spike counts as lasting, or skipped in a row until failure
  double norm = 10;                     ///< huge gradient norm, as a multiple of the median
  std::int64_t skip_steps = 4;          ///< steps around the spike's start whose samples a rollback leaves out
  std::int64_t max_rollbacks = 3;       ///< rollbacks per run
};

/// [train]
struct TrainConfig {
  std::int64_t steps = 100;             ///< optimizer steps of every trained section
  double epochs = 0;                    ///< passes over the training samples; 0: `steps` counts
  std::int64_t schedule_steps = 0;      ///< length of the learning-rate schedules, in steps; 0: the run's steps
  std::int64_t seed = 1;
  std::int64_t global_batch = 16;       ///< samples per step, over all replicas
  bool deterministic = true;            ///< two runs of a plan give bitwise equal losses
  CudaGraphs cuda_graphs = CudaGraphs::automatic;
  std::int64_t checkpoint_every = 0;    ///< steps between checkpoints; 0: only at the end and on Ctrl-C
  std::int64_t shadow_every = 0;        ///< steps between checkpoints in memory, for recovery; 0: none
  bool checkpoint_at_end = true;        ///< checkpoint and trained weights at the end of a run
  std::int64_t keep_checkpoints = 2;    ///< checkpoints kept; older checkpoints are removed
  std::int64_t archive_every = 0;       ///< steps between checkpoints that are kept forever; 0: none
  ArchiveChoice archive = ArchiveChoice::full;
  ExportChoice export_dtype = ExportChoice::source;  ///< key `export`: models in `out`/models
  std::int64_t validate_every = 0;      ///< steps between validations; 0: only at the end
  std::int64_t validation_samples = 64; ///< limit; 0: the complete validation split; negative: refused
  std::int64_t ahead = 2;               ///< steps announced beyond the oldest unfinished step
  double stall_timeout_s = 10.0;        ///< time without any progress after which a run ends; 0: never
  double work_timeout_s = 0;            ///< time without a finished work item that ends a run with work; 0: never
  double peer_timeout_s = 2.0;          ///< silence after which a process counts as lost
  RecoverChoice recover = RecoverChoice::restart;
  std::int64_t max_recoveries = 10;     ///< recoveries per run
  ClipScope clip = ClipScope::section;
  std::string out = "runs/default";     ///< folder for checkpoints, weights, report and trace
  /// Returns how many steps the learning-rate schedules last.
  [[nodiscard]] std::int64_t scheduled_steps() const { return schedule_steps > 0 ? schedule_steps : steps; }
};

/// The source of samples.
enum class DataKind : std::uint8_t { text, chat, parquet, webdataset, prepared, llava, synthetic, synthetic_images };
inline constexpr std::array<std::string_view, 8> data_kind_names{
    "text", "chat", "parquet", "webdataset", "prepared", "llava", "synthetic", "synthetic_images"};
[[nodiscard]] constexpr std::string_view name_of(DataKind kind) {
  return data_kind_names[static_cast<std::size_t>(kind)];
}

[[nodiscard]] constexpr bool is_generated(DataKind kind) {
  return kind == DataKind::synthetic || kind == DataKind::synthetic_images;
}

/// The samples of prepared data: single documents, or windows over all documents in a row; automatic: documents for
/// conversations, a stream for texts.
enum class Packing : std::uint8_t { automatic, documents, stream };
inline constexpr std::array<std::string_view, 3> packing_names{"auto", "documents", "stream"};

/// The treatment of documents longer than a sample; automatic: conversations are cut, texts split.
enum class LongDocuments : std::uint8_t { automatic, cut, split, drop };
inline constexpr std::array<std::string_view, 4> long_documents_names{"auto", "cut", "split", "drop"};

/// The order of passes when images are resized; automatic: as prepared, or pillow13.
enum class ResampleOrder : std::uint8_t { automatic, pillow13, horizontal };
inline constexpr std::array<std::string_view, 3> resample_order_names{"auto", "pillow13", "horizontal"};

/// The answers of a conversation that are learned; none: only its prompt is kept, for a generator.
enum class LearnedAnswers : std::uint8_t { all, last, none };
inline constexpr std::array<std::string_view, 3> learned_answers_names{"answers", "last", "none"};
[[nodiscard]] constexpr std::string_view name_of(LearnedAnswers learned) {
  return learned_answers_names[static_cast<std::size_t>(learned)];
}

/// [data.mix.NAME]: prepared data and the frequency of its samples
struct MixedData {
  std::string name;
  std::string path;                     ///< folder of prepared data
  double weight = 1;                    ///< sample count relative to the other sources
  std::vector<std::string> teachers;    ///< sections that teach its samples; empty: all teachers
};

/// [data]
struct DataConfig {
  std::string path;                     ///< text file or folder; empty for generated data
  DataKind kind = DataKind::text;
  std::string tokenizer;                ///< "bytes", a folder or a file; empty: from the sections' weights, else bytes
  std::int64_t sequence = 128;          ///< tokens per sample
  LengthPoints lengths;                 ///< distribution of generated lengths; empty: `sequence` tokens each
  std::int64_t longest = 0;             ///< limit of drawn lengths; 0: no limit
  std::int64_t vocabulary = 256;        ///< tokens of the synthetic corpus; bytes have 256
  double max_file_mb = 4;               ///< limit for text files in a folder; larger files are left out; 10^6 bytes
  double validation_fraction = 0.1;     ///< last part of the corpus, never trained on
  std::string images;                   ///< folder of the images of rows; empty: "images" next to the file
  std::string processor;                ///< folder of the model whose processor reads images; empty: none
  ResampleOrder resample_order = ResampleOrder::automatic;
  std::string validation_path;          ///< kind = "llava": rows for validation; empty: a fraction
  std::int64_t patch = 8;               ///< pixels on a patch's side
  std::int64_t image_size = 64;         ///< longer side of a resized image, pixels; 0: native size
  std::int64_t max_image_size = 1024;   ///< limit for native images, pixels; larger images are shrunk to it
  double image_share = 0.5;             ///< kind = "synthetic_images": share of samples with an image
  std::int64_t max_bad_samples = 0;     ///< broken samples or images that are left out before the run fails
  std::vector<MixedData> mix;           ///< kind = "prepared": instead of `path`
  Packing packing = Packing::automatic;
  LongDocuments long_documents = LongDocuments::automatic;  ///< key `long`
  std::string chat_template = "auto";   ///< key `template`: auto, chatml, none, or a file
  std::string end_of_turn;              ///< text of the token that ends an answer; empty: the tokenizer's end tokens
  std::string date;                     ///< day that a chat template prints, as 2026-01-31; empty: today
  LearnedAnswers learned = LearnedAnswers::all;  ///< key `learn`
  bool as_text = false;                 ///< files are texts, regardless of their names and first characters
  bool begin_of_text = true;            ///< texts begin with the tokens that the tokenizer's file puts before a text
  std::string text_column;              ///< key `field`: name of the text column in rows; empty: recognised
  std::string work_folder;              ///< folder for the preparation of rows; not a job key
  /// Folders of further models that see the images, by the section that reads the samples. Not a job key.
  std::map<std::string, std::string> readers = {};
};

/// Default slots between hosts: micro-batches of 10 ms then hide a round trip of 40 ms.
inline constexpr std::int64_t slots_between_hosts = 8;

/// [transport]
struct TransportConfig {
  std::string provider = "auto";        ///< auto, shm, tcp, verbs, efa
  bool force_rma = false;               ///< RMA inside a process, too
  std::int64_t slots = 2;               ///< slots per edge and consumer replica; see slots_between_hosts
  std::int64_t chunk_kib = 1024;        ///< largest single RMA write
  double timeout_s = 5.0;               ///< time within which a write must leave, or it fails
  std::string listen = "127.0.0.1";     ///< address, interface, or "auto"
  std::int64_t port = 0;                ///< port of process 0, for the other processes; 0: any free port
  std::string keys;                     ///< folder made by `maestro keys`; needed between hosts
  double start_timeout_s = 60;          ///< time until all processes must have joined
};

/// [schedule]
struct ScheduleConfig {
  std::string policy = "wavefront";     ///< wavefront, arrival, bulk_synchronous
  double budget_ms = 20;                ///< planning time per step, during the previous step
  std::int64_t evaluations = 200;       ///< schedules that a deterministic plan tries; 0: depends on the step's size
};

/// [emulation]: the emulated devices
struct EmulationConfig {
  double gflops = 100000;               ///< device speed, for times from FLOP models
  double step_ms = 0;                   ///< duration of a step's end, in each trained section
  double reduce_gb_s = 0;               ///< device bandwidth of gradient sums over replicas; 0: they take no time
};

/// The course of the learning rate after the warm-up.
enum class LearningRateSchedule : std::uint8_t { cosine, linear, constant };
inline constexpr std::array<std::string_view, 3> learning_rate_schedule_names{"cosine", "linear", "constant"};
[[nodiscard]] constexpr std::string_view name_of(LearningRateSchedule schedule) {
  return learning_rate_schedule_names[static_cast<std::size_t>(schedule)];
}

/// Keys of a trained section's optimizer, flat in the section's table.
struct OptimizerConfig {
  double lr = 3e-4;
  double min_lr = 0.0;                  ///< end of the schedule
  std::int64_t warmup_steps = 0;
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  double weight_decay = 0.1;            ///< decay of matrices; other parameters have none
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;               ///< largest gradient norm; 0: off
  DType moments = DType::f32;           ///< f32, or bf16: half the memory, rounded at random
};

/// The value of `weights` that states that random values are intended.
inline constexpr const char* random_weights = "random";

struct SectionConfig {
  std::string name;
  bool trained = true;                  ///< false: frozen, but gradients may pass through it to earlier sections
  std::int64_t replicas = 1;            ///< data-parallel degree
  std::int64_t least = 0;               ///< replicas with separate devices at the start; the others share these
                                        ///< until joining processes take them; 0: all
  bool elastic = false;                 ///< rank 0 starts and ends such processes depending on the consumers' waits
  std::int64_t tensor = 1;              ///< devices that share each layer of a replica (cut by heads, FFN, vocabulary)
  std::int64_t context = 1;             ///< devices that share the rows of each micro-batch; the most of a replica
  std::vector<std::int64_t> contexts;   ///< such devices by replica; empty: `context` in each
  std::int64_t expert = 1;              ///< ranks of a replica that share the experts of a layer; 1: `tensor` cuts each
  std::int64_t pipeline = 1;            ///< device groups in a replica, with consecutive layers each
  std::int64_t chunks = 1;              ///< stages in each group: stage s is in group s mod `pipeline`
  bool zero = false;                    ///< optimizer state is sharded over the replicas
  GradientWire gradient_wire = GradientWire::f32;  ///< format of gradients between the replicas
  bool sends_bf16 = false;  ///< f32 outputs, and their gradients, travel in bf16
  bool random = false;                  ///< weights = "random": random values are intended, even in a frozen section
  std::int64_t micro_batch = 8;         ///< samples; with only micro_batch_tokens given: as many as fit
  std::int64_t micro_batch_tokens = 0;  ///< limit of tokens (patches in a vision section); 0: no limit
  std::vector<DeviceId> devices;        ///< a device per replica, stage and rank (context-major): cores and GPUs, or
                                        ///< numbered emulated devices; a single emulated device without a number: one
                                        ///< per rank; empty: placed automatically
  std::string devices_of;               ///< the section whose devices it uses, all of them; empty: none
  std::vector<std::int64_t> processes;  ///< a process per replica and stage; empty: in turn
  DType precision = DType::f32;         ///< arithmetic type; master weights are always fp32
  std::string weights;                  ///< Hugging Face folder to start from; empty: random
  std::int64_t max_in_flight = 2;       ///< micro-batches between forward and backward, per replica
  std::int64_t recompute = 0;           ///< layers per recomputed group; 0: the backward pass recomputes nothing
  std::int64_t memory_mib = 0;          ///< memory of a device; a micro-batch that cannot fit is refused; 0: no check
  double share = 1;                     ///< share of a CUDA device's multiprocessors, if sections share the device
  double speed = 1;                     ///< FLOP rate of the fastest replicas relative to other sections, in plans
                                        ///< without measured times
  std::vector<double> replica_speeds;   ///< speeds by replica with all its devices, relative to the fastest; empty: all
                                        ///< are equal
  OptimizerConfig optimizer;
  LoraConfig lora;                      ///< adapters that are trained instead of the weights
  /// Returns the number of replicas with separate devices at the start.
  [[nodiscard]] std::int64_t placed() const { return least > 0 ? least : replicas; }
  /// Returns how many stages a replica has.
  [[nodiscard]] std::int64_t stages() const { return pipeline * chunks; }
  /// Returns how many devices the widest replica has: pipeline x context parts x tensor parts.
  [[nodiscard]] std::int64_t devices_of_replica() const { return tensor * context * pipeline; }
  /// Returns how many devices all replicas need; replicas that share another's place need none.
  [[nodiscard]] std::int64_t devices_of_all() const {
    if (contexts.empty()) return placed() * devices_of_replica();
    return tensor * pipeline * std::accumulate(contexts.begin(), contexts.end(), std::int64_t{0});
  }
  /// Returns the speed of a replica relative to the fastest.
  [[nodiscard]] double replica_speed(std::size_t replica) const {
    return replica_speeds.empty() ? 1 : replica_speeds[replica];
  }
  [[nodiscard]] bool emulated() const { return !devices.empty() && devices[0].kind == DeviceId::Kind::emulated; }
};

}  // namespace maestro
// clang-format on
