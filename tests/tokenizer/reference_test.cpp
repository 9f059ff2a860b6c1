// SPDX-License-Identifier: Apache-2.0
// Compares ids and texts with Hugging Face's tokenizers, as recorded by record_references.py: a hash for each block of
// strings, for tokenizers with the shapes of ten model families.
#include <gtest/gtest.h>

#include <ctime>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/tokenizer/character.hpp"
#include "runtime/tokenizer/tokenizer.hpp"

namespace maestro {
namespace {

using nlohmann::json;

constexpr std::size_t string_count = 20'000;
constexpr std::size_t block_size = 100;
constexpr std::size_t special_strings = 500;
constexpr std::size_t megabyte = 1 << 20;

std::string reference(const std::string& file) {
  return std::string(MAESTRO_SOURCE_DIR) + "/tests/tokenizer/references/" + file;
}

json read_json(const std::string& file) {
  std::ifstream in(reference(file));
  return json::parse(in);
}

/// SplitMix64, and strings drawn with it, as in record_references.py.
class Generator {
 public:
  explicit Generator(const json& description) : state_(description.at("seed")) {
    for (const json& group : description.at("groups")) {
      std::vector<std::string> units;
      if (group.contains("pieces")) {
        units = group.at("pieces").get<std::vector<std::string>>();
      } else {
        for (const json& range : group.at("ranges")) {
          for (char32_t point = range[0]; point <= range[1].get<char32_t>(); ++point) units.push_back(utf8_of(point));
        }
      }
      groups_.push_back(std::move(units));
    }
  }
  std::string string() {
    std::string made;
    for (std::uint64_t parts = 1 + next() % 6; parts > 0; --parts) {
      const auto& units = groups_[next() % groups_.size()];
      for (std::uint64_t count = 1 + next() % 8; count > 0; --count) made += units[next() % units.size()];
    }
    return made;
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15U;
    z = (z ^ z >> 30U) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27U) * 0x94D049BB133111EBU;
    return z ^ z >> 31U;
  }

  std::uint64_t state_;
  std::vector<std::vector<std::string>> groups_;
};

const std::vector<std::string>& strings() {
  static const auto made = [] {
    Generator generator(read_json("strings.json"));
    std::vector<std::string> list(string_count);
    for (std::string& each : list) each = generator.string();
    return list;
  }();
  return made;
}

/// 64-bit FNV-1a.
class Hash {
 public:
  void add(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001B3U; }
  void add(const std::string& text) {
    for (const char byte : text) add(static_cast<unsigned char>(byte));
    add(0xFF);
  }
  void add(const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) add_number(static_cast<std::uint32_t>(id));
    add_number(0xFFFFFFFFU);
  }
  [[nodiscard]] std::string hex() const {
    std::ostringstream out;
    out << std::hex << std::setw(16) << std::setfill('0') << value_;
    return out.str();
  }

 private:
  void add_number(std::uint32_t number) {
    for (unsigned shift = 0; shift < 32; shift += 8) add(static_cast<unsigned char>(number >> shift));
  }
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

class References : public testing::TestWithParam<const char*> {
 protected:
  /// Compares hashes of `make` for the first `count` strings with the recorded list `key`.
  template <class Make>
  void expect(const char* key, std::size_t count, Make make) {
    const json& recorded = hashes_.at(key);
    ASSERT_EQ(recorded.size(), count / block_size);
    for (std::size_t block = 0; block < recorded.size(); ++block) {
      Hash hash;
      for (std::size_t i = block * block_size; i < (block + 1) * block_size; ++i) hash.add(make(strings()[i]));
      EXPECT_EQ(hash.hex(), recorded[block].get<std::string>())
          << GetParam() << ", " << key << ": strings " << block * block_size << " and on";
    }
  }
  const json hashes_ = read_json(std::string(GetParam()) + ".hashes.json");
  const std::unique_ptr<Tokenizer> tokenizer_ =
      open_tokenizer(reference(std::string(GetParam()) + ".json")).value_or_throw();
};

TEST_P(References, ids_and_texts_equal_those_of_hugging_face) {
  const Tokenizer& tokenizer = *tokenizer_;
  expect("encode", string_count, [&](const std::string& text) { return tokenizer.encode(text); });
  expect("special", special_strings, [&](const std::string& text) { return tokenizer.encode_special(text); });
  expect("decode", special_strings, [&](const std::string& text) { return tokenizer.decode(tokenizer.encode(text)); });
  expect("skip", special_strings,
         [&](const std::string& text) { return tokenizer.decode(tokenizer.encode(text), true); });
}

// BE-1
TEST_P(References, a_megabyte_of_one_letter_or_without_a_space_ends_soon) {
  std::string words;
  for (std::size_t i = 0; words.size() < megabyte; ++i) words += std::string("the") + static_cast<char>('a' + i % 26);
  for (const std::string& text : {std::string(megabyte, 'l'), words}) {
    [[maybe_unused]] const std::clock_t begin = std::clock();
    const auto ids = tokenizer_->encode(text);
    EXPECT_LT(ids.size(), megabyte);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(std::clock() - begin, 2 * CLOCKS_PER_SEC);  // CPU time of this process, so independent of other work
#endif
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, References,
                         testing::Values("gpt2", "smollm2", "qwen2", "qwen3_5", "llama3", "phi4", "tekken", "llama2",
                                         "mistral", "gemma"),
                         [](const auto& shape) { return std::string(shape.param); });

}  // namespace
}  // namespace maestro
