// SPDX-License-Identifier: Apache-2.0
// A plug-in for tests: the section type `faulty`, an embedding that fails as its key `fault` demands, and `bigram` of
// tests/build/outside.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <future>
#include <limits>
#include <maestro/functions.hpp>
#include <maestro/observer.hpp>
#include <maestro/plug_in.hpp>
#include <maestro/section.hpp>
#include <stdexcept>

#include "tests/build/outside/section.hpp"

namespace {

/// Creates the file that FAULTY_LOADED names, as evidence that code of this library has run.
const bool loaded = [] {
  const char* const file = std::getenv("FAULTY_LOADED");
  if (file != nullptr) std::ofstream(file) << "loaded\n";
  return true;
}();

/// Inputs  tokens (M) i32. Outputs  hidden (M, C).
class Faulty final : public maestro::Section {
 public:
  struct Options {
    std::int64_t width = 32;
    std::string fault;
    static Options read(const maestro::JobTable& table) {
      Options options;
      options.width = table.integer("width", options.width, {.min = 1, .max = 1024}, {"columns of hidden"});
      options.fault = table.choice("fault", "none",
                                   {"none", "exception", "number", "columns", "dtype", "silence", "values", "wait",
                                    "fault", "backward", "cost", "construction", "options"},
                                   {"what goes wrong"});
      if (options.fault == "options") throw std::runtime_error("the options are torn");
      return options;
    }
  };

  Faulty(const maestro::SectionContext& context, const Options& options) : options_(options) {
    if (is("construction")) throw std::runtime_error("the walls are torn");
    const maestro::ParameterInit init(context.seed, context.name);
    table_ = &parameters_.add(
        {"embedding.weight", maestro::Shape{256, options.width}, true, init.normal("embedding.weight", 0.02)});
    context.allocate(parameters_);
  }

  [[nodiscard]] maestro::Ports ports() const override {
    return {{{"tokens", maestro::DType::i32, 1, false, false}},
            {{"hidden", maestro::DType::f32, options_.width, true, false}}};
  }
  maestro::Parameters& parameters() override { return parameters_; }

  void forward(maestro::Tape& tape, const maestro::Inputs& inputs, maestro::Outputs& outputs) override {
    if (is("exception")) throw std::runtime_error("the table is torn");
    if (is("number")) throw 7;
    if (is("wait")) std::promise<void>().get_future().wait();
    if (is("fault")) {
      volatile int* volatile nowhere = nullptr;
      *nowhere = 1;
    }
    if (is("silence")) return;
    const maestro::Tensor& tokens = inputs["tokens"].value();
    if (is("columns")) return outputs.set("hidden", tape.output({tokens.rows(), 3}, maestro::DType::f32, false));
    if (is("dtype"))
      return outputs.set("hidden", tape.output({tokens.rows(), options_.width}, maestro::DType::i32, false));
    if (is("values")) {
      std::ranges::fill(table_->value().span<float>(), std::numeric_limits<float>::quiet_NaN());
    }
    const maestro::Var hidden = embedding(tape, *table_, tokens, nullptr, inputs.layout());
    if (is("backward")) tape.record(hidden, [] { throw std::runtime_error("the way back is torn"); });
    outputs.set("hidden", hidden);
  }

  [[nodiscard]] maestro::Cost cost(const maestro::SampleShape& sample) const override {
    if (is("cost")) throw std::runtime_error("the bill is torn");
    return {static_cast<double>(sample.tokens * options_.width), 0};
  }
  [[nodiscard]] std::vector<maestro::StateEntry> state() override { return {{table_->name(), table_, 0, 0, false}}; }
  [[nodiscard]] std::string config_json() const override { return "{}"; }

 private:
  [[nodiscard]] bool is(std::string_view fault) const { return options_.fault == fault; }

  Options options_;
  maestro::Parameters parameters_;
  maestro::Parameter* table_ = nullptr;
};

/// Samples of 16 tokens that count up from the sample's number.
class Counting final : public maestro::Corpus {
 public:
  explicit Counting(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
  [[nodiscard]] std::uint64_t samples(maestro::Split split) const override {
    return split == maestro::Split::train ? 100 : 10;
  }
  [[nodiscard]] std::int64_t length(maestro::Split /*split*/, maestro::SampleId /*sample*/) const override {
    return 16;
  }
  [[nodiscard]] std::int64_t vocabulary() const override { return vocabulary_; }
  [[nodiscard]] std::string describe() const override { return "tokens that count"; }

 private:
  void read_exact(maestro::Split /*split*/, maestro::SampleId sample, std::span<std::int32_t> tokens,
                  std::span<std::int32_t> targets) const override {
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      const auto token = static_cast<std::int64_t>(sample.value() + at);
      tokens[at] = static_cast<std::int32_t>(token % vocabulary_);
      targets[at] = static_cast<std::int32_t>((token + 1) % vocabulary_);
    }
  }

  std::int64_t vocabulary_;
};

/// Appends the record's lines to a file. Throws at step `throws_at`; 0: never.
class Lines final : public maestro::RunObserver {
 public:
  struct Options {
    std::string file;
    std::int64_t throws_at = 0;
    static Options read(const maestro::JobTable& table) {
      return {table.text("file", "lines.txt", {"where the lines go"}),
              table.integer("throws_at", 0, {.min = 0}, {"the step of its end"})};
    }
  };
  explicit Lines(const Options& options) : options_(options), file_(options.file, std::ios::app) {}
  void step(std::string_view line) override {
    if (++steps_ == options_.throws_at) throw std::runtime_error("the paper is torn");
    file_ << line << std::endl;
  }
  void event(std::string_view line) override { file_ << line << std::endl; }

 private:
  Options options_;
  std::ofstream file_;
  std::int64_t steps_ = 0;
};

/// Returns a token for each byte, like ByteTokenizer, but with inverted bits in the id.
class Inverted final : public maestro::Tokenizer {
 public:
  [[nodiscard]] std::string_view name() const override { return "inverted"; }
  [[nodiscard]] std::int64_t vocabulary() const override { return bytes_.vocabulary(); }
  void encode(std::string_view text, const Sink& sink) const override {
    bytes_.encode(text, [&](std::span<const std::int32_t> tokens) { sink(inverted(tokens)); });
  }
  [[nodiscard]] std::string decode(std::span<const std::int32_t> tokens, bool skip_special) const override {
    return bytes_.decode(inverted(tokens), skip_special);
  }
  [[nodiscard]] std::string piece(std::int32_t token) const override { return bytes_.piece(255 - token); }

 private:
  static std::vector<std::int32_t> inverted(std::span<const std::int32_t> tokens) {
    std::vector<std::int32_t> others;
    for (const std::int32_t token : tokens) others.push_back(255 - token);
    return others;
  }
  maestro::ByteTokenizer bytes_;
};

/// The program's policy `arrival` under another name.
class Queue final : public maestro::SchedulingPolicy {
 public:
  [[nodiscard]] std::string_view name() const override { return "queue"; }
  [[nodiscard]] maestro::Result<maestro::Schedule> plan(const maestro::Workload& workload) const override {
    return maestro::make_policy("arrival")->plan(workload);
  }
};

}  // namespace

MAESTRO_PLUG_IN(host) {
  if (std::getenv("FAULTY_REGISTRATION") != nullptr) throw std::runtime_error("the list is torn");
  host.add_section<Faulty>("faulty", "embedding that fails as it is asked to");
  host.add_observer<Lines>("lines", "lines of the record in a file");
  host.add_tokenizer("inverted", [] { return std::make_unique<Inverted>(); });
  host.add_policy("queue", [](const maestro::PolicyOptions&) { return std::make_unique<Queue>(); });
  host.add_corpus("counting", "tokens that count", [](const maestro::JobTable& data, std::uint64_t /*seed*/) {
    return std::make_unique<Counting>(data.integer("vocabulary", 12, {.min = 2, .max = 256}));
  });
  host.add_section("bigram", "language model that sees one token", [](const maestro::SectionTable& section) {
    auto options = outside::BigramModel::Options::read(section.table);
    if (!section.table.has("vocabulary") && section.data.vocabulary > 0) options.vocabulary = section.data.vocabulary;
    return maestro::SectionFactory([options](const maestro::SectionContext& context) {
      return std::make_unique<outside::BigramModel>(context, options);
    });
  });
}
