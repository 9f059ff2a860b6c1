// SPDX-License-Identifier: Apache-2.0
#include "sections/memory/ngram_memory.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "runtime/core/random.hpp"
#include "runtime/model/hf_config.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "sections/parameter_init.hpp"
#include "sections/weights_folder.hpp"

namespace maestro {

namespace {

constexpr Range size_range{.min = 1, .max = std::int64_t{1} << 31};

/// Keys of config.json and the sizes that they hold.
struct ConfigKey {
  const char* name;
  std::int64_t NGramShape::*size;
  std::int64_t least = 1;
};
constexpr std::array<ConfigKey, 7> config_keys{{{"ngram_size", &NGramShape::orders, 2},
                                                {"heads_per_ngram", &NGramShape::heads},
                                                {"ngram_vocab_size_base", &NGramShape::rows, 2},
                                                {"ngram_embed_dim", &NGramShape::dim},
                                                {"vocab_size", &NGramShape::vocabulary},
                                                {"seed", &NGramShape::seed, std::numeric_limits<std::int64_t>::min()},
                                                {"make_ngram_vocab_size_divisible_by", &NGramShape::divisor}}};

std::function<void(std::span<float>, std::int64_t)> normal_row(std::uint64_t seed, std::string_view section,
                                                               double deviation) {
  return [seed, stream = parameter_stream(section, "ngram_embedding.weight"), deviation](std::span<float> values,
                                                                                         std::int64_t row) {
    Random random(seed, mix64(stream, static_cast<std::uint64_t>(row)));
    for (float& value : values) value = static_cast<float>(deviation * random.normal());
  };
}

/// Returns rows `index` (N) i32 of the table, (N, D) f32, zeros for a negative number; the backward pass hands their
/// gradients to the table.
Var read_rows(Tape& tape, Parameter& table, const Block& index) {
  const std::span<std::int32_t> ids = index.tensor().span<std::int32_t>();
  Var rows = tape.output({std::ssize(ids), table.shape()[1]}, DType::f32, table.trained());
  if (table.sharded()) {
    tape.ops().run(Embedding{.table = table.value(), .ids = index.tensor(), .y = rows.value()});
  } else {
    tape.ops().run(IndexSelect{.from = table.value(), .index = ids, .to = rows.value()});
  }
  if (!rows.needs_gradient()) return rows;
  tape.record(rows, [&table, index, rows] {
    table.row_gradients()->add(index.tensor().span<std::int32_t>(), rows.gradient());
  });
  return rows;
}

}  // namespace

std::string ngram_config_text(const NGramShape& shape) {
  nlohmann::ordered_json config{{"model_type", ngram_memory_type}};
  for (const ConfigKey& key : config_keys) config[key.name] = shape.*key.size;
  config["eos_token_id"] = shape.end_of_text;
  return config.dump(2) + "\n";
}

Result<NGramShape> parse_ngram_config(std::string_view text, std::string_view file) {
  const auto refused = [&](const std::string& problem) {
    return Error{ErrorCode::invalid_argument, std::string(file) + ": " + problem};
  };
  const auto config = nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) return refused("is not a JSON object");
  const auto type = config.find("model_type");
  if (type == config.end() || *type != ngram_memory_type) {
    return refused("model_type is not \"" + std::string(ngram_memory_type) + "\"; name the folder of a memory");
  }
  NGramShape shape;
  const auto integer = [&](const char* key, std::int64_t least) {
    const auto found = config.find(key);
    const bool fits =
        found != config.end() && found->is_number_integer() && *found >= least && *found <= size_range.max;
    return fits ? std::optional(found->get<std::int64_t>()) : std::nullopt;
  };
  for (const ConfigKey& key : config_keys) {
    const auto value = integer(key.name, key.least);
    if (!value) return refused(std::string(key.name) + " is missing or out of range");
    shape.*key.size = *value;
  }
  const auto end = integer("eos_token_id", 0);
  if (!end || *end > std::numeric_limits<std::int32_t>::max())
    return refused("eos_token_id is missing or out of range");
  shape.end_of_text = static_cast<std::int32_t>(*end);
  return shape;
}

NGramShape read_ngram_shape(const JobTable& table, const DataShape& data) {
  NGramShape shape;
  if (data.vocabulary > 0) shape.vocabulary = data.vocabulary;
  if (!data.tokenizer.empty()) shape.end_of_text = make_tokenizer(data.tokenizer)->end_of_text().value_or(0);
  if (const std::string folder = read_weights_folder(table); !folder.empty()) {
    const auto config = read_hf_config_text(folder);
    if (!config) table.fail("weights", config.error().message);
    const Result<NGramShape> stored = parse_ngram_config(config->text, config->file);
    if (!stored) table.fail("weights", stored.error().message);
    shape = *stored;
  }
  shape.orders = table.integer("orders", shape.orders, {.min = 2, .max = 16},
                               {"n-grams of 2 tokens up to this number have rows in the table", "tokens"});
  shape.heads = table.integer("heads", shape.heads, {.min = 1, .max = 64}, {"hashes of each order", "hashes"});
  shape.rows = table.integer("rows", shape.rows, {.min = 2, .max = size_range.max},
                             {"rows of a hash: the first primes from this number on, one for each hash", "rows"});
  shape.dim = table.integer("dim", shape.dim, {.min = 1, .max = 65536}, {"columns of a row", "columns"});
  shape.vocabulary =
      table.integer("vocabulary", shape.vocabulary, size_range,
                    {"token ids, which the hashes' multipliers depend on; absent: the corpus' tokens", "tokens"});
  shape.end_of_text = static_cast<std::int32_t>(table.integer(
      "end_of_text", shape.end_of_text, {.min = 0, .max = std::numeric_limits<std::int32_t>::max()},
      {"the token after which a new text begins; absent: the tokenizer's end of text, or 0 if it has none"}));
  shape.seed = table.integer("seed", shape.seed, {}, {"seed of the hashes"});
  if (static_cast<double>(shape.rows) * static_cast<double>(shape.all_heads()) > 2e9) {
    table.fail("rows", std::to_string(shape.rows) + " for each of " + std::to_string(shape.all_heads()) +
                           " hashes is too many: a table has up to 2000000000 rows; set " +
                           std::to_string(2'000'000'000 / shape.all_heads()) + " or less");
  }
  return shape;
}

NGramMemory::Options NGramMemory::Options::read(const JobTable& table, const DataShape& data) {
  Options options{.shape = read_ngram_shape(table, data), .data = data};
  (void)table.choice("rule", "row_adagrad", {"row_adagrad"},
                     {"how a step changes the rows that it has read: AdaGrad with a sum of squares for each row"});
  options.moment_scale = table.number("moment_scale", options.moment_scale, {.min = 0.0, .min_open = true},
                                      {"factor of the squares that a step adds to a row's sum"});
  options.average =
      table.choice("merge", "sum", {"sum", "average"},
                   {"what replicas make of their gradients of a row: their sum, which makes replicas equal to a single "
                    "one, or a step of each with its own, whose results are averaged"}) == "average";
  options.sharding = table.choice("sharding", options.sharding, table_sharding_names,
                                  {"how tensor ranks divide the table: by rows, by hashes, or by columns"});
  options.sharding_given = table.has("sharding");
  options.init_std =
      table.number("init_std", options.init_std, {.min = 0.0}, {"the standard deviation of initial random values"});
  for (const char* key : {"beta1", "beta2", "weight_decay", "moments"}) {
    if (table.has(key)) table.fail(key, "is without effect: rows are stepped by row_adagrad; leave it out");
  }
  if (options.shape.vocabulary < data.vocabulary) {
    table.fail("vocabulary", std::to_string(options.shape.vocabulary) + " is smaller than the corpus' " +
                                 std::to_string(data.vocabulary) + " tokens; set it to " +
                                 std::to_string(data.vocabulary) + " or more");
  }
  return options;
}

NGramMemory::NGramMemory(const SectionContext& context, const Options& options)
    : context_(context), ids_(options.shape), cut_(options.sharding, ids_, context.parallel, context.name) {
  if (context.for_cuda || !context.memory().host()) {
    throw JobError(context.name + ".devices: a table of n-grams lies in host memory; remove devices");
  }
  const NGramShape& shape = options.shape;
  table_ = &parameters_.add({.name = "ngram_embedding.weight",
                             .shape = Shape{ids_.table_rows(), shape.dim},
                             .initialise = nullptr,
                             .slice = cut_.slice(),
                             .rule = {.kind = UpdateRule::Kind::row_adagrad,
                                      .per_token = shape.all_heads(),
                                      .rate = options.moment_scale,
                                      .average = options.average},
                             .initialise_row = normal_row(context.seed, context.name, options.init_std)});
  context.allocate(parameters_);
  if (options.sharding_given && !table_->sharded()) {
    notes_.push_back("sharding has no effect: the table is on one rank of each replica");
  }
}

Ports NGramMemory::ports() const {
  Port tokens{"tokens", DType::i32, 1};
  tokens.sharding = Sharding::replicated;  // a row's n-grams begin in rows before it
  return {{tokens},
          {{"memory", context_.precision, ids_.shape().columns(), true, false, Axis::tokens, Sharding::rank_rows}}};
}

void NGramMemory::forward(Tape& tape, const Inputs& inputs, Outputs& outputs) {
  const std::span<const std::int32_t> tokens = inputs.host("tokens").span<std::int32_t>();
  const std::span<const std::int32_t> offsets = inputs.layout().offsets;
  const auto heads = static_cast<std::size_t>(ids_.shape().all_heads());
  std::vector<std::int32_t> rows(tokens.size() * heads);
  for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
    const auto first = static_cast<std::size_t>(offsets[sample]);
    const auto count = static_cast<std::size_t>(offsets[sample + 1]) - first;
    ids_.rows_of({}, tokens.subspan(first, count), std::span(rows).subspan(first * heads, count * heads));
  }
  outputs.set("memory", look_up(tape, rows));
}

Var NGramMemory::look_up(Tape& tape, std::span<const std::int32_t> rows) {
  const std::int64_t tokens = std::ssize(rows) / ids_.shape().all_heads();
  if (!table_->sharded()) {
    const Var found = read_rows(tape, *table_, tape.indices(rows));
    return converted(tape, reshaped(tape, found, Shape{tokens, ids_.shape().columns()}), context_.precision);
  }
  const std::vector<std::int32_t> own = cut_.own_rows(rows);
  const Var found = read_rows(tape, *table_, tape.indices(own));
  const std::int64_t columns = tokens == 0 ? 0 : found.value().elements() / tokens;
  return cut_.exchanged(tape, converted(tape, reshaped(tape, found, Shape{tokens, columns}), context_.precision));
}

Cost NGramMemory::cost(const SampleShape& sample) const {
  const auto values = static_cast<double>(sample.tokens * ids_.shape().columns());
  const double bytes = values * sizeof(float);
  return {.flops = values, .bytes = context_.trained ? bytes : 0, .working = bytes};
}

std::string NGramMemory::description() const {
  const NGramShape& shape = ids_.shape();
  return "n-grams of 2 to " + std::to_string(shape.orders) + " tokens, " + std::to_string(shape.heads) +
         " hashes an order, " + std::to_string(ids_.table_rows()) + " rows x " + std::to_string(shape.dim);
}

}  // namespace maestro
