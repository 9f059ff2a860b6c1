// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/generation.hpp"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <string>
#include <utility>

#include "runtime/core/result.hpp"
#include "runtime/data/corpus.hpp"
#include "runtime/model/hf_config.hpp"
#include "sections/decoder/decoder_lm.hpp"
#include "sections/state_io.hpp"

namespace maestro {

namespace {

/// Returns the end of the block of prompt rows from `first` on: no row of it sees rows after it.
std::int64_t end_of_block(std::int64_t first, std::int64_t rows, std::span<const std::int32_t> ends) {
  const auto closed = [&](std::int64_t end) {
    return end == rows || ends.empty() || ends[static_cast<std::size_t>(end) - 1] <= end;
  };
  const std::int64_t most = std::min(rows, first + Generation::block_rows);
  std::int64_t end = most;
  while (end > first && !closed(end)) --end;
  if (end > first) return end;
  for (end = most; !closed(end);) ++end;
  return end;
}

template <class Values>
Values part_of_rows(const Values& values, std::int64_t first, std::int64_t end, std::int64_t columns = 1) {
  if (values.empty()) return {};
  return {values.begin() + first * columns, values.begin() + end * columns};
}

SectionContext context_of(const OperatorTable& ops, DType precision, const LoraConfig& lora) {
  SectionContext context;
  context.name = "generate";
  context.precision = precision;
  context.values = InitialValues::later;
  context.ops = &ops;
  context.lora = lora;
  return context;
}

/// Lists of a pass in the memory of a tape's operators, until the pass ends.
class PassLists {
 public:
  explicit PassLists(Tape& tape) : tape_(&tape) {}
  std::span<const std::int32_t> put(std::span<const std::int32_t> values) {
    if (values.empty() || tape_->ops().memory().host()) return values;
    blocks_.push_back(tape_->indices(values));
    return blocks_.back().tensor().span<std::int32_t>();
  }
  std::span<const CachedSequence> put(std::span<const CachedSequence> sequences) {
    const auto* const numbers = reinterpret_cast<const std::int32_t*>(sequences.data());
    const auto* const there = put({numbers, 2 * sequences.size()}).data();
    return {reinterpret_cast<const CachedSequence*>(there), sequences.size()};
  }

 private:
  Tape* tape_;
  std::vector<Block> blocks_;
};

static_assert(sizeof(CachedSequence) == 2 * sizeof(std::int32_t));

std::unique_ptr<NGramMemory> loaded_memory(const OperatorTable& ops, const std::filesystem::path& folder,
                                           DType precision) {
  if (folder.empty()) return nullptr;
  const HfConfigText config = read_hf_config_text(folder).value_or_throw();
  NGramMemory::Options options;
  options.shape = parse_ngram_config(config.text, config.file).value_or_throw();
  auto memory = std::make_unique<NGramMemory>(context_of(ops, precision, {}), options);
  load_weights(*memory, folder).or_throw();
  return memory;
}

std::unique_ptr<DecoderSection> loaded(const OperatorTable& ops, const ModelFolder& folder, DType precision,
                                       const NGramMemory* memory) {
  DecoderConfig config = read_hf_config(folder.weights).value_or_throw();
  config.memory = stored_memory(folder.weights);
  const std::int64_t read = config.memory.columns, held = memory == nullptr ? 0 : memory->ids().shape().columns();
  if (read != held) {
    const std::string reads = read == 0 ? "reads no memory" : "reads a memory of " + std::to_string(read) + " columns";
    throw JobError(folder.weights.string() + ": the decoder " + reads +
                   (held == 0   ? "; give its folder (generate --memory DIR)"
                    : read == 0 ? "; leave --memory out"
                                : ", but the given memory has " + std::to_string(held) +
                                      "; name the memory that the decoder was trained with"));
  }
  if (memory != nullptr) config.memory.orders = memory->ids().shape().orders;
  auto model =
      std::make_unique<DecoderLm>(context_of(ops, precision, folder.lora), DecoderLm::Options{std::move(config), {}});
  model->freeze();
  load_model(*model, folder).or_throw();
  return model;
}

}  // namespace

Generation::Generation(const OperatorTable& ops, const std::filesystem::path& folder, DType precision,
                       const std::filesystem::path& memory)
    : Generation(ops, ModelFolder::open(folder).value_or_throw(), precision, loaded_memory(ops, memory, precision)) {}

Generation::Generation(const OperatorTable& ops, const ModelFolder& folder, DType precision,
                       std::unique_ptr<NGramMemory> memory)
    : Generation(ops, loaded(ops, folder, precision, memory.get()), precision) {
  table_ = std::move(memory);
}

Generation::Generation(const OperatorTable& ops, std::shared_ptr<DecoderSection> section, DType precision,
                       std::function<void()> complete)
    : complete_(std::move(complete)),
      model_(std::move(section)),
      arena_(std::size_t{32} << 20, ops.memory()),
      memory_(2 * static_cast<std::size_t>(model_->decoder().layers) + 1),
      caches_(static_cast<std::size_t>(model_->decoder().layers)),
      tape_(ops, arena_, precision, false) {}

std::string Generation::refusal(std::span<const std::int32_t> prompt, const PromptImages& given) const {
  if (prompt.empty()) return "the prompt has no tokens; give it at least a single token";
  const DecoderConfig& config = decoder();
  if (static_cast<std::int64_t>(prompt.size()) > config.positions) {
    return "the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the model's " +
           std::to_string(config.positions) + " positions";
  }
  const std::int64_t images = std::ranges::count(prompt, image_token),
                     rows = given.visual.defined() ? given.visual.rows() : 0;
  if (images != rows) {
    return "the prompt has " + std::to_string(images) + " image tokens, but its images have " + std::to_string(rows) +
           " rows";
  }
  const std::int64_t sounds = std::ranges::count(prompt, sound_token),
                     heard = given.heard.defined() ? given.heard.rows() : 0;
  if (sounds != heard) {
    return "the prompt has " + std::to_string(sounds) + " sound tokens, but its sounds have " + std::to_string(heard) +
           " rows";
  }
  for (const std::int32_t token : prompt) {
    if (token == image_token || token == sound_token || (token >= 0 && token < config.vocabulary)) continue;
    return "the prompt has token " + std::to_string(token) + ", but the model's ids are 0 to " +
           std::to_string(config.vocabulary - 1);
  }
  if (images > 0 && config.image_mask == ImageMask::prefix && config.window > 0 && std::ssize(prompt) > config.window) {
    return "the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the window of " +
           std::to_string(config.window) + " tokens, which a prefix with images must not exceed";
  }
  if (images > 0 && config.needs_marks() && given.marks.empty()) return "the prompt's images lack their marks";
  try {
    (void)columns_of(prompt, given);
  } catch (const std::invalid_argument& problem) {
    return std::string("the prompt's marks do not fit: ") + problem.what();
  }
  return "";
}

MarkColumns Generation::columns_of(std::span<const std::int32_t> prompt, const PromptImages& images) const {
  if (images.marks.empty()) return {};
  if (images.marks.size() != prompt.size() * mark_columns) {
    throw std::invalid_argument(std::to_string(images.marks.size()) + " numbers for " + std::to_string(prompt.size()) +
                                " tokens");
  }
  const std::int32_t offsets[] = {0, static_cast<std::int32_t>(prompt.size())};
  return mark_columns_of(decoder(), images.marks, offsets);
}

void Generation::reserve(std::int64_t slots, std::int64_t rows) {
  rows_ = std::min(decoder().positions, rows);
  sequences_.assign(static_cast<std::size_t>(slots), {});
  const DecoderConfig& config = decoder();
  const DType act = tape_.compute();
  const DeltaShape& delta = config.delta;
  const Shape rows_of_keys{slots * rows_, config.key_columns()}, tails{slots * tail_rows(), 2 * config.width};
  const Shape delta_tails{slots * tail_rows(), delta.qkv_columns()};
  const Shape states{slots, delta.value_heads * delta.key_size * delta.value_size};
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    const MixerKind kind = config.mixer_of(static_cast<std::int64_t>(i)).kind;
    if (kind != MixerKind::attention) {
      hold(caches_[i].tail, memory_[2 * i], kind == MixerKind::delta ? delta_tails : tails, act);
      if (kind == MixerKind::delta) hold(caches_[i].state, memory_[2 * i + 1], states, DType::f32);
      continue;
    }
    hold(caches_[i].keys, memory_[2 * i], rows_of_keys, act);
    hold(caches_[i].values, memory_[2 * i + 1], rows_of_keys, act);
  }
  if (table_) hold(memory_cache_.tail, memory_.back(), {slots * memory_rows(), config.width}, act);
}

void Generation::remember(Sequence& sequence, std::span<const std::int32_t> tokens,
                          std::vector<std::int32_t>& rows) const {
  if (!table_) return;
  const NGramShape& shape = table_->ids().shape();
  const std::size_t before = rows.size();
  rows.resize(before + tokens.size() * static_cast<std::size_t>(shape.all_heads()));
  table_->ids().rows_of(sequence.last, tokens, std::span(rows).subspan(before));
  sequence.last.insert(sequence.last.end(), tokens.begin(), tokens.end());
  const std::int64_t surplus = std::ssize(sequence.last) - (shape.orders - 1);
  if (surplus > 0) sequence.last.erase(sequence.last.begin(), sequence.last.begin() + surplus);
}

Var Generation::look_up(std::span<const std::int32_t> rows) {
  return table_ ? table_->look_up(tape_, rows) : Var();
}

void Generation::hold(Tensor& tensor, SpaceMemory& memory, const Shape& shape, DType dtype) {
  if (tensor.defined() && tensor.rows() >= shape.rows()) return;
  memory.reset();
  memory = SpaceMemory(tape_.ops().memory(), Tensor(nullptr, dtype, shape).bytes());
  tensor = Tensor(memory.data(), dtype, shape);
}

std::vector<LayerCache> Generation::of_slot(std::int64_t slot) const {
  std::vector<LayerCache> caches;
  for (LayerCache cache : caches_) {
    cache.first = at(slot).rows;
    if (cache.keys.defined()) {
      cache.keys = cache.keys.row_slice(slot * rows_, rows_);
      cache.values = cache.values.row_slice(slot * rows_, rows_);
    } else {
      cache.tail = cache.tail.row_slice(slot * tail_rows(), tail_rows());
      if (cache.state.defined()) cache.state = cache.state.row_slice(slot, 1);
    }
    caches.push_back(cache);
  }
  if (table_) {
    caches.push_back(memory_cache_);
    caches.back().first = at(slot).rows;
    caches.back().tail = memory_cache_.tail.row_slice(slot * memory_rows(), memory_rows());
  }
  return caches;
}

std::vector<LayerCache> Generation::of_sequences(std::span<const CachedSequence> rows,
                                                 std::span<const CachedSequence> tails,
                                                 std::span<const CachedSequence> states,
                                                 std::span<const CachedSequence> memories) const {
  std::vector<LayerCache> caches = caches_;
  for (LayerCache& cache : caches) {
    cache.sequences = cache.keys.defined() ? rows : tails;
    cache.state_sequences = states;
  }
  if (table_) {
    caches.push_back(memory_cache_);
    caches.back().sequences = memories;
  }
  return caches;
}

void Generation::begin(std::int64_t slot, std::span<const std::int32_t> prompt, const PromptImages& images) {
  if (const std::string reason = refusal(prompt, images); !reason.empty()) throw JobError(reason);
  if (std::ssize(prompt) > rows_) {
    throw JobError("the prompt's " + std::to_string(prompt.size()) + " tokens do not fit the " + std::to_string(rows_) +
                   " rows of a slot");
  }
  sequences_[static_cast<std::size_t>(slot)] = {prompt, images, columns_of(prompt, images)};
}

bool Generation::advance(std::int64_t slot) {
  Sequence& own = sequences_[static_cast<std::size_t>(slot)];
  const std::int64_t first = own.rows, all = first + std::ssize(own.prompt);
  const std::int64_t end = end_of_block(first, all, own.columns.ends);
  const auto block = own.prompt.first(static_cast<std::size_t>(end - first));
  const std::int64_t images = std::ranges::count(block, image_token);
  std::vector<Tensor> visual;
  if (images > 0) visual.push_back(own.images.visual.row_slice(own.visual_taken, images));
  for (const Tensor& tap : images > 0 ? own.images.taps : std::vector<Tensor>()) {
    visual.push_back(tap.row_slice(own.visual_taken, images));
  }
  const std::int64_t sounds = std::ranges::count(block, sound_token);
  const Tensor heard = sounds > 0 ? own.images.heard.row_slice(own.heard_taken, sounds) : Tensor();
  std::vector<std::int32_t> positions = part_of_rows(own.columns.positions, first, end, mark_axes);
  const std::vector<std::int32_t> ends = part_of_rows(own.columns.ends, first, end);
  const std::int32_t offsets[] = {0, static_cast<std::int32_t>(end - first)};
  PassLists lists(tape_);
  SequenceLayout layout{.offsets = offsets, .device_offsets = lists.put(offsets), .ends = lists.put(ends)};
  layout.axes = positions.empty() ? 1 : mark_axes;
  if (positions.empty()) {
    positions.resize(block.size());
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
  }
  layout.positions = lists.put(positions);
  logits_ = Var();
  tape_.set_rows_alone(false);
  std::vector<std::int32_t> rows;
  remember(own, block, rows);
  logits_ = model_->cached_logits(tape_, block, layout, of_slot(slot), visual, heard, look_up(rows));
  own.rows = end;
  own.visual_taken += images;
  own.heard_taken += sounds;
  own.prompt = own.prompt.subspan(block.size());
  if (!own.prompt.empty()) return false;
  read_logits();
  if (!own.columns.positions.empty()) own.skipped = std::ranges::max(own.columns.positions) + 1 - own.rows;
  own.columns = {};
  own.images = {};
  return true;
}

void Generation::append(std::span<const NextToken> tokens) {
  const std::int64_t axes =
      std::ranges::any_of(tokens, [&](const NextToken& next) { return at(next.slot).skipped != 0; }) ? mark_axes : 1;
  std::vector<std::int32_t> ids, positions, offsets(1), memory;
  std::vector<CachedSequence> sequences, tails, states, memories;
  for (const NextToken& next : tokens) {
    Sequence& own = sequences_[static_cast<std::size_t>(next.slot)];
    assert(own.rows > 0 && own.rows < rows_ && own.prompt.empty());
    ids.push_back(next.token);
    positions.insert(positions.end(), static_cast<std::size_t>(axes),
                     static_cast<std::int32_t>(own.rows + own.skipped));
    const auto rows = static_cast<std::int32_t>(own.rows);
    sequences.push_back({static_cast<std::int32_t>(next.slot * rows_), rows});
    if (decoder().conv_width > 0) tails.push_back({static_cast<std::int32_t>(next.slot * tail_rows()), rows});
    if (decoder().delta.key_heads > 0) states.push_back({static_cast<std::int32_t>(next.slot), rows});
    remember(own, std::span(&next.token, 1), memory);
    if (table_) memories.push_back({static_cast<std::int32_t>(next.slot * memory_rows()), rows});
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
    ++own.rows;
  }
  logits_ = Var();
  tape_.set_rows_alone(true);
  PassLists lists(tape_);
  const SequenceLayout layout{
      .offsets = offsets, .positions = lists.put(positions), .device_offsets = lists.put(offsets), .axes = axes};
  logits_ = model_->cached_logits(
      tape_, ids, layout, of_sequences(lists.put(sequences), lists.put(tails), lists.put(states), lists.put(memories)),
      {}, {}, look_up(memory));
  read_logits();
}

void Generation::read_logits() {
  const Tensor& logits = logits_.value();
  if (tape_.ops().memory().host()) return;
  if (read_.size() < logits.bytes()) read_ = AlignedMemory(logits.bytes());
  tape_.ops().download(logits, Tensor(read_.data(), logits.dtype(), logits.shape()));
  complete_();
}

std::span<const float> Generation::logits(std::int64_t row) const {
  const Tensor& logits = logits_.value();
  const bool here = tape_.ops().memory().host();
  const ConstTensor read(here ? logits.raw() : read_.data(), logits.dtype(), logits.shape());
  return read.span<float>().subspan(static_cast<std::size_t>(row * logits.columns()),
                                    static_cast<std::size_t>(logits.columns()));
}

}  // namespace maestro
